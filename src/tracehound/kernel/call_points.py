"""The points of a running trace: their numbers, their operations in the kernel's tables, their links, their counts.

All places of one file that are added at once have one link for their entries and one for their returns
(uprobe_multi), where the kernel has such (6.6), which is found by trying; else a perf link each. A point's number is
never used again. A point leaves a link that others stay on by a second link of the next generation: each hit counts for
one of them.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tracehound.btf import wire_layout
from tracehound.errors import AttachError, KernelError, UsageError
from tracehound.kernel.bpf_object import BpfObject
from tracehound.kernel.maps import map_keys
from tracehound.kernel.operations import constants, limit, packed_text
from tracehound.kernel.points import Point
from tracehound.native import ffi, lib

ENTRY, RETURN, STACK = "on_call_entry", "on_call_return", "on_call_stack"
UPROBE_MULTI: Final = 48  # BPF_TRACE_UPROBE_MULTI
ATTACH_TYPES: Final = dict.fromkeys((ENTRY, RETURN, STACK), UPROBE_MULTI)
EBADF: Final = 9
DETACH_THREADS: Final = 16


class PointCounts(NamedTuple):
    """Of one point: how often a traced thread reached it, and how many of those have no row, by why."""

    hits: int
    lost: int
    filtered: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Group:
    """What was counted in the kernel under one key; `slot`: the bits of the measure, CALL_SLOT_NEGATIVE below 0."""

    point: int
    slot: int
    key: bytes
    count: int
    total: int


@dataclass(slots=True)
class _LinkSet:
    """Points of one file that share links: descriptors, or libbpf's links where each place has its own."""

    path: str
    points: dict[int, Point]
    generation: int = 0
    descriptors: list[int] = field(default_factory=list)
    links: list[Any] = field(default_factory=list)


class CallPoints:
    """Adds points to a loaded `call` object and takes them away; threads may do so at once."""

    def __init__(self, loaded: BpfObject, stacks: BpfObject | None = None) -> None:
        """Take the object `stack` too, where hits are to have stacks."""
        self._loaded = loaded
        self._objects = {name: loaded for name in (RETURN, ENTRY) if name in loaded.programs()}
        if stacks is not None and STACK in stacks.programs():
            self._objects[STACK] = stacks
        self._lock = threading.RLock()
        self._sets: list[_LinkSet] = []
        self._numbers = 0
        self._firsts: dict[tuple[Any, ...], int] = {}
        self._operations = 0
        self._texts: dict[bytes, int] = {}
        self._cpus = lib.libbpf_num_possible_cpus()
        self.has_multi = self._try_multi()

    def _try_multi(self) -> bool:
        """Whether the kernel has links of many places: it looks at the path then, and / is no file."""
        one = ffi.new("uint64_t[1]")
        return bool(lib.bpf_attach_points(self._loaded.program_fd(ENTRY), b"/", one, one, 1) == -EBADF)

    # ---- adding and removing ---------------------------------------------------------------------------------------

    def add(self, points: Iterable[Point], tell: Callable[[dict[int, Point]], None]) -> None:
        """Attach points, after `tell` was called with them by their numbers.

        All or none: raises AttachError, UsageError for too many.
        """
        with self._lock:
            numbered = {self._numbers + at: point for at, point in enumerate(points)}
            if self._numbers + len(numbered) > limit("POINTS_MAX"):
                raise UsageError(f"a trace has at most {limit('POINTS_MAX')} points, removed ones among them")
            added: list[_LinkSet] = []
            self._numbers += len(numbered)
            tell(numbered)
            try:
                for path in dict.fromkeys(point.path for point in numbered.values()):
                    added.append(_LinkSet(path, {n: each for n, each in numbered.items() if each.path == path}))
                    self._link(added[-1])
            except BaseException:
                for each in added:
                    _unlink(each)
                raise
            self._sets += added

    def remove(self, numbers: Iterable[int]) -> None:
        """Detach points; what they counted stays. Unknown numbers are none of ours any more."""
        with self._lock:
            gone = set(numbers)
            for each in list(self._sets):
                if gone.isdisjoint(each.points):
                    continue
                left = {number: point for number, point in each.points.items() if number not in gone}
                self._sets.remove(each)
                if left:
                    self._sets.append(self._replaced(each, left))
                _unlink(each)

    def _replaced(self, old: _LinkSet, left: dict[int, Point]) -> _LinkSet:
        """Return links for what is left of a set; hits are counted for them from now on."""
        new = _LinkSet(old.path, left, old.generation + 1)
        self._make_links(new)
        self._write(new)
        return new

    def _link(self, links: _LinkSet) -> None:
        self._write(links)
        self._make_links(links)

    def _write(self, links: _LinkSet) -> None:
        for number, point in links.points.items():
            packed = point.packed(self._first(point), links.generation)
            self._update("call_points", struct.pack("<I", number), packed)

    def _first(self, point: Point) -> int:
        """Return where a point's operations are in the table, after they were written there."""
        operations = point.plan.operations
        if operations in self._firsts or not operations:
            return self._firsts.get(operations, 0)
        if self._operations + len(operations) > limit("TABLE_MAX"):
            raise UsageError(f"all points together do more than {limit('TABLE_MAX')} different operations")
        for at, each in enumerate(operations, self._operations):
            text = 0 if each.text is None else self._text(each.text)
            self._update("call_operations", struct.pack("<I", at), each.packed(text))
        self._firsts[operations] = self._operations
        self._operations += len(operations)
        return self._firsts[operations]

    def _text(self, text: bytes) -> int:
        if text not in self._texts:
            if len(self._texts) >= limit("TEXTS_MAX"):
                raise UsageError(f"filters look for more than {limit('TEXTS_MAX')} different texts")
            self._update("call_texts", struct.pack("<I", len(self._texts)), packed_text(text))
            self._texts[text] = len(self._texts)
        return self._texts[text]

    # ---- links -----------------------------------------------------------------------------------------------------

    def _make_links(self, links: _LinkSet) -> None:
        """Attach the returns of a set, then its entries: no call is entered whose return is not seen.

        Stacks come before the entries: what is attached last to a place runs first, and is to leave them a turn.
        """
        entries = [(point.offset, number) for number, point in links.points.items()]
        places = {
            RETURN: [(at, number) for number, point in links.points.items() for at in point.returns],
            STACK: entries,
            ENTRY: entries,
        }
        for program, wanted in places.items():
            if program not in self._objects:
                continue
            cookies = [links.generation << 32 | number for _, number in wanted]
            offsets = [offset for offset, _ in wanted]
            if wanted and self.has_multi:
                links.descriptors.append(self._multi_link(program, links.path, offsets, cookies))
            elif wanted:
                for offset, cookie in zip(offsets, cookies, strict=True):
                    links.links.append(self._objects[program].attach_at(program, links.path, offset, cookie))

    def _multi_link(self, program: str, path: str, offsets: Sequence[int], cookies: Sequence[int]) -> int:
        fd = lib.bpf_attach_points(
            self._objects[program].program_fd(program),
            os.fsencode(path),
            ffi.new("uint64_t[]", offsets),
            ffi.new("uint64_t[]", cookies),
            len(offsets),
        )
        if fd < 0:
            shown = f"{offsets[0]:#x}" + f" and {len(offsets) - 1} more" * (len(offsets) > 1)
            raise AttachError(f"cannot attach {program} to {path}:{shown}: {os.strerror(-fd)}", -fd)
        return int(fd)

    def detach(self) -> None:
        """Take all points away; their counts stay readable. Idempotent."""
        with self._lock:
            while self._sets:
                _unlink(self._sets.pop())

    # ---- counts ----------------------------------------------------------------------------------------------------

    def counts(self, number: int) -> PointCounts:
        """Return what was counted of a point until now."""
        rows = self._per_cpu("call_counts", struct.pack("<I", number), 4)
        return PointCounts(*(sum(row[at] for row in rows) for at in range(4)))

    def turned_off(self) -> dict[int, Point]:
        """Return the points that were above their ceiling, and take them away."""
        off = constants("call_point_flag")["POINT_OFF"]
        dtype = wire_layout().btf.dtype("call_point")
        at = int(dtype.fields["flags"][1]) if dtype.fields else 0
        with self._lock:
            limited = {n: each for links in self._sets for n, each in links.points.items() if each.plan.ceiling}
            found: dict[int, Point] = {}
            value = ffi.new("char[]", dtype.itemsize)
            for number, point in limited.items():
                key = struct.pack("<I", number)
                lib.bpf_map_lookup_elem(self._loaded.maps["call_points"], key, value)
                if struct.unpack_from("<I", ffi.buffer(value), at)[0] & off:
                    found[number] = point
            self.remove(found)
            return found

    def groups(self) -> list[Group]:
        """Return what was counted in the kernel."""
        size = wire_layout().btf.dtype("call_group").itemsize
        found = []
        for key in list(map_keys(self._loaded.maps["call_groups"], size)):
            point, slot = struct.unpack_from("<II", key)
            rows = self._per_cpu("call_groups", key, 2)
            found.append(Group(point, slot, key[8:], sum(row[0] for row in rows), sum(row[1] for row in rows)))
        return found

    def _per_cpu(self, name: str, key: bytes, words: int) -> list[list[int]]:
        values = ffi.new("uint64_t[]", self._cpus * words)
        if lib.bpf_map_lookup_elem(self._loaded.maps[name], key, values):
            return []
        return [list(values[at : at + words]) for at in range(0, self._cpus * words, words)]

    def _update(self, name: str, key: bytes, value: bytes) -> None:
        if lib.bpf_map_update_elem(self._loaded.maps[name], key, value, 0):
            code = ffi.errno
            raise KernelError(f"cannot write the BPF map {name}: {os.strerror(code)}", code)


def call_sizes() -> Mapping[str, int]:
    """Return how large the maps of `call` are to be on this machine."""
    return {"call_scratches": limit("SCRATCHES") * int(lib.libbpf_num_possible_cpus())}


def _unlink(links: _LinkSet) -> None:
    """Destroy the links of a set; nobody runs its programs for them then."""
    for fd in reversed(links.descriptors):
        os.close(fd)
    links.descriptors.clear()
    if links.links:
        with ThreadPoolExecutor(DETACH_THREADS) as threads:  # each waits in the kernel until nobody runs it
            list(threads.map(lib.bpf_link__destroy, links.links))
        links.links.clear()
