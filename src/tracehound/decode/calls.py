"""call records -> rows of `calls`: one for each call that returned, or that is known to return no more.

The kernel side says by a call's id which return belongs to which entry. A call whose process exited or executed, whose
place on the stack another one took (longjmp, a tail call, a return that was lost), or that is under way at the end of
the trace has a row without return that is `incomplete`. A return whose entry was lost has none: the entry is among the
losses. What a point is comes in `fact_point` records.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.batch import Records
from tracehound.btf import Layout
from tracehound.call_types import NUMBERS
from tracehound.decode.addresses import errno_name, name_column
from tracehound.decode.call_arguments import entry_arguments, with_exit_values
from tracehound.decode.tails import tail_pieces
from tracehound.tables import TABLES, arrow_schema, build

if TYPE_CHECKING:
    from tracehound.batch import Batch

WAITING_MAX: Final = 1 << 17  # twice what the kernel side keeps; older ones have no return any more
ERRNO_MAX: Final = 4095
FACT: Final = ("point", "module", "symbol", "file_offset")

Int64s = npt.NDArray[np.int64]


class Calls:
    """Pairs entries with returns; keeps the rows of calls under way."""

    def __init__(self, layout: Layout) -> None:
        del layout  # nothing of it but what the records themselves have
        self._points: dict[int, dict[str, Any]] = {}
        self._waiting = pa.RecordBatch.from_pylist([], arrow_schema(TABLES["calls"]))

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the rows that became true in a batch, in the order of time, None if there are none."""
        self._learn(batch.records.get("fact_point"))
        entries, returns = batch.records.get("call_entry"), batch.records.get("call_return")
        found: list[pa.RecordBatch] = []
        if entries is not None:
            rows = self._entry_rows(entries)
            has_return = pc.equal(rows["event"], "call")
            found.append(rows.filter(pc.invert(has_return)))
            self._waiting = _joined([self._waiting, rows.filter(has_return)])
        if not self._waiting.num_rows:
            return _in_order(found)
        if returns is not None:
            fixed = returns.fixed
            places, at = self._places(fixed["call"])
            found.append(self._returned(self._waiting.take(places), returns, at))
            self._forget(places)
        if entries is not None:
            replaced = entries.fixed[entries.fixed["replaced"] != 0]
            places, at = self._places(replaced["replaced"])
            found.append(_ended(self._waiting.take(places), replaced["time_ns"][at].astype(np.int64)))
            self._forget(places)
        found += self._ended_with_process(batch)
        surplus = self._waiting.num_rows - WAITING_MAX
        if surplus > 0:
            old = self._waiting.slice(0, surplus)
            found.append(_ended(old, np.full(surplus, batch.watermark_ns)))
            self._waiting = self._waiting.slice(surplus)
        return _in_order(found)

    def finish(self, time_ns: int) -> pa.RecordBatch | None:
        """Return the rows of the calls that are under way at the end."""
        rows, self._waiting = self._waiting, self._waiting.slice(0, 0)
        return _in_order([_ended(rows, np.full(rows.num_rows, time_ns))])

    def _learn(self, facts: "Records | None") -> None:
        if facts is not None:
            (texts,) = tail_pieces(facts, ("text_size",))
            for number, text in zip(facts.fixed["point"].tolist(), texts.to_pylist(), strict=True):
                self._points[number] = json.loads(text)

    def _places(self, calls: npt.NDArray[np.uint64]) -> tuple[Int64s, Int64s]:
        """Return where in the waiting rows those of `calls` are that are there, and their places in `calls`."""
        waiting = self._waiting["call"].to_numpy().view(np.uint64)
        order = np.argsort(waiting)
        place = np.minimum(np.searchsorted(waiting, calls, sorter=order), max(len(waiting) - 1, 0))
        if not len(waiting):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at = np.flatnonzero(waiting[order[place]] == calls)
        return order[place[at]], at

    def _forget(self, places: Int64s) -> None:
        kept = np.ones(self._waiting.num_rows, bool)
        kept[places] = False
        self._waiting = self._waiting.filter(pa.array(kept))

    def _ended_with_process(self, batch: "Batch") -> list[pa.RecordBatch]:
        found = []
        ends = [batch.records[kind].fixed for kind in ("exec", "exit") if kind in batch.records]
        for pid, time_ns in sorted((int(end["pid"]), int(end["time_ns"])) for fixed in ends for end in fixed):
            gone = pc.and_(pc.equal(self._waiting["pid"], pid), pc.less(self._waiting["entry_ns"], time_ns))
            rows = self._waiting.filter(gone)
            if rows.num_rows:
                found.append(_ended(rows, np.full(rows.num_rows, time_ns)))
                self._waiting = self._waiting.filter(pc.invert(gone))
        return found

    def _returned(self, rows: pa.RecordBatch, records: Records, at: Int64s) -> pa.RecordBatch:
        """Return rows of calls with what their returns, at these places, say."""
        returns = records.fixed[at]
        times, values = returns["time_ns"].astype(np.int64), returns["value"].astype(np.int64)
        points, which = self._facts(returns["point"])
        for number, point in enumerate(points):
            kind = np.dtype(NUMBERS[point.get("return", "int64")])
            if kind.itemsize < values.itemsize:  # what is above it in the register is not the value's
                values[which == number] = values[which == number].astype(kind)
        columns: dict[str, Any] = {
            "time_ns": times,
            "return_ns": times,
            "duration_ns": times - rows["entry_ns"].to_numpy(),
            "return_value": values,
            "errno": _errors(values, points, which),
        }
        if rows.num_rows and any(each["exit"] for point in points for each in point.get("arguments", ())):
            columns["args"] = with_exit_values(rows["args"], records, at, which, points)
        return _with(rows, **columns)

    def _facts(self, numbers: npt.NDArray[np.uint32]) -> tuple[list[dict[str, Any]], Int64s]:
        """Return the points of these numbers, each once, and of each number the place of its point."""
        distinct, which = np.unique(numbers, return_inverse=True)
        return [self._points.get(number, {}) for number in distinct.tolist()], which

    def _entry_rows(self, records: Records) -> pa.RecordBatch:
        fixed = records.fixed
        points, inverse = self._facts(fixed["point"])
        which = pa.array(inverse)
        values: dict[str, Any] = {name: pa.array([point.get(name) for point in points]).take(which) for name in FACT}
        times = fixed["time_ns"].astype(np.int64)
        has_return = np.array([point.get("has_return", False) for point in points])[inverse]
        values |= {name: fixed[name].astype(np.int64) for name in ("call", "ip", "sp", "bp")}
        values |= {
            "time_ns": times,
            "pid": fixed["pid"],
            "tid": fixed["tid"],
            "cpu": fixed["cpu"].astype(np.int32),
            "preexisting": np.zeros(len(fixed), bool),
            "event": pa.array(["entry", "call"]).take(pa.array(has_return.astype(np.int64))),
            "caller_ip": pa.array(fixed["caller_ip"].astype(np.int64), mask=fixed["caller_ip"] == 0),
            "entry_ns": times,
            "args": entry_arguments(records, inverse, points),
            "incomplete": np.zeros(len(fixed), bool),
        }
        return build(TABLES["calls"], len(fixed), values)


def _errors(values: Int64s, points: Iterable[dict[str, Any]], which: Int64s) -> pa.Array:
    """Return names of errors that were returned, negative; -1 of functions is not one, but C's word for failed."""
    least = np.array([1 if "syscall" in point else 2 for point in points], np.int64)[which]
    return name_column(np.where((values <= -least) & (values >= -ERRNO_MAX), -values, 0), errno_name)


def _ended(rows: pa.RecordBatch, times: Int64s) -> pa.RecordBatch:
    return _with(rows, time_ns=times, incomplete=np.ones(rows.num_rows, bool))


def _with(rows: pa.RecordBatch, **columns: Any) -> pa.RecordBatch:
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else rows.column(at)
        for at, field in enumerate(rows.schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(parts).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else parts[0].slice(0, 0)


def rows_in_order(parts: list[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    """Return rows of `calls` in the order of time, None if there are none."""
    return _in_order([part for part in parts if part is not None])


def _in_order(parts: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    parts = [part for part in parts if part.num_rows]
    if not parts:
        return None
    rows = _joined(parts)
    order = np.lexsort((rows["call"].to_numpy(), rows["time_ns"].to_numpy()))
    return rows.take(pa.array(order))
