"""Segments and datagrams to connections and streams: what both ends' programs sent, in its order, with exact positions.

Sources: RFC 9293; where bytes overlap, net/ipv4/tcp_input.c of Linux: what was delivered stays; of what waits behind a
hole a segment that lies within an older one is dropped, one that covers older ones replaces them, and of two that
overlap the one that begins first wins. A connection is seen once, from the side of its client: who sent the SYN. Bytes
leave when all before them have come, with the time of the packet that made that true. A hole is given up when the
receiver has acknowledged bytes of it, so that the capture must have missed them, and sends bytes itself or `GRACE_NS`
have passed; when too much waits behind it; at the end. The next record then lies behind a hole: decode's `gap`.
"""

from bisect import bisect_left
from errno import ECONNREFUSED, ECONNRESET
from socket import IPPROTO_TCP
from typing import Final, final

from tracehound.sources._capture_connection import (
    CLIENT,
    SERVER,
    Connection,
    Direction,
    End,
    Held,
    Key,
)
from tracehound.sources._capture_records import CaptureRecords
from tracehound.sources._packets import Segment
from tracehound.sources._stream_records import Detect, StreamRecords

SECOND_NS: Final = 1_000_000_000
NEVER: Final = 1 << 63
GRACE_NS: Final = 20_000_000  # packets may be written in another order than they passed
TIME_WAIT_NS: Final = 60 * SECOND_NS  # what comes after the end, but for a SYN, is the old connection's
CONNECTIONS: Final = 1 << 15  # known at once, with those that ended; then one long unused is shed
SHED_CANDIDATES: Final = 8
HELD_BYTES: Final = 64 << 20  # behind holes, all connections together
HELD_OF_ONE: Final = 8 << 20  # of one direction: more than a window of Linux's default sizes
HELD_SEGMENTS: Final = 8192
HELD_COST: Final = 120  # what a held segment takes beside its bytes
IDENTS: Final = 32  # of the newest packets of a direction: one with the same is a copy, not sent again
RESET_AHEAD: Final = 1 << 20  # so much may be missing before a reset that is believed

FIN: Final = 1
SYN: Final = 2
RST: Final = 4
ACK: Final = 16


@final
class Segments:
    """All connections of a capture. Times that are handed in must rise from packet to packet by 2 at least."""

    def __init__(self, records: CaptureRecords, flags: dict[str, int], detect: Detect) -> None:
        """`flags`: of `enum connection_flag` and `enum data_flag`, by name."""
        self.shed = 0  # connections
        self._streams = StreamRecords(records, flags, detect)
        self._reset, self._data_preexisting = flags["CONNECTION_RESET"], flags["DATA_PREEXISTING"]
        self._by_ends: dict[Key, tuple[Connection, int]] = {}
        self._known: dict[int, Connection] = {}  # by cookie; roughly the longest unused first
        self._waiting: dict[int, Connection] = {}  # by cookie: with holes that were acknowledged; the first due first
        self._holding: dict[int, Connection] = {}  # by cookie: with held segments
        self._next_due_ns = NEVER
        self._held_bytes = 0
        self._cookies = 0

    def take(self, time_ns: int, segment: Segment) -> None:
        """Take the next packet."""
        if time_ns >= self._next_due_ns:
            self._give_up_holes(time_ns)
        if segment.transport != IPPROTO_TCP:
            self._take_datagram(time_ns, segment)
            return
        source, target = (segment.source, segment.source_port), (segment.target, segment.target_port)
        found = self._by_ends.get((segment.transport, source, target))
        if segment.flags & SYN:
            self._take_syn(time_ns, segment, found)
            return
        if found is not None:
            found = self._still(time_ns, segment, *found)
        if found is None:
            if not segment.size or segment.flags & RST:
                return
            found = self._join(time_ns, segment)
        connection, direction = found
        if connection.is_closed:
            return
        connection.time_ns = time_ns
        if not connection.is_open and not self._is_established(time_ns, connection, direction, segment):
            return
        self._take_segment(time_ns, connection, direction, segment)

    def _take_segment(self, time_ns: int, connection: Connection, direction: int, segment: Segment) -> None:
        one, other = connection.directions[direction], connection.directions[1 - direction]
        flags, size = segment.flags, segment.size
        if one.base < 0:
            one.base = segment.sequence
        position = one.place(segment.sequence)
        if flags & RST:
            if one.next - 1 <= position <= max(one.next, one.seen, one.acked) + RESET_AHEAD:
                self._end(time_ns, connection, self._reset)
            return
        if position + size > one.seen:
            one.seen = position + size
        if flags & ACK and other.base >= 0:
            acked = other.place(segment.acknowledged)
            if acked > other.acked:
                other.acked, other.acked_ns = acked, time_ns
        if flags & FIN and one.fin < 0 and position + size >= one.next:
            one.fin = position + size
            connection.ended_ns = connection.ended_ns or time_ns
        if size:
            if other.next < other.acked and other.next < other.reach():
                self._give_up(time_ns, connection)  # this may be the answer to what is behind the hole
            self._take_bytes(time_ns, connection, direction, position, segment)
        if other.next < other.acked or one.next < one.acked:
            self._wait(connection, time_ns)
        if connection.ended_ns:
            self._end_if_done(time_ns, connection)

    # ---- beginnings ----------------------------------------------------------------------------------------------

    def _new(self, time_ns: int, segment: Segment, client: End, server: End) -> Connection:
        """Make a connection, in the place of an older one of the same ends."""
        for key in ((segment.transport, client, server), (segment.transport, server, client)):
            if key in self._by_ends:
                self._forget(time_ns, self._by_ends[key][0])
        while len(self._known) >= CONNECTIONS:
            self._shed(time_ns)
        self._cookies += 1
        connection = Connection(self._cookies, segment.transport, segment.family, client, server)
        connection.time_ns = time_ns
        self._known[connection.cookie] = connection
        self._by_ends[connection.key(SERVER)] = connection, SERVER
        self._by_ends[connection.key(CLIENT)] = connection, CLIENT
        return connection

    def _take_syn(self, time_ns: int, segment: Segment, found: tuple[Connection, int] | None) -> None:
        source, target = (segment.source, segment.source_port), (segment.target, segment.target_port)
        base = (segment.sequence + 1) & 0xFFFFFFFF
        if segment.flags & ACK:
            self._take_syn_ack(time_ns, segment, found, base)
            return
        if found is not None:
            connection, direction = found
            one = connection.directions[direction]
            if one.base == base and not (connection.is_closed and time_ns - connection.ended_ns > TIME_WAIT_NS):
                return  # sent again
            if not connection.is_closed and connection.is_open:
                connection.next_syn = direction, base, time_ns  # if it is real, its other end will say so
                return
            if not connection.is_closed and one.base < 0:  # both ends connect at once
                one.base = base
                return
        connection = self._new(time_ns, segment, source, target)
        connection.started_ns = time_ns
        connection.directions[CLIENT].base = base
        if segment.size:  # TCP Fast Open: delivered when the server answers
            self._hold(time_ns, connection, CLIENT, 0, segment.size, segment.payload)

    def _take_syn_ack(self, time_ns: int, segment: Segment, found: tuple[Connection, int] | None, base: int) -> None:
        if found is not None:
            connection, direction = found
            one, other = connection.directions[direction], connection.directions[1 - direction]
            if connection.is_open and one.base == base:
                return  # sent again
            next_syn = connection.next_syn
            if connection.is_open and next_syn is not None and next_syn[1] == segment.acknowledged:
                self._replace(time_ns, connection, segment)
                found = self._by_ends[connection.key(direction)]
                connection, direction = found
                one, other = connection.directions[direction], connection.directions[1 - direction]
            ahead = (segment.acknowledged - other.base) & 0xFFFFFFFF
            if not connection.is_open and not connection.is_closed and other.base >= 0 and ahead <= 1 << 16:
                one.base = base
                self._open(time_ns, connection)
                return
            if connection.is_open and not connection.is_closed and time_ns - connection.time_ns < TIME_WAIT_NS:
                return  # of neither: a challenge, or forged
        client, server = (segment.target, segment.target_port), (segment.source, segment.source_port)
        connection = self._new(time_ns, segment, client, server)
        connection.directions[CLIENT].base = segment.acknowledged
        connection.directions[SERVER].base = base
        self._open(time_ns, connection)

    def _replace(self, time_ns: int, connection: Connection, segment: Segment) -> None:
        """Begin the next connection of the same two ends, whose SYN was seen."""
        assert connection.next_syn is not None
        direction, base, started_ns = connection.next_syn
        new = self._new(time_ns, segment, connection.ends[direction], connection.ends[1 - direction])
        new.started_ns = started_ns
        new.directions[CLIENT].base = base

    def _still(
        self, time_ns: int, segment: Segment, connection: Connection, direction: int
    ) -> tuple[Connection, int] | None:
        """Return what a segment belongs to: this connection, or the next one of its ends; None if to neither."""
        next_syn = connection.next_syn
        if next_syn is not None and next_syn[0] == direction and next_syn[1] == segment.sequence:
            self._replace(time_ns, connection, segment)
            return self._by_ends[connection.key(direction)]
        if not connection.is_closed:
            return connection, direction
        one = connection.directions[direction]
        if not segment.size or time_ns - connection.ended_ns < TIME_WAIT_NS or one.place(segment.sequence) <= one.next:
            return connection, direction
        return None

    def _is_established(self, time_ns: int, connection: Connection, direction: int, segment: Segment) -> bool:
        """Take a segment of a connection of which only the SYN was seen; say whether that opened it."""
        one, other = connection.directions[direction], connection.directions[1 - direction]
        if connection.is_closed:
            return False
        if segment.flags & RST:
            if direction == SERVER and segment.flags & ACK:
                self._fail(time_ns, connection, ECONNREFUSED)
            else:
                self._fail(time_ns, connection, 0)
            return False
        if direction == CLIENT and segment.flags & ACK:  # the SYN-ACK is missing: nothing may have come before this
            other.base = segment.acknowledged
            connection.is_partial = one.place(segment.sequence) != 0
        elif direction == SERVER and segment.size:
            one.base = segment.sequence
            connection.is_partial = True
        else:
            return False
        self._open(time_ns, connection)
        return True

    def _join(self, time_ns: int, segment: Segment) -> tuple[Connection, int]:
        """Take a connection whose beginning was not seen; its server is taken to be the end with the lower port."""
        ends = (segment.source, segment.source_port), (segment.target, segment.target_port)
        direction = int(ends[0][1] < ends[1][1])
        connection = self._new(time_ns, segment, ends[direction], ends[1 - direction])
        connection.is_partial = True
        connection.directions[direction].base = segment.sequence
        connection.directions[1 - direction].base = segment.acknowledged
        self._open(time_ns, connection)
        return connection, direction

    def _open(self, time_ns: int, connection: Connection) -> None:
        connection.is_open = True
        connection.established_ns = time_ns
        self._streams.write_event(time_ns, connection, "SNAPSHOT" if connection.is_partial else "OPEN")
        connection.flags = self._data_preexisting if connection.is_partial else 0
        if connection.directions[CLIENT].held:
            self._drain(time_ns, connection, CLIENT)

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def _take_bytes(
        self, time_ns: int, connection: Connection, direction: int, position: int, segment: Segment
    ) -> None:
        one = connection.directions[direction]
        payload, size = segment.payload, segment.size
        stop = position + size
        if stop <= one.next:
            is_probe = size == 1 and stop == one.next  # of a keep-alive, or of a window that is closed
            if not is_probe and segment.ident not in one.idents and stop > 0:
                self._streams.write_retransmit(time_ns, connection, segment)
            return
        if segment.ident:
            one.idents[segment.ident] = None
            if len(one.idents) > IDENTS:
                del one.idents[next(iter(one.idents))]
        if 0 <= one.fin < stop:
            stop, payload = one.fin, payload[: max(one.fin - position, 0)]
            if stop <= one.next:
                return
        if position > one.next:
            self._hold(time_ns, connection, direction, position, stop, payload)
            return
        known = one.next - position
        self._streams.deliver(time_ns, connection, direction, payload[known:] if known else payload, stop - one.next)
        if one.held:
            self._drain(time_ns, connection, direction)

    # ---- holes ---------------------------------------------------------------------------------------------------

    def _hold(
        self, time_ns: int, connection: Connection, direction: int, start: int, stop: int, payload: bytes
    ) -> None:
        """Keep a segment that lies behind a hole, as Linux does."""
        one = connection.directions[direction]
        held = one.held
        first = bisect_left(held, (start,))
        if first < len(held) and held[first][0] == start:
            if held[first][1] >= stop:
                return
        elif first and held[first - 1][1] >= stop:
            return
        last = first
        while last < len(held) and held[last][1] <= stop:
            last += 1
        gone = sum(len(data) + HELD_COST for _, _, data, _ in held[first:last])
        held[first:last] = [(start, stop, payload, time_ns)]
        self._account(connection, one, len(payload) + HELD_COST - gone)
        if one.held_bytes > HELD_OF_ONE or len(held) > HELD_SEGMENTS:
            self._give_up(time_ns, connection)
        while self._held_bytes > HELD_BYTES:
            self._give_up(time_ns, next(iter(self._holding.values())))

    def _account(self, connection: Connection, one: Direction, change: int) -> None:
        one.held_bytes += change
        self._held_bytes += change
        if connection.directions[0].held_bytes or connection.directions[1].held_bytes:
            self._holding[connection.cookie] = connection
        else:
            self._holding.pop(connection.cookie, None)

    def _drain(self, time_ns: int, connection: Connection, direction: int) -> None:
        """Deliver what no longer lies behind a hole."""
        one = connection.directions[direction]
        count = gone = 0
        for start, stop, payload, _ in one.held:
            if start > one.next:
                break
            count += 1
            gone += len(payload) + HELD_COST
            self._go_on(time_ns, connection, direction, start, stop, payload)
        if count:
            del one.held[:count]
            self._account(connection, one, -gone)

    def _go_on(
        self, time_ns: int, connection: Connection, direction: int, start: int, stop: int, payload: bytes
    ) -> None:
        """Deliver of a held segment what was not delivered before and belongs to the stream."""
        one = connection.directions[direction]
        if 0 <= one.fin < stop:
            stop, payload = one.fin, payload[: max(one.fin - start, 0)]
        if stop > one.next:
            one.next = max(one.next, start)
            self._streams.deliver(time_ns, connection, direction, payload[one.next - start :], stop - one.next)

    def _give_up(self, time_ns: int, connection: Connection) -> None:
        """Give up all holes of a connection: what is held of both directions goes on in the order in which it came.

        Where one is the capture's fault the others are taken to be so, too: an answer must not pass its request.
        """
        waiting: list[tuple[int, int, Held | None]] = []
        for direction, one in enumerate(connection.directions):
            came_ns = 0
            for held in one.held:
                came_ns = max(came_ns, held[3])
                waiting.append((came_ns, direction, held))
            waiting.append((max(came_ns, one.acked_ns), direction, None))
        self._drop_held(connection)
        if not connection.is_open:
            return
        for _, direction, held_or_end in sorted(waiting, key=lambda entry: entry[0]):
            one = connection.directions[direction]
            if held_or_end is not None:
                self._go_on(time_ns, connection, direction, *held_or_end[:3])
            elif one.reach() > one.next:
                one.next = one.reach()
                self._streams.write_data(time_ns, connection, direction, b"", 0)  # says how far the hole reaches

    def _wait(self, connection: Connection, time_ns: int) -> None:
        if connection.cookie not in self._waiting:
            connection.due_ns = time_ns + GRACE_NS
            self._waiting[connection.cookie] = connection
            self._next_due_ns = min(self._next_due_ns, connection.due_ns)

    def _give_up_holes(self, time_ns: int) -> None:
        """Give up what is due; no record since then was written, so theirs may have the time when it was."""
        while self._waiting:
            connection = next(iter(self._waiting.values()))
            due_ns = connection.due_ns
            if due_ns > time_ns:
                self._next_due_ns = due_ns
                return
            del self._waiting[connection.cookie]
            if not connection.is_closed and any(one.next < one.reach() for one in connection.directions):
                self._give_up(due_ns, connection)
                self._end_if_done(due_ns, connection)
        self._next_due_ns = NEVER

    # ---- ends ----------------------------------------------------------------------------------------------------

    def _end_if_done(self, time_ns: int, connection: Connection) -> None:
        one, other = connection.directions
        if 0 <= one.fin <= one.next and 0 <= other.fin <= other.next:
            self._end(time_ns, connection, 0)

    def _end(self, time_ns: int, connection: Connection, flags: int) -> None:
        """Write the end of a connection, just behind its last bytes."""
        if connection.is_closed or not connection.is_open:
            return
        self._give_up(time_ns, connection)
        connection.is_closed = True
        connection.ended_ns = connection.ended_ns or time_ns
        is_early = bool(flags & self._reset) and any(one.fin < 0 for one in connection.directions)
        self._streams.write_event(time_ns + 1, connection, "CLOSE", flags, ECONNRESET if is_early else 0)
        connection.ended_ns = time_ns

    def _fail(self, time_ns: int, connection: Connection, error: int) -> None:
        """Write that a connection was never established."""
        connection.is_closed = True
        connection.ended_ns = time_ns
        self._streams.write_event(time_ns, connection, "ERROR", 0, error)
        self._drop_held(connection)

    def _drop_held(self, connection: Connection) -> None:
        for one in connection.directions:
            one.held.clear()
            self._account(connection, one, -one.held_bytes)

    def _forget(self, time_ns: int, connection: Connection) -> None:
        """End a connection of which nothing more is wanted."""
        if not connection.is_closed:
            if connection.is_open:
                self._end(time_ns, connection, 0)
            else:
                self._fail(time_ns, connection, 0)
        self._drop_held(connection)
        self._waiting.pop(connection.cookie, None)
        self._known.pop(connection.cookie, None)
        for direction in (CLIENT, SERVER):
            self._by_ends.pop(connection.key(direction), None)

    def _shed(self, time_ns: int) -> None:
        """Forget a connection that was not used for long: of the first ones known the one unused for longest."""
        candidates = []
        for _ in range(SHED_CANDIDATES):
            first = next(iter(self._known.values()))
            candidates.append(first)
            del self._known[first.cookie]
            self._known[first.cookie] = first
        oldest = min(candidates, key=lambda one: (not one.is_closed, one.time_ns))
        if not oldest.is_closed and oldest.transport == IPPROTO_TCP:
            self.shed += 1
        self._forget(time_ns, oldest)

    def finish(self, time_ns: int) -> None:
        """Take the end of the capture: a snapshot of each connection that is open."""
        for connection in self._known.values():
            if connection.is_closed:
                continue
            if connection.is_open:
                self._give_up(time_ns, connection)
                self._streams.write_event(time_ns + 1, connection, "SNAPSHOT")
            else:
                self._streams.write_event(time_ns, connection, "ERROR")

    # ---- UDP -----------------------------------------------------------------------------------------------------

    def _take_datagram(self, time_ns: int, segment: Segment) -> None:
        source, target = (segment.source, segment.source_port), (segment.target, segment.target_port)
        found = self._by_ends.get((segment.transport, source, target))
        if found is None:
            is_answer = source[1] < target[1] and source[1] < 1024  # its question was not seen
            ends = (target, source) if is_answer else (source, target)
            connection = self._new(time_ns, segment, *ends)
            connection.started_ns = time_ns
            self._open(time_ns, connection)
            found = connection, int(is_answer)
        connection, direction = found
        connection.time_ns = time_ns
        if not segment.size:
            return
        self._streams.deliver_datagram(time_ns, connection, direction, segment.payload, segment.size)
