"""Perf rings, one a CPU: what the kernel adds to an output of BPF, or side-band; read by the drain.

Source: perf_event_open(2). The options belong to the rings, not to who outputs into them. What is read becomes records
of the wire (`native/perf.c`), so nothing after the drain knows of perf. Leaves out CPUs that come on line later.
"""

import errno
import mmap
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import KernelError, NotSupported, PermissionDenied, UsageError
from tracehound.native import ffi, lib

if TYPE_CHECKING:
    from tracehound.kernel.ring import Drain

STACK_BYTES_MIN: Final = 512
STACK_BYTES_MAX: Final = 65000
STACK_BYTES_DEFAULT: Final = 8192
PAGES_MOST: Final = 1024  # 4 MiB: 450 stacks of 8 KiB, the drain comes at a quarter of them
PAGES_LEAST: Final = 64
RINGS_BYTES: Final = 64 << 20  # of all CPUs: this memory is locked
SIDEBAND_PAGES: Final = 64
# bit of perf's mask by name; source: arch/*/include/uapi/asm/perf_regs.h
REGISTERS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        **{name: bit for bit, name in enumerate(("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip"))},
        "flags": 9,
        "cs": 10,
        "ss": 11,
        **{f"r{number}": 8 + number for number in range(8, 16)},
    },
    "aarch64": {**{f"x{number}": number for number in range(31)}, "sp": 31, "pc": 32},
}


def own_registers() -> dict[str, int]:
    """Return the bit of each register that this machine has, by name."""
    return REGISTERS[platform.machine()]


@dataclass(frozen=True, slots=True)
class ExtraOptions:
    """What the events of a ring have beside what BPF outputs.

    `registers`: a mask of `own_registers` bits. `stack_bytes`: how much of each stack is copied, 0: nothing; else 512
    to 65000, a multiple of 8. `is_sideband`: instead of samples, memory that processes map executable, and their
    execs; `traced_fd`, `seen_fd`: BPF maps with the pids of whom that is told, -1: of all.
    """

    registers: int = 0
    stack_bytes: int = 0
    has_chain: bool = False
    is_sideband: bool = False
    traced_fd: int = -1
    seen_fd: int = -1

    def __post_init__(self) -> None:
        """Refuse what the kernel would."""
        size = self.stack_bytes
        if size and (not STACK_BYTES_MIN <= size <= STACK_BYTES_MAX or size % 8):
            limits = f"{STACK_BYTES_MIN} to {STACK_BYTES_MAX} bytes and a multiple of 8"
            raise UsageError(f"--stack-size must be {limits}, not {size}")
        if self.registers & ~sum(1 << bit for bit in own_registers().values()):
            raise UsageError(f"no registers of this machine: mask {self.registers:#x}")


_COUNTERS: Final = ("records", "passed_over", "malformed", "lost", "dropped", "peak_bytes", "error")


@dataclass(frozen=True, slots=True)
class RingCounts:
    """What became of the events of one CPU's ring; `error`: the errno that ended its reading, 0: it goes on.

    `lost`: found no room, as the ring's own records say it: those of the last loss come with the next event.
    `lost_now`: the same as the event counts it, exact at any time; None before kernel 6.0.
    """

    cpu: int
    records: int
    passed_over: int
    malformed: int
    lost: int
    lost_now: int | None
    dropped: int
    peak_bytes: int
    error: int


class PerfReader:
    """The rings of one map or of side-band. A context manager; close the drain that reads it first."""

    def __init__(self, map_fd: int, pages: int, options: ExtraOptions) -> None:
        """Open an event on every CPU that is on line and put it into a BPF_MAP_TYPE_PERF_EVENT_ARRAY.

        `map_fd` stays the caller's; -1: none, for side-band. `pages` is a power of two. Raises KernelError; its kind
        says what is missing.
        """
        if pages < 1 or pages & (pages - 1):
            raise UsageError(f"--perf-pages must be a power of two, not {pages}")
        self.pages = pages
        self.options = options
        self._events: list[tuple[int, int]] = []  # cpu, descriptor
        self._drain: Drain | None = None
        self._group = -1
        self._told: set[int] = set()
        self._last: list[RingCounts] = []
        fields = [options.registers, options.stack_bytes, options.has_chain, options.is_sideband]
        self._shape: Any = ffi.new("struct perf_shape *", [*fields, options.traced_fd, options.seen_fd, 0])
        try:
            for cpu in online_cpus():
                self._open(cpu, map_fd)
        except BaseException:
            self.close()
            raise

    def _open(self, cpu: int, map_fd: int) -> None:
        fd = lib.perf_open(self._shape, cpu, self.pages)
        if fd < 0:
            if fd == -errno.ENODEV:  # it has gone off line
                return
            raise _refused(f"open a perf ring on CPU {cpu}", -fd)
        self._events.append((cpu, fd))
        if map_fd >= 0:
            key, value = cpu.to_bytes(4, "little"), fd.to_bytes(4, "little")
            if lib.bpf_map_update_elem(map_fd, key, value, 0):
                raise _refused(f"put the perf ring of CPU {cpu} into its map", ffi.errno)

    def read_by(self, drain: "Drain", budget_bytes: int) -> None:
        """Have a drain read the rings, its records of them within a budget of their own. Raises KernelError."""
        self._group = drain.add_perf(self._events, self.pages, self._shape, budget_bytes)
        self._drain = drain
        for cpu, fd in self._events:
            status = lib.perf_enable(fd)
            if status < 0:
                raise _refused(f"enable the perf ring of CPU {cpu}", -status)

    def counts(self) -> list[RingCounts]:
        """Return what became of the events so far, a row a ring; after `close` what it was at the end."""
        out = ffi.new("struct perf_counters *")
        found = []
        for number, (cpu, fd) in enumerate(self._events):
            if self._drain is None or not self._drain.read_perf(self._group, number, out):
                continue
            lost = int(lib.perf_read_lost(fd)) if self._shape.counts_lost else -1
            counts = {name: int(getattr(out, name)) for name in _COUNTERS}
            found.append(RingCounts(cpu=cpu, lost_now=None if lost < 0 else lost, **counts))
        if found:
            self._last = found
        return self._last

    def lost(self) -> dict[tuple[str, str], int]:
        """Return what numbers in the records do not tell, by (stage, counter) of a `losses` row."""
        counts = self.counts()
        lost = {("perf", "malformed"): sum(each.malformed for each in counts)}
        if self.options.is_sideband:
            gone = sum(each.lost if each.lost_now is None else each.lost_now for each in counts)
            lost["perf", "mapping_lost"] = gone + sum(each.dropped for each in counts)
        return lost

    def take_failures(self) -> list[str]:
        """Return a line for each ring whose reading ended since the last time."""
        failed = [each for each in self.counts() if each.error and each.cpu not in self._told]
        self._told.update(each.cpu for each in failed)
        return [
            f"the perf ring of CPU {each.cpu} ({self.pages} pages) is no longer read: "
            f"{os.strerror(each.error)} (errno {each.error})"
            for each in failed
        ]

    def close(self) -> None:
        """Close the events; idempotent."""
        self.counts()
        self._drain = None
        while self._events:
            os.close(self._events.pop()[1])

    def __enter__(self) -> "PerfReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refused(what: str, code: int) -> KernelError:
    if code in (errno.EPERM, errno.EACCES):
        return PermissionDenied(f"cannot {what}: CAP_PERFMON is missing, or a sandbox refuses perf_event_open", code)
    if code in (errno.ENOENT, errno.ENOSYS, errno.EOPNOTSUPP):
        return NotSupported(f"cannot {what}: this kernel has no perf events ({os.strerror(code)})", code)
    return KernelError(f"cannot {what}: {os.strerror(code)}", code)


def default_pages(cpus: int | None = None) -> int:
    """Return how many pages a ring has if nothing is said: fewer, where there are many CPUs."""
    count = len(online_cpus()) if cpus is None else cpus
    pages = PAGES_MOST
    while pages > PAGES_LEAST and pages * count * mmap.PAGESIZE > RINGS_BYTES:
        pages //= 2
    return pages


def online_cpus(text: str | None = None) -> list[int]:
    """Return the CPUs that are on line; `text` as in /sys/devices/system/cpu/online: 0-3,8."""
    given = Path("/sys/devices/system/cpu/online").read_text() if text is None else text
    found: list[int] = []
    for part in given.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
