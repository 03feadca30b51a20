"""Watched addresses: hardware breakpoints of every thread of a process, with the program that writes their rows.

Source: perf_event_open(2), type BREAKPOINT. New threads and children inherit them; an exec ends them. A CPU has four
for data and code together. Leaves out what the kernel reads and writes for the process (a read(2) into the place).
"""

import errno
import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tracehound.errors import AttachError, KernelError, NotSupported, TargetError
from tracehound.kernel.call_points import PointCounts
from tracehound.kernel.watch_places import ACCESS, Watch
from tracehound.native import ffi, lib

if TYPE_CHECKING:
    from tracehound.kernel.privileged import Privileged

POINT: Final = struct.Struct("<IIIIII")  # struct watch_point
PLACE: Final = struct.Struct("<QII")  # struct watch_place
STATE: Final = struct.Struct("<QQQQQQ")  # struct watch_state
TRIES: Final = 20  # to find all threads while none is being started


class Watches:
    """The breakpoints of a trace. A context manager; closing it ends them."""

    def __init__(self, kernel: "Privileged", watches: Sequence[Watch], first_point: int, rate: int) -> None:
        """Open them, disabled; their rows have the points from `first_point` on.

        `rate`: hits in a second that are allowed. Raises AttachError, which says why the CPU has no room, TargetError.
        """
        self._watches = watches
        self._rate = rate
        program_fd = kernel.program_fd("watch", "on_watch")
        self._maps = {name: kernel.map_fd(name) for name in ("watch_points", "watch_values", "watch_states")}
        self._events: dict[int, list[int]] = {}  # of each watch, one a thread
        self._ended: dict[int, str] = {}
        self._last: dict[int, tuple[int, ...]] = {}
        self._reads_alone = True
        try:
            for slot, watch in enumerate(watches):
                self._events[slot] = self._open(slot, watch, program_fd)
                self._tell(slot, watch, first_point + slot)
        except BaseException:
            self.close()
            raise

    def _open(self, slot: int, watch: Watch, program_fd: int) -> list[int]:
        """Open a breakpoint in every thread; again, when one was started meanwhile: it may have inherited one."""
        for _ in range(TRIES):
            before = threads(watch.pid)
            events = self._open_all(slot, watch, before, program_fd)
            if threads(watch.pid) <= before:
                return events
            for fd in events:
                os.close(fd)
        raise AttachError(f"cannot watch {watch.name}: pid {watch.pid} starts threads all the time")

    def _open_all(self, slot: int, watch: Watch, tids: set[int], program_fd: int) -> list[int]:
        events: list[int] = []
        try:
            for tid in sorted(tids):
                fd = self._open_one(watch, tid, program_fd)
                if fd == -errno.ESRCH:  # it has ended
                    continue
                if fd < 0:
                    raise self._refused(slot, watch, -fd)
                events.append(fd)
        except BaseException:
            for fd in events:
                os.close(fd)
            raise
        if not events:
            raise TargetError(f"cannot watch {watch.name}: pid {watch.pid} has ended")
        return events

    def _open_one(self, watch: Watch, tid: int, program_fd: int) -> int:
        access = ACCESS[watch.access]
        arguments = (watch.size_bytes, watch.is_kernel, program_fd)
        if access == ACCESS["r"] and self._reads_alone:
            fd = int(lib.watch_open(tid, watch.address, access, *arguments))
            if fd != -errno.EINVAL:
                return fd
            self._reads_alone = False  # x86 has none of reads only
        access = ACCESS["rw"] if access == ACCESS["r"] else access
        return int(lib.watch_open(tid, watch.address, access, *arguments))

    def _refused(self, slot: int, watch: Watch, code: int) -> KernelError:
        what = f"cannot watch {watch.name}"
        if code == errno.ENOSPC:
            others = f"{slot} of these watches take them" if slot else "others use them, such as a debugger"
            return AttachError(f"{what}: a CPU has four debug registers and {others}: watch fewer at once", code)
        if code in (errno.EINVAL, errno.EFAULT):
            return AttachError(f"{what}: this CPU cannot watch {watch.access} of {watch.size_bytes} bytes at "
                               f"{watch.address:#x}", code)  # fmt: skip
        if code in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
            return NotSupported(f"{what}: this machine has no hardware breakpoints ({os.strerror(code)})", code)
        return AttachError(f"{what}: {os.strerror(code)}", code)

    def _tell(self, slot: int, watch: Watch, point: int) -> None:
        """Tell the program what the address is."""
        size = 0 if watch.access == "x" else watch.size_bytes
        only_reads = watch.access == "r" and not self._reads_alone
        words = POINT.pack(slot, point, size, only_reads, watch.is_kernel, 0)
        self._update("watch_points", struct.pack("<Q", watch.address), words)

    def _tell_value(self, watch: Watch) -> None:
        """Tell it what stands there now, so that the first hit has a value before."""
        value = None
        if watch.access != "x" and not watch.is_kernel:
            value = read_memory(watch.pid, watch.address, watch.size_bytes)
        if value is not None:
            self._update("watch_values", PLACE.pack(watch.address, watch.pid, 0), value.ljust(8, b"\0"))

    def _update(self, name: str, key: bytes, value: bytes) -> None:
        if lib.bpf_map_update_elem(self._maps[name], key, value, 0):
            raise KernelError(f"cannot write the BPF map {name}: {os.strerror(ffi.errno)}", ffi.errno)

    def start(self) -> None:
        """Let them hit; rows come from now on. Raises AttachError."""
        for slot, watch in enumerate(self._watches):
            self._tell_value(watch)
            for fd in self._events[slot]:
                status = lib.watch_enable(fd)
                if status < 0 and status != -errno.ESRCH:
                    raise self._refused(slot, watch, -status)

    def limit(self) -> None:
        """End the watches that were hit too often: each hit costs the process some microseconds."""
        for slot in self._events.keys() - self._ended.keys():
            if self._state(slot)[5]:
                self._disable(slot)
                self._ended[slot] = f"more than {self._rate} hits in a second (--watch-rate): it was ended"

    def _disable(self, slot: int) -> None:
        for fd in self._events[slot]:
            lib.watch_disable(fd)

    def stop(self) -> None:
        """End all of them; counts stay readable."""
        for slot in self._events:
            self._disable(slot)

    def _state(self, slot: int) -> tuple[int, ...]:
        out = ffi.new("char[]", STATE.size)
        if self._maps and lib.bpf_map_lookup_elem(self._maps["watch_states"], struct.pack("<I", slot), out) == 0:
            self._last[slot] = STATE.unpack(ffi.buffer(out))
        return self._last.get(slot, (0,) * 6)

    def counts(self) -> list[tuple[Watch, PointCounts]]:
        """Return of each watch how often it was hit, and how many of those have no row, by why."""
        states = [self._state(slot) for slot in range(len(self._watches))]
        found = [PointCounts(hits, lost, 0, suppressed) for hits, lost, suppressed, *_ in states]
        return list(zip(self._watches, found, strict=True))

    def lost(self) -> dict[tuple[str, str], int]:
        """Return what numbers in the records do not tell, by (stage, counter) of a `losses` row."""
        return {("watch", "rate_limited"): sum(self._state(slot)[2] for slot in range(len(self._watches)))}

    def notes(self) -> list[str]:
        """Return a line for each watch that was ended before its time."""
        return [f"{self._watches[slot].name}: {why}" for slot, why in sorted(self._ended.items())]

    def close(self) -> None:
        """Close all events; idempotent."""
        for events in self._events.values():
            while events:
                os.close(events.pop())
        self._maps = {}

    def __enter__(self) -> "Watches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def threads(pid: int) -> set[int]:
    """Return the threads of a process; none if it is gone."""
    try:
        return {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    except FileNotFoundError:
        return set()


def read_memory(pid: int, address: int, size: int) -> bytes | None:
    """Return bytes of a process's memory, None if they cannot be read."""
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, address)
        finally:
            os.close(fd)
    except OSError:
        return None
