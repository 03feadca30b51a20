"""Modules: equal after packing; nothing damaged is taken; names and addresses as the file has them."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.symbols.stopped import compile_program, needs_x86

from tracehound.errors import TargetError
from tracehound.symbols.ehframe import ROW, build_rows
from tracehound.symbols.functions import Symbols
from tracehound.symbols.module import Module
from tracehound.symbols.stack_module import StackModule
from tracehound.symbols.unwind import Table

SYMBOLS = Symbols(
    np.array([0x400100, 0x400110, 0x400200], np.uint64),
    np.array([0x10, 0x40, 0x20], np.uint64),
    np.array([1, 6, 9], np.uint32),
    np.array([2, 2, 2], np.uint8),
    b"\0main\0fg\0last\0",
)
MODULE = StackModule(
    b"\x12" * 20,
    0x400000,
    [(0, 0x400000, 0x150), (0x150, 0x401150, 0x200)],
    Table(np.array([(0x100, 8, 1, 0), (0x140, 0, 0, 0)], ROW)),
    SYMBOLS,
)
PACKED = MODULE.pack()


def assert_equal(left: StackModule, right: StackModule) -> None:
    assert (left.build_id, left.base, [tuple(one) for one in left.segments], left.symbols.strings) == (
        right.build_id, right.base, [tuple(one) for one in right.segments], right.symbols.strings,
    )  # fmt: skip
    assert np.array_equal(left.table.rows, right.table.rows)
    for name in ("addresses", "sizes", "names", "kinds"):
        assert np.array_equal(getattr(left.symbols, name), getattr(right.symbols, name)), name


@pytest.mark.parametrize(
    ("offset", "symbol"),
    [
        (0x100, ("main", 0)),
        (0x10F, ("main", 15)),
        (0x110, ("fg", 0)),
        (0x14F, ("fg", 0x3F)),
        (0x0, None),
        (0x160, None),  # of the second segment, beyond all functions
        (0x350, None),  # no segment loads it
    ],
)
def test_names(offset: int, symbol: tuple[str, int] | None) -> None:
    assert MODULE.symbol_at(offset) == StackModule.unpack(PACKED).symbol_at(offset) == symbol


def test_packed_and_unpacked() -> None:
    assert_equal(StackModule.unpack(PACKED), MODULE)
    empty = StackModule(b"", 0, [], Table(np.empty(0, ROW)), Symbols.of([]))
    assert_equal(StackModule.unpack(empty.pack()), empty)
    assert empty.symbol_at(7) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(zlib.decompress(PACKED)) - 1), st.integers(1, 255), st.booleans(), st.integers(0, 1 << 12))
def test_damage_is_refused_or_harmless(at: int, bits: int, is_cut: bool, offset: int) -> None:
    data = bytearray(zlib.decompress(PACKED))
    data[at] ^= bits
    try:
        found = StackModule.unpack(zlib.compress(bytes(data[:at] if is_cut else data)))
    except TargetError:
        return
    found.symbol_at(offset)
    found.table.at(offset)


@pytest.mark.parametrize("packed", [b"", b"no", PACKED[:40], zlib.compress(b""), zlib.compress(bytes(64))])
def test_what_is_none_is_refused(packed: bytes) -> None:
    with pytest.raises(TargetError, match="a module of a tape"):
        StackModule.unpack(packed)


@needs_x86
def test_of_a_file(tmp_path: Path) -> None:
    module = Module.open(compile_program(tmp_path, "calls.c", "-O2"), cache=tmp_path / "cache")
    found = StackModule.of(module)
    assert_equal(StackModule.unpack(found.pack()), found)
    assert np.array_equal(found.table.rows, build_rows(module.elf))
    main = module.function("main")
    assert found.symbol_at(main.offset + 3) == ("main", 3)
    assert found.address_of(main.offset) == main.address
    assert found.build_id == module.build_id
