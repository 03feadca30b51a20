"""The summary of a trace: fed like a sink, in bounded memory, with or without a recording; then text or JSON lines."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracehound.sinks._calls import ERRORS, BothSides, Calls, ErrorKey, Group, GroupKey, named_address
from tracehound.sinks._text import printable

if TYPE_CHECKING:
    import pyarrow as pa

BYTE_COUNTERS: Final = frozenset(
    {"gap", "iov_cut", "opaque_bytes", "uncaptured", "window_shed"}
)  # these count bytes, all others events
_KINDS: Final = 1000  # distinct failures, and distinct directories, kept
_NO_FILES: Final = "^/(dev|proc|sys)(/|$)"  # devices and the kernel's own: nothing is kept there
ELSEWHERE: Final = ""  # directories beyond those kept
_QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Ending:
    """What only the one who ran the trace knows.

    `outcome` says how the command ended (`exit 0`, `SIGTERM`), "" if there was none; `events` is how many records came,
    0 if that is not known; `kept` is `last` or a folder, None if no recording was kept; `notes` are lines to be shown.
    `failure` says what tracing failed with: then nobody knows what is missing.
    """

    command: str
    elapsed_ns: int
    outcome: str = ""
    events: int = 0
    kept: str | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class NotTraced:
    """A program that is not attached."""

    program: str
    reason: str
    lost_by_it: str


class Summary:
    """Gathers what the summary shows; a `Sink` that loses nothing."""

    def __init__(self) -> None:
        self.processes = 0
        self.exit_codes: Counter[int] = Counter()  # of those that did not end with 0
        self.signals: Counter[tuple[str, str]] = Counter()  # (signal, reason)
        self.written: Counter[str] = Counter()  # opens for writing that succeeded, by directory
        self.losses: Counter[str] = Counter()
        self.not_traced: list[NotTraced] = []
        self.requests = 0
        self.failed = 0
        self._sides = BothSides()
        self._connect_errors: Counter[ErrorKey] = Counter()

    @property
    def calls(self) -> Calls:
        """Requests told by their client side."""
        return self._sides.calls

    @property
    def served(self) -> Calls:
        """Requests of clients that are not traced."""
        return self._sides.served

    @property
    def comms(self) -> Mapping[str, str]:
        """The kernel's name of the process behind each service."""
        return self._sides.comms

    @property
    def errors(self) -> "Counter[ErrorKey]":
        """All failures by kind, those of connections too."""
        return self.calls.errors + self.served.errors + self._connect_errors

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Take rows."""
        for name, add in (
            ("requests", self._add_requests),
            ("connections", self._add_connections),
            ("processes", self._add_processes),
            ("files", self._add_files),
            ("losses", self._add_losses),
            ("probes", self._add_probes),
        ):
            batch = tables.get(name)
            if batch is not None and batch.num_rows:
                add(batch)

    def flush(self) -> None:
        """Do nothing: the summary is shown once, at the end."""

    def take_losses(self) -> None:
        """Return None: nothing is lost here."""

    def close(self) -> None:
        """Decide what waits; rows that come after this are not shown."""
        self._sides.finish()

    def lost_events(self) -> int:
        """Return the sum of all counters that count events."""
        return sum(count for counter, count in self.losses.items() if counter not in BYTE_COUNTERS)

    def _add_requests(self, batch: "pa.RecordBatch") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._sides.add(batch)
        self.requests += batch.num_rows
        failed = pc.is_in(batch["outcome"], pa.array(ERRORS))
        self.failed += failed.true_count

    def _add_connections(self, batch: "pa.RecordBatch") -> None:
        import pyarrow.compute as pc

        failed = batch.filter(pc.equal(batch["event"], "error"))
        columns = ["service", "comm", "local_ip", "remote_name", "remote_ip", "remote_port", "error"]
        for row in failed.select(columns).to_pylist():
            name = printable(row["service"] or row["comm"] or row["local_ip"] or "?")
            peer = printable(named_address(row["remote_name"], row["remote_ip"], row["remote_port"]))
            key = ErrorKey("connect", row["error"] or "?", "cannot connect", name, peer)
            if key in self._connect_errors or len(self._connect_errors) < _KINDS:
                self._connect_errors[key] += 1

    def _add_processes(self, batch: "pa.RecordBatch") -> None:
        import pyarrow as pa

        columns = ["event", "preexisting", "exit_code", "signal", "reason"]
        kinds = pa.Table.from_batches([batch.select(columns)]).group_by(columns).aggregate([([], "count_all")])
        for row in kinds.to_pylist():
            count = row["count_all"]
            if row["event"] == "start" or (row["preexisting"] and row["event"] != "exit"):
                self.processes += count
            if row["event"] == "exit" and row["signal"]:
                self.signals[row["signal"], row["reason"] or "none"] += count
            elif row["event"] == "exit" and row["exit_code"]:
                self.exit_codes[row["exit_code"]] += count

    def _add_files(self, batch: "pa.RecordBatch") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        opened = batch.filter(pc.and_(pc.is_valid(batch["fd"]), pc.is_valid(batch["resolved_path"])))
        writes = pc.is_in(pc.list_element(opened["flags"], 0), pa.array(["O_WRONLY", "O_RDWR"]))
        is_file = pc.invert(pc.match_substring_regex(opened["resolved_path"], _NO_FILES))
        paths = opened["resolved_path"].filter(pc.and_(writes, is_file))
        directories = pc.replace_substring_regex(paths, r"/[^/]*\z", "")
        for found in pc.value_counts(directories).to_pylist():
            directory = found["values"] or "/"
            known = directory in self.written or len(self.written) < _KINDS
            self.written[directory if known else ELSEWHERE] += found["counts"]

    def _add_losses(self, batch: "pa.RecordBatch") -> None:
        for row in batch.select(["counter", "count"]).to_pylist():
            self.losses[row["counter"]] += row["count"] or 0

    def _add_probes(self, batch: "pa.RecordBatch") -> None:
        for row in batch.select(["program", "attached", "reason", "lost_by_it"]).to_pylist():
            if row["attached"] is False and row["lost_by_it"]:
                missing = NotTraced(row["program"], row["reason"] or "", row["lost_by_it"])
                if missing not in self.not_traced:  # it is told at the start and at the end
                    self.not_traced.append(missing)

    def json_lines(self, ending: Ending) -> str:
        """Return the summary as JSON lines, the first of them `"table": "summary"`; durations in ns."""
        objects = [self._head(ending), *_groups("calls", self.calls), *_groups("served", self.served)]
        for calls in (self.calls, self.served):
            objects += [{"table": "slowest", **slow._asdict()} for slow in sorted(calls.slowest, reverse=True)]
        objects += [{"table": "errors", "count": n, **key._asdict()} for key, n in self.errors.most_common()]
        objects += [
            {"table": "losses", "counter": name, "count": count} for name, count in self.losses.items() if count
        ]
        objects += [
            {"table": "not_traced", "program": p.program, "reason": p.reason, "lost_by_it": p.lost_by_it}
            for p in self.not_traced
        ]
        return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects)

    def _head(self, ending: Ending) -> dict[str, Any]:
        return {
            "table": "summary",
            "command": ending.command,
            "elapsed_ns": ending.elapsed_ns,
            "outcome": ending.outcome,
            "processes": self.processes,
            "exit_codes": {str(code): count for code, count in sorted(self.exit_codes.items())},
            "signals": {name: count for (name, _), count in sorted(self.signals.items())},
            "opened_for_writing": self.written.total(),
            "requests": self.requests,
            "failed": self.failed,
            "events": ending.events,
            "lost": self.lost_events(),
            "kept": ending.kept,
            "notes": list(ending.notes),
            "failed_with": ending.failure,
        }


def _groups(table: str, calls: Calls) -> Iterator[dict[str, Any]]:
    for key, group in by_requests(calls):
        p50, p95, p99 = (group.quantile(share) for share in _QUANTILES)
        yield {
            "table": table,
            "name": key.name,
            "peer": key.peer or None,
            "port": key.port,
            "protocol": key.protocol,
            "requests": group.requests,
            "errors": group.errors,
            "p50_ns": p50 and round(p50),
            "p95_ns": p95 and round(p95),
            "p99_ns": p99 and round(p99),
            "sent_bytes": group.sent_bytes,
            "received_bytes": group.received_bytes,
        }


def by_requests(calls: Calls) -> list[tuple[GroupKey, Group]]:
    """Return (key, group), the one with most requests first."""
    return sorted(calls.groups.items(), key=lambda item: (-item[1].requests, item[0].name, item[0].peer))
