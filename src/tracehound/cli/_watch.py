"""What a short trace of a process shows of its connections, for `doctor --pid`.

The same trace as `attach --pid`, into memory: who wonders why rows are missing sees here what came and why the rest did
not. Connections are told by their descriptors at the start; those that came meanwhile are counted only.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import KernelError, TracehoundError

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
SETTLE_S: Final = 1.1  # a snapshot older than a second is followed by a last row, which knows the protocol
TABLES: Final = ("connections", "requests", "losses", "probes")


@dataclass(slots=True)
class Carried:
    """What one connection carried meanwhile; `why` says why its protocol is not known."""

    protocol: str | None = None
    why: str | None = None
    bytes_sent: int = 0
    bytes_received: int = 0
    requests: int = 0
    joined_midstream: int = 0
    truncated: int = 0
    gap: int = 0  # requests beside a gap
    lost: int = 0  # records of it that were lost


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen in a while; `connections` by descriptor, `failure` why nothing could be traced."""

    seconds: float
    connections: dict[int, Carried] = field(default_factory=dict)
    new_connections: int = 0
    requests: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    not_traced: list[str] = field(default_factory=list)
    failure: str | None = None

    def text_of(self, fd: int) -> str:
        """Return what a connection carried as text, "" if nothing is known of it."""
        found = self.connections.get(fd)
        if found is None:
            return ""
        moved = found.bytes_sent + found.bytes_received
        if not moved and found.protocol is None:
            return "quiet" if found.why is None else f"no protocol: {found.why}"
        parts = [found.protocol or f"no protocol: {found.why or 'not enough bytes yet'}"]
        parts += [f"{found.bytes_sent} B out, {found.bytes_received} B in"]
        marks = {"requests": found.requests, "joined mid-stream": found.joined_midstream}
        marks |= {"truncated": found.truncated, "beside a gap": found.gap, "records lost": found.lost}
        return ", ".join([*parts, *(f"{count} {name}" for name, count in marks.items() if count)])

    def lines(self) -> list[str]:
        """Return what was seen of all of it."""
        if self.failure is not None:
            return [f"   traced    not: {self.failure}"]
        lost = ", ".join(f"{name} {count}" for name, count in self.losses.items()) or "nothing"
        seen = f"{self.requests} requests, {self.new_connections} new connections, lost {lost}"
        return [f"   traced    {self.seconds:g} s: {seen}", *(f"   missing   {text}" for text in self.not_traced)]


class _Rows:
    """A sink that keeps rows of some tables."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        for name in TABLES:
            if name in tables:
                self.tables[name] += tables[name].to_pylist()

    def flush(self) -> None:
        pass

    def take_losses(self) -> None:
        return None

    def close(self) -> None:
        pass


def watch(pid: int, seconds: float, btf: str | None = None) -> Watched:
    """Trace a process for a while, or until it ends; raises nothing: what went wrong is said in the result."""
    from tracehound.agent import Trace
    from tracehound.config import Settings
    from tracehound.target import Processes

    rows = _Rows()
    try:
        with Trace(Processes((pid,)), Settings(btf=btf)) as trace:
            trace.load()
            trace.start([rows])
            trace.wait_ended(seconds)
            trace.snapshot()
            trace.wait_ended(SETTLE_S)
            trace.stop()
    except (TracehoundError, KernelError) as error:
        return Watched(seconds, failure=str(error))
    return summed(rows.tables, pid, seconds)


def summed(tables: Mapping[str, list[Row]], pid: int, seconds: float) -> Watched:
    """Return what rows of a trace say of the connections that a process had at its start."""
    own = [row for row in tables["connections"] if pid in (row["pid"], row["ns_pid"])]
    by_connection: dict[int, Carried] = {}
    by_fd: dict[int, Carried] = {}
    before: dict[int, tuple[int, int]] = {}
    for row in sorted(own, key=lambda row: row["time_ns"]):
        found = by_connection.setdefault(row["connection"], Carried())
        if row["bytes_sent"] is not None:
            sent, received = before.setdefault(row["connection"], (row["bytes_sent"], row["bytes_received"]))
            found.bytes_sent, found.bytes_received = row["bytes_sent"] - sent, row["bytes_received"] - received
        found.protocol, found.why = row["protocol"] or found.protocol, row["why"] or found.why
        if row["preexisting"] and row["fd"] is not None:
            by_fd.setdefault(row["fd"], found)
    for row in tables["requests"]:
        found = by_connection.get(row["connection"], Carried())
        found.requests += 1
        for mark in ("joined_midstream", "truncated", "gap"):
            setattr(found, mark, getattr(found, mark) + bool(row[mark]))
    losses = Counter[str]()
    for row in tables["losses"]:
        losses[row["counter"]] += row["count"]
        if row["connection"] in by_connection:
            by_connection[row["connection"]].lost += row["count"]
    off = {row["program"]: f"{row['lost_by_it']} ({row['program']}: {row['reason']})" for row in tables["probes"]
           if not row["attached"]}  # fmt: skip
    new = {row["connection"] for row in own if not row["preexisting"]}
    return Watched(seconds, by_fd, len(new), len(tables["requests"]), dict(losses), list(off.values()))
