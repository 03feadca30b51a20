"""Stacks: equal to gdb's on programs that wait at known places; C equal to Python on anything; replayed from a file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.symbols.stopped import Captured, capture, compile_program, gdb_stack, needs_gdb, needs_x86, waiting

from tracehound.symbols import ehframe
from tracehound.symbols.unwind import (
    CHAIN,
    FRAME_CHAIN,
    FRAME_GUESSED,
    FRAME_RETURN,
    RANGE,
    SAMPLE,
    SAMPLE_NO_REGISTERS,
    SAMPLE_PATCHED,
    Mapping,
    Stacks,
    Status,
    Table,
    make_ranges,
    repair_stack,
    splice,
    unwind,
    unwind_slowly,
)

GOLDEN = Path(__file__).parent / "golden"
WAYS = ("recursion", "alloca", "realigned", "tail_call", "qsort", "thread", "signal", "fault")
BUILDS = {
    "no_frame_pointer": ("-O2", "-fomit-frame-pointer"),
    "frame_pointer": ("-O1", "-fno-omit-frame-pointer"),
    "static": ("-O2", "-static"),
}


def walk(captured: Captured, max_depth: int = 256) -> Stacks:
    """Walk by both, which must agree."""
    arguments = captured.tables, captured.ranges, captured.samples, captured.stack, max_depth
    found = unwind(*arguments)
    assert_equal(found, unwind_slowly(*arguments))
    return found


def assert_equal(left: Stacks, right: Stacks) -> None:
    for name in ("depths", "statuses", "addresses", "kinds"):
        assert np.array_equal(getattr(left, name), getattr(right, name)), name


def addresses(found: Stacks) -> list[int]:
    chain: list[int] = found.addresses[0, : found.depths[0]].tolist()
    return chain


def names(captured: Captured, found: Stacks) -> list[str]:
    """Return the function of each frame, ? without one."""
    result = []
    for address, kind in zip(addresses(found), found.kinds[0].tolist(), strict=False):
        named = address - (kind & FRAME_RETURN)
        one = next(one for one in captured.mappings if one.start <= named < one.end)
        linked = one.elf.address_of(named - one.start + one.offset) if one.elf else None
        symbol = one.elf.symbols.at(linked) if one.elf and linked is not None else None
        result.append(symbol.name if symbol else "?")
    return result


@pytest.fixture(scope="module", params=BUILDS)
def calls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield compile_program(tmp_path_factory.mktemp("calls"), "calls.c", *BUILDS[request.param])


@needs_x86
@needs_gdb
@pytest.mark.parametrize("way", WAYS)
def test_equal_to_gdb(calls: Path, way: str) -> None:
    with waiting(calls, way) as (pid, tid):
        captured = capture(pid, tid)
        expected = gdb_stack(pid, tid)
    found = walk(captured)
    assert addresses(found) == expected
    assert found.statuses[0] == Status.COMPLETE
    chain = names(captured, found)
    assert chain[1:3] == ["stop", "recurse"]
    assert chain[-1] == "_start" or way == "thread"


@needs_x86
@needs_gdb
@pytest.mark.parametrize(
    ("way", "chain"),
    [
        ("destructor", ["_ZL4stopv", "_ZN5GuardD2Ev", "_ZL6throwsb"]),
        ("handler", ["_ZL4stopv", "main"]),
        ("terminate", ["_ZL4stopv", "__cxa_throw", "_ZL6throwsb", "main"]),
    ],
)
def test_exceptions_equal_to_gdb(tmp_path: Path, way: str, chain: list[str]) -> None:
    program = compile_program(tmp_path, "exceptions.cpp", "-O2", "-fomit-frame-pointer")
    with waiting(program, way) as (pid, tid):
        captured = capture(pid, tid)
        expected = gdb_stack(pid, tid)
    found = walk(captured)
    assert addresses(found) == expected
    seen = [name.removesuffix(".cold") for name in names(captured, found)]
    assert [name for name in seen if name in chain] == chain
    assert found.statuses[0] == Status.COMPLETE


@needs_x86
def test_what_was_not_copied(calls: Path) -> None:
    with waiting(calls, "recursion", "60") as (pid, tid):
        whole = walk(capture(pid, tid))
        cut = capture(pid, tid, 2048)
    found = walk(cut)
    assert (whole.statuses[0], found.statuses[0]) == (Status.COMPLETE, Status.TRUNCATED)
    assert 10 < found.depths[0] < whole.depths[0]
    assert addresses(found) == addresses(whole)[: found.depths[0]]
    deepest = walk(cut, 8)
    assert (deepest.statuses[0], deepest.depths[0]) == (Status.MAX_DEPTH, 8)


@needs_x86
def test_a_handler_on_a_stack_of_its_own(calls: Path) -> None:
    with waiting(calls, "other_stack") as (pid, tid):
        captured = capture(pid, tid)
    found = walk(captured)
    assert found.statuses[0] == Status.TRUNCATED
    assert names(captured, found)[1:3] == ["stop", "recurse"]
    assert found.kinds[0, found.depths[0] - 1] == 0  # the interrupted address is exact, and the last one known


@needs_x86
def test_a_replaced_return_address_is_put_back(calls: Path) -> None:
    with waiting(calls, "recursion") as (pid, tid):
        captured = capture(pid, tid)
    whole = walk(captured)
    at = captured.stack.index(addresses(whole)[4].to_bytes(8, "little"))
    stack = bytearray(captured.stack)
    stack[at : at + 8] = (0x7FFFFFFFF000).to_bytes(8, "little")
    sp = int(captured.samples["sp"][0])
    captured.stack = bytes(stack)
    assert walk(captured).statuses[0] == Status.NO_MAPPING
    outside = (sp - 8, 1), (sp + len(stack), 1)
    assert repair_stack(stack, sp, [(sp + at, addresses(whole)[4]), *outside]) == 1
    captured.stack = bytes(stack)
    captured.samples["flags"] = SAMPLE_PATCHED
    found = walk(captured)
    assert addresses(found) == addresses(whole)
    assert found.statuses[0] == Status.PATCHED


@needs_x86
def test_without_rows_by_frame_pointer(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "calls.c", "-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables")
    with waiting(program, "recursion") as (pid, tid):
        captured = capture(pid, tid)
    found = walk(captured)
    chain = names(captured, found)
    assert chain[1:9] == ["stop", *["recurse"] * 6, "main"]
    assert found.statuses[0] == Status.FP_USED
    assert found.kinds[0, :4].tolist() == [0, FRAME_RETURN, *[FRAME_RETURN | FRAME_GUESSED] * 2]


def test_no_registers() -> None:
    samples = np.zeros(2, dtype=SAMPLE)
    samples["flags"] = SAMPLE_NO_REGISTERS
    captured = Captured([], np.empty(0, dtype=RANGE), samples, b"", [], [])
    found = walk(captured)
    assert found.statuses.tolist() == [Status.NO_USER_REGS] * 2
    assert found.depths.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("ranges", 2, "ranges beyond"), ("stack_size", 9, "stack beyond"), ("stack_at", 1 << 63, "stack beyond")],
)
def test_refuses_what_points_out(field: str, value: int, text: str) -> None:
    samples = np.zeros(1, dtype=SAMPLE)
    samples[field] = value
    with pytest.raises(ValueError, match=text):
        unwind([], make_ranges([Mapping(0, 4096, 0, -1, None)]), samples, bytes(8))
    with pytest.raises(ValueError, match="has table 3"):
        unwind([], np.array([(0, 1, 0, 3)], dtype=RANGE), samples[:0], b"")


BASE = 0x1000
WORDS = st.one_of(
    st.integers(0, 40).map(lambda at: BASE + 8 * at),  # into the stack
    st.integers(0x8000, 0x8200),  # into code
    st.sampled_from((0, 1, 7, (1 << 64) - 1, (1 << 64) - 8, 1 << 63)),
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 0x1FF),
        st.one_of(st.integers(-16, 80), st.sampled_from((-32768, 32767))),
        st.sampled_from((*range(8), 1, 1, 2, 2, 200)),
        st.sampled_from((0, 0, -2, -2, 1, -128, 127)),
    ),
    max_size=12,
    unique_by=lambda row: row[0],
)


@settings(max_examples=400, deadline=None)
@given(ROWS, ROWS, st.lists(WORDS, max_size=40), st.lists(st.tuples(WORDS, WORDS), max_size=4), st.integers(0, 9))
def test_equal_on_anything(
    rows: list[tuple[int, ...]],
    others: list[tuple[int, ...]],
    words: list[int],
    registers: list[tuple[int, int]],
    max_depth: int,
) -> None:
    tables = [Table(np.array(sorted(one), dtype=ehframe.ROW)) for one in (rows, others)]
    ranges = np.array(
        [(0x8000, 0x8100, 0x8000, 0), (0x8100, 0x8180, 0x8000, 1), (0x8180, 0x81F0, 0, -1), (0x81F0, 0x8200, 0, -2)],
        dtype=RANGE,
    )
    stack = b"".join(word.to_bytes(8, "little") for word in words)
    samples = np.array(
        [
            (ip, sp, bp, 0, len(stack), first, count, 0)
            for ip, bp in registers
            for sp in (BASE, BASE + 3, ip, (1 << 64) - 16)
            for first, count in ((0, 4), (0, 0), (1, 2), (0, 1))
        ],
        dtype=SAMPLE,
    )
    assert_equal(
        unwind(tables, ranges, samples, stack, max_depth), unwind_slowly(tables, ranges, samples, stack, max_depth)
    )


def spliced(frames: list[int], chain: list[int], max_depth: int) -> list[int]:
    """Return what `splice` makes of one truncated stack, said plainly."""
    for common in range(len(frames), 0, -1):
        best, rest = 0, list[int]()
        for at in range(len(chain)):
            run = 0
            while run < common and run <= at and chain[at - run] == frames[common - 1 - run]:
                run += 1
            if run > best:
                best, rest = run, chain[at + 1 :]
        if best:
            return [*frames, *rest][:max_depth]
    return frames


FEW = st.integers(1, 4)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.lists(FEW, max_size=6), st.lists(FEW, max_size=8), st.booleans()), max_size=4))
def test_a_truncated_stack_goes_on_with_the_chain(stacks: list[tuple[list[int], list[int], bool]]) -> None:
    found = Stacks.empty(len(stacks), 8)
    chains, content = np.zeros(len(stacks), CHAIN), b"x"  # not aligned
    expected = []
    for number, (frames, chain, is_cut) in enumerate(stacks):
        found.addresses[number, : len(frames)], found.depths[number] = frames, len(frames)
        found.statuses[number] = Status.TRUNCATED if is_cut else Status.COMPLETE
        chains[number] = len(content), len(chain)
        content += b"".join(word.to_bytes(8, "little") for word in chain)
        expected.append(spliced(frames, chain, 8) if is_cut else frames)
    splice(found, chains, np.frombuffer(content, np.uint8))
    for number, (frames, _, _) in enumerate(stacks):
        depth = found.depths[number]
        assert found.addresses[number, :depth].tolist() == expected[number]
        new = FRAME_RETURN | FRAME_GUESSED | FRAME_CHAIN
        assert found.kinds[number, :depth].tolist() == [0] * len(frames) + [new] * (depth - len(frames))


def test_a_chain_that_points_out_is_refused() -> None:
    for at, count in ((0, 2), (9, 1), (16, 1), (1 << 63, 1), (0, 1 << 61), (8, 1 << 63)):
        with pytest.raises(ValueError, match="a chain lies beyond"):
            splice(Stacks.empty(1, 4), np.array([(at, count)], CHAIN), np.zeros(15, np.uint8))
    with pytest.raises(ValueError, match="1 stacks and 2 chains"):
        splice(Stacks.empty(1, 4), np.zeros(2, CHAIN), np.zeros(15, np.uint8))


def test_room_is_used_again() -> None:
    ranges = make_ranges([Mapping(0, 4096, 0, -1, None)])
    samples = np.zeros(2, dtype=SAMPLE)
    samples["ranges"] = 1
    room = Stacks.empty(3, 4)
    found = unwind([], ranges, samples, bytes(8), room=room)
    assert found.addresses.base is room.addresses
    assert found.statuses.tolist() == [Status.FP_USED] * 2
    with pytest.raises(ValueError, match="room for 3 stacks, not for 4"):
        unwind([], ranges, np.zeros(4, dtype=SAMPLE), b"", room=room)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.npz")), ids=lambda path: path.stem)
def test_golden(file: Path) -> None:
    """Samples of gdb-checked stacks (golden/make.py), whose rows are those that the walk needs."""
    with np.load(file) as kept:
        captured = Captured([Table(kept["rows"])], kept["ranges"], kept["samples"], kept["stack"].tobytes(), [], [])
        found = walk(captured)
        assert addresses(found) == kept["expected"].tolist()
        assert found.statuses[0] == kept["status"]
