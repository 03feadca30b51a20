"""Fills `route` of requests: the path of `resource` with ids in place of what only one request has, so that rows group.

`/orders/17?page=2` -> `/orders/{id}`. Numbers, UUIDs, hashes, random tokens and codes (`SKU12345`) are `{id}`, dates
`{date}`, e-mail addresses `{email}`; parts of a segment too (`cus_9s6XKzkN`, `17.pdf`, `app.3f2a9c1b.js`). Queries,
fragments and path parameters are left out. Versions (`v1`, `1.0`) stay. A word that cannot be told from a title or a
name stays as well, until too many follow one prefix: from then on new ones there are `{name}`, so that routes are
bounded.

Filled where a protocol's `resource` is a path (its rule of `redact` says so), null elsewhere. Runs before the
redactor, which would have made `?` of an e-mail address, and which cleans routes like every text.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tracehound.enrich.columns import Tables, fill_columns
from tracehound.protocols import Protocol

ID, DATE, EMAIL, NAME, REST = "{id}", "{date}", "{email}", "{name}", "{rest}"
PLACES: Final = frozenset((ID, DATE, EMAIL, NAME, REST))
WORDS_OF_A_PREFIX: Final = 200  # that stay as they are
WORDS: Final = 10_000  # of all prefixes
MEMO: Final = 8192  # segments, and templates, that are remembered
SEGMENTS: Final = 12  # of a path; what follows is `{rest}`
PATH_LENGTH: Final = 2048
WORD_LENGTH: Final = 64
TOKEN_LENGTH: Final = 10

_PATH_RULE: Final = "query"  # of `Protocol.secrets`: that of paths and URLs
_ORIGIN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/@]*@)?([^/]*)")
_UUID: Final = re.compile(r"(?:urn:uuid:)?\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", re.I)
_TIME: Final = r"[T ]\d{2}:?\d{2}(?::?\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"
_DATE: Final = re.compile(rf"[12]\d{{3}}-[01]\d(?:-[0-3]\d(?:{_TIME})?)?")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NUMBERS: Final = re.compile(r"[+-]?\d[\d.,;:+-]*")
_VERSION: Final = re.compile(r"[vV]?\d{1,3}(?:\.\d{1,3}){1,2}(?:\.x)?|[vV]\d{1,3}")
_PART: Final = re.compile(r"\d+(?:\.\d+)+|[A-Za-z0-9]+")
_HEX: Final = re.compile(r"(?:0x)?(?=[a-f]*\d)[0-9a-f]{7,}|(?:0x)?(?=[A-F]*\d)[0-9A-F]{7,}|[0-9a-fA-F]{32,}")
_CODE: Final = re.compile(r"[A-Za-z]{1,4}\d{4,}")
_CHANGE: Final = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=\d)(?=[A-Za-z])")
_IDS: Final = re.compile(r"\{id\}(?:[-_.,:]\{id\})+")


def template_segment(segment: str) -> str:
    """Return one segment of a path, without its parameters, with `{id}` and the like in place of ids."""
    if segment.isdecimal():
        return ID
    text = unquote(segment, errors="replace") if "%" in segment else segment
    if _EMAIL.fullmatch(text):
        return EMAIL
    if _DATE.fullmatch(text):
        return DATE
    if _VERSION.fullmatch(text) or not text.strip("."):
        return text
    if _UUID.fullmatch(text) or _NUMBERS.fullmatch(text):
        return ID
    if len(text) > WORD_LENGTH:
        return NAME if " " in text or text.count("-") > 3 else ID
    if text != segment and not re.fullmatch(r"[\w.~:@$,'()+-]+", text, re.A):
        return NAME  # blanks, slashes, other alphabets: free text
    if is_token(text) and not _has_words(text):
        return ID
    return _IDS.sub(ID, _PART.sub(_template_part, text))


def _template_part(found: re.Match[str]) -> str:
    part = found[0]
    if "." in part:
        return ID if part.count(".") > 2 else part
    return ID if is_id(part) else part


def is_id(part: str) -> bool:
    """Tell whether letters and digits are a number, a hash, a code or a random token, not a word."""
    return part.isdecimal() or bool(_HEX.fullmatch(part) or _CODE.fullmatch(part)) or is_token(part)


def is_token(part: str) -> bool:
    """Tell whether a text is as good as random: long enough, and changing between kinds of characters all the time."""
    if len(part) < TOKEN_LENGTH or not any(character.isdecimal() for character in part):
        return False
    return 3 * len(_CHANGE.findall(part)) >= len(part)


def _has_words(text: str) -> bool:
    """Tell whether a text is made of parts, some of them words: each part is looked at then."""
    return any(len(part) > 2 and _is_word(part) for part in re.split(r"[^A-Za-z0-9]+", text))


def _is_word(part: str) -> bool:
    return part.isalpha() and (part.islower() or part.isupper() or part.istitle())


class Routes:
    """Makes routes of paths; costs Python for each distinct path of a batch."""

    def __init__(self, protocols: Sequence[Protocol]) -> None:
        """Take the protocols that have paths."""
        self._with_paths = pa.array(
            [one.name for one in protocols if ("resource", _PATH_RULE) in one.secrets], pa.string()
        )
        self._segments: dict[str, str] = {}
        self._bounded: dict[str, str] = {}  # template -> route
        self._words: dict[str, set[str]] = {}  # prefix -> words that stay
        self._word_count = 0

    def add(self, tables: Tables) -> Tables:
        """Fill `route` of `requests`."""
        requests = tables.get("requests")
        if requests is None or not len(requests):
            return tables
        has_path = pc.is_in(requests.column("protocol"), value_set=self._with_paths)
        resources = pc.if_else(has_path, requests.column("resource"), pa.scalar(None, pa.string())).dictionary_encode()
        if not len(resources.dictionary):
            return tables
        # in the order of rows: so which words stay does not depend on how rows are cut into batches
        routes = pa.array([self.route(resource) for resource in resources.dictionary.to_pylist()], pa.string())
        return tables | {"requests": fill_columns(requests, {"route": routes.take(resources.indices)})}

    def route(self, resource: str) -> str | None:
        """Return the route of a path or URL, None for what is neither (`host:443`)."""
        if resource[:1] == "/":
            origin, path = "", resource
        elif found := _ORIGIN.match(resource):
            origin, path = found[1] + found[2], resource[found.end() :]
        else:
            return resource if resource == "*" else None
        path = path[:PATH_LENGTH].partition("#")[0].partition("?")[0]
        segments = path.split("/", SEGMENTS + 1)
        if len(segments) > SEGMENTS + 1:
            segments[-1] = REST
        known = self._segments
        template = "/".join([known.get(one) or self._template(one) for one in segments])
        if len(path) == PATH_LENGTH:
            template = template.rpartition("/")[0] + "/" + REST
        return origin + (self._bounded.get(template) or self._bound(template))

    def _template(self, segment: str) -> str:
        if segment == REST or segment.isdecimal():
            return REST if segment == REST else ID
        made = template_segment(segment.partition(";")[0])
        if len(segment) <= WORD_LENGTH:
            if len(self._segments) >= MEMO:
                self._segments.clear()
            self._segments[segment] = made
        return made

    def _bound(self, template: str) -> str:
        """Return the template with `{name}` where too many words follow one prefix already."""
        route = ""
        for at, segment in enumerate(template.split("/")):
            if at and not self._may_stay(route, segment):
                segment = NAME
            route += f"/{segment}" if at else segment
        if len(self._bounded) >= MEMO:
            self._bounded.clear()
        self._bounded[template] = route
        return route

    def _may_stay(self, prefix: str, word: str) -> bool:
        words = self._words.get(prefix)
        if word in PLACES or (words is not None and word in words):
            return True
        if self._word_count >= WORDS or (words is not None and len(words) >= WORDS_OF_A_PREFIX):
            return False
        self._words.setdefault(prefix, set()).add(word)
        self._word_count += 1
        return True
