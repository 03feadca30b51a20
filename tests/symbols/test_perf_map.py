"""Perf maps: entries, what overlaps, lines that are none, pieces cut anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracehound.symbols.perf_map import PerfMap

TEXT = b"""1000 20 py::first:/a.py
1020 10 LazyCompile:*work app.js:3
nonsense
1 zz x
-4 4 negative
2000 0 empty
1010 20 later
"""


@pytest.mark.parametrize(
    ("address", "found"),
    [
        (0x1000, ("py::first:/a.py", 0)),
        (0x100F, ("py::first:/a.py", 15)),
        (0x1010, ("later", 0)),
        (0x102F, ("later", 31)),
        (0x1030, None),
        (0xFFF, None),
        (0x2000, None),
        (0, None),
    ],
)
def test_names(address: int, found: tuple[str, int] | None) -> None:
    names = PerfMap()
    names.add(TEXT)
    assert names.at(address) == found


@given(st.lists(st.integers(0, len(TEXT))))
def test_however_it_is_cut(cuts: list[int]) -> None:
    names, whole = PerfMap(), PerfMap()
    whole.add(TEXT)
    edges = [0, *sorted(cuts), len(TEXT)]
    for start, end in itertools.pairwise(edges):
        names.add(TEXT[start:end])
    assert [names.at(address) for address in range(0xFF0, 0x1040)] == [
        whole.at(address) for address in range(0xFF0, 0x1040)
    ]


@given(st.lists(st.binary(max_size=40)), st.integers(0, (1 << 64) - 1))
def test_of_anything(pieces: list[bytes], address: int) -> None:
    names = PerfMap()
    for piece in pieces:
        names.add(piece)
    names.at(address)


def test_memory_that_is_used_again() -> None:
    names = PerfMap()
    names.add(b"1000 100 old\n1000 10 new\n")
    assert names.at(0x1005) == ("new", 5)
    assert names.at(0x1050) is None
