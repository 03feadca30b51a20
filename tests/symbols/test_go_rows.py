"""Rows of Go's functions: where there are some already they stay, damage leaves gaps."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracehound.symbols import ehframe
from tracehound.symbols.ehframe import ROW, Rows
from tracehound.symbols.go import GO_1_2, GO_1_20, GoTable
from tracehound.symbols.go_rows import with_go

# Steps of the stack pointer: (zigzag change, distance) until 0; the first counts from -1
STEPS = bytes([0, 2, 5, 16, 6, 64, 2, 65, 10, 0])  # at 1: 0 for 5 bytes, 8 for 6, 40 for 2, 8 for 10
EMPTY = np.empty(0, ROW)


def fact(entry: int, steps_at: int, flags: int) -> bytes:
    return struct.pack("<IiiIIIIIIiBBBB", entry, 0, 0, 0, steps_at, 0, 0, 0, 0, 1, 0, flags, 0, 0)


def table(*functions: tuple[int, int, int], steps: bytes = STEPS, version: int = GO_1_20) -> GoTable:
    """Return a table of functions (entry, place of the steps, flags), each 0x100 long."""
    facts = b"".join(fact(*one) for one in functions)
    starts = np.array([*(0x400000 + one[0] for one in functions), 0x400000 + functions[-1][0] + 0x100], np.uint64)
    places = np.arange(len(functions)) * 44
    return GoTable(version, 1, starts, places, facts, b"", b"", b"", steps)


def listed(rows: Rows) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = rows.tolist()
    return found


def steps_of(*pairs: tuple[int, int]) -> bytes:
    """Return steps, each (moved, for how many bytes), that begin at 1."""
    out, before = [0], -1
    for moved, distance in pairs:
        change = moved - before
        out += [change << 1 if change >= 0 else (-change << 1) - 1, distance]
        before = moved
    return bytes([*out, 0])


def test_frames_of_all_kinds() -> None:
    steps = steps_of((0, 5), (8, 6), (40, 2), (0, 3))
    go = table((0x1000, 1, 0), (0x1100, 1, 1), (0x1200, 1, 2), (0x1300, 0, 0), steps=steps)
    assert listed(with_go(EMPTY, go, 0x400000)) == [
        (0x1000, 8, ehframe.RSP, 0),
        (0x1005, 16, ehframe.RSP, -2),
        (0x100B, 48, ehframe.RSP, -2),
        (0x100D, 8, ehframe.RSP, 0),
        (0x1100, 0, ehframe.END, 0),  # the outermost one
        (0x1200, 0, ehframe.GAP, 0),  # changes its stack
        (0x1300, 0, ehframe.GAP, 0),  # no steps
    ]


def test_what_was_there_stays() -> None:
    rows = np.array([(0x1000, 24, ehframe.RSP, 0), (0x1050, 0, ehframe.GAP, 0)], ROW)
    go = table((0xF00, 1, 1), (0x1000, 1, 1), (0x1100, 1, 1))
    assert listed(with_go(rows, go, 0x400000)) == [
        (0xF00, 0, ehframe.END, 0),
        *listed(rows),
        (0x1100, 0, ehframe.END, 0),
        (0x1200, 0, ehframe.GAP, 0),
    ]


@pytest.mark.parametrize(
    "go",
    [table((0x1000, 1, 0), version=GO_1_2), table((0x1000, 99, 0)), table((0x1000, 1, 0), steps=b"\0" + b"\xff" * 20)],
    ids=["an old version", "steps that point out", "a number that never ends"],
)
def test_what_cannot_be_read_is_a_gap(go: GoTable) -> None:
    assert listed(with_go(EMPTY, go, 0x400000)) == []


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=140), st.integers(0, 3))
def test_of_anything(steps: bytes, facts: bytes, count: int) -> None:
    starts = np.array([0x401000 + 0x40 * at for at in range(count + 1)], np.uint64)
    go = GoTable(GO_1_20, 1, starts, np.arange(count) * 44, facts, b"", b"", b"", steps)
    rows = with_go(EMPTY, go, 0x400000)
    assert (rows["pc"][1:] > rows["pc"][:-1]).all()
