"""SQL for a scrubbed tape: as many bytes, read into the same statements, without literals and comments.

What is made is read again and compared; a statement that does not become the same is overwritten as a whole.
"""

import re
from typing import Final

from tracehound.protocols._protocol import Clean
from tracehound.protocols._sql import UNKNOWN_VERB, Sql, find_comment_end, match_trace

FILLER: Final = b"x"
BLANKED: Final = bytes(byte if byte in b" \t\r\n\f\v" else FILLER[0] for byte in range(256))
_GAP: Final = rb"(?:[ \t\r\n\f\v]|/\*[^*]*\*/|--[^\r\n]*)"
# the same as in _sql, on a text that still has its white space and comments
_SETTING: Final = re.compile(
    rb"((?:%(g)s*ALTER%(g)s+(?:SYSTEM|ROLE|USER|DATABASE)\b.*?%(g)s+)?%(g)s*SET%(g)s+(?:(?:SESSION|LOCAL)%(g)s+)?"
    rb"(?!TIME%(g)s+ZONE)[\w.$\"]+%(g)s*(?:=|TO\b))(.*)" % {b"g": _GAP},
    re.I | re.S,
)
_NUMBER: Final = re.compile(rb"[0-9A-Za-z_\x80-\xff]|(?<!\A)[+-]")
_PREFIX: Final = re.compile(rb"[A-Za-z]?&?['\"]|\$[^$]*\$")


def scrub_sql(sql: Sql, text: bytes, clean: Clean) -> bytes:
    """Return a text of statements without their literals and comments, and without what redaction blanks in them."""
    parts = sql.read(text)
    made, starts = bytearray(blank_literals(sql, text)), [offset for offset, _ in parts]
    for (start, statement), end in zip(parts, [*starts[1:], len(text)], strict=True):
        part = bytes(made[start:end])
        if statement.operation == UNKNOWN_VERB:
            made[start:end] = blank_part(part)
            continue
        if statement.operation in ("SET", "ALTER") and (found := _SETTING.match(part)):
            value = found[2].removesuffix(b";")
            part = found[1] + value.translate(BLANKED) + found[2][len(value) :]
        shown = (statement.text or "").encode()
        wanted = clean("text", shown)
        part = replace_words(part, shown, wanted)
        again = sql.read(part)
        is_same = len(again) == 1 and (again[0][1].text or "").encode() == wanted
        is_same = is_same and again[0][1].operation == statement.operation
        made[start:end] = part if is_same else blank_part(part)
    return bytes(made)


def blank_part(part: bytes) -> bytes:
    """Return a statement of which nothing is kept, but that it is one and where it ends."""
    end = b";" if part.endswith(b";") else b""
    return part[: len(part) - len(end)].translate(BLANKED) + end


def replace_words(part: bytes, shown: bytes, wanted: bytes) -> bytes:
    """Overwrite in a statement the words that redaction overwrites in what is shown of it."""
    if shown == wanted:
        return part
    for old, new in zip(re.split(rb"([\s,;()=]+)", shown), re.split(rb"([\s,;()=]+)", wanted), strict=False):
        if old != new and len(old) == len(new) and len(old) > 2:
            part = part.replace(old, new)
    return part


def blank_literals(sql: Sql, text: bytes) -> bytes:
    """Return a text whose literals and comments are overwritten, between the marks that they begin and end with."""
    parts: list[bytes] = []
    at = 0
    while (found := sql.find_token(text, at)) is not None:
        start, stop = found.span()
        parts.append(text[at:start])
        token = text[start:stop]
        if token[:1] in b" \t\r\n\f\v;" or (token[:1] == b'"' and len(token) > 1 and token.endswith(b'"')):
            parts.append(token)
        elif token[:2] == b"/*":
            stop = find_comment_end(text, stop)
            parts.append(blank_comment(text, start, stop))
        elif token[:2] == b"--":
            parts.append(token[:2] + FILLER * (len(token) - 2))
        elif opening := _PREFIX.match(token):
            parts.append(blank_string(token, opening[0]))
            if token.endswith(b"'") and sql.goes_on(text, stop):
                parts.append(FILLER * (len(text) - stop))
                stop = len(text)
        else:
            parts.append(_NUMBER.sub(b"0", token))
        at = stop
    parts.append(text[at:])
    return b"".join(parts)


def blank_string(token: bytes, opening: bytes) -> bytes:
    """Return a string between its quotes, which may lack the last one."""
    if opening[:1] == b"$":
        opening, mark = b"$" + FILLER * (len(opening) - 2) + b"$", opening
        closing = opening if len(token) >= 2 * len(mark) and token.endswith(mark) else b""
    else:
        inner = token[len(opening) :]
        closing = opening[-1:] if inner.endswith(opening[-1:]) and is_closed(inner, opening) else b""
    return opening + FILLER * (len(token) - len(opening) - len(closing)) + closing


def is_closed(inner: bytes, opening: bytes) -> bool:
    """Say whether the last quote of a string ends it, rather than being one that is doubled or escaped."""
    quotes = len(inner) - len(inner.rstrip(opening[-1:]))
    return quotes % 2 == 1 or inner[: len(inner) - quotes].endswith(b"\\") or quotes == len(inner)


def blank_comment(text: bytes, start: int, stop: int) -> bytes:
    """Return a block comment of which only a traceparent is kept."""
    closing = b"*/" if stop - start >= 4 and text[stop - 2 : stop] == b"*/" else b""
    made = bytearray(b"/*" + FILLER * (stop - start - 2 - len(closing)) + closing)
    found = match_trace(text, start)
    if found is not None and found.end() <= stop:
        first, last = found.start(1) - start, found.end(1) - start
        made[first - 13 : last + 1] = text[start + first - 13 : start + last + 1]
        if first > 15:
            made[first - 14] = 44
    return bytes(made)
