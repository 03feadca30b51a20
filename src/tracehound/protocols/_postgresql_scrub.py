"""PostgreSQL bytes for a scrubbed tape: as many as before, parsed into the same rows, without what no row shows.

Kept: framing, SQL without its literals and comments, names of statements and portals, the startup's user, database and
application as redaction leaves them, tags, SQLSTATEs, an error's message without values, lengths of columns. Passwords,
parameters, rows, data of COPY, details and hints are overwritten.
"""

import re
from collections.abc import Callable
from typing import Final, final

from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._postgresql_errors import (
    CLASSES,
    MESSAGE_LIMIT,
    NUMBER,
    OTHER_QUOTE,
    QUOTE,
    clean_message,
)
from tracehound.protocols._postgresql_requests import CANCEL, COPY_END, GSS, SSL, STARTUP_LIMIT, TEXT_LIMIT
from tracehound.protocols._postgresql_requests import KINDS as REQUEST_KINDS
from tracehound.protocols._postgresql_responses import ERROR_LIMIT, READY, is_alone
from tracehound.protocols._postgresql_responses import KINDS as RESPONSE_KINDS
from tracehound.protocols._postgresql_state import LENGTH_LIMIT, OFFERED, SEEK_END, STREAMING, State
from tracehound.protocols._protocol import REQUEST, Clean
from tracehound.protocols._sql_scrub import scrub_sql

FILLER: Final = b"x"
REFUSED: Final = b"!"  # no kind of message
NO_LENGTH: Final = b"\xff\xff\xff\xff"
SHOWN: Final = (b"user", b"database", b"application_name")
FLAGS: Final = (b"on", b"off", b"true", b"false", b"yes", b"no", b"1", b"0", b"database")
TAG: Final = re.compile(rb"[A-Z]+(?: [A-Z]+)*(?: [0-9]+){0,2}\0")
PLAIN_TAG: Final = bytes(byte if byte in b" \0" or 65 <= byte <= 90 else FILLER[0] for byte in range(256))


def scrub(buffer: StreamBuffer, direction: int, state: State, clean: Clean) -> Callable[[int], bytes]:
    """Return what tells, once the parser ran, what the bytes become that it passed over."""
    return Scrubber(buffer, direction == REQUEST, state, clean).passed


def blank(part: bytes) -> bytes:
    """Return as many bytes, none of them kept."""
    return FILLER * len(part)


def blank_texts(part: bytes) -> bytes:
    """Return as many bytes of which only the ends of texts are kept."""
    return b"\0".join(map(blank, part.split(b"\0")))


def blank_fields(part: bytes) -> bytes:
    """Return as many bytes of which only the kinds and ends of fields are kept."""
    return b"\0".join(field[:1] + blank(field[1:]) for field in part.split(b"\0"))


@final
class Scrubber:
    """One window of one direction, from the cursor on; made before the parser runs on it."""

    def __init__(self, buffer: StreamBuffer, is_request: bool, state: State, clean: Clean) -> None:
        self.window = buffer.data[buffer.cursor :]
        self.is_request = is_request
        self.clean = clean
        self.sql = state.sql
        self.out: list[bytes] = []
        self.at = 0
        self.is_opaque = state.phase == STREAMING
        self.is_offered = state.phase == OFFERED and not is_request
        mode = state.request_mode if is_request else state.response_mode
        self.seeks = mode == SEEK_END
        self.can_find = not buffer.cut and (state.copied_in if is_request else is_alone(state))
        self.text_left = 0  # of a query whose first statements were returned
        if is_request and state.texts:
            self.text_left = state.texts[-1][0] - buffer.base - buffer.cursor

    def passed(self, size: int) -> bytes:
        """Return what the first `size` bytes become; to be called once, after the parser passed over them."""
        size = min(size, len(self.window))
        if self.is_opaque:
            return FILLER * size
        if self.text_left:
            text = self.window[: self.text_left]
            self.put(self.text_left, self.query(text, len(text) == self.text_left))
        elif self.seeks:
            self.seek()
        elif self.is_offered and self.window[:1] != b"E":
            self.put(1, self.window[:1] if self.window[:1] in (b"N", b"S", b"G") else REFUSED)
            self.at = len(self.window)  # what follows is no message
        while self.at < size:
            if self.is_request and self.window[self.at] == 0:
                self.step_startup()
            else:
                self.step()
        made = b"".join(self.out)[:size]
        return made + FILLER * (size - len(made))

    def put(self, size: int, made: bytes) -> None:
        self.out.append(made)
        self.at += size

    def seek(self) -> None:
        """Pass over what is behind a hole, as the parser does."""
        window, found = self.window, len(self.window)
        if self.can_find and self.is_request:
            match = COPY_END.search(window, max(len(window) - 16, 0))
            found = match.start() if match else found
        elif self.can_find and window.endswith((READY + b"I", READY + b"T", READY + b"E")):
            for at in range(len(window) - 6, max(len(window) - ERROR_LIMIT, 0) - 1, -1):
                end = at + 1 + int.from_bytes(window[at + 1 : at + 5], "big")
                if window[at] in b"CE" and end == len(window) - 6 and window[-7] == 0:
                    found = at
                    break
        self.put(found, FILLER * found)

    def step(self) -> None:
        """Take one message."""
        window, at = self.window, self.at
        kind, head = window[at], window[at + 1 : at + 5]
        is_kind = kind in (REQUEST_KINDS if self.is_request else RESPONSE_KINDS)
        mark = window[at : at + 1] if is_kind else REFUSED
        if len(head) < 4:
            self.put(len(window) - at, mark + head)
            return
        length = int.from_bytes(head, "big")
        if length < 4 or length > LENGTH_LIMIT or not is_kind:
            good = 4 <= length <= LENGTH_LIMIT
            self.put(len(window) - at, mark + (head if good else NO_LENGTH) + blank(window[at + 5 :]))
            return
        body, size = window[at + 5 : at + 1 + length], length - 4
        is_whole = len(body) == size
        made = self.request(kind, body, is_whole, size) if self.is_request else self.response(kind, body, is_whole)
        self.put(length + 1, mark + head + made)

    # ---- what a client sends ---------------------------------------------------

    def step_startup(self) -> None:
        window, at = self.window, self.at
        head = window[at : at + 8]
        length, code = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if len(head) < 8 or not 8 <= length <= STARTUP_LIMIT:
            good = len(head) < 4 or 8 <= length <= STARTUP_LIMIT
            self.put(len(window) - at, (head if good else b"\0\xff\xff\xff" + head[4:]) + blank(window[at + 8 :]))
            return
        body = window[at + 8 : at + length]
        if code in (CANCEL, SSL, GSS) or code >> 16 != 3 or len(body) < length - 8:
            made = blank(body)
        else:
            texts = body.split(b"\0")
            for index in range(0, len(texts) - 1, 2):
                texts[index + 1] = self.parameter(texts[index], texts[index + 1])
            made = b"\0".join(texts)
        self.put(length, head + made)

    def parameter(self, name: bytes, value: bytes) -> bytes:
        if name in SHOWN:
            return self.clean("text", value)
        is_kept = name == b"replication" and value.lower() in FLAGS
        return value if is_kept or (name == b"standard_conforming_strings" and value in FLAGS) else blank(value)

    def request(self, kind: int, body: bytes, is_whole: bool, size: int) -> bytes:
        """Return the body of a client's message."""
        if kind == 81:  # Query
            return self.query(body, is_whole) if is_whole or len(body) >= TEXT_LIMIT else blank(body)
        if kind == 80:  # Parse
            name, end, rest = body.partition(b"\0")
            text, end_of_text, types = rest.partition(b"\0")
            if not end or not (end_of_text or len(text) >= TEXT_LIMIT):
                return blank(body)
            return name + end + self.text(text) + end_of_text + (types if len(types) % 4 == 2 else blank(types))
        if kind == 66:  # Bind
            portal, end, rest = body.partition(b"\0")
            name, end_of_name, values = rest.partition(b"\0")
            return portal + end + name + end_of_name + blank(values) if end_of_name else blank(body)
        if kind in b"EDC":  # Execute, Describe, Close: a name
            text, end, rest = body.partition(b"\0")
            return text + end + (rest if len(rest) <= 4 else blank(rest)) if end else blank(body)
        if kind == 70:  # FunctionCall
            return body[:4] + blank(body[4:])
        return blank_texts(body) if kind == 102 else blank(body)

    def query(self, body: bytes, is_whole: bool) -> bytes:
        """Return SQL and the zero behind it."""
        if not is_whole or len(body) > TEXT_LIMIT or not body.endswith(b"\0"):
            return self.text(body[:TEXT_LIMIT]) + blank(body[TEXT_LIMIT:])
        return self.text(body[:-1]) + b"\0"

    def text(self, text: bytes) -> bytes:
        return scrub_sql(self.sql, text[:TEXT_LIMIT], self.clean) + blank(text[TEXT_LIMIT:])

    # ---- what a server sends ---------------------------------------------------

    def response(self, kind: int, body: bytes, is_whole: bool) -> bytes:
        """Return the body of a server's message."""
        if kind == 68:  # DataRow
            return self.row(body)
        if kind == 90:  # ReadyForQuery
            return body[:1] if body in (b"I", b"T", b"E") else blank(body)
        if kind == 67:  # CommandComplete
            return body if TAG.fullmatch(body) else body.translate(PLAIN_TAG)
        if kind in b"EN":  # ErrorResponse; NoticeResponse, of which nothing is shown
            is_read = kind == 69 and (is_whole or len(body) >= ERROR_LIMIT - 5)
            return self.error(body) if is_read else blank_fields(body)
        if kind == 83 and is_whole:  # ParameterStatus
            name, end, value = body.partition(b"\0")
            return name + end + self.parameter(name, value.removesuffix(b"\0")) + value[len(value.rstrip(b"\0")) :]
        if kind == 65:  # NotificationResponse
            channel, end, payload = body[4:].partition(b"\0")
            return body[:4] + (self.clean("text", channel) + end + blank_texts(payload) if end else blank(channel))
        if kind == 82:  # Authentication
            return body[:4] + blank(body[4:])
        if kind == 84:  # RowDescription
            return body[:2] + blank(body[2:])
        return blank(body)

    def row(self, body: bytes) -> bytes:
        """Return a DataRow of which the lengths of the columns are kept."""
        made, at = bytearray(blank(body)), 2
        made[:2] = body[:2]
        for _ in range(int.from_bytes(body[:2], "big")):
            size = int.from_bytes(body[at : at + 4], "big")
            if at + 4 > len(body) or (size > len(body) and size != 0xFFFFFFFF):
                break
            made[at : at + 4] = body[at : at + 4]
            at += 4 if size == 0xFFFFFFFF else 4 + size
        return bytes(made[: len(body)])

    def error(self, body: bytes) -> bytes:
        fields, code = body.split(b"\0"), b""
        for index, field in enumerate(fields):
            kind, value = field[:1], field[1:]
            if kind == b"C" and not code:
                code = value if len(value) == 5 and value.isalnum() else b"?"
                fields[index] = kind + (code if code != b"?" else re.sub(rb"\w", b"!", blank(value)))
            elif kind == b"M":
                limit = 4 * MESSAGE_LIMIT
                known = (code if len(code) == 5 else b"XX")[:2].decode("latin-1") in CLASSES
                made = scrub_message(value[:limit], self.clean) if known else blank(value[:limit])
                fields[index] = kind + made + blank(value[limit:])
            elif kind not in b"SV" or not re.fullmatch(rb"[A-Z]{3,8}", value):
                fields[index] = kind + blank(value)
        return b"\0".join(fields)


def scrub_message(raw: bytes, clean: Clean) -> bytes:
    """Return an error's message of which the same is shown, without the values that it quotes."""
    text = raw.decode("utf-8", "replace")
    shown = clean_message(text)
    made = fill_message(text, clean)
    if len(made) == len(raw):
        again = clean_message(made.decode("utf-8", "replace")).encode()
        if again == clean("text", shown.encode()):
            return made
    return blank(raw)


def fill_message(text: str, clean: Clean) -> bytes:
    """Overwrite in a message what `clean_message` blanks: names that stay are set aside first, as there."""
    at, parts, aside = 0, list[str](), list[bytes]()
    for found in QUOTE.finditer(text):
        if found[1] is None:
            end = text.rfind('"')
            aside.append(b'"' + blank(text[found.start() + 1 : end].encode()) + b'"')
            parts.append(text[at : found.start()] + "\0")
            at = end + 1
            break
        parts.append(text[at : found.start()] + found[1] + ' "\0"')
        aside.append(clean("text", found[2].encode()))
        at = found.end()
    rest = text[at:]
    if '"' in rest:
        first = rest.index('"')
        aside.append(b'"' + blank(rest[first + 1 :].encode()))
        rest = rest[:first] + "\0"
    filled = NUMBER.sub(fill_number, OTHER_QUOTE.sub(fill_quoted, "".join(parts) + rest))
    pieces = filled.encode().split(b"\0")
    if len(pieces) != len(aside) + 1:
        return b""
    return b"".join(part for pair in zip(pieces, [*aside, b""], strict=True) for part in pair)


def fill_quoted(found: re.Match[str]) -> str:
    text = found[0]
    return text[0] + "x" * len(text[1:-1].encode()) + text[-1]


def fill_number(found: re.Match[str]) -> str:
    text = found[0]
    sign = text[0] if text[0] in "+-" else ""
    return sign + "0" * len(text[len(sign) :].encode())
