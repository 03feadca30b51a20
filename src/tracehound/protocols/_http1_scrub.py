"""HTTP/1 bytes for a scrubbed tape: as many as before, parsed into the same rows, without what no row shows.

Kept: request and status lines with their secrets overwritten, names of fields, the values that `http1` reads, lengths
of chunks, heads of WebSocket frames, and in event streams the line ends and the letters that `data` is made of. All
else becomes `x`: reason phrases, other fields' values, bodies, trailers' values.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._http1_fields import CHUNKED, FIELDS, Head, note_block
from tracehound.protocols._http1_framing import (
    ADRIFT,
    CHUNK_DATA,
    CHUNK_END,
    CHUNK_SIZE,
    HEAD,
    HEAD_LIMIT,
    HEX_DIGITS,
    LAST_CHUNK,
    LINE_LIMIT,
    LONG_HEAD,
    METHOD,
    SEEK_END,
    TAIL,
    TRAILERS,
    UNTIL_END,
    begins_head,
    find_head_end,
)
from tracehound.protocols._http1_messages import EVENT_STREAM
from tracehound.protocols._protocol import REQUEST, Clean

if TYPE_CHECKING:
    from tracehound.protocols.http1 import State

FILLER: Final = b"x"
FRAMES: Final = 100  # of a WebSocket; a mode beside those of _http1_framing
OPAQUE: Final = 101  # behind a switch to another protocol
EVENT_BYTES: Final = bytes(byte if byte in b"dat\r\n" else FILLER[0] for byte in range(256))
TEXTS: Final = frozenset((b"host", b"user-agent", b"content-type"))
# What the other fields that are read may look like; another value is kept in shape only
PLAIN: Final = re.compile(
    rb"[\d, ]*|(?:chunked|identity|gzip|deflate|compress|br|[, \t])*|websocket|h2c|TLS/1\.\d"
    rb"|[0-9a-fA-F]{2}(?:-[0-9a-fA-F]*)*",
    re.IGNORECASE,
)
STATUS_LINE: Final = re.compile(rb"HTTP/1\.. \d{3}")
STATUS_BEGUN: Final = re.compile(rb"HTTP/1\.|(?:H(?:T(?:T(?:P(?:/1?)?)?)?)?)?\Z")
REQUEST_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} .*HTTP/1\..\s*\Z", re.DOTALL)
REQUEST_BEGUN: Final = re.compile(METHOD + rb" |[A-Z]{0,8}\Z")
USER_INFO: Final = re.compile(rb"\A((?:[A-Za-z][A-Za-z0-9+.-]*://)?)([^/?#]*)@")


def blank(part: bytes) -> bytes:
    """Return as many bytes, none of them kept but the white space at both ends."""
    inner = part.strip()
    at = part.find(inner) if inner else len(part)
    return part[:at] + FILLER * len(inner) + part[at + len(inner) :]


def blank_shape(part: bytes) -> bytes:
    """Return as many bytes with all letters and digits replaced: numbers stay numbers, words stay words."""
    return re.sub(rb"[a-z\x80-\xff]", b"x", re.sub(rb"[A-Z]", b"X", re.sub(rb"\d", b"0", part)))


@final
class Scrubber:
    """One window of one direction, from the cursor on; made before the parser runs on it."""

    def __init__(self, buffer: StreamBuffer, direction: int, state: "State", clean: Clean) -> None:
        side = state.request if direction == REQUEST else state.response
        self.is_request = direction == REQUEST
        self.window = buffer.data[buffer.cursor :]
        self.clean = clean
        self.mode: int = side.mode
        if state.switched:
            self.mode = OPAQUE
        elif state.websocket is not None:
            self.mode = FRAMES
        self.head = side.head  # of a long head: the parser goes on adding to it
        self.in_line = side.in_line
        self.chunk_left = side.chunk_left
        self.has_events = side.events is not None
        self.field = b""  # the last one, for a line that goes on with it
        self.out: list[bytes] = []
        self.at = 0
        self.stop = 0

    def passed(self, size: int) -> bytes:
        """Return what the first `size` bytes become; to be called once, after the parser passed over them."""
        self.stop = min(size, len(self.window))
        while self.at < self.stop:
            before = self.at
            self.step()
            if self.at <= before:
                break
        return b"".join(self.out) + FILLER * (self.stop - self.at)

    def take(self, stop: int) -> bytes:
        part = self.window[self.at : min(stop, self.stop)]
        self.at += len(part)
        return part

    def step(self) -> None:
        mode = self.mode
        if mode == HEAD:
            self.step_head()
        elif mode == LONG_HEAD:
            self.step_long_head()
        elif mode in (CHUNK_SIZE, CHUNK_END, TRAILERS):
            self.step_chunk_line()
        elif mode == CHUNK_DATA:
            part = self.take(self.at + self.chunk_left)
            self.chunk_left -= len(part)
            self.out.append(part.translate(EVENT_BYTES))
            self.mode = CHUNK_DATA if self.chunk_left else CHUNK_END
        elif mode == UNTIL_END and self.has_events:
            self.out.append(self.take(self.stop).translate(EVENT_BYTES))
        elif mode == SEEK_END:
            self.step_seek_end()
        elif mode == ADRIFT and begins_head(self.window, self.at, self.is_request):
            self.mode = HEAD
            self.step_head()
        elif mode == FRAMES:
            self.step_frame()
        else:
            self.out.append(FILLER * len(self.take(self.stop)))

    # ---- heads -----------------------------------------------------------------

    def step_head(self) -> None:
        window, at = self.window, self.at
        while window[at : at + 1] in (b"\r", b"\n"):
            at += 1
        self.out.append(self.take(at))
        stop = find_head_end(window, at)
        is_whole = 0 <= stop <= self.stop and stop - at <= HEAD_LIMIT
        block = self.take(stop if is_whole else self.stop)
        line, newline, rest = block.partition(b"\n")
        is_known = self.begins_message(line, newline)
        self.out += (self.first_line(line, newline) if is_known else self.no_first_line(line), newline)
        self.out.append(self.field_lines(rest) if is_known else blank_shape(rest))
        if is_whole:
            head = Head()
            note_block(head, rest)
            self.begin_body(head)
        else:
            self.mode = LONG_HEAD

    def step_long_head(self) -> None:
        line = self.line(self.stop)
        ends = not line.strip() and line.endswith(b"\n") and not self.in_line
        self.out.append(FILLER * len(line.rstrip(b"\r\n")) if self.in_line else b"")
        self.out.append(line[len(line.rstrip(b"\r\n")) :] if self.in_line else self.field_lines(line))
        self.in_line = self.in_line and not line.endswith(b"\n")
        if ends and self.head is not None:
            self.begin_body(self.head)

    def begin_body(self, head: Head) -> None:
        """Go on behind a head: if the parser passed over more, it is that message's body."""
        self.has_events = not self.is_request and (head.content_type or "").startswith(EVENT_STREAM)
        self.mode = CHUNK_SIZE if head.coding == CHUNKED else UNTIL_END
        self.chunk_left = 0

    def begins_message(self, line: bytes, newline: bytes) -> bool:
        """Say whether a message begins with `line`, as far as it is here: anything else is not kept."""
        if not self.is_request:
            return bool(STATUS_LINE.match(line)) or (not newline and STATUS_BEGUN.match(line) is not None)
        return bool(REQUEST_LINE.match(line) if newline else REQUEST_BEGUN.match(line))

    def no_first_line(self, line: bytes) -> bytes:
        """Keep what a message is looked for by, of a line that is none."""
        found = (REQUEST_BEGUN if self.is_request else STATUS_BEGUN).match(line)
        kept = found.end() if found else 0
        return line[:kept] + blank_shape(line[kept:])

    def first_line(self, line: bytes, newline: bytes) -> bytes:
        if not self.is_request:
            return line[:12] + blank(line[12:])
        method, space, rest = line.partition(b" ")
        if not newline and len(line) <= HEAD_LIMIT:  # no row will show what is not whole
            return method + space + blank(rest)
        end = len(rest.rstrip())
        target, between, version = rest[:end].rpartition(b" ")
        if not version.startswith(b"HTTP/") or not between:
            target, between, version = rest[:end], b"", b""
        if found := USER_INFO.match(target):
            target = found[1] + FILLER * len(found[2]) + target[found.end(2) :]
        return method + space + self.clean("query", target) + between + version + rest[end:]

    def field_lines(self, block: bytes) -> bytes:
        return b"".join(map(self.field_line, block.splitlines(keepends=True))) if block else b""

    def field_line(self, line: bytes) -> bytes:
        if line[:1] in (b" ", b"\t"):  # folded: the field before goes on
            return self.value(line)
        name, colon, value = line.partition(b":")
        self.field = name.rstrip().lower() if colon and line.endswith(b"\n") else b""  # of one cut off no row is made
        return name + colon + self.value(value) if colon else blank(line)

    def value(self, value: bytes) -> bytes:
        """Return the value of `field`, or a line of it."""
        inner = value.strip()
        if self.field in TEXTS:
            at = value.find(inner) if inner else len(value)
            return value[:at] + self.clean("text", inner) + value[at + len(inner) :]
        if self.field in FIELDS:
            return value if PLAIN.fullmatch(inner) else blank_shape(value)
        return blank(value)

    # ---- bodies ----------------------------------------------------------------

    def line(self, limit: int) -> bytes:
        at = self.window.find(b"\n", self.at, min(limit, self.stop))
        return self.take(at + 1 if at >= 0 else min(limit, self.stop))

    def step_chunk_line(self) -> None:
        line = self.line(self.at + LINE_LIMIT)
        is_whole = line.endswith(b"\n")
        if self.mode == CHUNK_END:
            self.out.append(line if not line.strip() else blank_shape(line))
            self.mode = CHUNK_SIZE if is_whole else CHUNK_END
            return
        if self.mode == TRAILERS:
            name, colon, value = line.partition(b":")
            self.out.append(name + colon + blank(value) if colon else blank(line))
            if is_whole and not line.strip():
                self.mode = HEAD
            return
        digits, semicolon, extension = line.partition(b";")
        is_size = not digits.strip().strip(HEX_DIGITS) and len(digits.strip()) <= 16
        self.out.append((digits if is_size else blank_shape(digits)) + semicolon + blank(extension))
        size = int(digits, 16) if is_size and digits.strip() else -1
        if not is_whole or size < 0:
            return
        if size == 0:
            self.mode = TRAILERS
        elif self.has_events:
            self.mode, self.chunk_left = CHUNK_DATA, size
        else:
            self.mode = CHUNK_END
            self.out.append(FILLER * len(self.take(self.at + size)))

    def step_seek_end(self) -> None:
        part = self.take(self.stop)
        found = LAST_CHUNK.search(part, max(len(part) - 2 * TAIL, 0))
        if found is None:
            self.out.append(FILLER * len(part))
            return
        self.out.append(FILLER * found.start())
        for line in found[0].splitlines(keepends=True):
            name, colon, value = line.partition(b":")
            self.out.append(name + colon + blank(value))

    def step_frame(self) -> None:
        window, at = self.window, self.at
        size = window[at + 1] & 127 if at + 1 < len(window) else 0
        width = {126: 2, 127: 8}.get(size, 0)
        self.out.append(self.take(at + 2 + width))
        if width:
            size = int.from_bytes(window[at + 2 : at + 2 + width], "big")
        masked = 4 if at + 1 < len(window) and window[at + 1] & 128 else 0
        self.out.append(FILLER * len(self.take(self.at + masked + size)))


def scrub(buffer: StreamBuffer, direction: int, state: "State", clean: Clean) -> Callable[[int], bytes]:
    """Return what tells, once the parser ran, what the bytes become that it passed over."""
    return Scrubber(buffer, direction, state, clean).passed
