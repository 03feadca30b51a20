"""What the summary says about requests, gathered as they pass, in bounded memory: groups, the slowest, the errors.

Only distinct groups cost Python; rows are grouped by Arrow some thousands at a time. Durations are kept as counts in
buckets 2 % wide. A call whose both ends are traced is told by its client row: server rows wait until it is known
whether a client row of the same connection came (the first half of `exchange` names the connection at both ends).
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound.sinks._text import printable

if TYPE_CHECKING:
    import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK_ROWS: Final = 8192
PUSHED: Final = "message"  # the operation of what nobody asked for: no call
HELD_ROWS: Final = 65_536  # server rows that wait
KNOWN_CONNECTIONS: Final = 262_144
GROUPS: Final = 1000  # distinct groups, and distinct errors; beyond them all is one
SLOWEST: Final = 5
TEXT_LENGTH: Final = 400  # of a statement or path that is kept
BUCKETS_PER_OCTAVE: Final = 32
ERRORS: Final = ("client_error", "server_error", "no_response")
OTHERS: Final = "(others)"

_COLUMNS: Final = (
    "service", "comm", "role", "peer_service", "remote_ip", "remote_port", "local_port", "protocol", "operation",
    "route", "resource", "statement", "status", "outcome", "error_type", "error_message", "request_bytes",
    "response_bytes", "duration_ns", "exchange", "local_ip", "peer_service_inferred",
)  # fmt: skip


class GroupKey(NamedTuple):
    """Who called whom: names as shown, the port of the server's end, the protocol."""

    name: str
    peer: str
    is_service: bool  # `peer` is a name and not an address
    port: int | None
    protocol: str


class ErrorKey(NamedTuple):
    """One kind of failure."""

    protocol: str
    code: str
    message: str
    name: str
    peer: str


class Slow(NamedTuple):
    """One slow request; ordered by its duration."""

    duration_ns: int
    name: str
    peer: str
    text: str
    result: str


@dataclass(slots=True)
class Group:
    """Totals of one group; `buckets` is bucket -> requests."""

    requests: int = 0
    errors: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    buckets: Counter[int] = field(default_factory=Counter)
    addresses: set[str] = field(default_factory=set)  # of a peer named by them, two at most

    @property
    def address(self) -> str:
        """The peer's address if it is named by that, and by no other."""
        return next(iter(self.addresses)) if len(self.addresses) == 1 else ""

    def quantile(self, share: float) -> float | None:
        """Return the duration in ns below which `share` of the requests are, None without any."""
        total = self.buckets.total()
        reached = 0
        for bucket in sorted(self.buckets):
            reached += self.buckets[bucket]
            if reached >= share * total:
                return float(2 ** ((bucket + 0.5) / BUCKETS_PER_OCTAVE))
        return None


class Calls:
    """Totals of the requests of one side."""

    def __init__(self, *, is_served: bool) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.errors: Counter[ErrorKey] = Counter()
        self.slowest: list[Slow] = []
        self._is_served = is_served

    def add(self, rows: "pa.Table") -> None:
        """Add rows of `requests` that have `_COLUMNS`."""
        named = _with_names(rows, is_served=self._is_served)
        self._add_groups(named)
        self._add_slowest(named)
        self._add_errors(named)

    def _add_groups(self, rows: "pa.Table") -> None:
        keys = ["name", "peer", "is_service", "port", "protocol", "bucket", "address"]
        values: list[Any] = [
            ("is_error", "sum"),
            ("request_bytes", "sum"),
            ("response_bytes", "sum"),
            ([], "count_all"),
        ]
        for row in rows.group_by(keys).aggregate(values).to_pylist():
            key = GroupKey(
                printable(row["name"]), printable(row["peer"]), row["is_service"], row["port"], row["protocol"]
            )
            if key not in self.groups and len(self.groups) >= GROUPS:
                key = GroupKey(OTHERS, OTHERS, True, None, "")
            group = self.groups.setdefault(key, Group())
            sent, received = row["request_bytes_sum"] or 0, row["response_bytes_sum"] or 0
            group.requests += row["count_all"]
            group.errors += row["is_error_sum"] or 0
            group.sent_bytes += received if self._is_served else sent
            group.received_bytes += sent if self._is_served else received
            if row["address"] and len(group.addresses) < 2:
                group.addresses.add(row["address"])
            if row["bucket"] is not None:
                group.buckets[row["bucket"]] += row["count_all"]

    def _add_slowest(self, rows: "pa.Table") -> None:
        import pyarrow.compute as pc

        least = self.slowest[0].duration_ns if len(self.slowest) == SLOWEST else -1
        slower = rows.filter(pc.greater(rows["duration_ns"], least))
        if slower.num_rows > SLOWEST:
            slower = slower.take(np.argsort(-slower["duration_ns"].to_numpy(), kind="stable")[:SLOWEST])
        for row in slower.to_pylist():
            slow = Slow(row["duration_ns"], row["name"], _end(row), what(row), result(row))
            add = heapq.heappush if len(self.slowest) < SLOWEST else heapq.heappushpop
            add(self.slowest, Slow(slow.duration_ns, *map(printable, slow[1:])))

    def _add_errors(self, rows: "pa.Table") -> None:
        failed = rows.filter(rows["is_error"])
        keys = [
            "protocol",
            "error_type",
            "status",
            "outcome",
            "error_message",
            "operation",
            "route",
            "resource",
            "name",
        ]
        keys += ["peer", "is_service", "port", "statement"]
        for row in failed.group_by(keys).aggregate([([], "count_all")]).to_pylist():
            code = row["error_type"] or result(row)
            message = (row["error_message"] or what(row))[:TEXT_LENGTH]
            key = ErrorKey(*map(printable, (row["protocol"], code, message, row["name"], _end(row))))
            if key not in self.errors and len(self.errors) >= GROUPS:
                key = ErrorKey(OTHERS, "", "", OTHERS, "")
            self.errors[key] += row["count_all"]


class _Known:
    """The newest of many numbers, int64, in two generations; the older one is forgotten as a whole."""

    def __init__(self) -> None:
        self._older = self._newer = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._older) + len(self._newer)

    def add(self, numbers: "Int64s") -> None:
        """Take numbers, known ones too."""
        self._newer = np.union1d(self._newer, numbers)
        if len(self._newer) > KNOWN_CONNECTIONS // 2:
            self._older, self._newer = self._newer, np.empty(0, np.int64)

    def contains(self, numbers: "Int64s") -> "Bools":
        """Tell of each whether it is among them."""
        found: Bools = np.isin(numbers, self._older) | np.isin(numbers, self._newer)
        return found


class BothSides:
    """Requests as they come, sorted into those told by a client row and those served to an untraced client."""

    def __init__(self) -> None:
        self.calls = Calls(is_served=False)
        self.served = Calls(is_served=True)
        self._fresh: list[pa.RecordBatch] = []
        self._fresh_rows = 0
        self._held: deque[pa.Table] = deque()
        self._held_rows = 0
        self._client_connections = _Known()
        self.comms: dict[str, str] = {}  # service -> comm

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take rows of `requests`."""
        self._fresh.append(batch.select(list(_COLUMNS)))
        self._fresh_rows += batch.num_rows
        if self._fresh_rows >= CHUNK_ROWS:
            self._take_fresh()
            while self._held_rows > HELD_ROWS:
                self._decide_oldest()

    def finish(self) -> None:
        """Decide all that waits."""
        self._take_fresh()
        while self._held:
            self._decide_oldest()

    def _take_fresh(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._fresh:
            return
        rows = pa.Table.from_batches(self._fresh).combine_chunks()  # else all costs are per batch
        self._fresh, self._fresh_rows = [], 0
        rows = rows.filter(pc.not_equal(pc.fill_null(rows["operation"], ""), PUSHED))
        self._learn_names(rows)
        is_server = pc.fill_null(pc.equal(rows["role"], "server"), False)
        clients = rows.filter(pc.invert(is_server))
        if clients.num_rows:
            self.calls.add(clients)
            self._client_connections.add(_connections(clients))
        servers = rows.filter(is_server)
        if servers.num_rows:
            self._held.append(servers)
            self._held_rows += servers.num_rows

    def _learn_names(self, rows: "pa.Table") -> None:
        for row in rows.group_by(["service", "comm"]).aggregate([]).to_pylist():
            if row["service"] and row["comm"] and len(self.comms) < GROUPS:
                self.comms.setdefault(printable(row["service"]), printable(row["comm"]))

    def _decide_oldest(self) -> None:
        rows = self._held.popleft()
        self._held_rows -= rows.num_rows
        connections = _connections(rows)
        untold = rows.filter(~self._client_connections.contains(connections) | (connections == 0))
        if untold.num_rows:
            self.served.add(untold)


def _connections(rows: "pa.Table") -> "Int64s":
    """Return the connection's half of each exchange, int64[n], 0 where it is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    exchange = pc.fill_null(rows["exchange"].combine_chunks(), bytes(16))
    if isinstance(exchange, pa.ChunkedArray):
        exchange = exchange.combine_chunks()
    words = np.frombuffer(exchange.buffers()[1], np.int64)
    return words[2 * exchange.offset : 2 * (exchange.offset + len(exchange)) : 2]


def _with_names(rows: "pa.Table", *, is_served: bool) -> "pa.Table":
    """Return the rows with `name, peer, is_service, address, port, bucket, is_error`; no null in what is shown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.nulls(rows.num_rows, pa.string())
    peer_service = nothing if is_served else rows["peer_service"]
    durations = rows["duration_ns"]
    positive = pc.fill_null(durations, 0).to_numpy()
    buckets = (np.log2(np.maximum(positive, 1)) * BUCKETS_PER_OCTAVE).astype(np.int64)
    columns = {
        "name": pc.coalesce(rows["service"], rows["comm"], rows["local_ip"], "?"),
        "peer": pc.coalesce(nothing, "") if is_served else pc.coalesce(peer_service, rows["remote_ip"], "?"),
        "is_service": pc.is_valid(peer_service),
        "address": pc.if_else(pc.fill_null(rows["peer_service_inferred"], False), rows["remote_ip"], ""),
        "port": rows["local_port"] if is_served else rows["remote_port"],
        "protocol": pc.coalesce(rows["protocol"], "?"),
        "bucket": pa.array(buckets, mask=pc.is_null(durations).to_numpy()),
        "is_error": pc.is_in(rows["outcome"], pa.array(ERRORS)),
    }
    plain = ("operation", "route", "resource", "statement", "status", "outcome", "error_type", "error_message")
    sums = ("request_bytes", "response_bytes", "duration_ns")
    shown = columns | {name: rows[name] for name in (*plain, *sums)}
    shown["resource"] = pc.if_else(pc.is_valid(rows["route"]), pa.scalar(None, pa.string()), rows["resource"])
    return pa.table(shown)


def _end(row: Mapping[str, Any]) -> str:
    """Return the other end without more than is needed to know it: a name, else address and port."""
    return str(row["peer"]) if row["is_service"] or not row["peer"] else address(row["peer"], row["port"])


def address(ip: str, port: int | None) -> str:
    """Return `ip:port`, IPv6 in brackets."""
    host = f"[{ip}]" if ":" in ip else ip
    return host if port is None else f"{host}:{port}"


def named_address(name: str | None, ip: str | None, port: int | None) -> str:
    """Return an address, and before it a name that it is known by."""
    text = address(ip or "?", port)
    return f"{name} {text}" if name else text


def what(row: Mapping[str, Any], *, is_group: bool = True) -> str:
    """Return what was asked for, as a person would say it: with ids, or with their places for a group of rows."""
    words: Iterable[str | None] = (row["operation"], (is_group and row["route"]) or row["resource"])
    text: str = row["statement"] or " ".join(word for word in words if word)
    return text[:TEXT_LENGTH]


def result(row: Mapping[str, Any]) -> str:
    """Return the protocol's status, else how it ended."""
    if row["status"] is not None:
        return str(row["status"])
    return str(row["outcome"] or "")
