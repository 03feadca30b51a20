"""What `call` has beside its points: perf rings for registers and stacks, watched addresses, the signal's other half.

One group of rings carries registers and stacks, another the mappings that stacks are read with: a flood of one does not
take the room of the other.
"""

import json
import os
import signal
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from tracehound.kernel.call_options import CallOptions
from tracehound.kernel.call_points import PointCounts
from tracehound.kernel.perf import SIDEBAND_PAGES, ExtraOptions, PerfReader
from tracehound.kernel.watch import Watches
from tracehound.kernel.watch_places import Watch
from tracehound.procfs import FactWriter, add_point

if TYPE_CHECKING:
    from tracehound.batch import Batch
    from tracehound.kernel.privileged import Privileged
    from tracehound.kernel.ring import Drain

HITS: Final = frozenset({"call_entry", "call_watch"})
WATCH_POINTS: Final = 1 << 20  # numbers of watches begin here: points may be added while they run
EVERY_POINT: Final = (1 << 32) - 2  # the last one is FACT_POINT of system calls


class CallExtras:
    """Those of one trace. A context manager; close the drain first."""

    def __init__(self, kernel: "Privileged", options: CallOptions, is_host: bool) -> None:
        """Open what the options ask for, before any point is attached. Raises KernelError, TargetError."""
        self._kernel = kernel
        self._options = options
        self._stopped: list[int] = []  # processes that --signal may have stopped
        self._open = ExitStack()
        self.readers: list[PerfReader] = []
        self._watches: Watches | None = None
        with ExitStack() as undo:
            undo.callback(self.close)
            if options.has_rings:
                self._add(PerfReader(kernel.map_fd("call_stacks"), options.perf_pages, options.extra))
            if options.stack_bytes:
                traced, seen = (-1, -1) if is_host else (kernel.map_fd("traced"), kernel.map_fd("stack_pids"))
                self._add(PerfReader(-1, SIDEBAND_PAGES, ExtraOptions(0, 0, False, True, traced, seen)))
            if options.watches:
                watches = Watches(kernel, options.watches, WATCH_POINTS, options.watch_rate)
                self._watches = self._open.enter_context(watches)
            undo.pop_all()

    def _add(self, reader: PerfReader) -> None:
        self.readers.append(self._open.enter_context(reader))

    def read_by(self, drain: "Drain", budget_bytes: int) -> None:
        """Have a drain read all rings; their records share a budget. Raises KernelError."""
        for reader in self.readers:
            reader.read_by(drain, budget_bytes)

    def add_facts(self, facts: FactWriter) -> None:
        """Add what rows have to know of the watches, and of all points."""
        if self._options.registers:
            add_point(facts, EVERY_POINT, json.dumps({"registers": self._options.registers}))
        for number, watch in enumerate(self._options.watches, WATCH_POINTS):
            add_point(facts, number, json.dumps(watch.facts()))

    def start(self) -> None:
        """Let the watches hit; raises AttachError."""
        if self._watches is not None:
            self._watches.start()

    def tend(self, batches: "Iterable[Batch]") -> None:
        """Continue the processes whose hits were read, if they are to be; end watches that hit too often."""
        for batch in batches if self._options.resumes else ():
            for kind in HITS & batch.records.keys():
                for pid in set(batch.records[kind].fixed["pid"].tolist()):
                    resume(pid)
        if self._watches is not None:
            self._watches.limit()

    def stop(self) -> None:
        """End the watches, note who is to be continued at the end; before the programs are detached."""
        if self._watches is not None:
            self._watches.stop()
        if self._options.resumes:
            self._stopped = self._kernel.traced_pids()

    def counts(self) -> list[tuple[Watch, PointCounts]]:
        """Return of each watch how often it was hit, and how many of those have no row, by why."""
        return [] if self._watches is None else self._watches.counts()

    def lost(self) -> dict[tuple[str, str], int]:
        """Return what numbers in the records do not tell, by (stage, counter) of a `losses` row."""
        found = dict(self._watches.lost()) if self._watches is not None else {}
        for reader in self.readers:
            ended = sum(1 for each in reader.counts() if each.error)
            for name, count in {**reader.lost(), ("perf", "ring_ended"): ended}.items():
                found[name] = found.get(name, 0) + count
        return found

    def notes(self) -> list[str]:
        """Return a line for each ring and watch that ended before its time; of rings once."""
        notes = [line for reader in self.readers for line in reader.take_failures()]
        return notes + (self._watches.notes() if self._watches is not None else [])

    def close(self) -> None:
        """Close all events, continue who was stopped; idempotent."""
        self._open.close()
        while self._stopped:
            resume(self._stopped.pop())

    def __enter__(self) -> "CallExtras":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def resume(pid: int) -> None:
    """Continue a process that was stopped, if it is there."""
    with suppress(OSError):
        os.kill(pid, signal.SIGCONT)
