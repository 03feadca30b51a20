"""Streams of a known protocol to messages: the loop that drives a parser, and what happens where it cannot go on.

After a gap, or bytes that break the protocol, nothing is parsed but from a record where the protocol's `resync` says
that a message begins: never a guess. Says what the kernel is to capture, as that follows from what is parsed.
"""

from typing import Final, NamedTuple, final

from tracehound.decode.exchange import FAR, GAP, Connection, Stream
from tracehound.decode.pairing import Pairing
from tracehound.decode.trials import is_tried_since
from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import INTERIM, REQUEST, SWITCH, TRUNCATED, NotFollowed, Protocol, Request, Response

SKIP_BYTES: Final = 65536  # a message that ends farther ahead is not captured
SHORTEST_HEAD: Final = 64  # less is kept, for more to join it, before it is said what it is
PROTOCOL_ERRORS: Final = 3  # in a row: not this protocol

CAPTURE_OFF: Final = 4  # of enum capture_class


class CaptureOrder(NamedTuple):
    """What the kernel is to capture of one connection from now on; positions are bytes of its two streams."""

    cookie: int
    capture_class: int
    skip_until_sent: int
    skip_until_received: int


@final
class Parsing:
    """Parses streams. `orders`, `ended` and `protocols_of` are read, and emptied, by others."""

    def __init__(self, pairing: Pairing) -> None:
        self.orders: list[CaptureOrder] = []
        self.ended: list[int] = []  # cookies of connections that had an order and are gone
        self.protocols_of: dict[int, tuple[str | None, str | None]] = {}  # connection -> protocol, why it is unknown
        self._pairing = pairing
        self._ordered: set[int] = set()  # cookies of live connections that have an order

    def drive(self, connection: Connection, stream: Stream) -> None:
        """Parse all messages whose bytes are there, and step over holes that will not be filled."""
        buffer = stream.buffer
        protocol = connection.protocol
        assert protocol is not None
        parse, kind, state = protocol.parse, stream.kind, connection.state
        while True:
            while buffer.cursor < len(buffer.data) or buffer.settle():
                if not stream.synced and not self._resync(connection, protocol, stream):
                    if buffer.settle():
                        continue
                    break
                try:
                    message = parse(buffer, kind, state)
                except NotFollowed as reason:
                    self._stop_following(connection, stream, str(reason))
                    return
                except ProtocolError:
                    self._protocol_error(connection, stream)
                    if connection.protocol is not protocol:
                        return
                    continue
                if stream.open is not None and stream.open.end >= 0:
                    self._settle_open(connection, stream)
                if buffer.passed > stream.boundary:
                    stream.boundary = buffer.passed
                if message is None:
                    if buffer.settle():  # what waited behind joins a half message
                        continue
                    break
                connection.error_count = 0
                end = message.end
                if end < 0:
                    stream.boundary = FAR
                    stream.open = message
                else:
                    stream.boundary = end
                    self._skip_far(connection, stream, end)
                if type(message) is Request:
                    self._pairing.take_request(connection, stream, message)
                elif type(message) is Response:
                    self._pairing.take_response(connection, stream, message)
                    if message.flags & SWITCH and not message.flags & INTERIM:
                        self._switch(connection)
                        return
                    requests = connection.streams[1 - stream.direction]  # type: ignore[index]
                    if requests.buffer.cursor < len(requests.buffer.data):  # it may have waited for this response
                        self.drive(connection, requests)
            if stream.open is None:  # perhaps within a part that is stepped over
                self._skip_far(connection, stream, buffer.base + buffer.cursor)
            if not buffer.cut:
                break
            if stream.synced and protocol.bridge is not None and protocol.bridge(buffer, kind, state):
                continue
            self._step_over(connection, stream)
        if buffer.capture != stream.capture:
            stream.capture = buffer.capture
            self.order(connection)

    def _skip_far(self, connection: Connection, stream: Stream, end: int) -> None:
        """Let the kernel leave out what is known to be of no interest, up to `end`, if that lies far ahead."""
        if end - stream.buffer.end > SKIP_BYTES and end > stream.skip_until + 1:
            stream.skip_until = end - 1  # the call with the last byte is wanted, for its time
            self.order(connection)

    def _settle_open(self, connection: Connection, stream: Stream) -> None:
        """The end of the message under way is known now."""
        assert stream.open is not None
        stream.boundary = stream.open.end
        stream.open = None
        self._pairing.complete(connection, stream)

    def _resync(self, connection: Connection, protocol: Protocol, stream: Stream) -> bool:
        """Find the next piece at which a message begins; False if there is none yet."""
        buffer = stream.buffer
        while True:
            first, starts = buffer.cursor, piece_starts(stream)
            if find_start(protocol, stream, stream.kind):
                if buffer.cursor > first and is_tried_since(connection, stream.moment(buffer.base + first)[0]):
                    self._pairing.gap(connection, stream, GAP, stream.time_ns, True)
                stream.synced = True
                stream.boundary = buffer.base + buffer.cursor
                stream.forget(stream.boundary)
                return True
            if not buffer.cut:  # what is too short to say is kept: more may join it
                short = [cursor for cursor in starts if len(buffer.data) - cursor < SHORTEST_HEAD]
                if short:
                    if short[0] > first and self._may_be_waited_for(connection):  # as below
                        self._pairing.gap(connection, stream, GAP, stream.time_ns, True)
                    buffer.cursor = short[0]
                    stream.boundary = buffer.base + short[0]
                    return False
            buffer.cursor = first
            if self._may_be_waited_for(connection):  # a message that is waited for may be among what is passed over
                self._pairing.gap(connection, stream, GAP, stream.time_ns, True)
            other = connection.streams[1 - stream.direction]  # type: ignore[index]
            if other.open is None and other.buffer.base + other.buffer.cursor == other.boundary:
                protocol.reset(connection.state)  # and the parser does not know of it
            if not buffer.jump():
                stream.boundary = buffer.base
                return False

    def _may_be_waited_for(self, connection: Connection) -> bool:
        """Say whether something is lost by passing over bytes; those of requests break a quiet."""
        streams = connection.streams
        assert streams is not None
        requests = streams[streams[0].kind]
        connection.last_request_ns = max(connection.last_request_ns, requests.time_ns)
        return connection.paired or connection.trial is not None

    def _step_over(self, connection: Connection, stream: Stream) -> None:
        """Go behind bytes that passed uncaptured: the parser cannot do without them."""
        buffer = stream.buffer
        edge = buffer.base + max(buffer.cursor, len(buffer.data))
        was_lost = buffer.lost
        if stream.kind == REQUEST and connection.waiting and buffer.cursor < len(buffer.data):
            connection.pipelined = True  # the next request had begun before the answer to the one before
        buffer.jump()
        if stream.synced and not was_lost:
            self.count("uncaptured", buffer.base - edge, stream.time_ns, stream.time_ns, connection)
        self.gap(connection, stream, GAP if was_lost else TRUNCATED, stream.time_ns)

    def gap(self, connection: Connection, stream: Stream, flags: int, time_ns: int) -> None:
        """Forget what was under way; `stream` now stands behind a hole."""
        protocol, streams = connection.protocol, connection.streams
        assert protocol is not None and streams is not None
        was_inside = stream.open is not None
        protocol.reset(connection.state)
        for one in streams:
            if one.boundary < 0:
                continue
            position = one.buffer.base + one.buffer.cursor
            if one is stream or one.open is not None or position != one.boundary:
                one.synced = False
                one.open = None
                one.boundary = position
                one.forget(position)
        self._pairing.gap(connection, stream, flags, time_ns, was_inside)

    def _protocol_error(self, connection: Connection, stream: Stream) -> None:
        """Count bytes that break the protocol, then go on as after a gap; after some in a row drop the protocol."""
        self.count("parse_error", 1, stream.time_ns, stream.time_ns, connection, stage="parse")
        connection.error_count += 1
        stream.buffer.jump()
        self.gap(connection, stream, GAP, stream.time_ns)
        if connection.error_count < PROTOCOL_ERRORS and not connection.redetected:
            return
        assert connection.protocol is not None
        connection.why = f"not {connection.protocol.name}: it could not be parsed"
        self._forget_protocol(connection)
        if connection.redetected:
            self.give_up(connection)
        connection.redetected = True

    def _stop_following(self, connection: Connection, stream: Stream, why: str) -> None:
        """Give up a connection whose parser knows that it cannot go on, and why."""
        assert connection.protocol is not None
        connection.why = why
        self.gap(connection, stream, 0, stream.time_ns)
        self.give_up(connection)
        self.protocols_of[connection.id] = (connection.protocol.name, why)

    def _switch(self, connection: Connection) -> None:
        """Go on with another protocol, behind a response that says so."""
        assert connection.protocol is not None
        connection.why = f"switched from {connection.protocol.name} to a protocol that is not known"
        self._forget_protocol(connection)
        connection.redetected = True

    def _forget_protocol(self, connection: Connection) -> None:
        connection.protocol = connection.state = None
        connection.error_count = 0
        self.protocols_of[connection.id] = (None, connection.why)
        for stream in connection.streams or ():
            stream.open = None
            stream.synced = True
            stream.skipped = stream.calls = 0

    def give_up(self, connection: Connection) -> None:
        """Stop looking at a connection: its protocol is not known, `why` says what is known instead."""
        connection.given_up = True
        self.protocols_of[connection.id] = (None, connection.why)
        self._give(CaptureOrder(connection.cookie, CAPTURE_OFF, 0, 0))
        for stream in connection.streams or ():
            stream.buffer = StreamBuffer(stream.buffer.end)
            stream.forget_all()

    def order(self, connection: Connection) -> None:
        sent, received = connection.streams  # type: ignore[misc]
        capture_class = max(sent.capture, received.capture)
        self._give(CaptureOrder(connection.cookie, capture_class, sent.skip_until, received.skip_until))

    def _give(self, order: CaptureOrder) -> None:
        self.orders.append(order)
        self._ordered.add(order.cookie)

    def end(self, connection: Connection) -> None:
        """Say that a connection is gone, if the kernel has an order for it."""
        if connection.cookie in self._ordered:
            self._ordered.remove(connection.cookie)
            self.ended.append(connection.cookie)

    def count(
        self, counter: str, count: int, first_ns: int, last_ns: int, connection: Connection, stage: str = "stream"
    ) -> None:
        self._pairing.losses.append((stage, counter, count, first_ns, last_ns, None, connection.id))


def piece_starts(stream: Stream) -> list[int]:
    """Return where, as offsets in its window, a stream's records begin; the first is the cursor."""
    buffer = stream.buffer
    later = (stop - buffer.base for stop in stream.stops)
    return [buffer.cursor, *(offset for offset in later if buffer.cursor < offset < len(buffer.data))]


def find_start(protocol: Protocol, stream: Stream, kind: int) -> bool:
    """Move the cursor to the first record at which a message begins; leave it if there is none."""
    buffer = stream.buffer
    first = buffer.cursor
    for cursor in piece_starts(stream):
        buffer.cursor = cursor
        if protocol.resync(buffer, kind):
            return True
    buffer.cursor = first
    return False
