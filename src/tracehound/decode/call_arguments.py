"""The column `args` of calls: pieces in the tails of call records, and registers -> lists of name, type, value.

A record's tail has a __u32 for each of its pieces, its size or'ed with what became of it (enum piece_flag), then the
pieces. How many a point's records have, and what they are, its fact says; a tail that is too short for them is of no
such point, and its values are null.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.batch import Records
from tracehound.call_types import NUMBERS
from tracehound.decode.call_values import CUT, number_texts, numbers_to_text, piece_texts
from tracehound.decode.tails import slices
from tracehound.tables import arrow_type

PIECE_CUT: Final = 1 << 29
PIECE_NULL: Final = 1 << 30
PIECE_FAULT: Final = 1 << 31
PIECE_SIZE: Final = PIECE_CUT - 1

Int64s = npt.NDArray[np.int64]
Argument = dict[str, Any]


class _Pieces:
    """The pieces of some records of one point."""

    def __init__(self, records: Records, rows: Int64s, count: int) -> None:
        offsets = np.asarray(records.offsets, np.int64)
        self._data = records.tails
        self._bytes = np.frombuffer(records.tails, np.uint8)
        start, end = offsets[rows], offsets[rows + 1]
        whole = end - start >= 4 * count
        words = np.full((len(rows), count), PIECE_FAULT, np.uint32)
        if count and whole.any():
            at = start[whole, None] + np.arange(4 * count)
            words[whole] = self._bytes[at].view("<u4").reshape(-1, count)
        self.flags = words
        sizes = (words & PIECE_SIZE).astype(np.int64)
        after = np.minimum(start + 4 * count, end)
        reached = after[:, None] + np.cumsum(sizes, axis=1)
        self._starts = np.minimum(reached - sizes, end[:, None])
        self._ends = np.minimum(reached, end[:, None])

    def texts(self, argument: Argument) -> pa.Array:
        """Return one piece of each record as text."""
        number = argument["piece"]
        start, end, flags = self._starts[:, number], self._ends[:, number], self.flags[:, number]
        is_fault = flags & PIECE_FAULT != 0
        if argument["form"] == "number":
            size = np.dtype(NUMBERS[argument["type"]]).itemsize
            is_fault |= end - start < size
            raw = np.zeros((len(start), 8), np.uint8)
            at = start[~is_fault, None] + np.arange(size)
            raw[~is_fault, :size] = self._bytes[at]
            found = numbers_to_text(raw, argument["type"], argument["hex"])
        else:
            found = piece_texts(slices(pa.py_buffer(self._data), start, end), argument)
            if (flags & PIECE_CUT).any():
                marked = pc.binary_join_element_wise(found, CUT, "")
                found = pc.if_else(pa.array(flags & PIECE_CUT != 0), marked, found)
        if not is_fault.any():
            return found
        found = pc.if_else(pa.array(is_fault), pa.scalar(None, pa.string()), found)
        return pc.if_else(pa.array(is_fault & (flags & PIECE_NULL != 0)), pa.scalar("NULL"), found)


def entry_arguments(records: Records, which: Int64s, points: Sequence[dict[str, Any]]) -> pa.Array:
    """Return the column `args` of entries; `which`: of each record the place of its point in `points`."""
    order, lists = [], []
    for number, point in enumerate(points):
        rows = np.flatnonzero(which == number)
        order.append(rows)
        lists.append(_entry_lists(records, rows, point.get("arguments", [])))
    return pa.concat_arrays(lists).take(pa.array(np.argsort(np.concatenate(order))))


def _entry_lists(records: Records, rows: Int64s, arguments: list[Argument]) -> pa.Array:
    pieces = _Pieces(records, rows, sum("piece" in each and not each["exit"] for each in arguments))
    values = []
    for each in arguments:
        if each["exit"]:
            values.append(pa.nulls(len(rows), pa.string()))
        elif "register" in each:
            registers = records.fixed["arguments"][rows, each["register"]]
            values.append(number_texts(registers, each["type"], each["hex"]))
        else:
            values.append(pieces.texts(each))
    return _lists(arguments, len(rows), values)


def with_exit_values(
    column: pa.Array, records: Records, at: Int64s, which: Int64s, points: Sequence[dict[str, Any]]
) -> pa.Array:
    """Return `args` with the values that the returns `at` of `records` have; `which`: as of entries."""
    order, lists = [], []
    for number, point in enumerate(points):
        rows = np.flatnonzero(which == number)
        arguments = point.get("arguments", [])
        order.append(rows)
        lists.append(_exit_lists(column.take(pa.array(rows)), records, at[rows], arguments))
    return pa.concat_arrays(lists).take(pa.array(np.argsort(np.concatenate(order))))


def _exit_lists(column: pa.Array, records: Records, rows: Int64s, arguments: list[Argument]) -> pa.Array:
    late = [each for each in arguments if each["exit"]]
    if not late or not len(rows):
        return column
    pieces = _Pieces(records, rows, len(late))
    old = pc.struct_field(column.flatten(), [2])
    values = []
    for place, each in enumerate(arguments):
        here = pa.array(np.arange(len(rows), dtype=np.int64) * len(arguments) + place)
        values.append(pieces.texts(each) if each["exit"] else old.take(here))
    return _lists(arguments, len(rows), values)


def _lists(arguments: list[Argument], rows: int, by_argument: list[pa.Array]) -> pa.Array:
    """Return a list of all arguments for each row, from the values of all rows for each argument."""
    count = len(arguments)
    values = pa.concat_arrays(by_argument) if by_argument else pa.array([], pa.string())
    at = np.arange(rows * count, dtype=np.int64)
    values = values.take(pa.array(at % max(count, 1) * rows + at // max(count, 1)))
    column = arrow_type("arguments")
    names = pa.array([each["name"] for each in arguments] * rows, pa.string())
    types = pa.array([each["shown"] for each in arguments] * rows, pa.string())
    structs = pa.StructArray.from_arrays([names, types, values], fields=list(column.value_type))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
    return pa.ListArray.from_arrays(offsets, structs).cast(column)
