"""Names addresses by the answers of DNS that were seen: `remote_name` of connections, `peer_service` of requests.

The answer that the process itself got last names an address, else the last one that any traced process got: a parent,
or a resolver. A connection keeps the name that held when it began; if none did, that of its first request that has one.
`peer_service` is filled where the other end's service is not known, and is then `peer_service_inferred`: an address may
have several names, and more than one service. Clients, the other ends of servers, get no name. Leaves out when an
answer expires, and network namespaces.
"""

from collections import OrderedDict
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.enrich.columns import Int64s, Tables, fill_columns, int_column

CONNECTIONS_KEPT: Final = 65_536
KEYS_KEPT: Final = 16_384  # addresses, by process and for all
NAMES_KEPT: Final = 16  # of one of them
EVERYONE: Final = -1  # in place of a pid
_NAMED: Final = ["connection", "pid", "role", "remote_ip", "time_ns"]


class _Book:
    """Names by key and time, which only rises; of the keys, those longest without an answer are forgotten."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[int, str]]] = {}
        self._long: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def set(self, key: str, since_ns: int, name: str) -> None:
        """Let a key stand for a name from a time on."""
        held = self._held.pop(key, [])
        if not held or held[-1][1] != name:
            held.append((since_ns, name))
        self._held[key] = held
        if len(held) > NAMES_KEPT:
            self._long.add(key)
        if len(self._held) > KEYS_KEPT:
            del self._held[next(iter(self._held))]

    def get(self, key: str, time_ns: int) -> str | None:
        """Return the name that a key stood for at a time."""
        return next((name for since, name in reversed(self._held.get(key, ())) if since <= time_ns), None)

    def trim(self) -> None:
        """Forget the oldest names of keys with many: not before rows of the same time have asked."""
        for key in self._long:
            del self._held.get(key, [])[:-NAMES_KEPT]
        self._long.clear()


class SeenNames:
    """Knows the names of addresses over time; costs Python for each connection, not for each request."""

    def __init__(self) -> None:
        self._names = _Book()  # pid or EVERYONE, and address
        self._of_connection = OrderedDict[int, str]()

    def add(self, tables: Tables) -> Tables:
        """Learn from `fact_name`, then fill `connections` and `requests`."""
        for row in tables["fact_name"].to_pylist() if "fact_name" in tables else ():
            for pid in (row["pid"], EVERYONE):
                self._names.set(f"{pid} {row['address']}", row["time_ns"], row["name"])
        if not len(self._names):
            return tables
        filled = {}
        connections, requests = tables.get("connections"), tables.get("requests")
        if connections is not None:
            self._begin(connections)
        if requests is not None and len(requests):
            filled["requests"] = self._fill_requests(requests)
        if connections is not None:  # their later rows, behind the requests that may have named them
            filled["connections"] = self._fill_connections(connections)
        self._names.trim()
        return tables | filled

    def _name(self, pid: int | None, address: str, time_ns: int) -> str | None:
        own = self._names.get(f"{pid} {address}", time_ns)
        return own or self._names.get(f"{EVERYONE} {address}", time_ns)

    def _begin(self, connections: pa.RecordBatch) -> None:
        """Name connections that begin."""
        begun = connections.filter(pc.equal(connections.column("event"), "open"))
        for row in begun.select(_NAMED).to_pylist():
            name = self._name_of(row)
            if name is not None:
                self._keep(row["connection"], name)

    def _name_of(self, row: dict[str, Any]) -> str | None:
        if row["remote_ip"] is None or row["role"] == "server":
            return None
        return self._name(row["pid"], row["remote_ip"], row["time_ns"])

    def _fill_connections(self, connections: pa.RecordBatch) -> pa.RecordBatch:
        names = []
        for row in connections.select([*_NAMED, "event"]).to_pylist():
            kept = None if row["event"] == "open" else self._of_connection.get(row["connection"])
            names.append(kept or self._name_of(row))
        return fill_columns(connections, {"remote_name": pa.array(names, pa.string())})

    def _keep(self, connection: int, name: str) -> None:
        self._of_connection[connection] = name
        if len(self._of_connection) > CONNECTIONS_KEPT:
            self._of_connection.popitem(last=False)

    def _fill_requests(self, requests: pa.RecordBatch) -> pa.RecordBatch:
        is_client = pc.fill_null(pc.not_equal(requests.column("role"), "server"), True)
        has_address = pc.is_valid(requests.column("remote_ip"))
        is_open = pc.and_(pc.and_(is_client, has_address), pc.is_null(requests.column("peer_service")))
        rows = np.flatnonzero(is_open.to_numpy(zero_copy_only=False))
        if not len(rows):
            return requests
        numbers, inverse = np.unique(int_column(requests, "connection")[rows], return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        groups = np.split(rows[order], np.flatnonzero(np.diff(inverse[order])) + 1)
        found: list[str] = []
        at = np.full(len(requests), -1)
        for number, group in zip(numbers.tolist(), groups, strict=True):
            name, named = self._of_connection.get(number), group
            if name is None:
                name, named = self._first_name(requests, group)
            if name is not None:
                self._keep(number, name)
                at[named] = len(found)
                found.append(name)
        names = pa.array(found, pa.string()).take(pa.array(at, mask=at < 0))
        inferred = pc.if_else(pc.is_valid(names), pa.scalar(True), pa.scalar(None, pa.bool_()))
        return fill_columns(requests, {"peer_service": names, "peer_service_inferred": inferred})

    def _first_name(self, requests: pa.RecordBatch, rows: Int64s) -> tuple[str | None, Int64s]:
        """Return the name that the requests of one connection find first, and those from there on."""
        pid, address = (requests.column(name)[int(rows[0])].as_py() for name in ("pid", "remote_ip"))
        if f"{EVERYONE} {address}" in self._names or f"{pid} {address}" in self._names:
            for at, start_ns in enumerate(int_column(requests, "start_ns")[rows].tolist()):
                name = self._name(pid, address, start_ns)
                if name is not None:
                    return name, rows[at:]
        return None, rows
