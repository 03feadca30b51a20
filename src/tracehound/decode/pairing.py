"""Which response answers which request, and when: messages in, rows (plain tuples) out.

Knows no bytes. A connection pairs in order or by id; after a gap it pairs nothing until it is certain again how many
answers are owed (`trials.py`). A row is made once: when the stream reaches its last byte, at the timeout, at the close.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from tracehound.decode.exchange import FAR, GAP, Connection, Exchange, Stream, last_end, responses_of
from tracehound.decode.settings import SECOND_NS, DecodeSettings
from tracehound.decode.trials import Trials
from tracehound.protocols._protocol import (
    BY_ID,
    INTERIM,
    NO_RESPONSE,
    OK,
    PATIENT,
    PUSH,
    TRUNCATED,
    UNKNOWN,
    Request,
    Response,
)

CLOCKS_NS: Final = 1_000_000  # so much earlier than its request may a response be stamped
SETTLED_NS: Final = SECOND_NS  # timeouts are looked for so much later, when nothing older can still come
WAITING_OF_ONE: Final = 1024  # requests without an answer on one connection, by their ids
WAITING_IN_ORDER: Final = 1 << 15  # the same in order: pipelines of thousands are usual

NO_ANSWER: Final = "no_response"
INCOMPLETE: Final = "incomplete"

# request id, connection's place in the batch, operation, resource, statement, statement_id, outcome, error_type,
# request_bytes, request_position, start_ns, end_ns, time_ns, pid << 32 | tid, flags, key, traceparent, request's
# extras; then status, error_message, response_bytes, response_position, first_response_ns, response's extras
Row = tuple[Any, ...]
NO_RESPONSE_COLUMNS: Final[Row] = (None, None, None, None, None, ())


@final
class Pairing:
    """Pairs the messages of all connections; `rows` and `losses` are taken away by the caller."""

    def __init__(self, settings: DecodeSettings, facts_of: Callable[[Connection], tuple[Any, ...]]) -> None:
        self._facts_of = facts_of
        self.rows: list[Row] = []
        self.facts: list[tuple[Any, ...]] = []  # what the rows' connections say, by the place that rows name
        self.losses: list[tuple[Any, ...]] = []
        self.batch = 0
        self._timeout_ns = settings.response_timeout_ns
        self._limit = settings.waiting_requests
        self._number = 0
        self._open: dict[int, tuple[Connection, Exchange]] = {}  # requests without an answer, oldest first
        self.trials = Trials(self._write, self._give_up)

    # ---- messages ----------------------------------------------------------------------------------------------------

    def take_request(self, connection: Connection, stream: Stream, request: Request) -> None:
        """Take a request, or a message that is never answered, from either direction."""
        position = request.position
        if position >= stream.start:
            start_ns, who = stream.time_ns, stream.who
        else:
            start_ns, who = stream.moment(position)
        self._number = number = self._number + 1
        exchange = Exchange(number, request, start_ns, who)
        if request.flags & (NO_RESPONSE | PUSH):
            if not connection.paired and not request.flags & PUSH:
                self._give_up(connection, exchange, GAP, start_ns)
                return
            if 0 <= request.end <= stream.buffer.end:
                exchange.end_ns = stream.moment(request.end - 1)[0]
                self._write(connection, exchange)
            else:
                stream.wait_for(exchange, request.end if request.end >= 0 else FAR)
            return
        assert connection.protocol is not None
        if connection.protocol.pairing == BY_ID:
            self._wait_by_key(connection, exchange)
            return
        if not connection.paired and not self.trials.take_request(connection, exchange):
            if exchange.is_open:  # on trial
                self._open[number] = (connection, exchange)
                if len(self._open) > self._limit:
                    self._shed(connection)
            return
        waiting = connection.waiting
        if waiting is None:
            waiting = connection.waiting = deque()
        waiting.append(exchange)
        self._open[number] = (connection, exchange)
        if len(self._open) > self._limit or len(waiting) > WAITING_IN_ORDER:
            self._shed(connection)

    def take_response(self, connection: Connection, stream: Stream, response: Response) -> None:
        """Take a response: the answer to the first request that waits, or to the one with its key."""
        if response.flags & INTERIM:
            return
        position = response.position
        first_ns = stream.time_ns if position >= stream.start else stream.moment(position)[0]
        exchange = self._find(connection, response)
        if exchange is None:
            self._take_orphan(connection, stream, response, first_ns)
            return
        if first_ns < exchange.start_ns - CLOCKS_NS:
            self._put_back(connection, exchange)
            self._take_orphan(connection, stream, response, first_ns)
            return
        is_late = first_ns > exchange.start_ns + self._timeout_ns and not exchange.request.flags & PATIENT
        if is_late or not exchange.is_open:
            if exchange.is_open:
                self._time_out(connection, exchange)
            if is_late:
                self._count("pairing", "late_response", 1, first_ns, first_ns, connection)
            return
        self._open.pop(exchange.number, None)
        exchange.response = response
        exchange.first_ns = first_ns
        if connection.orphans:
            self._count_orphans(connection, first_ns)
        if connection.waiting and connection.waiting[0].start_ns < first_ns:
            connection.pipelined = True
        connection.turns += 1
        end = response.end
        if 0 <= end <= stream.buffer.end:
            exchange.end_ns = stream.time_ns if end > stream.start else stream.moment(end - 1)[0]
            self._write(connection, exchange)
        else:
            stream.wait_for(exchange, end if end >= 0 else FAR)

    def _find(self, connection: Connection, response: Response) -> Exchange | None:
        assert connection.protocol is not None
        if connection.protocol.pairing == BY_ID:
            return None if connection.waiting_by_key is None else connection.waiting_by_key.pop(response.key, None)
        return connection.waiting.popleft() if connection.waiting else None

    def _put_back(self, connection: Connection, exchange: Exchange) -> None:
        if connection.waiting is not None:
            connection.waiting.appendleft(exchange)
        elif connection.waiting_by_key is not None:
            connection.waiting_by_key[exchange.request.key] = exchange

    def _wait_by_key(self, connection: Connection, exchange: Exchange) -> None:
        if connection.waiting_by_key is None:
            connection.waiting_by_key = {}
        replaced = connection.waiting_by_key.pop(exchange.request.key, None)
        if replaced is not None and replaced.is_open:
            self._give_up(connection, replaced, 0, exchange.start_ns)
        connection.waiting_by_key[exchange.request.key] = exchange
        self._open[exchange.number] = (connection, exchange)
        if len(self._open) > self._limit or len(connection.waiting_by_key) > WAITING_OF_ONE:
            self._shed(connection)

    def complete(self, connection: Connection, stream: Stream) -> None:
        """Write the rows whose last byte has now passed."""
        left: list[Exchange] = []
        reached = stream.buffer.end
        next_end = FAR
        trial = connection.trial
        for exchange in stream.pending:
            end = last_end(exchange)
            if end <= reached:
                exchange.end_ns = stream.moment(end - 1)[0]
                if trial is not None and trial.answering is exchange:
                    self.trials.hold(connection, exchange)
                else:
                    self._write(connection, exchange)
            else:
                left.append(exchange)
                next_end = min(next_end, end)
        stream.pending = left
        stream.pending_end = next_end

    # ---- answers without a request, requests without an answer -------------------------------------------------------

    def _take_orphan(self, connection: Connection, stream: Stream, response: Response, first_ns: int) -> None:
        """Take an answer to nothing that was seen: its request was lost, as a gap will soon say, or never sent."""
        if response.flags & PUSH:
            return
        if connection.paired:
            connection.orphans += 1
            return
        trial = connection.trial
        if trial is not None and trial.asked is not None:
            self._open.pop(trial.asked.number, None)
        self.trials.take_response(connection, stream, response, first_ns)

    def _count_orphans(self, connection: Connection, time_ns: int) -> None:
        """Count answers that no gap explains, unless it is known that nothing was asked.

        It is known where answers come in order and every byte since the connection's beginning was seen: then they are
        notices of the server (a 408 on an idle connection, a 400 to what is no request), and nothing is lost.
        """
        protocol = connection.protocol
        if connection.joined or (protocol is not None and protocol.pairing == BY_ID):
            self._count("pairing", "unmatched_response", connection.orphans, time_ns, time_ns, connection)
        connection.orphans = 0

    def gap(self, connection: Connection, stream: Stream, flags: int, time_ns: int, was_inside: bool) -> None:
        """Give up all requests that wait: bytes of `stream` are missing.

        `was_inside`: a message whose beginning had been parsed ends among them.
        """
        released = self.trials.doubt(connection, flags, time_ns) + self._release(connection, flags, time_ns)
        for one in connection.streams or ():
            self._release_open(connection, one, flags, time_ns)
        assert connection.protocol is not None
        if connection.protocol.pairing == BY_ID:
            return
        self.trials.lose(connection, stream, released, was_inside, time_ns)

    def _release_open(self, connection: Connection, stream: Stream, flags: int, time_ns: int) -> None:
        """Write the exchanges whose end will not be found any more: what is known of the answer stays."""
        left = [exchange for exchange in stream.pending if last_end(exchange) < FAR]
        for exchange in stream.pending:
            if exchange not in left:
                exchange.end_ns = 0
                outcome = UNKNOWN if exchange.response is None else exchange.response.outcome
                self._add_row(connection, exchange, outcome, None, flags, max(time_ns, exchange.start_ns))
        stream.pending = left
        stream.pending_end = min(map(last_end, left), default=FAR)

    def _release(self, connection: Connection, flags: int, time_ns: int) -> int:
        """Write the rows of all requests that wait; return how many answers are owed."""
        waiting = list(connection.waiting or ()) + list((connection.waiting_by_key or {}).values())
        connection.waiting = connection.waiting_by_key = None
        for place, exchange in enumerate(waiting):
            if exchange.is_open:
                if self._is_overdue(connection, exchange, time_ns, place == 0):
                    self._time_out(connection, exchange)
                else:
                    self._give_up(connection, exchange, flags, time_ns)
        return len(waiting)

    def _shed(self, connection: Connection) -> None:
        """Too many wait: give up the oldest; its answer, should it come, will not be taken for another's."""
        in_order, by_key = connection.waiting or (), connection.waiting_by_key or {}
        if len(in_order) > WAITING_IN_ORDER:
            assert connection.streams is not None
            newest = connection.waiting[-1].start_ns  # type: ignore[index]
            self._count("pairing", "waiting_shed", len(in_order), newest, newest, connection)
            connection.pipelined = True
            self.gap(connection, connection.streams[connection.streams[0].kind], TRUNCATED, newest, True)
            return
        if len(by_key) > WAITING_OF_ONE:
            owner, exchange = connection, by_key.pop(next(iter(by_key)))
        else:
            owner, exchange = next(iter(self._open.values()))
        if exchange.is_open:
            self._count("pairing", "waiting_shed", 1, exchange.start_ns, exchange.start_ns, owner)
            self._give_up(owner, exchange, TRUNCATED, exchange.start_ns)

    def sweep(self, time_ns: int) -> None:
        """Write the requests whose time had run out well before `time_ns`."""
        before = time_ns - SETTLED_NS
        overdue = [found for found in self._open.values() if found[1].start_ns + self._timeout_ns < before]
        for connection, exchange in overdue:
            is_first = not connection.waiting or connection.waiting[0] is exchange
            if self._is_overdue(connection, exchange, before, is_first):
                self._time_out(connection, exchange)  # it stays, for an answer that is late

    def _is_overdue(self, connection: Connection, exchange: Exchange, time_ns: int, is_first: bool) -> bool:
        """Say whether an exchange's time had run out at `time_ns` with no byte of an answer before."""
        deadline_ns = exchange.start_ns + self._timeout_ns
        if deadline_ns >= time_ns or exchange.request.flags & PATIENT:
            return False
        if is_first and connection.streams is not None:
            responses = responses_of(connection)
            if responses.is_inside_message() and responses.moment(responses.boundary)[0] <= deadline_ns:
                return False
        return True

    def end(self, connection: Connection, flags: int, time_ns: int, is_closed: bool) -> None:
        """Write all that is left of a connection that was closed, or of one that outlives the trace.

        `flags`: GAP when bytes of it were never seen, so that an answer may have been among them.
        """
        self.trials.end(connection, flags, time_ns, is_closed)
        for stream in connection.streams or ():
            for exchange in stream.pending:
                exchange.end_ns = max(stream.time_ns, exchange.start_ns)
                if is_closed and not flags and last_end(exchange) == FAR:
                    self._write(connection, exchange)
                else:  # it broke off
                    self._add_row(connection, exchange, UNKNOWN, INCOMPLETE, flags, exchange.end_ns)
            stream.pending = []
            stream.pending_end = FAR
        if connection.orphans and connection.paired and not flags:
            self._count_orphans(connection, time_ns)
        self._release(connection, flags or -1, time_ns)

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _time_out(self, connection: Connection, exchange: Exchange) -> None:
        self._write_unanswered(connection, exchange, NO_ANSWER, 0, exchange.start_ns + self._timeout_ns)

    def _give_up(self, connection: Connection, exchange: Exchange, flags: int, time_ns: int) -> None:
        """Write a request without an answer; flags -1: that is all that happened, else the answer is not known."""
        if flags < 0:
            self._write_unanswered(connection, exchange, NO_ANSWER, 0, time_ns)
        else:
            self._write_unanswered(connection, exchange, UNKNOWN, flags, time_ns)

    def _write_unanswered(
        self, connection: Connection, exchange: Exchange, outcome: str, flags: int, time_ns: int
    ) -> None:
        time_ns = max(time_ns, exchange.start_ns)
        self._open.pop(exchange.number, None)
        exchange.end_ns = time_ns if outcome == NO_ANSWER else 0
        self._add_row(connection, exchange, outcome, None, flags, time_ns)

    def _write(self, connection: Connection, exchange: Exchange) -> None:
        """Write a whole exchange."""
        start_ns, end_ns, response = exchange.start_ns, exchange.end_ns, exchange.response
        if response is None:
            self._add_row(connection, exchange, OK, None, 0, end_ns)
            return
        if end_ns < start_ns:  # two clocks: never a negative duration
            exchange.end_ns = end_ns = start_ns
        elif end_ns - start_ns > connection.slowest_ns:  # perhaps: it counts when the answer began
            connection.slowest_ns = max(connection.slowest_ns, exchange.first_ns - start_ns)
        self._add_row(connection, exchange, response.outcome, response.error_type, 0, end_ns)

    def _add_row(
        self,
        connection: Connection,
        exchange: Exchange,
        outcome: str,
        error_type: str | None,
        flags: int,
        time_ns: int,
    ) -> None:
        """Add a row; exchange.end_ns 0: its end is not known. Sizes are of what passed, but for a request that was
        answered before it ended: of that, what it declared."""
        exchange.is_open = False
        self.rows.append(self._row(connection, exchange, outcome, error_type, flags, time_ns))

    def open_rows(self, connections: Iterable[Connection], time_ns: int) -> tuple[list[Row], list[tuple[Any, ...]]]:
        """Return the requests that wait for an answer or its end, oldest first, and what their connections say.

        They are rows of `time_ns`, and go on waiting.
        """
        under_way = list(self._open.values())
        for connection in connections:
            for stream in connection.streams or ():
                under_way += [(connection, exchange) for exchange in stream.pending]
        under_way.sort(key=lambda one: one[1].number)
        kept, self.facts = self.facts, []
        self.batch += 1
        rows = [
            self._row(connection, exchange, UNKNOWN, None, 0, time_ns)
            for connection, exchange in under_way
            if exchange.is_open
        ]
        facts, self.facts = self.facts, kept
        self.batch += 1
        return rows, facts

    def _row(
        self,
        connection: Connection,
        exchange: Exchange,
        outcome: str,
        error_type: str | None,
        flags: int,
        time_ns: int,
    ) -> Row:
        if connection.facts_batch != self.batch:
            self._place_facts(connection)
        request, response = exchange.request, exchange.response
        requests, responses = connection.streams  # type: ignore[misc]
        if requests.kind:
            requests, responses = responses, requests
        position, request_end = request.position, request.end
        flags |= request.flags
        if not flags & PUSH and (request_end < 0 or (request_end > requests.buffer.end and response is None)):
            request_end = requests.buffer.end
        if response is None:
            answer = NO_RESPONSE_COLUMNS
        else:
            response_end = response.end
            if response_end < 0 or response_end > responses.buffer.end:
                response_end = responses.buffer.end
            flags |= response.flags
            answer = (
                response.status, response.error_message, response_end - response.position, response.position,
                exchange.first_ns, response.extras,
            )  # fmt: skip
        return (
            exchange.number, connection.facts_slot, request.operation, request.resource, request.statement,
            request.statement_id, outcome, error_type, request_end - position, position, exchange.start_ns,
            exchange.end_ns or None, time_ns, exchange.who, flags, request.key, request.trace, request.extras, *answer,
        )  # fmt: skip

    def _place_facts(self, connection: Connection) -> None:
        """Give a connection its place among those of the batch."""
        if connection.facts is None:
            connection.facts = self._facts_of(connection)
        connection.facts_batch = self.batch
        connection.facts_slot = len(self.facts)
        self.facts.append(connection.facts)

    def _count(
        self, stage: str, counter: str, count: int, first_ns: int, last_ns: int, connection: Connection | None
    ) -> None:
        self.losses.append(
            (stage, counter, count, first_ns, last_ns, None, None if connection is None else connection.id)
        )
