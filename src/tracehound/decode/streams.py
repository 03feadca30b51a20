"""Records of data to byte streams, streams to messages: one plain loop in the order of time.

Every record is handled when its turn comes and by nothing but the records before it, so how the input is cut into
batches changes nothing. What is told apart here:

- A *hole*: bytes that no record speaks of. The connection stands still (its records queue) until the missing record
  comes or `REORDER_NS` have passed since the record behind the hole, by the times of records: two threads on two CPUs
  may stamp out of order. Then it is a gap (counter `gap`).
- Bytes that passed *uncaptured* by the capture class, by an order, or because they could not be read. They matter only
  if the parser needs them: counter `uncaptured`.
- A response before its request (two CPUs again) waits in the same queue for `CLOCKS_NS`.

After a gap nothing is parsed but from a piece where the protocol's `resync` says that a message begins.
"""

from heapq import heappop, heappush
from typing import Final, final

from tracehound.decode.detection import Detection
from tracehound.decode.exchange import GAP, Connection, End, Piece, Stream
from tracehound.decode.pairing import CLOCKS_NS, Pairing
from tracehound.decode.parking import IDLE_NS, IDLE_OF_MANY_NS, MANY, park, wake
from tracehound.decode.parsing import Parsing
from tracehound.decode.settings import SECOND_NS, DecodeSettings
from tracehound.decode.trials import TURNS
from tracehound.protocols._protocol import IN_ORDER, REQUEST, RESPONSE, TRUNCATED

REORDER_NS: Final = 20_000_000  # the watermark's lag: nothing comes later than that
ROLE_SERVER: Final = 2  # of enum connection_role
RECORD_BYTES: Final = 400  # what a record in a queue takes beside its bytes
RECORD_TIMES_BYTES: Final = 120  # what the times of one record take


@final
class Streams:
    """All connections, by cookie."""

    def __init__(self, settings: DecodeSettings, pairing: Pairing, parsing: Parsing, detection: Detection) -> None:
        self.connections: dict[int, Connection] = {}
        self.due: list[tuple[int, int, Connection]] = []  # heap: until when the first record of a queue waits
        self.held_bytes = 0  # in all windows
        self._window_bytes = settings.window_bytes
        self._windows_bytes = settings.windows_bytes
        self._pairing = pairing
        self._parsing = parsing
        self._detection = detection
        self._holding: dict[int, Connection] = {}  # with bytes in windows, the longest untouched first
        self._awake: dict[int, Connection] = {}  # with streams, by cookie
        self._next_look_ns = 0  # for idle ones, while there are few
        self._due_count = 0

    # ---- records -----------------------------------------------------------------------------------------------------

    def take_piece(self, connection: Connection, piece: Piece) -> None:
        """Take the next data record of a connection."""
        if connection.given_up:
            return
        if connection.streams is None:
            self._begin(connection, piece)
        elif piece.is_unwatched:
            self._join(connection, connection.streams[piece.direction], piece.time_ns)
        if connection.queue is not None:
            self._take_while_queued(connection, piece)
        elif self.must_wait(connection, piece.direction, piece.start):
            connection.queue = []
            self._enqueue(connection, piece)
            self._wait_until(connection, piece)
        else:
            self._feed_piece(connection, piece)

    def must_wait(self, connection: Connection, direction: int, start: int) -> bool:
        """Say whether bytes, or the request, that belong before a record have not come yet."""
        streams = connection.streams
        assert streams is not None
        stream = streams[direction]
        if stream.boundary < 0:
            return False
        buffer = stream.buffer
        if start > buffer.end and start > buffer.base + buffer.cursor:
            connection.is_early_hold = False
            return True
        if (
            stream.kind == RESPONSE
            and not connection.waiting
            and connection.protocol is not None
            and connection.protocol.pairing == IN_ORDER
            and connection.paired
            and stream.boundary <= start
            and not streams[1 - direction].is_inside_message()
        ):
            connection.is_early_hold = True
            return True
        return False

    def _take_while_queued(self, connection: Connection, piece: Piece) -> None:
        queue = connection.queue
        assert queue is not None and connection.streams is not None
        first = queue[0]
        if isinstance(first, End):
            self._enqueue(connection, piece, 0)
            self._replay(connection, piece.time_ns)
        elif not connection.is_early_hold:
            if piece.direction == first.direction and piece.start < first.start:
                self._feed_piece(connection, piece)
                self._replay(connection, piece.time_ns)
                return
            self._enqueue(connection, piece)
        elif piece.direction == first.direction:
            self._enqueue(connection, piece)
        elif piece.time_ns <= first.time_ns + CLOCKS_NS and not self._is_behind_hole(connection, piece):
            self._feed_piece(connection, piece)
            self._replay(connection, piece.time_ns)
        else:
            self._enqueue(connection, piece)
            self._force(connection, piece.time_ns)
        while connection.queue and (
            connection.queued_bytes > self._window_bytes or self.held_bytes > self._windows_bytes
        ):
            self._force(connection, piece.time_ns)

    def _enqueue(self, connection: Connection, piece: Piece, at: int | None = None) -> None:
        assert connection.queue is not None
        connection.queue.insert(len(connection.queue) if at is None else at, piece)
        size = RECORD_BYTES + len(piece.head) + len(piece.tail)
        connection.queued_bytes += size
        self.held_bytes += size

    def _dequeue(self, connection: Connection) -> Piece | End:
        assert connection.queue is not None
        first = connection.queue.pop(0)
        if isinstance(first, Piece):
            size = RECORD_BYTES + len(first.head) + len(first.tail)
            connection.queued_bytes -= size
            self.held_bytes -= size
        return first

    def _is_behind_hole(self, connection: Connection, piece: Piece) -> bool:
        buffer = connection.streams[piece.direction].buffer  # type: ignore[index]
        return piece.start > buffer.end and piece.start > buffer.base + buffer.cursor

    def _wait_until(self, connection: Connection, first: Piece | End) -> None:
        self._due_count += 1
        heappush(self.due, (first.time_ns + REORDER_NS, self._due_count, connection))

    def advance(self, time_ns: int) -> None:
        """Stop waiting for all that would have come before `time_ns`."""
        due = self.due
        while due and due[0][0] < time_ns:
            due_ns, _, connection = heappop(due)
            if connection.queue and connection.queue[0].time_ns + REORDER_NS == due_ns:
                self._force(connection, time_ns)

    def _force(self, connection: Connection, time_ns: int) -> None:
        """Go on with the first record of a queue: what belongs before it will not come."""
        first = self._dequeue(connection)
        if isinstance(first, End):
            connection.queue = None
            self._close(connection, first)
            return
        if not connection.is_early_hold:
            self._lose(connection, connection.streams[first.direction], first)  # type: ignore[index]
        self._feed_piece(connection, first)
        if first.is_unwatched and connection.turns >= TURNS:  # the answers were there, and nobody looked
            connection.owed = 0
        self._replay(connection, time_ns)

    def _replay(self, connection: Connection, time_ns: int) -> None:
        """Go on with a queue until a record must wait again."""
        while connection.queue:
            first = connection.queue[0]
            if isinstance(first, End):
                if not self._is_missing(connection, first):
                    self._force(connection, time_ns)
                    return
            elif connection.given_up:
                self._dequeue(connection)
                continue
            elif not self.must_wait(connection, first.direction, first.start):
                self._dequeue(connection)
                self._feed_piece(connection, first)
                continue
            if first.time_ns + REORDER_NS < time_ns:
                self._force(connection, time_ns)
            else:
                self._wait_until(connection, first)
            return
        connection.queue = None

    def _begin(self, connection: Connection, piece: Piece) -> None:
        """Make both streams at the first data of a connection."""
        if connection.opened:
            connection.joined = piece.is_unwatched
        elif piece.is_preexisting or piece.start > 0:
            connection.joined = True
        if not connection.role and piece.role:
            connection.role = connection.side = piece.role
        if connection.ports == (0, 0):
            connection.ports = (piece.local_port, piece.remote_port)
        request_direction = 1 if connection.side == ROLE_SERVER else 0
        connection.streams = tuple(  # type: ignore[assignment]
            Stream(direction, REQUEST if direction == request_direction else RESPONSE) for direction in (0, 1)
        )
        self._awake[connection.cookie] = connection
        connection.change_facts()
        if connection.joined:
            for stream in connection.streams or ():
                stream.boundary = -1  # not known before its first record
            self._pairing.trials.join(connection, piece.time_ns if piece.is_unwatched else connection.began_ns)

    def _join(self, connection: Connection, stream: Stream, time_ns: int) -> None:
        """Take a stream that was not watched up to its first record: `requests` was off."""
        if stream.boundary == 0 and not stream.time_ns:
            connection.joined = True
            connection.change_facts()
            stream.boundary = -1
            self._pairing.trials.join(connection, time_ns)

    def _feed_piece(self, connection: Connection, piece: Piece) -> None:
        stream = connection.streams[piece.direction]  # type: ignore[index]
        if connection.protocol is None:
            if stream.boundary < 0:
                self._place(connection, stream, piece.start)
            self._detection.feed(connection, stream, piece)
            self._hold(connection, stream)
        else:
            self.feed(connection, stream, piece.start, piece.tail_start, piece.head, piece.time_ns, piece.who)
        if piece.tail and connection.protocol is not None:
            self.feed(connection, stream, piece.tail_start, piece.stop, piece.tail, piece.time_ns, piece.who)

    def feed(
        self, connection: Connection, stream: Stream, start: int, stop: int, head: bytes, time_ns: int, who: int
    ) -> None:
        """Add bytes to the stream of a known protocol and parse what is complete. The hot path."""
        if stream.boundary < 0:
            self._place(connection, stream, start)
        buffer = stream.buffer
        buffer.append(start, head, stop - start)
        stream.start = start
        stream.time_ns = time_ns
        stream.who = who
        if stop >= stream.pending_end:
            self._pairing.complete(connection, stream)
        self._parsing.drive(connection, stream)
        if stream.boundary < stop:
            stream.remember(stop)
        elif stream.stops:
            stream.forget(stop)
        if stream.held or buffer.cursor < len(buffer.data) or stream.boundary < stop:
            self._hold(connection, stream)

    def _place(self, connection: Connection, stream: Stream, start: int) -> None:
        """Set the position of a stream that was joined in the middle: a message begins where `resync` says."""
        stream.place(start)
        stream.synced = False
        if stream.kind == RESPONSE and connection.waiting and len(connection.waiting) > 1:
            self._pairing.gap(connection, stream, GAP, connection.waiting[-1].start_ns, False)

    def _lose(self, connection: Connection, stream: Stream, piece: Piece) -> None:
        """Take a record behind a hole that will not be filled: count the hole, go on behind it."""
        buffer = stream.buffer
        reached = max(buffer.end, buffer.base + buffer.cursor)
        self._parsing.count(
            "gap", piece.start - reached, stream.time_ns or connection.began_ns, piece.time_ns, connection
        )
        buffer.append(piece.start, b"", 0)
        buffer.declare_lost()
        if connection.protocol is None:
            while buffer.jump():
                pass
            stream.boundary = piece.start
            stream.skipped += piece.start - reached
            connection.owed += stream.kind == REQUEST
            connection.last_request_ns = piece.time_ns

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _hold(self, connection: Connection, stream: Stream) -> None:
        """Account for the bytes that a stream keeps; over the limit the one untouched for longest is shed."""
        held = stream.buffer.held_bytes() + RECORD_TIMES_BYTES * len(stream.stops)
        self.held_bytes += held - stream.held
        stream.held = held
        self._holding.pop(connection.cookie, None)
        if connection.streams and (connection.streams[0].held or connection.streams[1].held):
            self._holding[connection.cookie] = connection
        while self.held_bytes > self._windows_bytes and self._holding:
            self._shed(next(iter(self._holding.values())))

    def _shed(self, connection: Connection) -> None:
        """Throw away the half messages of a connection."""
        for stream in connection.streams or ():
            if not stream.held:
                continue
            buffer = stream.buffer
            self._parsing.count("window_shed", buffer.held_bytes(), stream.time_ns, stream.time_ns, connection)
            while buffer.jump():
                pass
            stream.forget_all()
            if connection.protocol is None:
                stream.skipped += 1
                stream.boundary = buffer.base
            else:
                self._parsing.gap(connection, stream, TRUNCATED, stream.time_ns)
        self._release_held(connection)

    def wake(self, connection: Connection) -> None:
        """Give a connection that may be parked its streams back."""
        if connection.parked is not None:
            wake(connection)
            self._awake[connection.cookie] = connection

    def park_idle(self, time_ns: int) -> None:
        """Park what has been idle for long at `time_ns`; called some times a second."""
        many = len(self._awake) > MANY
        if not many and time_ns < self._next_look_ns:
            return
        self._next_look_ns = time_ns + SECOND_NS
        before_ns = time_ns - (IDLE_OF_MANY_NS if many else IDLE_NS)
        for cookie, connection in list(self._awake.items()):
            streams = connection.streams
            if streams is not None and (streams[0].time_ns >= before_ns or streams[1].time_ns >= before_ns):
                continue
            if park(connection) or self.connections.get(cookie) is not connection:
                del self._awake[cookie]

    def _release_held(self, connection: Connection) -> None:
        for stream in connection.streams or ():
            self.held_bytes -= stream.held
            stream.held = 0
        self._holding.pop(connection.cookie, None)

    # ---- ends --------------------------------------------------------------------------------------------------------

    def close(self, connection: Connection, end: End) -> None:
        """Take the end of a connection; it waits like a record if not all bytes before it have come."""
        self.wake(connection)
        if connection.id not in self._parsing.protocols_of:
            self._parsing.protocols_of[connection.id] = (None, connection.why or self._why_unknown(connection))
        if connection.queue is not None:
            connection.queue.append(end)
        elif self._is_missing(connection, end):
            connection.queue = [end]
            self._wait_until(connection, end)
        else:
            self._close(connection, end)

    def _why_unknown(self, connection: Connection) -> str:
        return "no data" if connection.streams is None else "no known protocol in its bytes"

    def _is_missing(self, connection: Connection, end: End) -> bool:
        return bool(connection.protocol is not None and any(self._missing(connection, end)))

    def _missing(self, connection: Connection, end: End) -> list[int]:
        """Count the bytes of each direction that no record brought, and that were not left out by order."""
        missing = []
        for stream, last in zip(connection.streams or (), (end.sent, end.read), strict=False):
            reached = max(stream.buffer.end, min(stream.skip_until, last))
            missing.append(max(last - reached, 0) if stream.boundary >= 0 else 0)
        return missing

    def _close(self, connection: Connection, end: End) -> None:
        self._forget(connection)
        flags = 0
        if connection.protocol is not None and connection.streams is not None:
            for stream, missing in zip(connection.streams, self._missing(connection, end), strict=True):
                if missing:
                    self._parsing.count("gap", missing, stream.time_ns or connection.began_ns, end.time_ns, connection)
                    flags = GAP
                stream.buffer.end = max(stream.buffer.end, end.read if stream.direction else end.sent)
            for stream in connection.streams:
                stream.buffer.closed = True
                if not flags and stream.buffer.cursor < len(stream.buffer.data) and connection.protocol is not None:
                    self._parsing.drive(connection, stream)
        self._pairing.end(connection, flags, end.time_ns, True)
        self._parsing.end(connection)
        self._release_held(connection)

    def _forget(self, connection: Connection) -> None:
        if self.connections.get(connection.cookie) is connection:  # not the next one of the same socket
            del self.connections[connection.cookie]
        if self._awake.get(connection.cookie) is connection:
            del self._awake[connection.cookie]

    def drop(self, connection: Connection, time_ns: int) -> None:
        """Forget a connection: there are too many."""
        self._forget(connection)
        connection.given_up = True
        while connection.queue:
            self._dequeue(connection)
        self._pairing.end(connection, TRUNCATED, time_ns, False)
        self._parsing.end(connection)
        self._release_held(connection)

    def finish(self, time_ns: int) -> None:
        """End everything that is under way at the end of the trace."""
        self.advance(1 << 63)
        for connection in list(self.connections.values()):
            self._pairing.end(connection, 0, time_ns, False)
            self._release_held(connection)
            if connection.id not in self._parsing.protocols_of:
                self._parsing.protocols_of[connection.id] = (None, connection.why or self._why_unknown(connection))
        self.connections.clear()
