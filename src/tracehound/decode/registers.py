"""Registers of calls: the column `registers` of rows whose hits have a stack record.

A hit's stack record has the time of its entry's, so both are in one batch; a call's row comes later, at its return.
Which registers a row shows, the point's fact says. Leaves out the stack itself.
"""

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.decode.tails import tail_pieces
from tracehound.tables import arrow_type

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records

WAITING_MAX: Final = 1 << 17  # as many as calls wait for their returns
# bits of perf's mask by name, as in kernel/perf.py: x86-64 and arm64 have no name in common
_BITS: Final = {
    **{name: bit for bit, name in enumerate(("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip"))},
    "flags": 9,
    "cs": 10,
    "ss": 11,
    **{f"r{number}": 8 + number for number in range(8, 16)},
    **{f"x{number}": number for number in range(31)},
    "sp": 31,
    "pc": 32,
}

Int64s = npt.NDArray[np.int64]


class Registers:
    """Keeps the registers of calls under way."""

    def __init__(self) -> None:
        self._shown: tuple[str, ...] = ()
        self._calls = np.empty(0, np.int64)
        self._values = np.empty((0, 0), np.int64)  # of each call, in the order of `_shown`
        self._known = np.empty(0, bool)  # a kernel thread, a task of 32 bits: none

    def take(self, batch: "Batch") -> None:
        """Learn from a batch, before its rows of `calls` are filled."""
        facts, stacks = batch.records.get("fact_point"), batch.records.get("call_stack")
        if facts is not None and not self._shown:
            (texts,) = tail_pieces(facts, ("text_size",))
            shown = (json.loads(text).get("registers", ()) for text in texts.to_pylist())
            self._shown = next((tuple(each) for each in shown if each), ())
        if stacks is None or not self._shown:
            return
        calls, values, known = _values(stacks, self._shown)
        if len(self._calls):
            calls, known = np.concatenate((self._calls, calls)), np.concatenate((self._known, known))
            values = np.concatenate((self._values, values))
        self._calls, self._values, self._known = calls[-WAITING_MAX:], values[-WAITING_MAX:], known[-WAITING_MAX:]

    def fill(self, rows: "pa.RecordBatch | None") -> "pa.RecordBatch | None":
        """Return rows of `calls` with their registers; what was told once is forgotten."""
        if rows is None or not len(self._calls):
            return rows
        order = np.argsort(self._calls, kind="stable")
        asked = rows["call"].to_numpy()
        place = np.minimum(np.searchsorted(self._calls, asked, sorter=order), len(order) - 1)
        found = order[place]
        is_there = (self._calls[found] == asked) & self._known[found]
        column = _column(self._shown, self._values[found[is_there]], is_there)
        kept = np.ones(len(self._calls), bool)
        kept[found[self._calls[found] == asked]] = False
        self._calls, self._values, self._known = self._calls[kept], self._values[kept], self._known[kept]
        return rows.set_column(rows.schema.get_field_index("registers"), rows.schema.field("registers"), column)


def _values(stacks: "Records", shown: tuple[str, ...]) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Return of each stack record its call, the shown registers, and whether it has them."""
    fixed = stacks.fixed
    room = np.diff(stacks.offsets) // 8
    known = (fixed["register_count"] > 0) & (fixed["register_count"] <= room)
    values = np.zeros((len(fixed), len(shown)), np.int64)
    raw = np.frombuffer(stacks.tails, np.uint8)
    for mask in np.unique(fixed["abi_registers"][known]).tolist():  # one, of a trace
        known &= (fixed["abi_registers"] != mask) | (fixed["register_count"] == mask.bit_count())
        rows = np.flatnonzero(known & (fixed["abi_registers"] == mask))
        columns = [(at, place) for at, name in enumerate(shown) if (place := _place(mask, name)) is not None]
        for at, place in columns:
            bytes_at = stacks.offsets[rows] + 8 * place
            words = raw[bytes_at[:, None] + np.arange(8)]
            values[rows, at] = np.ascontiguousarray(words).view("<i8")[:, 0]
    return fixed["call"].astype(np.int64), values, known


def _place(mask: int, name: str) -> int | None:
    """Return where a register stands among those of a mask, None if it does not."""
    bit = _BITS.get(name)
    if bit is None or not mask >> bit & 1:
        return None
    return (mask & ((1 << bit) - 1)).bit_count()


def _column(names: tuple[str, ...], values: Int64s, is_there: npt.NDArray[np.bool_]) -> pa.Array:
    kind = arrow_type("registers")
    fields = [
        pa.array(list(names) * len(values), pa.string()),
        pa.array(values.reshape(-1), pa.int64()),
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    ends = np.concatenate(([0], np.cumsum(is_there * len(names)))).astype(np.int32)
    lists: Any = pa.ListArray.from_arrays(pa.array(ends), structs, mask=pa.array(~is_there))
    return lists.cast(kind)
