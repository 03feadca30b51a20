"""Records of system calls -> rows of `calls`: one for each call that returned, or that is known to return no more.

The kernel side says by a call's id which return belongs to which entry. `syscalls` knows what a call's arguments are
and how they are shown; one that depends on the result is shown when that is there, so a row is made at the end. A call
that never returns (exit_group) has a row of event `entry`. What is copied of each call comes as a fact.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracehound.batch import Records
from tracehound.btf import Layout
from tracehound.syscalls import FACT_POINT, SYSCALLS_MAX, Call, Hit, SyscallSettings, calls, numbers, plan, render
from tracehound.tables import TABLES, arrow_type, build

if TYPE_CHECKING:
    from tracehound.batch import Batch

PIECE_CUT: Final = 1 << 29  # enum piece_flag
PIECE_FAULT: Final = 1 << 31
PIECE_SIZE: Final = PIECE_CUT - 1
WAITING_MAX: Final = 1 << 16
KINDS: Final = frozenset({"call_entry", "call_return"})
ENTRY_MEMBERS: Final = (
    "point", "call", "pid", "tid", "cpu", "time_ns", "ip", "sp", "replaced", "pieces", "arguments",
)  # fmt: skip
RETURN_MEMBERS: Final = ("point", "call", "time_ns", "entry_ns", "value", "pieces")
SURVIVE_EXEC: Final = frozenset({"execve", "execveat"})
COLUMNS: Final = (
    "time_ns", "pid", "tid", "cpu", "call", "event", "point", "symbol", "ip", "sp", "entry_ns", "return_ns",
    "duration_ns", "return_value", "errno", "incomplete",
)  # fmt: skip

Row = tuple[Any, ...]
Arguments = list[tuple[str, str, str]]
Places = list[tuple[int, str]]


@dataclass(slots=True)
class _Open:
    call: Call
    id: int
    pid: int
    tid: int
    cpu: int
    entry_ns: int
    ip: int
    sp: int
    is_first: bool  # an exec of what is not the command yet
    hit: Hit


class Syscalls:
    """Pairs entries with returns; keeps the calls under way."""

    def __init__(self, layout: Layout) -> None:
        self._first = layout.enum("call_limit")["CALL_POINTS_MAX"] - SYSCALLS_MAX
        self._settings = SyscallSettings()
        self._known: dict[int, tuple[Call, tuple[Places, Places]]] = {}  # by point
        self._open: dict[int, _Open] = {}
        self._of_thread: dict[int, int] = {}  # tid -> the call that it is in

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the rows that became true in a batch, in the order of time, None if there are none."""
        self._learn(batch.records.get("fact_point"))
        rows: list[tuple[Row, Arguments]] = []
        entries, returns = (self._own(batch.records.get(kind), True) for kind in ("call_entry", "call_return"))
        entered, left = _columns(entries, ENTRY_MEMBERS), _columns(returns, RETURN_MEMBERS)
        for is_return, at in _in_order(entries, returns):
            if is_return and returns is not None:
                rows += self._leave(left[at], returns, at)
            elif entries is not None:
                rows += self._enter(entered[at], entries, at)
        if self._open:
            rows += self._ended(batch)
        while len(self._open) > WAITING_MAX:
            rows.append(self._incomplete(self._open.pop(next(iter(self._open))), batch.watermark_ns))
        return _table(rows)

    def functions_only(self, batch: "Batch") -> "Batch":
        """Return a batch without the records that are ours, for those of functions."""
        if KINDS.isdisjoint(batch.records):
            return batch
        left = {
            kind: self._own(records, False) if kind in KINDS else records for kind, records in batch.records.items()
        }
        return replace(batch, records={kind: records for kind, records in left.items() if records is not None})

    def _own(self, records: "Records | None", is_ours: bool) -> "Records | None":
        """Return those of the records that are of system calls, or are not; None if there are none."""
        if records is None:
            return None
        wanted = (records.fixed["point"] >= self._first) == is_ours
        if wanted.all():
            return records
        places = np.flatnonzero(wanted)
        if not len(places):
            return None
        tails = [records.tails[records.offsets[at] : records.offsets[at + 1]] for at in places.tolist()]
        return Records(records.fixed[places], np.cumsum([0, *map(len, tails)], dtype=np.int64), b"".join(tails))

    def finish(self, time_ns: int) -> pa.RecordBatch | None:
        """Return the rows of the calls that are under way at the end."""
        rows = [self._incomplete(each, time_ns) for each in self._open.values()]
        self._open.clear()
        return _table(rows)

    def _learn(self, facts: "Records | None") -> None:
        if facts is None:
            return
        for at in np.flatnonzero(facts.fixed["point"] == FACT_POINT).tolist():
            text = facts.tails[facts.offsets[at] : facts.offsets[at] + int(facts.fixed["text_size"][at])]
            self._settings = SyscallSettings.from_text(bytes(text))
            settings = self._settings
            for name, number in numbers(settings.machine).items():
                call = calls()[name]
                made = plan(call, settings.limit, settings.with_data, settings.paths)
                self._known[self._first + number] = (call, made.pieces)

    def _enter(self, record: Row, records: Records, at: int) -> Iterator[tuple[Row, Arguments]]:
        """A thread is in one call at a time: of one that it was still in, the return was lost."""
        point, identity, pid, tid, cpu, time_ns, ip, sp, first, pieces, registers = record
        known = self._known.get(point)
        if known is None:
            return
        call, places = known
        hit = Hit(tuple(registers), limit=self._settings.limit, shows_data=self._settings.with_data)
        _take(hit, 0, places[0], pieces, records, at)
        opened = _Open(call, identity, pid, tid, cpu, time_ns, ip, sp, bool(first), hit)
        before = self._open.pop(self._of_thread.pop(tid, 0), None)
        if before is not None:
            yield self._incomplete(before, time_ns)
        if call.returns:
            self._open[identity] = opened
            self._of_thread[tid] = identity
        else:
            yield _row(opened, time_ns, "entry", None, False)

    def _leave(self, record: Row, records: Records, at: int) -> Iterator[tuple[Row, Arguments]]:
        point, identity, time_ns, entry_ns, value, pieces = record
        opened = self._open.pop(identity, None)
        if opened is None:
            return
        self._of_thread.pop(opened.tid, None)
        opened.entry_ns = entry_ns
        opened.hit.result = value - (1 << 64) if value >> 63 else value
        _take(opened.hit, 1, self._known[point][1][1], pieces, records, at)
        if not (opened.is_first and opened.hit.failed):
            yield _row(opened, time_ns, "call", time_ns, False)

    def _ended(self, batch: "Batch") -> Iterator[tuple[Row, Arguments]]:
        for kind in ("exec", "exit"):
            ends = batch.records.get(kind)
            for pid, time_ns in () if ends is None else zip(ends.fixed["pid"].tolist(), ends.fixed["time_ns"].tolist(),
                                                            strict=True):  # fmt: skip
                gone = [each for each in self._open.values() if each.pid == pid and each.entry_ns < time_ns
                        and (kind == "exit" or each.call.name not in SURVIVE_EXEC)]  # fmt: skip
                for each in gone:
                    del self._open[each.id]
                    self._of_thread.pop(each.tid, None)
                    yield self._incomplete(each, time_ns)

    def _incomplete(self, opened: _Open, time_ns: int) -> tuple[Row, Arguments]:
        return _row(opened, time_ns, "call", None, True)


def _row(opened: _Open, time_ns: int, event: str, return_ns: int | None, incomplete: bool) -> tuple[Row, Arguments]:
    shown = render(opened.call, opened.hit)
    name = opened.call.name
    duration_ns = None if return_ns is None else return_ns - opened.entry_ns
    row = (
        time_ns, opened.pid, opened.tid, opened.cpu, opened.id, event, f"sys:{name}", name, opened.ip, opened.sp,
        opened.entry_ns, return_ns, duration_ns, shown.return_value, shown.errno, incomplete,
    )  # fmt: skip
    return row, shown.arguments


def _columns(records: "Records | None", members: tuple[str, ...]) -> list[Row]:
    """Return the named members of each record."""
    return [] if records is None else list(zip(*(records.fixed[name].tolist() for name in members), strict=True))


def _in_order(entries: "Records | None", returns: "Records | None") -> Iterator[tuple[bool, int]]:
    """Yield (whether it is a return, place) of each record, in the order of time."""
    times = [np.empty(0, np.uint64) if each is None else each.fixed["time_ns"] for each in (entries, returns)]
    count = len(times[0])
    for place in np.argsort(np.concatenate(times), kind="stable").tolist():
        yield place >= count, place - count if place >= count else place


def _take(hit: Hit, phase: int, places: list[tuple[int, str]], count: int, records: Records, at: int) -> None:
    """Keep the pieces of one record: those that could be read."""
    start, end = int(records.offsets[at]), int(records.offsets[at + 1])
    count = min(len(places), count, (end - start) // 4)
    if not count:
        return
    tail = records.tails
    place = start + 4 * count
    for number, size in enumerate(struct.unpack_from(f"<{count}I", tail, start)):
        if not size & PIECE_FAULT:
            argument, part = places[number]
            stop = min(place + (size & PIECE_SIZE), end)
            hit.pieces[phase, argument, part] = (bytes(tail[place:stop]), bool(size & PIECE_CUT))
            place = stop


def _table(rows: list[tuple[Row, Arguments]]) -> pa.RecordBatch | None:
    if not rows:
        return None
    by_time: Callable[[tuple[Row, Arguments]], tuple[int, int]] = lambda row: (row[0][0], row[0][4])  # noqa: E731
    rows.sort(key=by_time)
    values: dict[str, Any] = dict(zip(COLUMNS, map(list, zip(*(row for row, _ in rows), strict=True)), strict=True))
    values["call"] = np.array(values["call"], np.uint64).view(np.int64)
    for name in ("ip", "sp"):
        values[name] = np.array(values[name], np.uint64).view(np.int64)
    values["preexisting"] = np.zeros(len(rows), bool)
    values["args"] = _lists([arguments for _, arguments in rows])
    return build(TABLES["calls"], len(rows), values)


def _lists(rows: list[Arguments]) -> pa.Array:
    flat = [each for row in rows for each in row]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    column = arrow_type("arguments")
    parts = [pa.array([each[at] for each in flat], pa.string()) for at in range(3)]
    structs = pa.StructArray.from_arrays(parts, fields=list(column.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), structs).cast(column)
