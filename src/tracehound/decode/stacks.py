"""call_stack records -> rows of `stacks`, one for each distinct stack, and which call had which.

A copied stack is walked over the memory that its process had at that moment, told by fact_mapping, fork, exec and exit
records. The tables of a file are read when a walk first comes to it. All is done by columns, in batches for the C
walker; Python runs once for each distinct stack, and for each change of a process's memory. Nothing in a record is
trusted. Frames of the kernel are not told; inlined functions and lines come when asked for (`stack_lines`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.btf import Layout
from tracehound.decode.keyed import KeyedRows
from tracehound.decode.space_records import SpaceRecords
from tracehound.decode.stack_rows import StackRows
from tracehound.decode.stack_samples import Samples, read_samples
from tracehound.symbols.address_space import Space, Spaces
from tracehound.symbols.module_store import ModuleStore
from tracehound.symbols.unwind import FRAME_RETURN, MAX_DEPTH, TABLE_WANTED, Stacks, Status, splice, unwind

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records
    from tracehound.symbols.stack_module import StackModule

BATCH: Final = 1000  # stacks that are walked at once: their frames are what takes memory
CALLS_LIMIT: Final = 1 << 18  # calls whose stack waits for their row
_CALL: Final = np.dtype([("stack", "i8"), ("number", "i8")])
_MASK: Final = (1 << 64) - 1

Int64s = npt.NDArray[np.int64]


class Walkable(NamedTuple):
    """A space as the walker takes it: RANGE[n], and the module's number of each, -1 for a process's own code."""

    ranges: npt.NDArray[np.void]
    numbers: Int64s
    offsets: npt.NDArray[np.uint64]


class Owned(NamedTuple):
    """The space of some samples, and whose it is."""

    pid: int
    start_ns: int
    space: Space


class StackDecoder:
    """Walks the stacks of one trace, in the order of time."""

    def __init__(self, layout: Layout, modules: ModuleStore | None = None) -> None:
        """`modules`: where tables come from; by default only from fact_module records."""
        self.modules = modules or ModuleStore()
        self.damaged = 0  # records that cannot be
        self._spaces = Spaces()
        self._records = SpaceRecords(layout, self._spaces, self.modules)
        self._rows = StackRows(self.modules, self._records.perf_maps)
        self._walkable: WeakKeyDictionary[Space, Walkable] = WeakKeyDictionary()
        self._calls = KeyedRows(_CALL)
        self._room = Stacks.empty(BATCH, MAX_DEPTH)
        self._seen = 0
        self._unknown: set[int] = set()

    @property
    def unwritten(self) -> int:
        """How many distinct stacks have no row, because there are too many."""
        return self._rows.unwritten

    def take(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return rows of `stacks` for those that were not seen before, None if there are none."""
        self._records.take(batch)
        records = batch.records.get("call_stack")
        rows = None if records is None else self._decode(records)
        self._spaces.settle(batch.watermark_ns)
        return rows

    def stack_of(self, calls: npt.NDArray[np.uint64]) -> pa.Array:
        """Return the stack_id of each call as an int64 array, null for those without a stack."""
        keys = calls.astype(np.int64)
        found = self._calls.contains(keys)
        values = np.zeros(len(keys), np.int64)
        values[found] = self._calls.column("stack", keys[found])
        return pa.array(values, mask=~found)

    def fill(self, rows: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """Return rows of `calls` with their `stack_id`, and forget these calls: each has its row once."""
        if rows is None or not rows.num_rows:
            return rows
        calls = rows["call"].to_numpy().view(np.uint64)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {"stack_id": self.stack_of(calls)}
        self.forget(calls)
        return pa.RecordBatch.from_arrays([columns[name] for name in rows.schema.names], schema=rows.schema)

    def forget(self, calls: npt.NDArray[np.uint64]) -> None:
        """Forget the stacks of calls whose rows are made."""
        self._calls.remove(calls.astype(np.int64))

    def learn(self, batch: "Batch") -> None:
        """Take the modules of a batch ahead of its time: a tape has them behind the first stack that needs them."""
        self._records.learn_modules(batch)

    def take_modules(self) -> "list[tuple[Any, StackModule]]":
        """Return the (key, module) that stacks came to since the last time: what a tape needs to be replayed."""
        return self.modules.take_loaded()

    def take_unknown(self) -> set[int]:
        """Return the pids whose stacks led out of the memory that is known, since the last time."""
        taken, self._unknown = self._unknown, set()
        return taken

    def _decode(self, records: "Records") -> pa.RecordBatch | None:
        samples = read_samples(records)
        self.damaged += samples.damaged
        which, owners = self._owners(records)
        parts: list[pa.RecordBatch] = []
        ids = np.empty(len(samples), np.int64)
        for first in range(0, len(samples), BATCH):
            part = slice(first, first + BATCH)
            some, of = samples.take(part), which[part]
            used, inverse = np.unique(of, return_inverse=True)
            mine = [owners[at] for at in used.tolist()]
            stacks = self._walk(some, mine, inverse)
            splice(stacks, some.chains_of(stacks.statuses == Status.TRUNCATED), some.content)
            self._note_unknown(stacks, mine, inverse)
            walkables = [self._walkable_of(owner.space) for owner in mine]
            ids[part], rows = self._rows.take(stacks, mine, walkables, inverse)
            if rows is not None:
                parts.append(rows)
        self._keep(records.fixed["call"], ids)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]

    def _owners(self, records: "Records") -> tuple[Int64s, list[Owned]]:
        """Return for each record the number of its process's memory at that time, and these."""
        pids, inverse = np.unique(records.fixed["pid"], return_inverse=True)
        times = records.fixed["time_ns"].astype(np.int64)
        which, owners = np.empty(len(times), np.int64), list[Owned]()
        for number, pid in enumerate(pids.tolist()):
            mine = np.flatnonzero(inverse == number)
            for row in mine[:1] if self._spaces.is_steady(pid) else mine:  # else: it changes in this batch
                start_ns, space = self._spaces.at(pid, int(times[row]))
                if not owners or owners[-1].space is not space or owners[-1].pid != pid:
                    owners.append(Owned(pid, start_ns, space))
                which[row] = len(owners) - 1
            if self._spaces.is_steady(pid):
                which[mine] = len(owners) - 1
        return which, owners

    def _walkable_of(self, space: Space) -> Walkable:
        found = self._walkable.get(space)
        if found is None:
            numbers = [-1 if one.file is None else self.modules.number(one.file) for one in space.mapped]
            offsets = np.array([one.offset for one in space.mapped], np.uint64)
            found = Walkable(space.ranges(), np.array(numbers, np.int64), offsets)
            self._walkable[space] = found
            for number in set(numbers) - {-1}:
                if self.modules.table_of(number) != TABLE_WANTED:
                    self._resolve(space, found, number)
        return found

    def _resolve(self, space: Space, walkable: Walkable, number: int) -> None:
        """Give the ranges of a module its table."""
        table, module = self.modules.load(number), self.modules.module(number)
        for at in np.flatnonzero(walkable.numbers == number).tolist():
            one = space.mapped[at]
            address = module.address_of(one.offset) if module is not None else None
            if module is None or address is None:
                walkable.ranges["table"][at] = -1
            else:
                walkable.ranges["table"][at] = table
                walkable.ranges["bias"][at] = one.start - (address - module.base) & _MASK

    def _walk(self, samples: Samples, owners: Sequence[Owned], which: Int64s) -> Stacks:
        """Walk, and read the tables of what the walks come to, until they come to nothing new."""
        walkables = [self._walkable_of(owner.space) for owner in owners]
        counts = np.array([len(one.ranges) for one in walkables], np.int64)
        samples.walked["first_range"] = (np.cumsum(counts) - counts)[which]
        samples.walked["ranges"] = counts[which]
        ranges = np.concatenate([one.ranges for one in walkables])
        found = unwind(self.modules.tables, ranges, samples.walked, samples.content, room=self._room)
        while len(stuck := np.flatnonzero(found.statuses == Status.NEEDS_TABLE)):
            self._resolve_ends(found, stuck, owners, walkables, which)
            ranges = np.concatenate([one.ranges for one in walkables])
            again = unwind(self.modules.tables, ranges, samples.walked[stuck], samples.content, MAX_DEPTH)
            for name in ("addresses", "kinds", "depths", "statuses"):
                getattr(found, name)[stuck] = getattr(again, name)
        return found

    def _resolve_ends(
        self,
        found: Stacks,
        stuck: Int64s,
        owners: Sequence[Owned],
        walkables: Sequence[Walkable],
        which: Int64s,
    ) -> None:
        """Read the tables of where walks stopped for want of them."""
        last = found.depths[stuck].astype(np.int64) - 1
        named = found.addresses[stuck, last] - (found.kinds[stuck, last] & FRAME_RETURN)
        for owner in np.unique(which[stuck]).tolist():
            places = owners[owner].space.find(named[which[stuck] == owner])
            for number in set(walkables[owner].numbers[places].tolist()):
                self._resolve(owners[owner].space, walkables[owner], number)

    def _note_unknown(self, stacks: Stacks, owners: Sequence[Owned], which: Int64s) -> None:
        lost = np.unique(which[stacks.statuses == Status.NO_MAPPING])
        self._unknown |= {owners[at].pid for at in lost.tolist()}

    def _keep(self, calls: npt.NDArray[np.uint64], ids: Int64s) -> None:
        keys, last = np.unique(calls.astype(np.int64)[::-1], return_index=True)
        rows = np.zeros(len(keys), _CALL)
        rows["stack"] = ids[::-1][last]
        rows["number"] = np.arange(self._seen, self._seen + len(keys))
        self._seen += len(keys)
        self._calls.put(keys, rows)
        if len(self._calls) > CALLS_LIMIT:
            every = self._calls.keys()
            self._calls.remove(every[self._calls.column("number", every) < self._seen - CALLS_LIMIT // 2])
