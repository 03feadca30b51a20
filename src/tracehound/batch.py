"""Records as numpy columns: raw bytes split by kind, and merged into one order of time.

The order is total: time_ns, ring, cpu, ring_seq. What comes out is a function of the stream of records alone, however
it was cut into batches. Leaves out what the records mean: that is `decode`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound import native
from tracehound.btf import Layout

MERGE_LAG_NS: Final = 20_000_000  # a record may be stamped this long before it is submitted
LAST_WATERMARK: Final = (1 << 63) - 2
TICK: Final = "fact_tick"
NO_COLUMN: Final = 255

Raw = bytes | bytearray | memoryview | npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Records:
    """All records of one kind in a batch.

    `fixed`: structured array (n,) of `layout.dtypes[kind]`. `offsets`: int64 (n + 1,), Arrow layout into `tails`, all
    zero for a kind without a tail: record i's tail is `tails[offsets[i]:offsets[i + 1]]`.
    """

    fixed: npt.NDArray[np.void]
    offsets: npt.NDArray[np.int64]
    tails: bytes

    def __len__(self) -> int:
        return len(self.fixed)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records by kind, only of kinds that occur.

    `watermark_ns`: all records up to this time are here or were in earlier batches; 0 before the merge. `damaged`
    counts records left out: of unknown kind, or of a size that cannot be. `rows_before_tick`: int64 (ticks, kinds of
    the layout), how many records of each kind stood before each fact_tick; None: all.
    """

    records: dict[str, Records]
    watermark_ns: int = 0
    damaged: int = 0
    rows_before_tick: npt.NDArray[np.int64] | None = field(default=None, repr=False)


class _Columns(NamedTuple):
    names: tuple[str, ...]
    dtypes: tuple[np.dtype[np.void], ...]
    tailed: tuple[bool, ...]
    of_kind: bytes  # column number of each kind number


@lru_cache(maxsize=8)
def _columns(layout: Layout) -> _Columns:
    names = tuple(layout.kinds.values())
    of_kind = bytearray([NO_COLUMN]) * (1 << 16)
    for column, kind in enumerate(layout.kinds):
        of_kind[kind] = column
    tailed = tuple(layout.has_tail(name) for name in names)
    return _Columns(names, tuple(layout.dtypes[name] for name in names), tailed, bytes(of_kind))


def split(raw: Raw, layout: Layout) -> Batch:
    """Sort whole records, each padded to 8 bytes, by kind; within a kind their order stays.

    Never reads outside `raw` and never fails on what is in it: a record of an unknown kind, or of a size that its kind
    cannot have, is left out and counted; after a size that no record can have the rest is left out and counts as one.
    The batch owns its memory.
    """
    lib, columns = native.lib, _columns(layout)
    count, tick = len(columns.names), columns.names.index(TICK)
    table = native.ffi.new("struct split_column[]", count)
    for one, dtype, tailed in zip(table, columns.dtypes, columns.tailed, strict=True):
        one.fixed_size, one.has_tail = dtype.itemsize, tailed
    damage = native.ffi.new("struct split_damage *")
    source = native.ffi.from_buffer(raw)
    lib.split_count(source, len(source), columns.of_kind, count, table, damage)
    parts = {column: _Part(columns.dtypes[column], one) for column, one in enumerate(table) if one.records}
    ticks = np.empty((table[tick].records, count), np.int64)
    lib.split_fill(source, len(source), columns.of_kind, count, table, tick, _pointer(ticks, "int64_t *"))
    records = {columns.names[column]: part.records() for column, part in parts.items()}
    return Batch(records, 0, damage.unknown + damage.damaged + (damage.lost_bytes > 0), ticks)


class _Part:
    """Memory for the records of one kind, of the sizes counted in `column`, which is made to point to it."""

    def __init__(self, dtype: np.dtype[np.void], column: Any) -> None:
        self.fixed = np.empty(column.records, dtype)
        self.offsets = np.zeros(column.records + 1, np.int64)
        self.tails = np.empty(column.tail_bytes, np.uint8)
        column.fixed = _pointer(self.fixed, "uint8_t *")
        column.offsets = _pointer(self.offsets, "int64_t *") if column.has_tail else native.ffi.NULL
        column.tails = _pointer(self.tails, "uint8_t *")

    def records(self) -> Records:
        return Records(self.fixed, self.offsets, self.tails.tobytes())


def _pointer(array: npt.NDArray[Any], to: str) -> Any:
    return native.ffi.cast(to, array.ctypes.data)


class _Piece:
    """Records of one kind that wait in the merge; `rows` of them are left.

    A record's place is its time; that of a late one is just behind the watermark that had passed it when it came.
    """

    __slots__ = ("first", "last", "late", "places", "records", "rows")

    def __init__(self, records: Records, floors: npt.NDArray[np.uint64] | np.uint64) -> None:
        times = records.fixed["time_ns"]
        self.records = records
        self.places = np.maximum(times, floors)
        self.late = int(np.count_nonzero(times < floors))
        self.rows = np.arange(len(times))
        self.first, self.last = int(self.places.min()), int(self.places.max())

    def take(self, until: int) -> npt.NDArray[np.int64]:
        """Remove and return the rows whose place is not after `until`."""
        if self.last <= until:
            ready, self.rows = self.rows, self.rows[:0]
            return ready
        left: npt.NDArray[np.bool_] = self.places[self.rows] > until
        ready, self.rows = self.rows[~left], self.rows[left]
        self.first = int(self.places[self.rows].min())
        return ready


class Merge:
    """Puts the records of all rings into one order of time.

    A fact_tick of time T says that all submitted before T stands before it; so what is not younger than T - 20 ms is
    complete, and comes out. A record of that age that comes after the tick is late: it comes out with the next batch
    and is counted in `late`. `damaged` sums up what `split` left out.
    """

    def __init__(self, layout: Layout) -> None:
        self.late = 0
        self.damaged = 0
        self._columns = _columns(layout)
        self._waiting: dict[str, list[_Piece]] = {name: [] for name in self._columns.names}
        self._watermark = -1
        self._taken = -1

    @property
    def watermark_ns(self) -> int:
        """All up to this moment is complete; -1 before the first tick."""
        return self._watermark

    @property
    def waiting(self) -> int:
        """How many records are not complete; facts do not count."""
        kinds = (pieces for name, pieces in self._waiting.items() if not name.startswith("fact"))
        return sum(len(piece.rows) for pieces in kinds for piece in pieces)

    def push(self, batch: Batch) -> None:
        """Take the next records of the stream. The merge keeps them, without a copy, until they are due."""
        self.damaged += batch.damaged
        marks = [self._watermark]
        if TICK in batch.records:
            ticks = (batch.records[TICK].fixed["time_ns"].astype(np.int64) - MERGE_LAG_NS).tolist()
            marks = list(accumulate(ticks, max, initial=self._watermark))
        for name, records in batch.records.items():
            piece = _Piece(records, self._floors(name, len(records), marks, batch.rows_before_tick))
            self.late += piece.late
            self._waiting[name].append(piece)
        self._watermark = marks[-1]

    def _floors(
        self, name: str, count: int, marks: list[int], rows_before_tick: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.uint64] | np.uint64:
        """Return the earliest place for each record: behind the watermark that held when it came."""
        if rows_before_tick is not None and len(marks) > 1:
            before = rows_before_tick[:, self._columns.names.index(name)]
            if before[0] < count:
                runs = np.diff(before, prepend=0, append=count)
                return np.repeat(np.array(marks, np.int64) + 1, runs).astype(np.uint64)
        return np.uint64(marks[0] + 1)

    def take(self) -> Batch | None:
        """Return all that is complete and was not returned yet, None if there is nothing."""
        if self._watermark <= self._taken:
            return None
        self._taken = self._watermark
        return self._take(self._watermark)

    def flush(self) -> Batch | None:
        """Return all that is left, complete or not; for the end of the stream."""
        lasts = (piece.last for pieces in self._waiting.values() for piece in pieces)
        until = max(lasts, default=self._watermark)
        self._watermark = self._taken = min(max(until, self._watermark), LAST_WATERMARK)
        return self._take(until)

    def _take(self, until: int) -> Batch | None:
        records = {}
        for name, pieces in self._waiting.items():
            due = [(piece, piece.take(until)) for piece in pieces if piece.first <= until]
            if due:
                records[name] = _gather(due)
                self._waiting[name] = [piece for piece in pieces if len(piece.rows)]
        return Batch(records, until) if records else None


def in_parts(batch: Batch, most: int) -> Iterator[Batch]:
    """Yield a merged batch in parts of about `most` records each, one after another in time.

    What is made of records on the way to rows takes many times their bytes: so it is bounded, however much has waited.
    """
    times = {name: np.maximum.accumulate(records.fixed["time_ns"]) for name, records in batch.records.items()}
    count = sum(map(len, times.values()))
    if count <= most:
        yield batch
        return
    every = np.sort(np.concatenate(list(times.values())))
    cuts = np.unique(every[most - 1 : -1 : most])
    edges = {name: [0, *np.searchsorted(each, cuts, side="right").tolist(), len(each)] for name, each in times.items()}
    for part, watermark_ns in enumerate([*cuts.tolist(), batch.watermark_ns]):
        found = {
            name: _slice(batch.records[name], places[part], places[part + 1])
            for name, places in edges.items()
            if places[part] < places[part + 1]
        }
        yield Batch(found, min(watermark_ns, batch.watermark_ns))


def _slice(records: Records, first: int, stop: int) -> Records:
    offsets = records.offsets[first : stop + 1]
    return Records(records.fixed[first:stop], offsets - offsets[0], records.tails[offsets[0] : offsets[-1]])


def _gather(due: Sequence[tuple[_Piece, npt.NDArray[np.int64]]]) -> Records:
    """Return the given rows of the given pieces in the total order."""
    places = np.concatenate([piece.places[rows] for piece, rows in due])
    firsts = list(accumulate((len(piece.places) for piece, _ in due), initial=0))
    rows = np.concatenate([rows + first for (_, rows), first in zip(due, firsts, strict=False)])
    if (places[1:] <= places[:-1]).any():
        keys = [
            np.concatenate([piece.records.fixed[name][rows] for piece, rows in due])
            for name in ("ring_seq", "cpu", "time_ns")
        ]
        rows = rows[np.lexsort((*keys, places))]
    elif len(due) == 1 and len(rows) == firsts[-1]:
        return due[0][0].records
    return _copy([piece.records for piece, _ in due], firsts, rows)


def _copy(sources: Sequence[Records], firsts: Sequence[int], rows: npt.NDArray[np.int64]) -> Records:
    """Return the given rows, numbered through all sources, as records of their own."""
    ffi, lib, count = native.ffi, native.lib, len(rows)
    pieces = ffi.new("struct gather_piece[]", len(sources))
    kept = [ffi.from_buffer("uint8_t[]", source.tails) for source in sources]
    for piece, source, source_tails, first in zip(pieces, sources, kept, firsts, strict=False):
        piece.fixed = _pointer(source.fixed, "uint8_t *")
        piece.offsets = _pointer(source.offsets, "int64_t *")
        piece.tails, piece.first = source_tails, first
    fixed = np.empty(count, sources[0].fixed.dtype)
    offsets = np.empty(count + 1, np.int64)
    order, ends = _pointer(rows, "int64_t *"), _pointer(offsets, "int64_t *")
    tails = np.empty(lib.gather_offsets(pieces, len(pieces), order, count, ends), np.uint8)
    to_fixed, to_tails = _pointer(fixed, "uint8_t *"), _pointer(tails, "uint8_t *")
    lib.gather_rows(pieces, len(pieces), order, count, fixed.itemsize, to_fixed, ends, to_tails)
    return Records(fixed, offsets, tails.tobytes())
