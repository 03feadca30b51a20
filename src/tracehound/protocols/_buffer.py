"""One direction of a byte stream as a parser sees it: a window of captured bytes, with stream positions.

Pieces come in as the kernel captured them: in order or not, seen before (MSG_PEEK), shorter than what passed. The
window is always contiguous; what lies beyond a hole waits as a piece. Only `decode/streams.py` calls `append`,
`settle`, `jump`, `declare_lost` and sets `closed`; parsers read, move `cursor`, and set `capture`. Leaves out time:
messages carry positions, times are looked up from those.

The driver's loop, for one direction::

    buffer.append(position, piece, size)
    while True:
        while buffer.cursor < len(buffer.data) or buffer.settle():
            if (message := parse(buffer, direction, state)) is None:
                break
            ...
        if buffer.settle():                                      # what waited behind joins a half message
            continue
        if buffer.cut and not (bridge and bridge(buffer, direction, state)):
            ...                                                  # a gap: reset, then jump() until resync()
        elif not buffer.cut:
            break
"""

from bisect import insort
from typing import Final, final

from tracehound.errors import ProtocolError
from tracehound.protocols._protocol import CAPTURE_FRAMED

WINDOW_BYTES: Final = 65536  # of a half message; more becomes a hole
WAITING_PIECES: Final = 64  # beyond a hole
USED_BYTES: Final = 4096  # before the cursor, kept with a half message


@final
class StreamBuffer:
    """One direction of one connection.

    `data[cursor:]` is captured and contiguous; `base + cursor` is the stream position of the next byte. `cursor` may
    exceed `len(data)`: a skip is `cursor += n`, over bytes here, to come or never captured. All numbers are bytes.
    """

    __slots__ = (
        "_pieces",
        "_stop",
        "base",
        "capture",
        "closed",
        "cursor",
        "cut",
        "data",
        "end",
        "lost",
        "passed",
        "shed",
    )

    data: bytes  # the window
    base: int  # stream position of data[0]
    cursor: int  # offset of the next byte in data
    end: int  # position after the last byte known to have passed
    cut: bool  # the byte after the window, or under the cursor, passed and was not captured
    lost: bool  # `cut`, and by lost records: it may hold the ends and beginnings of messages
    closed: bool  # the stream has ended at `end`
    capture: int  # the class that the parser wants for this direction: CAPTURE_FRAMED or CAPTURE_HEAD_TAIL
    passed: int  # the parser's: up to here no message is under way
    shed: int  # captured bytes thrown away because of the caps above

    def __init__(self, position: int = 0) -> None:
        self.data = b""
        self.base = position
        self.cursor = 0
        self.end = position
        self.cut = False
        self.lost = False
        self.closed = False
        self.capture = CAPTURE_FRAMED
        self.passed = position
        self.shed = 0
        self._stop = position  # the bytes between the window and here passed uncaptured, for certain
        self._pieces: list[tuple[int, bytes, int]] | tuple[()] = ()  # position, bytes, stop; beyond a hole, by position

    # ---- the driver's ------------------------------------------------------

    def append(self, position: int, piece: bytes, size: int) -> None:
        """Add what passed at `position`: `size` bytes, of which the first `len(piece)` were captured.

        Bytes that the window had before are cut off; a piece beyond a hole waits.
        """
        data = self.data
        stop = position + size
        if stop > self.end:
            self.end = stop
        left = len(data) - self.cursor
        if left <= 0:
            edge = self.base + self.cursor  # all used, perhaps more than has come
        else:
            edge = self.base + len(data)
        if position < edge:
            if stop <= edge:
                return
            piece = piece[edge - position :]
        elif position > edge:
            self._wait(position, piece, stop)
            return
        if left <= 0:
            self.data = piece
            self.base = edge
        elif left + len(piece) > WINDOW_BYTES:
            self._drop_window(edge)
            self._wait(edge, piece, stop)
            return
        else:
            self.data = data[self.cursor :] + piece
            self.base += self.cursor
        self.cursor = 0
        if stop > self._stop:
            self._stop = stop
        self.cut = self._stop > edge + len(piece)
        self.lost = False

    def settle(self) -> bool:
        """Free what is used and take up waiting pieces that now touch the window; True if bytes were added to it."""
        self._drop_used()
        edge = self.base + len(self.data)
        added = False
        while self._pieces and self._pieces[0][0] <= edge:
            position, piece, stop = self._pieces[0]
            fresh = piece[edge - position :]
            if self.data and len(self.data) - self.cursor + len(fresh) > WINDOW_BYTES:
                self._drop_window(edge)
                return False
            del self._pieces[0]
            if fresh:
                self.data = self.data[self.cursor :] + fresh if self.data else fresh
                self.base = edge + len(fresh) - len(self.data)
                self.cursor = 0
                edge += len(fresh)
                added = True
                self.lost = False
            if stop > self._stop:
                self._stop = stop
        self.cut = self._stop > edge
        return added

    def jump(self) -> bool:
        """Give up the window, go to the next waiting piece; False if there is none: the window is empty, at `end`."""
        edge = self.base + max(self.cursor, len(self.data))
        self.data = b""
        self.cursor = 0
        self.lost = False
        while self._pieces:
            position, piece, stop = self._pieces.pop(0)
            fresh = piece[edge - position :] if position < edge else piece
            if fresh:
                self.data = fresh
                self.base = max(position, edge)
                self._stop = max(self._stop, stop)
                self.cut = self._stop > self.base + len(fresh)
                return True
            edge = max(edge, stop)
        self.base = max(edge, self.end)
        self._stop = self.base
        self.cut = False
        return False

    def declare_lost(self) -> None:
        """Say that the bytes between the window and the first waiting piece will not come any more: sets `cut`."""
        if self._pieces and self._pieces[0][0] > self._stop:
            self._stop = self._pieces[0][0]
            self.cut = self.lost = self._stop > self.base + max(self.cursor, len(self.data))

    def is_waiting(self) -> bool:
        """Say whether pieces wait beyond a hole (that a late piece may still fill)."""
        return bool(self._pieces)

    def held_bytes(self) -> int:
        """Count the captured bytes that are kept here."""
        return len(self.data) + sum(len(piece) for _, piece, _ in self._pieces)

    def _wait(self, position: int, piece: bytes, stop: int) -> None:
        self._drop_used()
        pieces = self._pieces
        if not pieces:
            self._pieces = [(position, piece, stop)]
            return
        if len(pieces) >= WAITING_PIECES:
            self.shed += len(pieces.pop(0)[1])
            self.declare_lost()
        insort(pieces, (position, piece, stop))

    def _drop_window(self, edge: int) -> None:
        """Turn a half message that grew too long into a hole up to `edge`, so that the driver sees a gap."""
        self.shed += len(self.data) - self.cursor
        self.base += self.cursor
        self.cursor = 0
        self.data = b""
        self._stop = max(self._stop, edge)
        self.cut = self.lost = True

    def _drop_used(self) -> None:
        if self.cursor >= len(self.data):
            self.base += self.cursor
            self.cursor = 0
            self.data = b""
            self.cut = self._stop > self.base
            self.lost = self.lost and self.cut
        elif self.cursor > USED_BYTES:
            self.data = self.data[self.cursor :]
            self.base += self.cursor
            self.cursor = 0

    # ---- the parser's ------------------------------------------------------

    @property
    def position(self) -> int:
        """Stream position of the cursor; hot code writes `base + cursor` itself."""
        return self.base + self.cursor

    def peek(self, size: int) -> bytes:
        """Return up to `size` bytes at the cursor and leave it there."""
        return self.data[self.cursor : self.cursor + size]

    def find(self, mark: bytes) -> int:
        """Return the distance from the cursor to the next `mark`, -1 if it is not in the window."""
        return max(self.data.find(mark, self.cursor) - self.cursor, -1)

    def take(self, size: int) -> bytes | None:
        """Return the next `size` bytes and move past them, or None if they are not all here."""
        stop = self.cursor + size
        if stop > len(self.data):
            return None
        taken = self.data[self.cursor : stop]
        self.cursor = stop
        return taken

    def take_until(self, mark: bytes, limit: int) -> bytes | None:
        """Return the bytes before the next `mark` and move past it; None if it is not here yet.

        Raises ProtocolError when more than `limit` bytes hold no mark.
        """
        cursor = self.cursor
        at = self.data.find(mark, cursor)
        if at < 0:
            if len(self.data) - cursor > limit:
                raise ProtocolError(f"no {mark!r} within {limit} bytes")
            return None
        if at - cursor > limit:
            raise ProtocolError(f"no {mark!r} within {limit} bytes")
        self.cursor = at + len(mark)
        return self.data[cursor:at]

    def skip(self, size: int) -> None:
        """Move `size` bytes on, whether they are here, to come, or never captured."""
        self.cursor += size

    def leap(self) -> None:
        """Move the cursor behind the hole that `cut` speaks of: the parser knows that its message goes on there."""
        self.cursor = max(self.cursor, self._stop - self.base)
        self.cut = False
