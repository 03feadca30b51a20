"""A trace of `call` in this process, and the C target that reads, writes and runs places as it is told."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.live.conftest import Row

from tracehound.agent import Trace
from tracehound.batch import Batch, Records, split
from tracehound.config import Settings
from tracehound.kernel.call_options import CallOptions
from tracehound.kernel.points import find_points
from tracehound.sources.tape import RECORDS, Tape
from tracehound.target import Processes

if TYPE_CHECKING:
    import pyarrow as pa

FEATURES = frozenset({"processes", "calls"})


class Watched:
    """The C target `watched`, as a process; `places`: the addresses of global, heap, stack and step."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        names = ("global", "heap", "stack", "step")
        self.places = dict(zip(names, self.process.stdout.readline().split(), strict=True))

    @property
    def pid(self) -> int:
        return self.process.pid

    def do(self, kind: str, count: int) -> None:
        """Have it act, and wait until it has."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(kind, count, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def close(self) -> None:
        with self.process as process:
            process.kill()


@contextmanager
def watched(c_target: Callable[[str], Path]) -> Iterator[Watched]:
    """Yield the target as a process of its own."""
    target = Watched(c_target("watched"))
    try:
        yield target
    finally:
        target.close()


@dataclass
class Seen:
    """The rows of a trace, and what it said at its end."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    counts: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        for name, table in tables.items():
            self.tables.setdefault(name, []).extend(table.to_pylist())

    def flush(self) -> None:
        pass

    def take_losses(self) -> None:
        return None

    def close(self) -> None:
        pass

    @property
    def calls(self) -> list[Row]:
        return self.tables.get("calls", [])

    def lost(self, *counters: str) -> int:
        """Return how much some counters lost, all if none is named."""
        rows = self.tables.get("losses", [])
        return sum(row["count"] for row in rows if not counters or row["counter"] in counters)


@contextmanager
def traced(
    pid: int, options: CallOptions, points: Sequence[str] = (), tape: Path | None = None, **settings: Any
) -> Iterator[tuple[Seen, Trace]]:
    """Trace a process while the block runs; what was seen is whole behind it."""
    seen = Seen()
    found = find_points(points, (pid,))
    with Trace(Processes((pid,)), Settings(**settings), FEATURES, points=found, call_options=options) as trace:
        trace.load()
        if tape is not None:
            trace.open_tape(tape)
        trace.start([seen])
        yield seen, trace
        trace.stop()
        counted = [each for _, each in trace.point_counts] + [each for _, each in trace.watch_counts]
        seen.counts = [(each.hits, each.lost + each.dropped) for each in counted]
        seen.notes = trace.fill_notes


def records_of(path: Path, kind: str) -> list[tuple[Any, bytes]]:
    """Return the records of one kind on a tape: the fixed part and the tail."""
    found: list[tuple[Any, bytes]] = []
    with Tape(path) as tape:
        for frame in tape.frames():
            batch: Batch = split(frame.data, tape.layout) if frame.type == RECORDS else Batch({})
            records: Records | None = batch.records.get(kind)
            if records is not None:
                pieces = [records.tails[start:end] for start, end in pairwise(records.offsets.tolist())]
                found += zip(records.fixed, pieces, strict=True)
    return found


def registers_of(record: Any, tail: bytes) -> dict[int, int]:
    """Return the registers of a stack record by their bit."""
    mask = int(record["abi_registers"])
    bits = [bit for bit in range(64) if mask >> bit & 1]
    values = np.frombuffer(tail, "<u8", int(record["register_count"])).tolist()
    return dict(zip(bits, values, strict=True)) if values else {}
