"""Which file is where in a process's executable memory, at every moment: from records alone.

A space is what holds from one moment on; a change makes a new one and leaves the old, so a fork copies nothing, and
stacks that were sampled before an exec or an exit are still walked over what was there then. Only executable memory is
kept: nothing else holds code. Left out: munmap, which no record tells; reading /proc, which `mapped_files` does.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound.symbols.unwind import RANGE, TABLE_UNKNOWN, TABLE_WANTED

KEPT_DEAD_NS: Final = 30_000_000_000  # after a process's end its stacks may still come
DEAD_LIMIT: Final = 4096
SPACES_LIMIT: Final = 1 << 16  # processes; those that were used the longest ago are forgotten
MAPPINGS_LIMIT: Final = 1 << 14  # of a process; there are no more than the kernel's vm.max_map_count anyway
TRAMPOLINE: Final = b"[uprobes]"  # the kernel's own code: to walk on from it would be a guess
OWN: Final = (b"//anon", b"/dev/zero", b"/anon_hugepage", b"/SYSV")  # what the kernel calls memory without a file
SPECIAL: Final = (b"[vdso]", b"[vsyscall]", TRAMPOLINE)  # without inode, and yet not code that the process made


class FileKey(NamedTuple):
    """Which file it is: by build id where that is known. `path` is as the kernel has it.

    `generation` tells files apart that had the same inode one after another; 0 where it is not known.
    """

    build_id: bytes
    device: tuple[int, int]
    inode: int
    path: bytes
    generation: int = 0


def is_file(inode: int, path: bytes) -> bool:
    """Tell whether a mapping has code of a file, or of the kernel; else the process made it."""
    return path in SPECIAL or (inode != 0 and not path.startswith(OWN))


class Mapped(NamedTuple):
    """Executable memory: addresses, where in the file it begins, and which file; None: the process's own."""

    start: int
    end: int
    offset: int
    file: FileKey | None


_start = attrgetter("start")


class Space:
    """The executable memory of a process from one moment on; immutable."""

    def __init__(self, mapped: tuple[Mapped, ...] = ()) -> None:
        """Take mappings that are sorted and do not overlap."""
        self.mapped = mapped

    def with_mapping(self, start: int, end: int, new: Mapped | None) -> "Space":
        """Return the space with `new`, or nothing executable, from `start` to `end`."""
        kept, first = self.mapped, bisect_right(self.mapped, start, key=_start)
        if first and kept[first - 1].end > start:
            first -= 1
        last = bisect_left(kept, end, lo=first, key=_start)
        parts: list[Mapped] = []
        for one in kept[first:last]:
            if one.start < start:
                parts.append(one._replace(end=start))
            if one.end > end:
                parts.append(one._replace(start=end, offset=one.offset + end - one.start))
        if new is not None:
            parts.append(new)
        return Space((*kept[:first], *sorted(parts), *kept[last:])[:MAPPINGS_LIMIT])

    @cached_property
    def starts(self) -> npt.NDArray[np.uint64]:
        """uint64[n], sorted."""
        return np.array([one.start for one in self.mapped], np.uint64)

    @cached_property
    def ends(self) -> npt.NDArray[np.uint64]:
        """uint64[n]."""
        return np.array([one.end for one in self.mapped], np.uint64)

    def find(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the number of the mapping of each address, int64[n]; -1 where there is none."""
        if not self.mapped:
            return np.full(len(addresses), -1)
        at = np.searchsorted(self.starts, addresses, "right").astype(np.int64) - 1
        return np.where((at >= 0) & (addresses < self.ends[np.maximum(at, 0)]), at, -1)

    def ranges(self) -> npt.NDArray[np.void]:
        """Return RANGE[n] without tables, those of files TABLE_WANTED; the caller's to change."""
        rows = [(one.start, one.end, 0, TABLE_UNKNOWN if one.file is None else TABLE_WANTED) for one in self.mapped]
        return np.array(rows, RANGE)


EMPTY: Final = Space()


@dataclass(slots=True)
class _Process:
    start_ns: int  # 0: not known
    versions: list[tuple[int, Space]]  # (from when on, what), by time
    ended_ns: int = 0

    def at(self, time_ns: int) -> Space:
        """Return what holds at a time; before the first listing, that one: it was made for who came before."""
        index = bisect_right(self.versions, time_ns, key=lambda version: version[0])
        return self.versions[max(index - 1, 0)][1] if self.versions else EMPTY

    def set(self, time_ns: int, space: Space) -> None:
        while self.versions and self.versions[-1][0] >= time_ns:
            time_ns = self.versions.pop()[0]
        self.versions.append((time_ns, space))

    @property
    def newest(self) -> Space:
        return self.versions[-1][1] if self.versions else EMPTY


class Spaces:
    """The spaces of all processes that anything is known of. Changes come in the order of time.

    A process is known by pid and start, so a pid that is given anew is another one.
    """

    def __init__(self) -> None:
        self._processes: OrderedDict[int, list[_Process]] = OrderedDict()
        self._changed: set[int] = set()
        self._dead: list[tuple[int, int]] = []  # (when, pid)

    def __len__(self) -> int:
        return len(self._processes)

    def __contains__(self, pid: int) -> bool:
        return pid in self._processes

    def pids(self) -> npt.NDArray[np.int64]:
        """Return the pids of which anything is known, int64[n]."""
        return np.fromiter(self._processes, np.int64, len(self._processes))

    def is_steady(self, pid: int) -> bool:
        """Tell whether `at` says the same at every time."""
        lives = self._processes.get(pid, ())
        return len(lives) <= 1 and all(len(life.versions) <= 1 for life in lives)

    def at(self, pid: int, time_ns: int) -> tuple[int, Space]:
        """Return (start of the process, 0 where it is not known, its space at a time); EMPTY where nothing is known."""
        lives = self._processes.get(pid)
        if not lives:
            return 0, EMPTY
        self._processes.move_to_end(pid)
        found = next((life for life in reversed(lives) if life.start_ns <= time_ns), lives[0])
        return found.start_ns, found.at(time_ns)

    def map(self, pid: int, start_ns: int, time_ns: int, mapped: Mapped, is_executable: bool) -> None:
        """Take that a range has this and nothing else from now on."""
        if mapped.end <= mapped.start:
            return
        code = mapped if is_executable and (mapped.file is None or mapped.file.path != TRAMPOLINE) else None
        life = self._life(pid, start_ns, time_ns)
        life.set(time_ns, life.newest.with_mapping(mapped.start, mapped.end, code))

    def clear(self, pid: int, start_ns: int, time_ns: int) -> None:
        """Take that what was known of a process holds no longer: it executes another program, or is listed anew."""
        life = self._life(pid, start_ns, time_ns)
        life.set(time_ns, EMPTY)

    def fork(self, parent: int, child: int, start_ns: int, time_ns: int) -> None:
        """Take that a process began with its parent's memory."""
        _, space = self.at(parent, time_ns)
        if space.mapped:
            life = self._life(child, start_ns, time_ns)
            if not life.versions:
                life.versions.append((time_ns, space))

    def exit(self, pid: int, time_ns: int) -> None:
        """Take that a process ended; what was known of it is kept for a while."""
        if pid in self._processes:
            self._processes[pid][-1].ended_ns = time_ns
            self._dead.append((time_ns, pid))

    def settle(self, time_ns: int) -> None:
        """Forget what no stack after `time_ns` can ask for."""
        for pid in self._changed:
            for life in self._processes.get(pid, ()):
                del life.versions[: max(bisect_right(life.versions, time_ns, key=lambda one: one[0]) - 1, 0)]
        self._changed.clear()
        while self._dead and (self._dead[0][0] < time_ns - KEPT_DEAD_NS or len(self._dead) > DEAD_LIMIT):
            _, pid = self._dead.pop(0)
            lives = [life for life in self._processes.get(pid, ()) if not life.ended_ns]
            if lives:
                self._processes[pid] = lives
            else:
                self._processes.pop(pid, None)

    def _life(self, pid: int, start_ns: int, time_ns: int) -> _Process:
        """Return the process, made if it is new; `start_ns` 0 means the one that has the pid at that time."""
        lives = self._processes.setdefault(pid, [])
        self._changed.add(pid)
        life = lives[-1] if lives else None
        if life is not None and life.ended_ns and life.ended_ns <= time_ns and start_ns != life.start_ns:
            life = None  # the pid was given anew
        elif life is not None and start_ns and life.start_ns and start_ns > life.start_ns:
            life = None
        if life is None:
            life = _Process(start_ns, [])
            lives.append(life)
            while len(self._processes) > SPACES_LIMIT:
                self._processes.popitem(last=False)
        elif not life.start_ns:
            life.start_ns = start_ns
        return life
