"""nat records -> where connections really go: both ends as the server's side has them.

A nat record is of a client's SYN, so it belongs to the connection of its socket that began before it and was
established, or failed, after it. Leaves out servers' sides and connections that were there before the trace.
"""

from socket import AF_INET
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracehound.batch import Batch

KEPT: Final = 1 << 16  # sockets; the oldest are forgotten
ATTEMPTS_KEPT: Final = 4


class Translated(NamedTuple):
    """The two ends of a connection after NAT; addresses of 16 bytes, of IPv4 the first 4."""

    time_ns: int
    family: int
    local_address: bytes
    local_port: int
    remote_address: bytes
    remote_port: int

    @property
    def local(self) -> bytes:
        """Address and port of the client's end, 18 bytes."""
        return end_bytes(self.family, self.local_address, self.local_port)

    @property
    def remote(self) -> bytes:
        """Address and port of the server's end, 18 bytes."""
        return end_bytes(self.family, self.remote_address, self.remote_port)


class Translations:
    """Knows the ends of connections that go through NAT, by cookie."""

    def __init__(self) -> None:
        self._known: dict[int, list[Translated]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def take(self, batch: "Batch") -> None:
        """Learn from the nat records of a batch; to be called before anybody asks about its connections."""
        records = batch.records.get("nat")
        for record in () if records is None else records.fixed:
            cookie = int(record["cookie"])
            found = self._known.setdefault(cookie, [])
            found.append(
                Translated(
                    int(record["time_ns"]),
                    int(record["family"]),
                    record["actual_local_address"].tobytes(),
                    int(record["actual_local_port"]),
                    record["actual_remote_address"].tobytes(),
                    int(record["actual_remote_port"]),
                )
            )
            del found[:-ATTEMPTS_KEPT]
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]

    def of(self, record: Any) -> Translated | None:
        """Return the ends of the connection of a connection record, None if there was no NAT."""
        found = self._known.get(int(record["cookie"]))
        if not found:
            return None
        until_ns = int(record["established_ns"]) or int(record["time_ns"])
        since_ns = int(record["started_ns"])
        return next((one for one in reversed(found) if since_ns <= one.time_ns <= until_ns), None)

    def of_each(self, records: "np.typing.NDArray[np.void]") -> list[Translated | None]:
        """Return the ends of each of these connection records."""
        found: list[Translated | None] = [None] * len(records)
        if self._known:
            known = np.fromiter(self._known, np.uint64, len(self._known))
            for row in np.flatnonzero(np.isin(records["cookie"], known)).tolist():
                found[row] = self.of(records[row])
        return found

    def forget(self, records: "np.typing.NDArray[np.void]") -> None:
        """Forget what is known up to these records, which close their sockets."""
        if not self._known:
            return
        for cookie, time_ns in zip(records["cookie"].tolist(), records["time_ns"].tolist(), strict=True):
            left = [one for one in self._known.pop(cookie, ()) if one.time_ns > time_ns]
            if left:  # connected again
                self._known[cookie] = left


def end_bytes(family: int, raw: bytes, port: int) -> bytes:
    """Return an address as IPv6 has it, and a port: 18 bytes."""
    address = b"\0" * 10 + b"\xff\xff" + raw[:4] if family == AF_INET else raw
    return address + port.to_bytes(2, "big")
