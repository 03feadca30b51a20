"""release and exec records -> which content of a descriptor slot a call used: its generation.

A descriptor is a number that is used again. Its generation counts, for one process, how often the slot had been emptied
or replaced before (close, close_range, dup2, dup3; an exec, which closes some unseen, counts for all slots), so that
(process, fd, generation) names one content. It says nothing before the first release record: descriptors were not
traced then. Ranges of more slots than `WIDE` count for all slots of the process, too.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tracehound.decode.keyed import KeyedRows

if TYPE_CHECKING:
    from tracehound.batch import Batch

WIDE: Final = 64
ALL_SLOTS: Final = 0xFFFFFFFF  # a key's low half: no slot has this number
_COUNT: Final = np.dtype([("count", "i8")])

Int64s = npt.NDArray[np.int64]


class Generations:
    """Counts releases by process and slot; `at` answers for calls of the batch that was taken last."""

    def __init__(self) -> None:
        self._before = KeyedRows(_COUNT)  # pid << 32 | slot -> releases in batches before
        self._keys: Int64s = np.empty(0, np.int64)  # of this batch, sorted by key and time
        self._times: Int64s = np.empty(0, np.int64)
        self._ended: Int64s = np.empty(0, np.int64)  # processes that ended in this batch
        self._first_ns: int | None = None

    def __len__(self) -> int:
        return len(self._before)

    def take(self, batch: "Batch") -> None:
        """Learn from a batch; to be called before anybody asks about its calls."""
        self._settle()
        release, execs, exits = (batch.records.get(kind) for kind in ("release", "exec", "exit"))
        if self._first_ns is None:
            if release is None:
                return
            self._first_ns = int(release.fixed["time_ns"].min())
        keys, times = [], []
        if release is not None:
            found = _slots(release.fixed)
            keys.append(found[0])
            times.append(found[1])
        if execs is not None:
            counted = execs.fixed[execs.fixed["time_ns"] >= self._first_ns]  # of older ones another cut knows nothing
            keys.append(counted["pid"].astype(np.int64) << 32 | ALL_SLOTS)
            times.append(counted["time_ns"].astype(np.int64))
        if keys:
            key, time_ns = np.concatenate(keys), np.concatenate(times)
            order = np.lexsort((time_ns, key))
            self._keys, self._times = key[order], time_ns[order]
        if exits is not None:
            self._ended = exits.fixed["pid"].astype(np.int64)

    def at(self, pid: Int64s, fd: Int64s, time_ns: Int64s) -> Int64s:
        """Return the generation of each call's descriptor, -1 where it is not known."""
        if self._first_ns is None or not len(pid):
            return np.full(len(pid), -1)
        slots = self._count(pid << 32 | fd, time_ns) + self._count(pid << 32 | ALL_SLOTS, time_ns)
        return np.where((fd >= 0) & (time_ns >= self._first_ns), slots, -1)

    def _count(self, keys: Int64s, time_ns: Int64s) -> Int64s:
        known = self._before.contains(keys)
        counts = np.zeros(len(keys), np.int64)
        counts[known] = self._before.column("count", keys[known])
        if len(self._keys):
            distinct, first = np.unique(self._keys, return_index=True)
            ranks = np.sort(self._times)
            size = len(ranks) + 1
            place = np.searchsorted(distinct, self._keys) * size + np.searchsorted(ranks, self._times)
            at = np.searchsorted(distinct, keys)
            here = np.append(distinct, -1)[at] == keys
            wanted = at * size + np.searchsorted(ranks, time_ns, side="right")
            earlier = np.searchsorted(place, wanted) - np.append(first, len(self._keys))[at]
            counts += np.where(here, earlier, 0)
        return counts

    def _settle(self) -> None:
        """Add the last batch's releases to those before; forget the processes that ended in it."""
        if len(self._keys):
            keys, new = np.unique(self._keys, return_counts=True)
            rows = np.zeros(len(keys), _COUNT)
            known = self._before.contains(keys)
            rows["count"][known] = self._before.column("count", keys[known])
            rows["count"] += new
            self._before.put(keys, rows)
            self._keys = self._times = np.empty(0, np.int64)
        if len(self._ended):
            every = self._before.keys()
            self._before.remove(every[np.isin(every >> 32, self._ended)])
            self._ended = np.empty(0, np.int64)


def _slots(records: npt.NDArray[np.void]) -> tuple[Any, Any]:
    """Return key and time of each slot that these records release."""
    pid, time_ns = records["pid"].astype(np.int64) << 32, records["time_ns"].astype(np.int64)
    first = records["first"].astype(np.int64)
    size = np.maximum(records["last"].astype(np.int64) - first + 1, 1)
    wide = size > WIDE
    count = np.where(wide, 1, size)
    start = np.cumsum(count) - count
    slot = np.repeat(np.where(wide, ALL_SLOTS, first), count) + np.arange(count.sum()) - np.repeat(start, count)
    return np.repeat(pid, count) | slot, np.repeat(time_ns, count)
