"""Unwind rows of Go's functions, from how far each instruction has moved the stack pointer: the runtime's own table.

Go writes no .eh_frame, and its frame pointers miss the caller of a function without a frame, as every system call's is.
Rows of .eh_frame, which C code in a Go program has, count first. Sources: Go's runtime/symtab.go (_func, pcvalue),
internal/abi/symtab.go (FuncFlag). Left out: Go before 1.17, whose facts have no flags there.
"""

import struct
from contextlib import suppress
from typing import Final

import numpy as np

from tracehound.symbols import ehframe
from tracehound.symbols.ehframe import ROW, Rows, build_rows
from tracehound.symbols.elf import Elf
from tracehound.symbols.go import GO_1_16, GO_1_18, GO_1_20, STEPS_LIMIT, GoTable, uvarint

TOP_FRAME: Final = 1  # of a function's flags: nothing is above it
WRITES_SP: Final = 2  # it changes to another stack: no step says where the caller is
SAVED_RBP: Final = -2  # once there is a frame RBP is at CFA - 16
_STEPS_AT: Final = struct.Struct("<I")
_Row = tuple[int, int, int, int]


def unwind_rows(elf: Elf, go: GoTable | None) -> Rows:
    """Return the rows of a file, ROW[n], `pc` from `elf.base`, sorted; raises TargetError for another machine."""
    rows = build_rows(elf)
    return rows if go is None else with_go(rows, go, elf.base)


def with_go(rows: Rows, go: GoTable, base: int) -> Rows:
    """Return rows that cover Go's functions too; what was covered before stays as it is."""
    if go.version not in (GO_1_16, GO_1_18, GO_1_20):
        return rows
    starts, pcs = go.starts.tolist(), rows["pc"]
    found: list[_Row] = []
    for index, place in enumerate(go.places.tolist()):
        start, end = starts[index] - base, starts[index + 1] - base
        if not 0 <= start < end < 1 << 32:
            continue
        at = int(np.searchsorted(pcs, start, "right")) - 1
        after = int(pcs[at + 1]) if at + 1 < len(pcs) else end
        if (at < 0 or rows["rule"][at] == ehframe.GAP) and after >= end:
            with suppress(struct.error, IndexError, ValueError):  # damaged: stays a gap
                found += _function_rows(go, place, start, end)
    if not found:
        return rows
    mine = np.array(found, [("pc", "<u8"), ("cfa_offset", "<i2"), ("rule", "u1"), ("rbp", "i1")])
    both = np.concatenate((rows, mine.astype(ROW)))
    # Of several at one address: what Go says of a function, else what was there, else the end of one of Go's
    rank = np.concatenate((np.ones(len(rows), int), np.where(mine["rule"] == ehframe.GAP, 0, 2)))
    both = both[np.lexsort((rank, both["pc"]))]
    is_last = np.append(both["pc"][1:] != both["pc"][:-1], True)
    kept: Rows = both[is_last]
    return kept


def _function_rows(go: GoTable, place: int, start: int, end: int) -> list[_Row]:
    """Return the rows of one function, with a gap behind it."""
    width = 4 if go.version in (GO_1_18, GO_1_20) else 8
    # entry, name, arguments, deferreturn, steps of stack size, file, line; number of further tables
    (at,) = _STEPS_AT.unpack_from(go.functions, place + width + 12)
    # the unit, from 1.20 the first line, then the function's kind and flags
    flags_at = place + width + 28 + (8 if go.version == GO_1_20 else 4) + 1
    flags = go.functions[flags_at]
    if flags & TOP_FRAME:
        return [(start, 0, ehframe.END, 0), (end, 0, ehframe.GAP, 0)]
    if flags & WRITES_SP or not at:
        return [(start, 0, ehframe.GAP, 0)]
    rows: list[_Row] = []
    pc, moved = start, -1
    for step in range(STEPS_LIMIT):
        change, at = uvarint(go.steps, at)
        if step and not change:
            break
        moved += -(change + 1 >> 1) if change & 1 else change >> 1
        if not 0 <= moved <= 32000:
            rows.append((pc, 0, ehframe.UNSUPPORTED, 0))
        else:
            rows.append((pc, moved + 8, ehframe.RSP, SAVED_RBP if moved >= 8 else ehframe.RBP_SAME))
        distance, at = uvarint(go.steps, at)
        pc += distance * go.quantum
        if pc >= end:
            break
    return [*(row for row in rows if row[0] < end), (end, 0, ehframe.GAP, 0)]
