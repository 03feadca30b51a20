"""How many messages passed in a WebSocket (RFC 6455) or an event stream (WHATWG HTML 9.2), whose rows last that long.

Counted, not kept. An event is a block with a `data` field; a WebSocket message is its last frame, control frames apart.
Lines that end in a bare carriage return are not known as such.
"""

from typing import Final, final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer

EVENT_STREAM: Final = "text/event-stream"
WEBSOCKET: Final = "websocket"
BLOCK_LIMIT: Final = 4096  # of an event's text, kept until its end
RESERVED: Final = frozenset((3, 4, 5, 6, 7, 11, 12, 13, 14, 15))  # opcodes


@final
class Events:
    """The events of one response body, counted as its bytes come."""

    __slots__ = ("count", "has_data", "rest")

    def __init__(self) -> None:
        self.count = 0
        self.has_data = False  # the block under way, in what is no longer kept of it
        self.rest = b""

    def add(self, part: bytes) -> None:
        """Take the next bytes of the body."""
        text = (self.rest + part).replace(b"\r\n", b"\n")
        blocks = text.split(b"\n\n")
        for block in blocks[:-1]:
            self.count += self.has_data or has_data(block)
            self.has_data = False
        rest = blocks[-1]
        if len(rest) > BLOCK_LIMIT:
            self.has_data = self.has_data or has_data(rest)
            rest = rest[-5:]
        self.rest = rest


def has_data(block: bytes) -> bool:
    """Say whether a block of lines is an event."""
    return block.startswith(b"data") or b"\ndata" in block


def count_frames(buffer: StreamBuffer) -> int:
    """Move past all frames that have begun; return how many messages they end. Raises ProtocolError."""
    data, count = buffer.data, 0
    while buffer.cursor + 2 <= len(data):
        cursor = buffer.cursor
        first, size, at = data[cursor], data[cursor + 1] & 127, cursor + 2
        if first & 15 in RESERVED:
            raise ProtocolError("not a frame of a WebSocket")
        if size > 125:
            width = 2 if size == 126 else 8
            if at + width > len(data):
                break
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        if data[cursor + 1] & 128:
            at += 4
        if size >> 62:
            raise ProtocolError("a frame of a WebSocket that is too long to be one")
        if first & 128 and first & 15 < 8:
            count += 1
        buffer.cursor = at + size
    return count
