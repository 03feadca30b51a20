"""Fills `peer_service` of requests: the service at the other end of the connection.

The other end is the row of `connections` whose addresses are the same the other way round; for a client without
one, the listener at the remote address, or at the remote port of all addresses if the remote address is one of this
host. Where a connection goes through NAT, its remote address is the one after it. An end whose service is not known is
named by the container of its process (the 12 digits that docker shows). All were seen in the trace, so
`peer_service_inferred` is false; it stays null with the service. An address names its service from the time of its row
on. Leaves out network namespaces: two of them may use one address.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.enrich.columns import Tables, fill_columns
from tracehound.enrich.container import SHORT_ID, container_id

ENDS_KEPT: Final = 65_536
ENTRIES_KEPT: Final = 4  # of one key
WILDCARDS: Final = ("0.0.0.0", "::")
_ENDS: Final = ("local_ip", "local_port", "remote_ip", "remote_port")


class _Book:
    """Services by key and time; of the keys, those longest without a new entry are forgotten.

    There may be one for each connection, so a key is one text and its entries one tuple: since, service, since, ...
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: str, since_ns: int, service: str) -> None:
        """Let a key name a service from a time on."""
        known = self._entries.pop(key, ())
        if known and known[-2] > since_ns:
            pairs = sorted([*zip(known[::2], known[1::2], strict=True), (since_ns, service)], key=lambda pair: pair[0])
            known = tuple(chain.from_iterable(pairs))
        else:
            known += (since_ns, service)
        self._entries[key] = known[-2 * ENTRIES_KEPT :]
        if len(self._entries) > ENDS_KEPT:  # many at once: a dict is slow to find its first key after deletions
            for oldest in list(islice(self._entries, ENDS_KEPT // 16)):
                del self._entries[oldest]

    def get(self, key: str, time_ns: int) -> str | None:
        """Return the service that a key named at a time."""
        known = self._entries.get(key, ())
        for at in range(len(known) - 2, -1, -2):
            if known[at] <= time_ns:
                service: str = known[at + 1]
                return service
        return None


def _key(*ends: str | int | None) -> str:
    return " ".join(map(str, ends))


class Peers:
    """Knows whose the ends of connections are; costs Python for each connection, not for each request."""

    def __init__(self) -> None:
        self._ends = _Book()  # (local_ip, local_port, remote_ip, remote_port)
        self._listeners = _Book()  # (ip, port)
        self._containers = _Book()  # pid
        self._own_ips = OrderedDict[str, int]()  # -> since
        self._actual = OrderedDict[int, tuple[str, int]]()  # connection -> remote address and port after NAT

    def add(self, tables: Tables) -> Tables:
        """Learn from `processes`, `listens` and `connections`, then fill `requests`."""
        self._learn_containers(tables)
        if "listens" in tables:
            for row in self._rows(tables["listens"], "open", ("local_ip", "local_port")):
                self._set(self._listeners, _key(row["local_ip"], row["local_port"]), row)
        if "connections" in tables:
            for row in self._rows(tables["connections"], ("open", "accept", "snapshot"), _ENDS):
                if row["remote_ip"] is not None:  # else unix, or UDP that is not connected
                    self._set(self._ends, _key(*(row[name] for name in _ENDS)), row)
                self._know_ip(row["local_ip"], row["time_ns"])
            self._learn_nat(tables["connections"])
        requests = tables.get("requests")
        if requests is None or not len(requests):
            return tables
        return tables | {"requests": self._fill(requests)}

    def _learn_containers(self, tables: Tables) -> None:
        found: list[tuple[int, int, str | None]] = []
        processes, facts = tables.get("processes"), tables.get("fact_process")
        if processes is not None:
            inside = processes.filter(pc.is_valid(processes.column("container")))
            found += [tuple(row.values()) for row in inside.select(["time_ns", "pid", "container"]).to_pylist()]
        if facts is not None:
            rows = facts.select(["time_ns", "pid", "cgroup"]).to_pylist()
            found += [(row["time_ns"], row["pid"], container_id(row["cgroup"])) for row in rows]
        for time_ns, pid, container in sorted(one for one in found if one[2]):
            if self._containers.get(_key(pid), time_ns) != container:
                self._containers.set(_key(pid), time_ns, str(container))

    def _set(self, book: _Book, key: str, row: dict[str, Any]) -> None:
        """Let a row's end be its service's; its container's, if nothing better is known."""
        if row["service"] is not None:
            book.set(key, row["time_ns"], row["service"])
        elif book.get(key, row["time_ns"]) is None:
            container = self._containers.get(_key(row["pid"]), row["time_ns"])
            if container is not None:
                book.set(key, row["time_ns"], container[:SHORT_ID])

    def _rows(self, table: pa.RecordBatch, events: str | Iterable[str], ends: Iterable[str]) -> list[dict[str, Any]]:
        """Return the rows of these events of which something may be known, one for each socket."""
        wanted = pa.array([events] if isinstance(events, str) else list(events))
        mask = pc.is_in(table.column("event"), value_set=wanted)
        if not len(self._containers):
            mask = pc.and_(mask, pc.is_valid(table.column("service")))
        rows: list[dict[str, Any]] = table.select(["time_ns", "pid", "service", *ends]).filter(mask).to_pylist()
        return rows

    def _learn_nat(self, connections: pa.RecordBatch) -> None:
        found = connections.filter(pc.is_valid(connections.column("actual_remote_ip")))
        for row in found.select(["connection", "actual_remote_ip", "actual_remote_port"]).to_pylist():
            self._actual[row["connection"]] = row["actual_remote_ip"], row["actual_remote_port"]
            if len(self._actual) > ENDS_KEPT:
                self._actual.popitem(last=False)

    def _know_ip(self, address: str | None, time_ns: int) -> None:
        if address is not None and time_ns < self._own_ips.get(address, time_ns + 1):
            self._own_ips[address] = time_ns
            if len(self._own_ips) > ENDS_KEPT:
                self._own_ips.popitem(last=False)

    def _fill(self, requests: pa.RecordBatch) -> pa.RecordBatch:
        connections = pc.fill_null(requests.column("connection"), -1).to_numpy(zero_copy_only=False)
        _, first, inverse = np.unique(connections, return_index=True, return_inverse=True)
        last = len(requests) - 1 - np.unique(connections[::-1], return_index=True)[1]
        columns = requests.select(["time_ns", "role", "connection", *_ENDS])
        names = [self._peer(row) for row in columns.take(pa.array(first)).to_pylist()]
        services = pa.array(names, pa.string()).take(pa.array(inverse))
        longer = np.flatnonzero(last > first)
        at_last = [self._peer(row) for row in columns.take(pa.array(last[longer])).to_pylist()]
        changed = [at for at, name in zip(longer.tolist(), at_last, strict=True) if name != names[at]]
        if changed:  # while they were under way: each by its own time
            each = services.to_pylist()
            for at in np.flatnonzero(np.isin(inverse, changed)).tolist():
                each[at] = self._peer(columns.slice(at, 1).to_pylist()[0])
            services = pa.array(each, pa.string())
        found = pc.if_else(pc.is_valid(services), pa.scalar(False), pa.scalar(None, pa.bool_()))
        return fill_columns(requests, {"peer_service": services, "peer_service_inferred": found})

    def _peer(self, row: dict[str, Any]) -> str | None:
        ip, port = self._actual.get(row["connection"], (row["remote_ip"], row["remote_port"]))
        time_ns = row["time_ns"]
        service = self._ends.get(_key(ip, port, row["local_ip"], row["local_port"]), time_ns)
        if service is not None or row["role"] == "server" or ip is None:
            return service
        service = self._listeners.get(_key(ip, port), time_ns)
        if service is None and self._is_own(row, time_ns):
            wildcards = (self._listeners.get(_key(any_ip, port), time_ns) for any_ip in WILDCARDS)
            service = next((one for one in wildcards if one is not None), None)
        return service

    def _is_own(self, row: dict[str, Any], time_ns: int) -> bool:
        ip, _ = self._actual.get(row["connection"], (row["remote_ip"], 0))
        return ip in (row["local_ip"], "::1") or ip.startswith("127.") or self._own_ips.get(ip, time_ns + 1) <= time_ns
