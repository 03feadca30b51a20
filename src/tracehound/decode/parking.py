"""Idle connections in little memory: what their streams know, as a few bytes, until the next record comes.

Parking loses nothing that a row could tell, so it may happen whenever nothing is under way: no message, no request
without an answer, no record that waits. What a parser's state holds beyond that stays, unless the protocol says that it
is as good as a new one.
"""

from struct import Struct
from typing import Final

from tracehound.decode.exchange import Connection, Stream
from tracehound.decode.settings import SECOND_NS

IDLE_NS: Final = 10 * SECOND_NS  # without a record for so long, a connection is parked
MANY: Final = 2048  # connections that are not parked, in some 10 MiB; if there are more, it is done sooner
IDLE_OF_MANY_NS: Final = SECOND_NS // 2
_STREAM: Final = Struct("<qqqQBBB")  # position, skip_until, time_ns, who, kind, capture, flags
_SYNCED: Final = 1
_NOT_PLACED: Final = 2


def park(connection: Connection) -> bool:
    """Take a connection's streams away, with all that can be made anew; False if something is under way."""
    if connection.given_up:  # its records are passed over, and nothing is asked about its streams
        connection.streams = connection.state = None
    else:
        streams, protocol = connection.streams, connection.protocol
        if protocol is None or streams is None or connection.queue is not None:
            return False
        sent, received = streams
        if connection.trial is not None or connection.waiting or connection.waiting_by_key:
            return False
        if not (_is_idle(sent) and _is_idle(received)):
            return False
        if protocol.is_fresh is not None and protocol.is_fresh(connection.state):
            connection.state = None
        connection.parked = _pack(sent) + _pack(received)
        connection.streams = None
    connection.waiting = connection.waiting_by_key = None
    connection.change_facts()
    return True


def wake(connection: Connection) -> None:
    """Give a parked connection its streams back."""
    assert connection.parked is not None and connection.protocol is not None
    sent, received = _STREAM.unpack_from(connection.parked), _STREAM.unpack_from(connection.parked, _STREAM.size)
    connection.streams = (_unpack(0, sent), _unpack(1, received))
    connection.parked = None
    if connection.state is None:
        connection.state = connection.protocol.new_state()


def _is_idle(stream: Stream) -> bool:
    buffer = stream.buffer
    if stream.held or stream.stops or stream.pending or stream.open is not None or stream.capture != buffer.capture:
        return False
    if buffer.cut or buffer.closed or buffer.is_waiting() or buffer.cursor < len(buffer.data):
        return False
    return buffer.base + buffer.cursor == buffer.end and stream.boundary in (buffer.end, -1)


def _pack(stream: Stream) -> bytes:
    flags = _SYNCED * stream.synced | _NOT_PLACED * (stream.boundary < 0)
    return _STREAM.pack(
        stream.buffer.end, stream.skip_until, stream.time_ns, stream.who, stream.kind, stream.capture, flags
    )


def _unpack(direction: int, fields: tuple[int, ...]) -> Stream:
    position, skip_until, time_ns, who, kind, capture, flags = fields
    stream = Stream(direction, kind)
    stream.place(position)
    if flags & _NOT_PLACED:
        stream.boundary = -1
    stream.synced = bool(flags & _SYNCED)
    stream.skip_until, stream.time_ns, stream.who = skip_until, time_ns, who
    stream.buffer.capture = stream.capture = capture
    return stream
