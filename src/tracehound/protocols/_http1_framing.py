"""Where an HTTP/1 message ends (RFC 9112 sections 6 and 7): the progress of one direction through heads and bodies.

What a head says, and which request a response answers, is `http1`'s. Bodies of known length are skipped; chunks are
followed; behind a hole in a chunked body its end is looked for at the ends of calls, where the kernel keeps a tail.
"""

import re
from typing import Final, final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._http1_fields import (
    ABSENT,
    CHUNKED,
    IDENTITY,
    LENGTH_LIMIT,
    Head,
    LastBlock,
    note_block,
    note_line,
)
from tracehound.protocols._http1_messages import EVENT_STREAM, Events
from tracehound.protocols._protocol import CAPTURE_FRAMED, CAPTURE_HEAD_TAIL, Request, Response

HEAD_LIMIT: Final = 24576  # kept whole
LONG_HEAD_LIMIT: Final = 1048576  # followed at all
LINE_LIMIT: Final = 8192  # of a field line in a long head, of a chunk-size line, of a trailer
FOLLOW_LIMIT: Final = 65536  # of a body without a length; beyond it heads and tails of calls are enough
TAIL: Final = 256  # the kernel's tail of a call

# What a direction is in the midst of
HEAD: Final = 0
LONG_HEAD: Final = 1
CHUNK_SIZE: Final = 2
CHUNK_END: Final = 3
TRAILERS: Final = 4
SEEK_END: Final = 5  # chunked, behind a hole: its end is looked for at the ends of calls
UNTIL_END: Final = 6  # a body that the end of the stream ends
CHUNK_DATA: Final = 8  # of an event stream, whose bytes are looked at
ADRIFT: Final = 7  # it is not known how the message ends, or whether it has a body: the next head ends it

HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
LAST_CHUNK: Final = re.compile(rb"(?:\A|\r\n)0+[ \t]*(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n\Z")
# Where a head may begin anew: only methods of the standards, since any word of capitals may be the rest of a longer one
METHOD: Final = (
    rb"(?:GET|PUT|POST|HEAD|PATCH|DELETE|OPTIONS|CONNECT|TRACE"
    rb"|COPY|MOVE|LOCK|UNLOCK|MKCOL|SEARCH|REPORT|PROPFIND|PROPPATCH)"
)
REQUEST_START: Final = re.compile(METHOD + rb" [!-~]")
REQUEST_BEGUN: Final = re.compile(rb"[A-Z-]{0,20} ?\Z")
NEXT_REQUEST: Final = re.compile(rb"(?:\A|\n)" + METHOD + rb" [!-~]+ HTTP/1\.[01]\r?\n")


@final
class Side:
    """What one direction is in the midst of."""

    __slots__ = (
        "bodyless", "chunk_left", "events", "head", "in_line", "is_orphan", "is_request", "last", "message", "mode",
        "start",
    )  # fmt: skip

    def __init__(self, is_request: bool) -> None:
        self.is_request = is_request
        self.mode: int = HEAD
        self.message: Request | Response | None = None  # whose end is not known yet
        self.start = 0  # position of its body, or of its long head
        self.bodyless = False  # a response without a body, whatever its fields say
        self.is_orphan = False  # a response that no request waits for
        self.head: Head | None = None  # LONG_HEAD: what it said so far
        self.in_line = False  # LONG_HEAD: within a line too long to be read
        self.events: Events | None = None  # of a response that is an event stream
        self.chunk_left = 0  # CHUNK_DATA: bytes of it to come
        self.last = LastBlock()

    def restart(self) -> None:
        """Forget the message under way."""
        self.mode = HEAD
        self.message = None
        self.head = None
        self.in_line = False
        self.events = None


def begins_head(data: bytes, cursor: int, is_request: bool) -> bool:
    """Say whether a request line or a status line begins at `cursor`."""
    if not is_request:
        return data.startswith(b"HTTP/1.", cursor)
    if not REQUEST_START.match(data, cursor):
        return False
    at = data.find(b"\n", cursor)
    return at < 0 or b" HTTP/1." in data[cursor:at]


def skip_blank_lines(buffer: StreamBuffer) -> int:
    """Move past line ends before a head (RFC 9112 2.2); return the cursor."""
    cursor = buffer.cursor
    while buffer.data[cursor : cursor + 1] in (b"\r", b"\n"):
        cursor += 1
    buffer.cursor = cursor
    return cursor


def find_head_end(data: bytes, cursor: int) -> int:
    """Return the offset behind the blank line that ends a head, -1 if it is not here; bare line feeds count."""
    at = data.find(b"\n\r\n", cursor)
    bare = data.find(b"\n\n", cursor, at + 1) if at >= 0 else data.find(b"\n\n", cursor)
    if bare >= 0:
        return bare + 2
    return at + 3 if at >= 0 else -1


def begin_long_head(buffer: StreamBuffer, side: Side, message: Request | Response) -> Head:
    """Read what is kept of a head that is too long or cut off, and follow the rest of one that is too long."""
    data, cursor = buffer.data, buffer.cursor
    kept = data[cursor : cursor + HEAD_LIMIT]
    first, last = kept.find(b"\n") + 1, kept.rfind(b"\n") + 1
    head = Head()
    note_block(head, kept[first:last])
    if len(data) - cursor <= HEAD_LIMIT:  # cut off: what follows is a gap
        buffer.cursor = len(data)
        return head
    side.mode = LONG_HEAD
    side.message = message
    side.head = head
    side.start = buffer.base + cursor
    side.in_line = not last
    buffer.cursor = cursor + (last or HEAD_LIMIT)
    return head


def follow_long_head(buffer: StreamBuffer, side: Side) -> bool:
    """Read the rest of a long head for its framing; True when it ended and its body began."""
    data, head, message = buffer.data, side.head, side.message
    assert head is not None and message is not None
    while True:
        cursor = buffer.cursor
        at = data.find(b"\n", cursor)
        if buffer.base + max(cursor, at) - side.start > LONG_HEAD_LIMIT:
            raise ProtocolError(f"a head of more than {LONG_HEAD_LIMIT} bytes")
        if at < 0:
            if len(data) - cursor > LINE_LIMIT:
                side.in_line = True
                buffer.cursor = len(data)
            return False
        buffer.cursor = at + 1
        if side.in_line or at - cursor > LINE_LIMIT:
            side.in_line = False
            continue
        line = data[cursor:at].rstrip(b"\r")
        if not line:
            side.restart()
            begin_body(buffer, side, message, head)
            return side.mode == HEAD
        note_line(head, line)


def begin_body(buffer: StreamBuffer, side: Side, message: Request | Response, head: Head) -> None:
    """Find the end of a message whose head has just been passed (RFC 9112 6.3), or how to look for it."""
    start = buffer.base + buffer.cursor
    buffer.capture = CAPTURE_FRAMED
    if side.is_request:
        bodyless = head.coding == IDENTITY and head.length == ABSENT
    else:
        bodyless = side.bodyless
    if bodyless:
        message.end = start
    elif side.is_orphan:
        message.end = start
        side.mode = ADRIFT
        side.start = start
    elif head.coding == IDENTITY and head.length >= 0:
        buffer.cursor += head.length
        message.end = start + head.length
    else:
        side.mode = CHUNK_SIZE if head.coding == CHUNKED else UNTIL_END
        side.message = message
        side.start = start
        if isinstance(message, Response) and (head.content_type or "").startswith(EVENT_STREAM):
            side.events = Events()
        try:
            follow_body(buffer, side)
        except ProtocolError:  # the head was good: first its message, then, when these bytes are seen again, the error
            side.mode = CHUNK_SIZE
            buffer.cursor = start - buffer.base


def follow_body(buffer: StreamBuffer, side: Side) -> bool:
    """Go on in a message whose end is not known; True when it was found."""
    if side.mode == LONG_HEAD:
        return follow_long_head(buffer, side)
    if side.mode == UNTIL_END:
        if side.events is not None:
            note_events(side, side.events, buffer.data[buffer.cursor :])
        buffer.cursor = max(buffer.cursor, len(buffer.data))
        found = False
    elif side.mode == SEEK_END:
        found = seek_end(buffer, side.is_request)
    elif side.mode == ADRIFT:
        found = seek_head(buffer, side.is_request)
    else:
        found = follow_chunks(buffer, side)
    if found:
        if side.message is not None:
            side.message.end = buffer.base + buffer.cursor
        side.restart()
        buffer.capture = CAPTURE_FRAMED
    else:
        choose_capture(buffer, side)
    return found


def choose_capture(buffer: StreamBuffer, side: Side) -> None:
    """Ask for heads and tails of calls once a body without a length has grown long, unless its bytes are looked at."""
    if side.events is None and buffer.base + buffer.cursor - side.start > FOLLOW_LIMIT:
        buffer.capture = CAPTURE_HEAD_TAIL


def follow_chunks(buffer: StreamBuffer, side: Side) -> bool:
    """Go from chunk to chunk (RFC 9112 7.1); True when the trailers ended."""
    data = buffer.data
    while buffer.cursor < len(data):
        cursor = buffer.cursor
        if side.mode == CHUNK_DATA:
            take_chunk_data(buffer, side)
            continue
        at = data.find(b"\n", cursor, cursor + LINE_LIMIT)
        if at < 0:
            if len(data) - cursor >= LINE_LIMIT or (side.mode == CHUNK_END and data[cursor] != 13):
                raise ProtocolError("no line end after a chunk or its size")
            return False
        line = data[cursor:at].rstrip(b"\r")
        buffer.cursor = at + 1
        if side.mode == CHUNK_END:
            if line:
                raise ProtocolError("a chunk is longer than its size")
            side.mode = CHUNK_SIZE
        elif side.mode == TRAILERS:
            if not line:
                return True
        elif (size := read_chunk_size(line)) > 0:
            if side.events is None:
                buffer.cursor += size
                side.mode = CHUNK_END
            else:
                side.chunk_left = size
                side.mode = CHUNK_DATA
        else:
            side.mode = TRAILERS
    return False


def take_chunk_data(buffer: StreamBuffer, side: Side) -> None:
    """Look at the bytes of a chunk of an event stream that are here."""
    assert side.events is not None
    part = buffer.data[buffer.cursor : buffer.cursor + side.chunk_left]
    note_events(side, side.events, part)
    buffer.cursor += len(part)
    side.chunk_left -= len(part)
    if not side.chunk_left:
        side.mode = CHUNK_END


def note_events(side: Side, events: Events, part: bytes) -> None:
    """Count the events in the next bytes of a body, and say so in its message."""
    events.add(part)
    assert side.message is not None
    side.message.extras = (side.message.extras[0], 0, events.count)


def read_chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 16 or digits.strip(HEX_DIGITS):
        raise ProtocolError("not a chunk size")
    size = int(digits, 16)
    if size > LENGTH_LIMIT:
        raise ProtocolError(f"a chunk of more than {LENGTH_LIMIT} bytes")
    return size


def seek_end(buffer: StreamBuffer, is_request: bool) -> bool:
    """Look for the last chunk at the end of the window, which is the end of a call unless a hole follows.

    A request that begins meanwhile means that it was missed; of a response `http1.parse` knows by the next request.
    """
    window = buffer.data[buffer.cursor :]
    if is_request and NEXT_REQUEST.search(window):
        raise ProtocolError("the end of a chunked body was not seen before the next request")
    if not buffer.cut and LAST_CHUNK.search(window[-2 * TAIL :]):
        buffer.cursor = len(buffer.data)
        return True
    buffer.cursor += max(len(window) - TAIL, 0)
    return False


def seek_head(buffer: StreamBuffer, is_request: bool) -> bool:
    """Pass over all windows but one that begins with a head, or may once there is more of it."""
    data, cursor = buffer.data, buffer.cursor
    if begins_head(data, cursor, is_request):
        return True
    begun = REQUEST_BEGUN.match(data, cursor) if is_request else b"HTTP/1.".startswith(data[cursor : cursor + 7])
    if not begun:
        buffer.cursor = len(data)
    return False
