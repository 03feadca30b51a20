"""Secrets in a text overwritten so that its length stays and redaction makes the same of it: for `tape scrub`.

Works with any of the redaction rules: what a rule blanked is found by comparing the text with what it made of it, and
is filled in several ways, of which the first is taken that the rule again makes the same of. If none is, the whole text
is overwritten: a secret is never kept for the sake of a row.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tracehound.enrich.redact import RULES
from tracehound.enrich.secrets import BLANK, clean_arguments, clean_query, clean_text

FILLER: Final = "x"
LONGEST: Final = 65_536  # characters of a text that is looked at; more is overwritten

_TOKEN: Final = re.compile(
    r"eyJ|gh[pousr]_|github_pat_|glpat-|AKIA|ASIA|xox[abeoprs]-|sk-|[spr]k_(?:live|test)_|AIza|hvs\.|%40"
    r"|(?:Bearer|Basic|Digest|Negotiate|ApiKey|AWS4-HMAC-SHA256)(?=\W)"
)
_ITEM: Final = re.compile(r"[^&;]+")

Span = tuple[int, int]


def fill(rule: str, raw: bytes) -> bytes:
    """Return a text of the same length of which a rule of redaction makes the same, without what it blanks."""
    text = raw.decode("latin-1")
    if rule != "query":
        return _fill(RULES[rule], text).encode("latin-1")
    filled = _fill(clean_text, _fill_query(text))  # the rule does both, one after the other
    if clean_query(filled) != clean_query(text):
        filled = FILLER * len(text)
    return filled.encode("latin-1")


def fill_arguments(arguments: Sequence[bytes]) -> list[bytes]:
    """Return arguments of the same lengths of which `clean_arguments` makes the same, without the secrets."""
    texts = [argument.decode("latin-1") for argument in arguments]
    wanted = clean_arguments(texts)
    changed = [at for at, (text, clean) in enumerate(zip(texts, wanted, strict=True)) if text != clean]
    for at in changed:
        before = texts[at]
        for candidate in _candidates(before, wanted[at]):
            texts[at] = candidate
            if clean_arguments(texts)[at] == wanted[at]:
                break
        else:
            texts[at] = FILLER * len(before)
    return [text.encode("latin-1") for text in texts]


def _fill(clean: Callable[[str], str], text: str) -> str:
    if len(text) > LONGEST:
        return FILLER * len(text)
    wanted = clean(text)
    if wanted == text:
        return text
    return next((each for each in _candidates(text, wanted) if clean(each) == wanted), FILLER * len(text))


def _candidates(text: str, wanted: str) -> Iterator[str]:
    """Yield what may take the place of a text that is redacted to `wanted`; what is kept of it stands in that."""
    spans = _spans(text, wanted)
    is_all = _overwrite(text, spans, lambda _: BLANK) == wanted
    for chosen in (spans, _middle(text, wanted)) if is_all else (_middle(text, wanted),):
        for filled in (_plain, _shape, _marked):
            yield _overwrite(text, chosen, filled)


def _spans(text: str, wanted: str) -> list[Span]:
    """Return the places of `text` for which a `?` stands in `wanted`, as far as both can be laid side by side."""
    pieces, spans = wanted.split(BLANK), list[Span]()
    at = len(pieces[0]) if text.startswith(pieces[0]) else 0
    for number, piece in enumerate(pieces[1:], 2):
        is_last = number == len(pieces)
        if is_last:
            stop = len(text) - len(piece)
        else:
            stop = text.find(piece, at + 1) if piece else at + 1
        if stop < at:
            break
        spans.append((at, stop))
        at = stop + len(piece)
    return spans


def _middle(text: str, wanted: str) -> list[Span]:
    """Return the one place outside of which both are equal."""
    limit = min(len(text), len(wanted))
    first = next((at for at in range(limit) if text[at] != wanted[at]), limit)
    last = next((at for at in range(limit - first) if text[-1 - at] != wanted[-1 - at]), limit - first)
    return [(first, len(text) - last)]


def _overwrite(text: str, spans: Sequence[Span], filled: Callable[[str], str]) -> str:
    kept, at = list[str](), 0
    for start, stop in spans:
        part = text[start:stop]
        kept += (text[at:start], part if part == BLANK else filled(part))
        at = stop
    return "".join((*kept, text[at:]))


def _plain(part: str) -> str:
    return FILLER * len(part)


def _shape(part: str) -> str:
    """Replace letters and digits: an address stays an address, a quoted text quoted."""
    part = re.sub("[A-Z]", "X", re.sub("[0-9]", "0", part))
    return "".join(FILLER if each.islower() or ord(each) > 126 else each for each in part)


def _marked(part: str) -> str:
    """The same, with what well-known tokens begin with."""
    kept, at = list[str](), 0
    for found in _TOKEN.finditer(part):
        kept += (_shape(part[at : found.start()]), found[0])
        at = found.end()
    return "".join((*kept, _shape(part[at:])))


def _fill_query(resource: str) -> str:
    """Overwrite all values of a query, path parameters and fragment."""
    head, hash_, fragment = resource.partition("#")
    path, mark, query = head.partition("?")
    segments = []
    for segment in path.split("/"):
        name, semicolon, parameters = segment.partition(";")
        segments.append(name + semicolon + _ITEM.sub(_fill_item, parameters))
    return "/".join(segments) + mark + _ITEM.sub(_fill_item, query) + hash_ + _plain(fragment)


def _fill_item(item: re.Match[str]) -> str:
    key, equals, value = item[0].partition("=")
    return key + equals + _plain(value) if equals else _plain(key)
