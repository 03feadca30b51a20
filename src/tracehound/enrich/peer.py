"""Fills `peer_service` of requests: the service at the other end of the connection.

The other end is the row of `connections` whose addresses are the same the other way round; for a client without
one, the listener at the remote address, or at the remote port of all addresses if the remote address is one of this
host. Where a connection goes through NAT, its remote address is the one after it. All were seen in the trace, so
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
        self._own_ips = OrderedDict[str, int]()  # -> since
        self._actual = OrderedDict[int, tuple[str, int]]()  # connection -> remote address and port after NAT

    def add(self, tables: Tables) -> Tables:
        """Learn from `listens` and `connections`, then fill `requests`."""
        if "listens" in tables:
            for row in _rows(tables["listens"], "open", ("local_ip", "local_port")):
                self._listeners.set(_key(row["local_ip"], row["local_port"]), row["time_ns"], row["service"])
        if "connections" in tables:
            for row in _rows(tables["connections"], ("open", "accept", "snapshot"), _ENDS):
                if row["remote_ip"] is not None:  # else unix, or UDP that is not connected
                    self._ends.set(_key(*(row[name] for name in _ENDS)), row["time_ns"], row["service"])
                self._know_ip(row["local_ip"], row["time_ns"])
            self._learn_nat(tables["connections"])
        requests = tables.get("requests")
        if requests is None or not len(requests):
            return tables
        return tables | {"requests": self._fill(requests)}

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
        wanted = requests.select(["time_ns", "role", "connection", *_ENDS]).take(pa.array(first)).to_pylist()
        services = pa.array([self._peer(row) for row in wanted], pa.string()).take(pa.array(inverse))
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


def _rows(table: pa.RecordBatch, events: str | Iterable[str], ends: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of these events whose service is known, one for each socket."""
    wanted = pa.array([events] if isinstance(events, str) else list(events))
    mask = pc.and_(pc.is_in(table.column("event"), value_set=wanted), pc.is_valid(table.column("service")))
    rows: list[dict[str, Any]] = table.select(["time_ns", "service", *ends]).filter(mask).to_pylist()
    return rows
