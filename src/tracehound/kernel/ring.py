"""The drain of the kernel's rings, as Python sees it: a C thread that fills arenas, and taking them.

The thread (native/drain.c) never waits for Python: what does not fit its budgets is dropped, counted, and told by
records of the fact stream. Leaves out what the bytes mean: `batch.split` reads them.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tracehound.btf import wire_layout
from tracehound.errors import KernelError
from tracehound.native import ffi, lib

MIB: Final = 1 << 20
PERIOD_US: Final = 4000


class Drain:
    """A running drain thread. A context manager; leaving it ends the thread and gives all but taken arenas back."""

    def __init__(
        self,
        rings: Sequence[tuple[int, int, int]],
        budget_bytes: int = 64 * MIB,
        lifecycle_budget_bytes: int = 16 * MIB,
        limit_map_fd: int = -1,
        period_us: int = PERIOD_US,
    ) -> None:
        """Map the rings and start to read them.

        `rings`: (descriptor of the BPF ring buffer, its size in bytes, number of `enum ring_id`). The budgets bound
        what waits and what was taken and is still referenced; that of the lifecycle ring is its own. `limit_map_fd`: a
        mmapable array map of u32 whose first element the thread sets to the capture limit when the data budget fills;
        -1: none. Descriptors stay the caller's and must outlive the drain. Raises KernelError.
        """
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._rings: set[int] = set()
        self._has_limit = False
        self._counters: Any = ffi.new("struct drain_counters *")
        self._drain: Any = lib.drain_new(budget_bytes, lifecycle_budget_bytes, self.wake_fd)
        try:
            if not self._drain:
                raise KernelError("cannot start the drain: no memory")
            self.add(rings, limit_map_fd)
            check(lib.drain_start(self._drain, period_us), "start the drain thread")
        except BaseException:
            self.close()
            raise

    def add(self, rings: Sequence[tuple[int, int, int]], limit_map_fd: int = -1) -> None:
        """Read these rings too, given as at the start, and limit capture there; what it has already is left alone."""
        for fd, size_bytes, ring in rings:
            if ring not in self._rings:
                check(lib.drain_add_ring(self._drain, fd, size_bytes, ring), f"map ring {ring} of {size_bytes} bytes")
                self._rings.add(ring)
        if limit_map_fd >= 0 and not self._has_limit:
            check(lib.drain_map_limits(self._drain, limit_map_fd), "map the capture limit")
            self._has_limit = True

    def add_perf(self, events: Sequence[tuple[int, int]], pages: int, shape: Any, budget_bytes: int) -> int:
        """Read perf rings too, given as (CPU, descriptor), and return the number of their group; see `PerfReader`."""
        ring = wire_layout().enum("ring_id")["RING_STACK"]
        group: int = lib.drain_add_group(self._drain, budget_bytes, ring)
        check(group, "read perf rings")
        for cpu, fd in events:
            what = f"map a perf ring of {pages} pages on CPU {cpu} (--perf-pages makes it smaller)"
            check(lib.drain_add_perf(self._drain, group, fd, pages, cpu, shape), what)
        return group

    def read_perf(self, group: int, number: int, out: Any) -> bool:
        """Fill a `struct perf_counters *` with those of the n-th ring of a group; False: closed, or no such ring."""
        return bool(self._drain) and lib.drain_read_perf(self._drain, group, number, out) == 0

    def take(self) -> list[npt.NDArray[np.uint8]]:
        """Return all that waits, without copying it: arenas of whole records, each padded to 8 bytes.

        Lifecycle records come first, then data, then facts, with the fact_tick last; within a ring the order is the
        ring's. An arena counts against its budget until the array and every view of it are gone. Clears `wake_fd`,
        which becomes readable again when there is more.
        """
        return take_arenas(self._drain) if self._drain else []

    def counters(self) -> dict[str, int]:
        """Return the counters of `struct drain_counters` (native/drain.h), those of a ring with its name before them.

        After `close` they are those of the end.
        """
        if self._drain:
            lib.drain_read_counters(self._drain, self._counters)
        out = self._counters
        rings = {"lifecycle": out.lifecycle, "data": out.data, "stack": out.stack}
        found = {f"{ring}_{name}": getattr(rings[ring], name) for ring in rings for name in dir(rings[ring])}
        return found | {name: getattr(out, name) for name in dir(out) if name not in rings}

    def lost(self) -> dict[tuple[str, str], int]:
        """Return what was found broken in the rings so far, by (stage, counter) of a `losses` row."""
        return {("drain", "damaged"): self.counters()["damaged"]}

    def stop(self) -> None:
        """Read the rings a last time and end the thread; what waits can still be taken. Idempotent."""
        lib.drain_stop(self._drain)

    def close(self) -> None:
        """Stop and free all but the arenas that are still referenced. Idempotent; nothing can be taken afterwards."""
        if self._drain:
            lib.drain_stop(self._drain)
            self.counters()
            lib.drain_free(self._drain)
            self._drain = None
        if self.wake_fd >= 0:
            os.close(self.wake_fd)
            self.wake_fd = -1

    def __enter__(self) -> "Drain":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(status: int, what: str) -> None:
    """Raise KernelError if a call of the drain failed; `what` was tried."""
    if status < 0:
        raise KernelError(f"cannot {what}: {os.strerror(-status)}", -status)


def take_arenas(drain: Any) -> list[npt.NDArray[np.uint8]]:
    """Return what waits in a `struct drain *`, as arrays over its memory."""
    arenas = []
    arena = lib.drain_take(drain)
    while arena:
        data = ffi.gc(lib.arena_data(arena), lib.arena_release)
        size, arena = arena.size, arena.next
        arenas.append(np.frombuffer(ffi.buffer(data, size), np.uint8))
    return arenas
