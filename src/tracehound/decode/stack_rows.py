"""Walked stacks -> rows of `stacks`: frames by file and offset, each distinct stack once, functions by name.

A stack's id is a hash of its status and of (build id, offset) of its frames, so it is the same in every process, trace
and replay. Files without build id count by path, code that a process made by its name. A caller that is nowhere has no
address: it is a word of the stack that is no code, so it may be anything, also what nobody shall see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.symbols.module_store import ModuleStore, plain_path
from tracehound.symbols.perf_map import PerfMap
from tracehound.symbols.unwind import FRAME_GUESSED, FRAME_RETURN, Stacks, Status
from tracehound.tables import FRAME, TABLES, build

if TYPE_CHECKING:
    from tracehound.decode.stacks import Owned, Walkable

DISTINCT_LIMIT: Final = 1 << 20  # stacks whose id is known without naming their frames
WRITTEN_LIMIT: Final = 1 << 22  # stacks that have a row; one beyond has none
NAMES_LIMIT: Final = 1 << 18
NOWHERE: Final = -2  # instead of a module's number; below it: minus 3 and the number of the process that made the code
STATUSES: Final = tuple(status.name.lower() for status in Status)

Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(slots=True)
class _Frames:
    """The frames of several stacks one after another; `of`: which stack, `modules`: a number, NOWHERE or below."""

    of: Int64s
    addresses: Words
    kinds: npt.NDArray[np.uint8]
    modules: Int64s
    offsets: Words

    def take(self, rows: npt.NDArray[np.bool_]) -> "_Frames":
        return _Frames(*(getattr(self, name)[rows] for name in self.__slots__))


class StackRows:
    """Remembers which stacks have a row."""

    def __init__(self, modules: ModuleStore, perf_maps: Mapping[int, PerfMap]) -> None:
        self.unwritten = 0  # stacks that have none: too many distinct ones
        self._modules = modules
        self._perf_maps = perf_maps
        self._ids: dict[int, int] = {}  # of this trace's own hash
        self._written: Int64s = np.empty(0, np.int64)  # sorted
        self._processes: dict[tuple[int, int], int] = {}
        self._pids: list[int] = []
        self._names: dict[tuple[int, int], tuple[str, int] | None] = {}

    def take(
        self, stacks: Stacks, owners: "Sequence[Owned]", walkables: "Sequence[Walkable]", which: Int64s
    ) -> tuple[Int64s, pa.RecordBatch | None]:
        """Return the stack_id of each stack, int64[n], and rows of those that had none, in the order given.

        `which` says which of `owners` and `walkables` a stack's process is.
        """
        frames = self._frames(stacks, owners, walkables, which)
        own = _own_hashes(frames, stacks)
        distinct, first, inverse = np.unique(own, return_index=True, return_inverse=True)
        ids = [self._ids.get(key) for key in distinct.tolist()]
        new = np.flatnonzero([one is None for one in ids])
        new = new[np.argsort(first[new])]
        rows = None
        if len(new):
            place = np.full(len(own), -1)
            place[first[new]] = np.arange(len(new))
            chosen = frames.take(place[frames.of] >= 0)
            chosen.of = place[chosen.of]
            statuses, depths = stacks.statuses[first[new]], stacks.depths[first[new]].astype(np.int64)
            names = self._names_of(chosen)
            found = self._public_ids(chosen, names, statuses, depths)
            if len(self._ids) + len(new) > DISTINCT_LIMIT:
                self._ids.clear()
            for at, key, stack_id in zip(new.tolist(), distinct[new].tolist(), found.tolist(), strict=True):
                ids[at] = self._ids[key] = stack_id
            rows = self._rows(found, statuses, depths, chosen, names)
        return np.array(ids, np.int64)[inverse.reshape(-1)], rows

    def _frames(
        self, stacks: Stacks, owners: "Sequence[Owned]", walkables: "Sequence[Walkable]", which: Int64s
    ) -> _Frames:
        depths = stacks.depths.astype(np.int64)
        valid = np.arange(stacks.addresses.shape[1]) < depths[:, None]
        addresses, kinds = stacks.addresses[valid], stacks.kinds[valid]
        of = np.repeat(np.arange(len(depths)), depths)
        named = addresses - (kinds & FRAME_RETURN)
        modules, offsets = np.full(len(of), NOWHERE), addresses.copy()
        owner_of = which[of]
        for number, (owner, walkable) in enumerate(zip(owners, walkables, strict=True)):
            rows = np.flatnonzero(owner_of == number)
            at = owner.space.find(named[rows])
            rows, at = rows[at >= 0], at[at >= 0]
            modules[rows] = walkable.numbers[at]
            is_file = walkable.numbers[at] >= 0
            rows_of_files, at = rows[is_file], at[is_file]
            offsets[rows_of_files] = named[rows_of_files] - owner.space.starts[at] + walkable.offsets[at]
            modules[rows[~is_file]] = -3 - self._process(owner)
        is_secret = (modules == NOWHERE) & (kinds & FRAME_RETURN != 0)
        offsets[is_secret] = 0
        return _Frames(of, addresses, kinds, modules, offsets)

    def _process(self, owner: "Owned") -> int:
        number = self._processes.setdefault((owner.pid, owner.start_ns), len(self._pids))
        if number == len(self._pids):
            self._pids.append(owner.pid)
        return number

    def _names_of(self, frames: _Frames) -> list[tuple[str, int] | None]:
        """Return (function, bytes from its start) of each frame."""
        keys = np.stack((frames.modules, frames.offsets.astype(np.int64)), axis=1)
        pairs, inverse = np.unique(keys, axis=0, return_inverse=True)
        if len(self._names) + len(pairs) > NAMES_LIMIT:
            self._names.clear()
        found = [self._name(module, offset) for module, offset in pairs.tolist()]
        return [found[at] for at in inverse.reshape(-1).tolist()]

    def _name(self, module: int, offset: int) -> tuple[str, int] | None:
        if module == NOWHERE:
            return None
        if module < NOWHERE:  # it may be named later
            names = self._perf_maps.get(self._pids[-3 - module])
            return None if names is None else names.at(offset & (1 << 64) - 1)
        key = module, offset
        if key not in self._names:
            self._modules.load(module)  # a frame of the kernel's chain may be where no walk came to
            found = self._modules.module(module)
            self._names[key] = None if found is None else found.symbol_at(offset)
        return self._names[key]

    def _public_ids(
        self, frames: _Frames, names: list[tuple[str, int] | None], statuses: npt.NDArray[np.uint8], depths: Int64s
    ) -> Int64s:
        identities = {number: self._identity(number) for number in np.unique(frames.modules).tolist()}
        words = np.empty((len(frames.of), 2), np.uint64)
        words[:, 1] = frames.offsets
        for number, identity in identities.items():
            words[frames.modules == number, 0] = identity
        for at in np.flatnonzero(frames.modules < NOWHERE).tolist():
            name = names[at]
            if name is not None:
                words[at] = _hash(b"jit " + name[0].encode()), name[1]
        ends = np.cumsum(depths)
        return np.array(
            [
                _signed(bytes([status]) + words[end - depth : end].tobytes())
                for status, end, depth in zip(statuses.tolist(), ends.tolist(), depths.tolist(), strict=True)
            ],
            np.int64,
        )

    def _identity(self, number: int) -> int:
        if number < 0:
            return 0 if number == NOWHERE else 1
        key, module = self._modules.key(number), self._modules.module(number)
        build_id = key.build_id or (module.build_id if module is not None else b"")
        return _hash(build_id or b"path " + plain_path(key))

    def _rows(
        self,
        ids: Int64s,
        statuses: npt.NDArray[np.uint8],
        depths: Int64s,
        frames: _Frames,
        names: list[tuple[str, int] | None],
    ) -> pa.RecordBatch | None:
        """Return rows of the stacks that have none yet."""
        lists = self._frame_lists(frames, names, depths)
        _, first = np.unique(ids, return_index=True)
        is_new = np.zeros(len(ids), bool)
        is_new[first] = True
        is_new &= ~np.isin(ids, self._written)
        if len(self._written) >= WRITTEN_LIMIT:
            self.unwritten += int(np.count_nonzero(is_new))
            return None
        self._written = np.union1d(self._written, ids)
        rows = build(
            TABLES["stacks"],
            len(ids),
            {
                "stack_id": ids,
                "status": pa.array(STATUSES).take(pa.array(statuses)),
                "depth": depths.astype(np.int32),
                "frames": lists,
            },
        )
        rows = rows.filter(pa.array(is_new))
        return rows if rows.num_rows else None

    def _frame_lists(self, frames: _Frames, names: list[tuple[str, int] | None], depths: Int64s) -> pa.ListArray:
        numbers, inverse = np.unique(frames.modules, return_inverse=True)
        files = [self._file(number) for number in numbers.tolist()]
        which = pa.array(inverse.reshape(-1))
        count = len(frames.of)
        nulls = [None] * count
        columns: dict[str, Any] = {
            "kind": pa.array(["native" if number >= NOWHERE else "jit" for number in numbers.tolist()]).take(which),
            "build_id": pa.array([file[0] for file in files], pa.string()).take(which),
            "file": pa.array([file[1] for file in files], pa.string()).take(which),
            "file_offset": pa.array(frames.offsets.astype(np.int64), mask=frames.modules < 0),
            "address": pa.array(
                frames.addresses.astype(np.int64),
                mask=(frames.modules == NOWHERE) & (frames.kinds & FRAME_RETURN != 0),
            ),
            "symbol": pa.array([name and name[0] for name in names], pa.string()),
            "symbol_offset": pa.array([name and name[1] for name in names], pa.int64()),
            "source": pa.array(nulls, pa.string()),
            "line": pa.array(nulls, pa.int32()),
            "inlined": pa.array(np.zeros(count, bool)),
            "guessed": pa.array((frames.kinds & FRAME_GUESSED) != 0),
        }
        members = pa.StructArray.from_arrays([columns[name] for name, _ in FRAME], [name for name, _ in FRAME])
        offsets = np.concatenate(([0], np.cumsum(depths))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), members)

    def _file(self, number: int) -> tuple[str | None, str | None]:
        """Return (build id, path) of a module as text."""
        if number < 0:
            return None, None
        key, module = self._modules.key(number), self._modules.module(number)
        build_id = key.build_id or (module.build_id if module is not None else b"")
        return build_id.hex() or None, plain_path(key).decode("utf-8", "backslashreplace")


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _signed(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def _mixed(words: Words) -> Words:
    """Return words whose bits are spread: splitmix64's last steps, which lose nothing."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)


def _own_hashes(frames: _Frames, stacks: Stacks) -> Words:
    """Return one word for each stack, equal for equal ones of this trace."""
    depths = stacks.depths.astype(np.int64)
    places = np.arange(len(frames.of)) - (np.cumsum(depths) - depths)[frames.of]
    words = _mixed(frames.offsets + _mixed(frames.modules.astype(np.uint64) + np.uint64(1 << 40)))
    words = _mixed(words + _mixed(places.astype(np.uint64)))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)))
    ends = np.cumsum(depths)
    whole = sums[ends] - sums[ends - depths]
    return _mixed(whole + _mixed(stacks.statuses.astype(np.uint64) + np.uint64(1 << 41)))
