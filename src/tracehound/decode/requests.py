"""The `requests` table: records of data and of connections in, one row a request out.

Here records of both kinds are put in one order. Then `streams.py` makes streams of records, `parsing.py` messages of
streams, `pairing.py` exchanges of messages, `request_rows.py` columns of rows.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tracehound import native
from tracehound.btf import Layout
from tracehound.decode.detection import Detect, Detection
from tracehound.decode.exchange import FAR, Connection, End, Piece, Stream
from tracehound.decode.nat import Translations
from tracehound.decode.pairing import Pairing
from tracehound.decode.parsing import CaptureOrder, Parsing
from tracehound.decode.request_rows import ROLE_CLIENT, RequestRows, connection_facts, endpoints_of
from tracehound.decode.settings import SECOND_NS, DecodeSettings
from tracehound.decode.streams import Streams
from tracehound.decode.unix_ends import UnixEndsOf, add_unix_ends
from tracehound.protocols._protocol import REQUEST, Protocol

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records

PIECE_BYTES: Final = 16384  # of a call in one record; of a framed call, a full one has a next one if bytes are left
CONNECTIONS: Final = 1 << 17  # known at once; the oldest is shed
COOKIES: Final = 1 << 55  # none is as large: a connection's id has 8 bits more, and a sign
NEVER: Final = 1 << 63
SWEEP_NS: Final = SECOND_NS // 10
IO_URING_ENTER: Final = 426  # the number of the system call, on every architecture


class RequestsResult(NamedTuple):
    """Rows of `requests`, and loss tuples (stage, counter, count, first_ns, last_ns, cpu, connection)."""

    requests: "pa.RecordBatch | None"
    losses: list[tuple[Any, ...]]


class Requests:
    """Decodes requests; a function of the records alone, in the order of time that `Merge` gives."""

    def __init__(
        self,
        layout: Layout,
        protocols: Sequence[Protocol],
        settings: DecodeSettings,
        detect: Detect = native.detect,
        translations: Translations | None = None,
    ) -> None:
        names = layout.enum("l7_protocol")
        verdicts = {one.name: names[f"L7_{one.name.upper()}"] for one in protocols if f"L7_{one.name.upper()}" in names}
        self._pairing = Pairing(settings, connection_facts)
        self._parsing = Parsing(self._pairing)
        detection = Detection(protocols, verdicts, self._pairing, self._parsing, detect)
        self._streams = Streams(settings, self._pairing, self._parsing, detection)
        self._events = layout.enum("connection_event")
        self._preexisting = layout.enum("connection_flag")["CONNECTION_PREEXISTING"]
        self._captured = layout.enum("connection_flag")["CONNECTION_CAPTURED"]
        flags, classes = layout.enum("data_flag"), layout.enum("capture_class")
        self._peek = flags["DATA_PEEK"]
        self._opaque = flags["DATA_OPAQUE"]
        self._data_preexisting, self._unwatched = flags["DATA_PREEXISTING"], flags["DATA_UNWATCHED"]
        self._framed = classes["CAPTURE_FRAMED"]
        self._unix_ends: UnixEndsOf = {}
        self._next_sweep_ns = self._next_timeout_ns = 0
        self._rows = RequestRows(protocols)
        self._translations = Translations() if translations is None else translations

    def keep_connections(self, known: dict[int, Connection]) -> None:
        """Keep connections in this map, before any record is decoded: whoever gave it sees all that come."""
        self._streams.connections = known

    @property
    def protocols_of(self) -> dict[int, tuple[str | None, str | None]]:
        """Connection id -> (protocol, why it is unknown); whoever writes a connection's close row removes its entry."""
        return self._parsing.protocols_of

    @property
    def orders(self) -> list[CaptureOrder]:
        """What the kernel is to capture, the newest last; emptied by whoever passes it on."""
        return self._parsing.orders

    @property
    def ended(self) -> list[int]:
        """Cookies whose orders the kernel may forget; emptied by whoever passes it on, after `orders`."""
        return self._parsing.ended

    def decode(self, batch: "Batch") -> RequestsResult:
        """Take the next records, in their total order; return the rows that they complete."""
        add_unix_ends(self._unix_ends, batch)
        data, connections = batch.records.get("data"), batch.records.get("connection")
        events = self._events_of(connections)
        next_event = next(events, None)
        event_ns = NEVER if next_event is None else next_event[0]
        if data is not None:
            streams = self._streams
            known, due = streams.connections, streams.due
            tails, at = data.tails, data.offsets.tolist()
            for i, (cookie, time_ns, direction, start, stop, size, who, is_plain) in enumerate(self._columns_of(data)):
                while event_ns <= time_ns:
                    assert next_event is not None
                    self._take_event(*next_event)
                    next_event = next(events, None)
                    event_ns = NEVER if next_event is None else next_event[0]
                if time_ns > self._next_sweep_ns or (due and due[0][0] < time_ns):
                    self._advance(time_ns)
                connection = known.get(cookie)
                if connection is not None and connection.parked is not None:
                    streams.wake(connection)
                if connection is not None and is_plain and connection.queue is None and connection.protocol is not None:
                    stream: Stream = connection.streams[direction]  # type: ignore[index]
                    if start <= stream.buffer.end and (stream.kind == REQUEST or connection.waiting):
                        first = at[i]
                        streams.feed(connection, stream, start, stop, tails[first : first + size], time_ns, who)
                        continue
                elif is_plain is None:
                    continue
                elif connection is None:
                    connection = self._new_connection(cookie, 0, time_ns)
                elif connection.given_up:
                    continue
                streams.take_piece(connection, self._piece_of(data, i, start, stop, who))
        while next_event is not None:
            self._take_event(*next_event)
            next_event = next(events, None)
        self._advance(batch.watermark_ns)
        return self._result()

    def finish(self, time_ns: int) -> RequestsResult:
        """End the trace: requests without an answer end as `no_response`."""
        self._streams.advance(NEVER)
        self._pairing.sweep(time_ns + SECOND_NS)
        self._streams.finish(time_ns)
        return self._result()

    def open_requests(self, time_ns: int) -> "pa.RecordBatch | None":
        """Return the requests under way as rows without an end; nothing changes by it."""
        rows, facts = self._pairing.open_rows(self._streams.connections.values(), time_ns)
        return self._rows.build(rows, facts) if rows else None

    # ---- records -----------------------------------------------------------------------------------------------------

    def _columns_of(self, data: "Records") -> Iterator[tuple[Any, ...]]:
        """Yield cookie, time_ns, direction, start, stop, head size, who, plain (None: not of the stream) of all.

        `stop` is where the next record begins: a call's rest that was not captured counts with its last record. A
        record is plain if its captured bytes are one piece.
        """
        fixed = data.fixed
        offset = fixed["offset"].astype(np.int64)
        size = np.minimum(fixed["head_size"].astype(np.int64), np.diff(data.offsets))  # never into the next record
        end, call = fixed["position_end"].astype(np.int64), fixed["call_size"].astype(np.int64)
        start = end - call + offset
        goes_on = (fixed["capture_class"] == self._framed) & (size == PIECE_BYTES) & (offset + size < call)
        stop = np.where(goes_on, start + size, end)
        plain = (fixed["tail_size"] == 0).tolist()
        no_cookie = (fixed["cookie"] == 0) | (fixed["cookie"] >= COOKIES)
        for i in np.flatnonzero((fixed["flags"] & self._peek) | no_cookie | (stop < start)).tolist():
            plain[i] = None
        who = fixed["pid"].astype(np.uint64) << np.uint64(32) | fixed["tid"]
        columns = (fixed["cookie"], fixed["time_ns"], fixed["direction"] & 1, start, stop, size, who)
        return zip(*(column.tolist() for column in columns), plain, strict=True)

    def _piece_of(self, data: "Records", i: int, start: int, stop: int, who: int) -> Piece:
        record = data.fixed[i]
        first, last = int(data.offsets[i]), int(data.offsets[i + 1])
        head_size, tail_size = int(record["head_size"]), int(record["tail_size"])
        tail = data.tails[first + head_size : min(first + head_size + tail_size, last)]
        return Piece(
            int(record["direction"]) & 1, start, stop, data.tails[first : min(first + head_size, last)],
            max(stop - len(tail), start), tail, int(record["time_ns"]), who, int(record["verdict"]),
            int(record["strength"]), int(record["capture_class"]), int(record["role"]), int(record["transport"]),
            bool(record["flags"] & self._data_preexisting), bool(record["flags"] & self._unwatched),
            int(record["local_port"]), int(record["remote_port"]),
            why_unread(int(record["syscall"])) if record["flags"] & self._opaque else None,
        )  # fmt: skip

    def _events_of(self, connections: "Records | None") -> Iterator[tuple[int, int, Any]]:
        """Yield (time_ns, event, record) of connection records."""
        if connections is None:
            return
        fixed = connections.fixed
        yield from zip(fixed["time_ns"].tolist(), fixed["event"].tolist(), fixed, strict=True)

    def _take_event(self, time_ns: int, event: int, record: Any) -> None:
        cookie, attempt = int(record["cookie"]), int(record["attempt"])
        events, known = self._events, self._streams.connections
        if not 0 < cookie < COOKIES:
            return
        self._advance(time_ns)
        connection = known.get(cookie)
        if event == events["CONNECTION_CLOSE"]:
            if connection is None:
                connection_id = cookie << 8 | attempt & 0xFF
                self.protocols_of.setdefault(connection_id, (None, "no data"))
            else:
                end = End(time_ns, min(int(record["bytes_sent"]), FAR), min(int(record["bytes_read"]), FAR))
                self._streams.close(connection, end)
        elif event == events["CONNECTION_ERROR"]:
            known.pop(cookie, None)
        elif event in (events["CONNECTION_OPEN"], events["CONNECTION_ACCEPT"], events["CONNECTION_SNAPSHOT"]):
            if connection is not None and connection.opened and connection.attempt != attempt:
                self._streams.close(connection, End(time_ns, 0, 0))
                connection = None
            if connection is None:
                connection = self._new_connection(cookie, attempt, time_ns)
            self._streams.wake(connection)
            self._learn(connection, record, attempt, event != events["CONNECTION_SNAPSHOT"])

    def _learn(self, connection: Connection, record: Any, attempt: int, is_new: bool) -> None:
        """Take over what a connection record says of its addresses and its beginning."""
        if connection.record is None or is_new:
            unix_ends = self._unix_ends.pop(connection.cookie, None)
            peer_cookie = unix_ends.peer_cookie if unix_ends else 0
            connection.record = endpoints_of(record, self._translations.of(record), peer_cookie)
            connection.attempt = attempt
            connection.id = connection.cookie << 8 | attempt & 0xFF
            if int(record["role"]):
                connection.role = connection.side = int(record["role"])
            elif int(record["flags"]) & self._captured and int(record["base_sent"]):
                connection.side = ROLE_CLIENT
            connection.ports = (int(record["local_port"]), int(record["remote_port"]))
            connection.change_facts()
        if connection.streams is None:
            connection.joined = bool(int(record["flags"]) & self._preexisting)
            connection.opened = is_new and not connection.joined

    def _new_connection(self, cookie: int, attempt: int, began_ns: int) -> Connection:
        known = self._streams.connections
        if len(known) >= CONNECTIONS:
            oldest = next(iter(known.values()))
            self._streams.wake(oldest)
            time_ns = max((stream.time_ns for stream in oldest.streams or ()), default=0)
            self._pairing.losses.append(("stream", "connection_shed", 1, time_ns, time_ns, None, oldest.id))
            self._streams.drop(oldest, time_ns)
        connection = known[cookie] = Connection(cookie, attempt, began_ns)
        return connection

    def _advance(self, time_ns: int) -> None:
        """Do what is due before a record of `time_ns`: nothing that is older can come any more."""
        if time_ns > self._next_sweep_ns:
            last_sweep_ns = time_ns // SWEEP_NS * SWEEP_NS
            self._streams.advance(last_sweep_ns)
            self._pairing.trials.look(last_sweep_ns)
        self._streams.advance(time_ns)
        if time_ns > self._next_sweep_ns:
            self._next_sweep_ns = (time_ns // SWEEP_NS + 1) * SWEEP_NS
            self._streams.park_idle(time_ns)
            if time_ns > self._next_timeout_ns:
                self._next_timeout_ns = (time_ns // SECOND_NS + 1) * SECOND_NS
                self._pairing.sweep(time_ns)

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _result(self) -> RequestsResult:
        pairing = self._pairing
        rows, facts, losses = pairing.rows, pairing.facts, pairing.losses
        pairing.rows, pairing.facts, pairing.losses = [], [], []
        pairing.batch += 1
        return RequestsResult(self._rows.build(rows, facts) if rows else None, losses)


def why_unread(syscall: int) -> str:
    """Say by what the bytes of an opaque record were moved."""
    if syscall == IO_URING_ENTER:
        return "its bytes are moved by io_uring, which is not read"
    return "its bytes are moved by sendfile, splice or kernel TLS, which are not read"
