"""What is kept of a connection while it lives: its two streams, and its requests with their responses and times.

Plain state without decisions: `streams.py` and `parsing.py` move bytes and messages through it, `pairing.py` exchanges.
An idle connection is small: what only some need is made when they do.
"""

from bisect import bisect_right
from collections import deque
from typing import Any, Final, NamedTuple, final

from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import Protocol, Request, Response

FAR: Final = 1 << 62  # a position that no stream reaches
GAP: Final = 1 << 16  # a row's flag, beside those of messages: bytes of its connection were lost while it was open
REMEMBERED: Final = 512  # calls whose times are kept for one unfinished message


class Piece(NamedTuple):
    """One data record. Its bytes: `head` from `start` on, then nothing until `tail_start`, then `tail` up to `stop`."""

    direction: int
    start: int
    stop: int
    head: bytes
    tail_start: int
    tail: bytes
    time_ns: int
    who: int  # pid << 32 | tid
    verdict: int
    strength: int
    capture_class: int
    role: int
    transport: int
    is_preexisting: bool
    is_unwatched: bool
    local_port: int
    remote_port: int
    unread: str | None  # why its bytes could not be read at all


class End(NamedTuple):
    """The end of a connection, with the final positions of both directions."""

    time_ns: int
    sent: int
    read: int


@final
class Exchange:
    """A request, its response, and their times; either may still be missing."""

    __slots__ = ("end_ns", "first_ns", "is_open", "number", "request", "response", "start_ns", "who")

    response: Response | None

    def __init__(self, number: int, request: Request, start_ns: int, who: int) -> None:
        self.number = number
        self.request = request
        self.start_ns = start_ns
        self.who = who
        self.response = None
        self.first_ns = 0
        self.end_ns = 0
        self.is_open = True  # its row is still to be written


@final
class Stream:
    """One direction of one connection: its bytes, the times of its calls, and what waits for its positions."""

    __slots__ = (
        "boundary", "buffer", "calls", "capture", "direction", "held", "kind", "open", "pending", "pending_end",
        "skip_until", "skipped", "start", "stops", "synced", "threads", "time_ns", "times", "who",
    )  # fmt: skip

    def __init__(self, direction: int, kind: int) -> None:
        self.direction = direction  # enum direction
        self.kind = kind  # REQUEST or RESPONSE
        self.place(0)
        self.synced = True  # the parser stands in or before a message, not somewhere in a gap
        self.open: Request | Response | None = None  # the last message, while its end is not known
        self.skipped = 0  # bytes that passed while no protocol was known
        self.calls = 0  # records that passed while no protocol was known
        self.capture = self.buffer.capture  # what the kernel was told last
        self.skip_until = 0
        self.held = 0  # bytes that are kept in the buffer
        self.time_ns = 0  # of the newest record
        self.who = 0
        self.stops: list[int] | tuple[()] = ()  # the same of older records of the message under way, by their ends
        self.times: list[int] | tuple[()] = ()
        self.threads: list[int] | tuple[()] = ()
        self.pending: list[Exchange] | tuple[()] = ()  # whose last byte is still to pass here
        self.pending_end = FAR

    def place(self, position: int) -> None:
        """Begin the stream at `position`."""
        self.buffer = StreamBuffer(position)
        self.boundary = position  # end of the last message; FAR: not known yet; -1: of a stream not placed yet
        self.start = position  # first position of the newest record; its time and pid << 32 | tid are below

    def moment(self, position: int) -> tuple[int, int]:
        """Return time and pid << 32 | tid of the call that moved the byte at `position`."""
        if position < self.start:
            at = bisect_right(self.stops, position)
            if at < len(self.stops):
                return self.times[at], self.threads[at]
        return self.time_ns, self.who

    def remember(self, stop: int) -> None:
        """Keep the newest record's time: a message that is not complete has bytes in it."""
        stops, times, threads = self.stops, self.times, self.threads
        if not stops or not times or not threads:
            self.stops, self.times, self.threads = [stop], [self.time_ns], [self.who]
            return
        if len(stops) >= REMEMBERED:  # the first ones say when the message began
            middle = slice(REMEMBERED // 2, REMEMBERED - 1)
            del stops[middle], times[middle], threads[middle]
        stops.append(stop)
        times.append(self.time_ns)
        threads.append(self.who)

    def forget(self, position: int) -> None:
        """Drop the times of records that end at or before `position`."""
        stops, times, threads = self.stops, self.times, self.threads
        gone = bisect_right(stops, position)
        if gone == len(stops):
            self.forget_all()
        elif gone and stops and times and threads:
            del stops[:gone], times[:gone], threads[:gone]

    def forget_all(self) -> None:
        """Drop the times of all records but the newest."""
        self.stops = self.times = self.threads = ()

    def is_inside_message(self) -> bool:
        """Say whether bytes of a message that is not complete have passed."""
        return self.boundary < self.buffer.end

    def wait_for(self, exchange: Exchange, end: int) -> None:
        """Keep an exchange until the stream reaches `end`, its last byte."""
        self.pending = [*self.pending, exchange]
        self.pending_end = min(self.pending_end, end)


@final
class Trial:
    """Exchanges that hold if the connection takes turns, which is not certain: `trials.py`."""

    __slots__ = ("answering", "asked", "end_ns", "held", "needed", "slowest_ns", "was_quiet", "weight")

    def __init__(self, needed: int) -> None:
        self.asked: Exchange | None = None  # without an answer
        self.answering: Exchange | None = None  # its answer has begun
        self.held: list[Exchange] = []  # answered, oldest first
        self.needed = needed  # weight at which it is certain
        self.weight = 0
        self.was_quiet = False  # for a second: certain if the next answer shows that none was lost
        self.end_ns = 0  # of the newest answer
        self.slowest_ns = 0

    def is_resting(self) -> bool:
        """Say whether all that was asked is answered."""
        return self.asked is None and self.answering is None


@final
class Connection:
    """One connection: both directions, the protocol spoken, and the requests without an answer."""

    __slots__ = (
        "attempt", "began_ns", "cookie", "error_count", "facts", "facts_batch", "facts_slot", "given_up", "id",
        "is_early_hold", "joined", "last_request_ns", "opened", "orphans", "owed", "paired", "parked", "pipelined",
        "ports", "protocol", "queue", "queued_bytes", "record", "redetected", "role", "side", "slowest_ns", "state",
        "streams", "trial", "turns", "waiting", "waiting_by_key", "watched_ns", "why",
    )  # fmt: skip

    def __init__(self, cookie: int, attempt: int, began_ns: int) -> None:
        self.cookie = cookie
        self.began_ns = began_ns  # time of its first record
        self.attempt = attempt
        self.id = cookie << 8 | attempt & 0xFF
        self.role = 0  # of the process whose records these are
        self.side = 0  # which end is the local one; of a capture, which has no role, too, if its SYN was seen
        self.ports = (0, 0)  # local, remote
        self.opened = False  # its open or accept was seen
        self.joined = False  # it was there before the trace
        self.record: bytes | None = None  # what its connection record said of addresses and bases: `Endpoints`
        self.protocol: Protocol | None = None
        self.state: Any = None
        self.why: str | None = None
        self.given_up = False
        self.redetected = False
        self.error_count = 0
        self.streams: tuple[Stream, Stream] | None = None  # None before its first data, and while it is parked
        self.parked: bytes | None = None  # what `parking` has made of its streams while it is idle
        self.queue: list[Piece | End] | None = None  # records that wait behind a hole, or before their request
        self.queued_bytes = 0
        self.is_early_hold = False  # the queue waits for a request, not behind a hole
        self.waiting: deque[Exchange] | None = None  # rarely more than one
        self.waiting_by_key: dict[Any, Exchange] | None = None
        self.paired = True  # it is certain which answer belongs to which request
        self.pipelined = False  # a request was sent before the answer to the one before had ended
        self.turns = 0  # requests that were answered while no other waited
        self.owed = 0  # while not paired: answers that are still to come to what was sent before
        self.orphans = 0  # while paired: answers without a request since the last one that had one
        self.trial: Trial | None = None  # while not paired: whether it takes turns
        self.last_request_ns = 0
        self.watched_ns = began_ns  # what passed before was not watched
        self.slowest_ns = 0
        self.facts: tuple[Any, ...] | None = None
        self.facts_batch = -1
        self.facts_slot = 0

    def change_facts(self) -> None:
        """Let rows from here on say what is known now of role, addresses and protocol."""
        self.facts = None
        self.facts_batch = -1


def responses_of(connection: Connection) -> Stream:
    """Return the stream of a connection's responses."""
    streams = connection.streams
    assert streams is not None
    return streams[0] if streams[0].kind else streams[1]


def last_end(exchange: Exchange) -> int:
    """Return the position after the last byte of an exchange's last message; FAR if only the close tells."""
    message = exchange.response if exchange.response is not None else exchange.request
    assert message is not None
    return message.end if message.end >= 0 else FAR
