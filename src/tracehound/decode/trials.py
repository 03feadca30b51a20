"""When a connection pairs again after bytes are missing, or joined in the middle: what is certain, what is tried first.

How many answers are owed to requests that nobody saw does not show in the bytes. It is certain that none is after a
quiet second. Before that a connection that was never seen to pipeline is tried: its exchanges are paired in turns and
held. A request before the answer to the one before, an answer too many, or lost bytes end the trial, and all of it is
unknown. Enough turns, a rest after some, or the close with nothing missing end it well. docs/decisions/pairing.md has
the reasons and what is held for how long.
"""

from collections.abc import Callable
from typing import Final, final

from tracehound.decode.exchange import FAR, GAP, Connection, Exchange, Stream, Trial, last_end, responses_of
from tracehound.decode.settings import SECOND_NS
from tracehound.protocols._protocol import Response

QUIET_NS: Final = SECOND_NS  # after so long without a byte a connection owes no answer
HELD_NS: Final = QUIET_NS + SECOND_NS // 10  # no row is held for longer, but for one that
SHOWN_NS: Final = 5 * SECOND_NS // 2  # for so long waits for the next answer, after a quiet second
TURNS: Final = 3  # answered requests, never a second one under way: a connection that takes turns
# Turns in a row that show that turns are taken. One behind a pause in which an owed answer would have come, by its
# others, counts for more.
WEIGHT_NEEDED: Final = 64
WEIGHT_KNOWN: Final = 16  # if it took turns before, or its protocol's clients do
WEIGHT_PAUSED: Final = 4
WEIGHT_RESTING: Final = 8  # so much, and a rest
PAUSE: Final = 4  # times the slowest answer
MOMENT_NS: Final = 100_000  # no answer counts as faster
REST: Final = 16  # times the slowest answer, and at least:
REST_NS: Final = SECOND_NS // 20


@final
class Trials:
    """All connections that are not `paired`, of protocols that pair in order."""

    def __init__(
        self,
        write: Callable[[Connection, Exchange], None],
        give_up: Callable[[Connection, Exchange, int, int], None],
    ) -> None:
        """`write`: the row of a whole exchange; `give_up`: one whose answer is not known, with flags and a time."""
        self._write = write
        self._give_up = give_up
        self._live: list[tuple[Connection, Trial]] = []

    def join(self, connection: Connection, time_ns: int) -> None:
        """Begin in the middle: until `time_ns` requests may have been sent that were never seen."""
        connection.paired = False
        connection.watched_ns = max(connection.watched_ns, time_ns)

    def lose(self, connection: Connection, stream: Stream, released: int, was_inside: bool, time_ns: int) -> None:
        """Begin behind a gap: `released` requests waited; `was_inside`: a message ends in it that began before."""
        if stream.kind:  # one answer at least is missing, to what was asked: so many may still come
            connection.owed = max(connection.owed + released - 1, 0)
        else:  # a request is missing if it began there; its answer may have come already
            connection.owed = max(connection.owed, -1) + max(released, int(not connection.orphans and not was_inside))
        connection.orphans = stream.kind  # an answer to a lost request may be among what is missing
        connection.paired = False
        connection.last_request_ns = time_ns

    def take_request(self, connection: Connection, exchange: Exchange) -> bool:
        """Take a request: True if the connection is `paired` now. Else it is on trial, or given up."""
        start_ns, responses, trial = exchange.start_ns, responses_of(connection), connection.trial
        answered_ns, is_inside = responses.time_ns, is_under_way(responses)
        connection.orphans = 0
        connection.owed = max(connection.owed, 0)  # an answer more than requests, and no gap said why
        last_ns = max(answered_ns, connection.last_request_ns, connection.watched_ns)
        was_quiet = start_ns - last_ns >= quiet_ns_of(connection) and answered_ns >= connection.last_request_ns
        if was_quiet or is_first(connection, exchange):
            if trial is not None:
                trial.was_quiet = True
            elif not is_inside:
                settle(connection)
                connection.paired = True
                return True
        can_be_tried = not is_inside and answered_ns <= start_ns
        if trial is not None and not (can_be_tried and trial.is_resting()):
            connection.owed += self.doubt(connection, GAP, start_ns)
        elif trial is None and can_be_tried and not connection.owed and not connection.pipelined:
            settle(connection)
            assert connection.protocol is not None
            is_known = connection.protocol.takes_turns or connection.turns >= TURNS
            trial = connection.trial = Trial(WEIGHT_KNOWN if is_known else WEIGHT_NEEDED)
            self._live.append((connection, trial))
        connection.last_request_ns = start_ns
        if connection.trial is not None:
            connection.trial.asked = exchange
        else:
            connection.owed += 1
            self._give_up(connection, exchange, GAP, start_ns)
        return False

    def take_response(self, connection: Connection, stream: Stream, response: Response, first_ns: int) -> None:
        """Take a response of a connection that is not `paired`."""
        trial = connection.trial
        if trial is None:
            connection.owed = max(connection.owed - 1, -1)  # below 0: of a request that a gap will soon say is lost
            return
        exchange = trial.asked
        if exchange is None or not exchange.is_open or first_ns < exchange.start_ns:
            connection.owed = max(connection.owed + self.doubt(connection, GAP, first_ns) - 1, -1)
            return
        trial.asked = None
        exchange.response = response
        exchange.first_ns = first_ns
        end = response.end
        if 0 <= end <= stream.buffer.end:
            exchange.end_ns = stream.moment(end - 1)[0]
            self.hold(connection, exchange)
        else:
            trial.answering = exchange
            stream.wait_for(exchange, end if end >= 0 else FAR)

    def hold(self, connection: Connection, exchange: Exchange) -> None:
        """Keep an exchange that was answered; after enough of them it is certain that turns are taken."""
        trial = connection.trial
        assert trial is not None
        trial.answering = None
        trial.held.append(exchange)
        slowest_ns = max(trial.slowest_ns, connection.slowest_ns, exchange.first_ns - exchange.start_ns, MOMENT_NS)
        has_paused = trial.end_ns and exchange.start_ns - trial.end_ns >= PAUSE * slowest_ns
        trial.weight += WEIGHT_PAUSED if has_paused else 1
        trial.slowest_ns, trial.end_ns = slowest_ns, exchange.end_ns
        if trial.weight >= trial.needed or trial.was_quiet:
            self._trust(connection)

    def look(self, time_ns: int) -> None:
        """End trials by their pauses up to `time_ns`, and give up what was held for too long then."""
        self._live = [(one, trial) for one, trial in self._live if one.trial is trial]
        for connection, trial in self._live:
            rested_ns = self._rested_ns(connection) if connection.queue is None else FAR
            self._give_up_held(connection, trial, min(time_ns, rested_ns) - HELD_NS)
            if rested_ns > time_ns:
                continue
            if trial.weight >= WEIGHT_RESTING:
                self._trust(connection)
            else:  # the last answer may be lost: only what comes next will show it
                self._give_up_held(connection, trial, time_ns - SHOWN_NS)
                if not trial.held:
                    connection.trial = None

    def end(self, connection: Connection, flags: int, time_ns: int, is_closed: bool) -> None:
        """Take the end of the connection, or of the trace: what was in turns to the end and is complete holds."""
        trial = connection.trial
        if trial is None:
            return
        one = trial.answering
        if one is not None and is_closed and not flags and last_end(one) == FAR:
            responses = responses_of(connection)
            responses.pending = [exchange for exchange in responses.pending if exchange is not one]
            responses.boundary = responses.buffer.end
            one.end_ns = max(responses.time_ns, one.start_ns)
            self.hold(connection, one)
        is_at_rest = trial.is_resting() and not any(is_under_way(one) for one in connection.streams or ())
        last_ns = max(one.time_ns for one in connection.streams or ())
        if is_at_rest and not flags and (is_closed or last_ns + quiet_ns_of(connection) <= time_ns):
            self._trust(connection)
        else:
            self.doubt(connection, flags or GAP, time_ns)

    def doubt(self, connection: Connection, flags: int, time_ns: int) -> int:
        """End a trial, if there is one: whose the answers were is not known. Return how many are owed, as it looks."""
        trial = connection.trial
        if trial is None:
            return 0
        connection.trial = None
        self._give_up_held(connection, trial, FAR, flags)
        asked, answering = trial.asked, trial.answering
        if answering is not None:
            answering.response = None
            responses = responses_of(connection)
            responses.pending = [exchange for exchange in responses.pending if exchange is not answering]
            responses.pending_end = min(map(last_end, responses.pending), default=FAR)
            self._give_up(connection, answering, flags, time_ns)
        if asked is not None and asked.is_open:
            self._give_up(connection, asked, flags, time_ns)
        return int(asked is not None)

    def _trust(self, connection: Connection) -> None:
        """End a trial well: turns are taken, and what it held is right."""
        trial = connection.trial
        if trial is None:
            return
        connection.trial = None
        connection.paired = True
        for exchange in trial.held:
            self._write(connection, exchange)

    def _give_up_held(self, connection: Connection, trial: Trial, before_ns: int, flags: int = GAP) -> None:
        """Give up what has been held since before that time."""
        held = trial.held
        while held and held[0].end_ns < before_ns:
            exchange = held.pop(0)
            exchange.response = None
            self._give_up(connection, exchange, flags, exchange.end_ns)

    def _rested_ns(self, connection: Connection) -> int:
        """Return since when a trial's connection has rested for long enough, if no byte comes before; FAR if never."""
        trial, streams = connection.trial, connection.streams
        if trial is None or streams is None or not trial.held or not trial.is_resting():
            return FAR
        if is_under_way(streams[0]) or is_under_way(streams[1]):
            return FAR
        rest_ns = quiet_ns_of(connection)
        if trial.weight >= WEIGHT_RESTING:
            rest_ns = min(max(REST * trial.slowest_ns, REST_NS), rest_ns)
        return max(streams[0].time_ns, streams[1].time_ns) + rest_ns


def is_first(connection: Connection, exchange: Exchange) -> bool:
    """Say whether nothing was asked before: the kernel counts a TCP socket's bytes from its beginning, joined or not.

    Unix sockets, which have no ports, and captures, which know no role, count from where they were joined.
    """
    return exchange.request.position == 0 and connection.role != 0 and connection.ports != (0, 0)


def settle(connection: Connection) -> None:
    """Expect the answer to the last request next."""
    connection.owed = 0
    assert connection.protocol is not None
    if connection.protocol.settle is not None:
        connection.protocol.settle(connection.state)


def quiet_ns_of(connection: Connection) -> int:
    """Return after how long without a byte a connection owes no answer."""
    return max(QUIET_NS, 2 * connection.slowest_ns)


def is_under_way(stream: Stream) -> bool:
    """Say whether a stream stands within a message, as far as its bytes tell."""
    if not stream.synced:  # of what began before
        return False
    boundary, buffer = stream.boundary, stream.buffer
    return boundary > buffer.end or (0 <= boundary < buffer.end and buffer.base + buffer.cursor < buffer.end)


def is_tried_since(connection: Connection, time_ns: int) -> bool:
    """Say whether a trial waits for an answer, and did so at that time."""
    trial = connection.trial
    return trial is not None and trial.asked is not None and trial.asked.start_ns <= time_ns
