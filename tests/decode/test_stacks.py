"""Stacks from records alone: statuses, memory that changes, ids and names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.decode.stack_records import (
    BARE,
    BUILD_ID,
    FILE,
    FIRST,
    KERNEL,
    LEAF,
    LISTED,
    MASK,
    MIDDLE,
    MODULE,
    MS,
    OUTER,
    OWN,
    SP,
    TEXT,
    USER,
    WHOLE,
    add_stack,
    batch_of,
    known,
    words,
    writer,
)  # fmt: skip

from tracehound.batch import Batch
from tracehound.btf import wire_layout
from tracehound.decode import stack_rows
from tracehound.decode.stacks import StackDecoder
from tracehound.mappings import add_mapping, add_module
from tracehound.procfs import FactWriter
from tracehound.symbols.address_space import Mapped


def decode(facts: FactWriter, decoder: StackDecoder | None = None) -> list[dict[str, Any]]:
    rows = (decoder or StackDecoder(wire_layout())).take(batch_of(facts, 99 * MS))
    return [] if rows is None else rows.to_pylist()


def names(row: dict[str, Any]) -> list[str | None]:
    return [frame["symbol"] for frame in row["frames"]]


def test_a_whole_stack() -> None:
    facts = known()
    add_stack(facts, 7, 5, (LEAF, SP, 0), WHOLE)
    decoder = StackDecoder(wire_layout())
    (row,) = decode(facts, decoder)
    assert (row["status"], row["depth"]) == ("complete", 3)
    shared: dict[str, Any] = {
        "kind": "native",
        "build_id": BUILD_ID.hex(),
        "file": "/bin/work",
        "source": None,
        "line": None,
    }
    shared |= {"inlined": False, "guessed": False}
    assert row["frames"] == [
        shared | {"file_offset": 0x110, "address": LEAF, "symbol": "leaf", "symbol_offset": 0x10},
        shared | {"file_offset": 0x20F, "address": MIDDLE, "symbol": "middle", "symbol_offset": 0xF},
        shared | {"file_offset": 0x30F, "address": OUTER, "symbol": "outer", "symbol_offset": 0xF},
    ]
    assert decoder.stack_of(np.array([7, 8], np.uint64)).to_pylist() == [row["stack_id"], None]
    decoder.forget(np.array([7], np.uint64))
    assert decoder.stack_of(np.array([7], np.uint64)).to_pylist() == [None]
    assert [key for key, _ in decoder.take_modules()] == [FILE]
    assert decoder.take_modules() == []
    assert decoder.damaged == 0


def test_rows_of_calls_get_theirs_once() -> None:
    facts, decoder = known(), StackDecoder(wire_layout())
    for call in (3, (1 << 64) - 1):
        add_stack(facts, call, 5, (LEAF, SP, 0), WHOLE)
    (row,) = decode(facts, decoder)
    schema = pa.schema([("call", pa.int64()), ("stack_id", pa.int64()), ("point", pa.string())])
    calls = pa.RecordBatch.from_pylist([{"call": call, "point": "p"} for call in (-1, 7, 3)], schema)
    filled = decoder.fill(calls)
    assert filled is not None
    assert filled["stack_id"].to_pylist() == [row["stack_id"], None, row["stack_id"]]
    assert (filled.schema, filled["call"]) == (schema, calls["call"])
    again = decoder.fill(calls)
    assert again is not None
    assert again["stack_id"].null_count == 3
    assert decoder.fill(None) is None
    assert decoder.fill(calls.slice(0, 0)) == calls.slice(0, 0)


ENDS: dict[str, tuple[Callable[[FactWriter], None], str, list[str | None]]] = {
    "the rest was not copied": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE[:40]), "truncated", ["leaf", "middle"],
    ),
    "nothing was copied": (lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), b""), "truncated", ["leaf"]),
    "a chain goes on": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE[:40], chain=[KERNEL, 7, USER, LEAF, MIDDLE, OUTER]),
        "truncated", ["leaf", "middle", "outer"],
    ),
    "a chain without the leaf's caller goes on": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE[:40], chain=[USER, LEAF, OUTER, USER - 1]),
        "truncated", ["leaf", "middle", "outer"],
    ),
    "a chain of the kernel alone": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE[:40], chain=[KERNEL, LEAF, OUTER]),
        "truncated", ["leaf", "middle"],
    ),
    "a chain of another stack": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE[:40], chain=[USER, BARE, OUTER]),
        "truncated", ["leaf", "middle"],
    ),
    "a chain is not needed": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, chain=[USER, LEAF, MIDDLE, BARE]),
        "complete", ["leaf", "middle", "outer"],
    ),
    "an address of nothing": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), words(0x1234, 0)), "no_mapping", ["leaf", None],
    ),
    "a process that is not known": (lambda facts: add_stack(facts, 1, 6, (LEAF, SP, 0), WHOLE), "no_mapping", [None]),
    "a frame that cannot be": (
        lambda facts: add_stack(facts, 1, 5, (BARE, SP, SP + 4), WHOLE), "bad_cfi", ["bare"],
    ),
    "by frame pointer": (
        lambda facts: add_stack(facts, 1, 5, (BARE, SP, SP), words(0, OUTER)), "fp_used", ["bare", "outer"],
    ),
    "code of its own": (
        lambda facts: add_stack(facts, 1, 5, (OWN + 8, SP, SP), words(0, OUTER)), "fp_used", [None, "outer"],
    ),
    "replaced return addresses": (
        lambda facts: add_stack(
            facts, 1, 5, (LEAF, SP, 0), words(1 << 46) + WHOLE[8:40] + words(1 << 46, 9),
            slots=[(SP + 40, OUTER), (SP - 8, 3), (SP, MIDDLE), (SP + 56, 3), (SP + 49, 3), (0, 1)],
        ),
        "patched", ["leaf", "middle", "outer"],
    ),
    "deep": (
        lambda facts: add_stack(facts, 1, 5, (BARE, SP, SP), b"".join(words(SP + 16 * n, BARE) for n in range(1, 400))),
        "max_depth", ["bare"] * 256,
    ),
    "no registers": (lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, abi=0), "no_user_regs", []),
    "32 bits": (lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, abi=1), "no_user_regs", []),
    "no stack pointer in the mask": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, abi_registers=MASK & ~128), "no_user_regs", [],
    ),
    "other registers than the mask says": (
        lambda facts: add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, register_count=3), "no_user_regs", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_how_a_stack_ends(case: str) -> None:
    add, status, symbols = ENDS[case]
    facts = known()
    add(facts)
    (row,) = decode(facts)
    assert (row["status"], names(row), row["depth"]) == (status, symbols, len(symbols))


def test_frames_that_were_guessed_are_marked() -> None:
    facts = known()
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE[:40], chain=[USER, LEAF, OUTER])
    add_stack(facts, 2, 5, (BARE, SP, SP), words(0, OUTER))
    assert [[frame["guessed"] for frame in row["frames"]] for row in decode(facts)] == [
        [False, False, True],
        [False, True],
    ]


@pytest.mark.parametrize("member", ["register_count", "chain_count", "slot_count", "stack_size"])
@pytest.mark.parametrize("value", [1 << 20, (1 << 32) - 1])
def test_a_record_of_impossible_sizes_is_counted(member: str, value: int) -> None:
    facts, decoder = known(), StackDecoder(wire_layout())
    wrong: dict[str, Any] = {member: value}
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, **wrong)
    add_stack(facts, 2, 5, (LEAF, SP, 0), WHOLE)
    assert [row["status"] for row in decode(facts, decoder)] == ["no_user_regs", "complete"]
    assert decoder.damaged == 1


def test_an_equal_stack_has_the_same_id_wherever_it_is() -> None:
    facts, decoder = known(), StackDecoder(wire_layout())
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE)
    add_stack(facts, 2, 5, (LEAF, SP, 0), WHOLE)
    add_stack(facts, 3, 5, (LEAF + 1, SP, 0), WHOLE)
    (first, second) = decode(facts, decoder)
    calls = np.arange(1, 4, dtype=np.uint64)
    ids = decoder.stack_of(calls).to_pylist()
    assert ids == [first["stack_id"], first["stack_id"], second["stack_id"]]
    assert ids[0] != ids[2]
    moved = 0x10000
    facts = writer()
    add_mapping(facts, 6, 0, Mapped(TEXT + moved, TEXT + moved + 0x1000, 0, FILE._replace(path=b"/other")), LISTED)
    stack = words(MIDDLE + moved, 1, 2, 3, 4, OUTER + moved)
    add_stack(facts, 4, 6, (LEAF + moved, SP + 64, 3), stack)
    assert decode(facts, decoder) == []  # it has its row
    assert decoder.stack_of(np.array([4], np.uint64)).to_pylist() == [ids[0]]
    facts = known(FILE._replace(build_id=b""))
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE)
    assert decode(facts)[0]["stack_id"] == ids[0]  # the module tells its build id
    rows = [row for case in ENDS for row in decoded_alone(case)]
    told = {(row["status"], *((one["file_offset"], one["address"]) for one in row["frames"])) for row in rows}
    assert len({row["stack_id"] for row in rows}) == len(told)


def decoded_alone(case: str) -> list[dict[str, Any]]:
    facts = known()
    ENDS[case][0](facts)
    return decode(facts)


def test_memory_that_changes() -> None:
    """Each stack is walked over what its process had at its time."""
    facts = known()
    other = FILE._replace(build_id=b"\x55" * 20, path=b"/bin/other")
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, time_ns=1 * MS)
    facts.add("fork", 2 * MS, {"pid": 5, "child_pid": 6, "start_ns": 2 * MS})
    add_stack(facts, 2, 6, (LEAF, SP, 0), WHOLE, time_ns=3 * MS)
    facts.add("exec", 4 * MS, {"pid": 5, "start_ns": 1})
    add_stack(facts, 3, 5, (LEAF, SP, 0), WHOLE, time_ns=5 * MS)
    add_mapping(facts, 5, 6 * MS, Mapped(TEXT, TEXT + 0x1000, 0, other), 0)
    add_stack(facts, 4, 5, (LEAF, SP, 0), WHOLE, time_ns=7 * MS)
    add_stack(facts, 5, 6, (LEAF, SP, 0), WHOLE, time_ns=7 * MS)
    facts.add("exit", 8 * MS, {"pid": 6, "start_ns": 2 * MS})
    facts.add("exec", 8 * MS, {"pid": 5, "start_ns": 1, "flags": 4})  # was there before the trace: no exec
    add_stack(facts, 6, 6, (LEAF, SP, 0), WHOLE, time_ns=9 * MS)
    add_stack(facts, 7, 5, (LEAF, SP, 0), WHOLE, time_ns=9 * MS)
    decoder = StackDecoder(wire_layout())
    rows = {row["stack_id"]: row for row in decode(facts, decoder)}
    ids = decoder.stack_of(np.arange(1, 8, dtype=np.uint64)).to_pylist()
    found = [(rows[one]["status"], rows[one]["frames"][0]["file"]) for one in ids]
    here, there, nowhere = ("complete", "/bin/work"), ("truncated", "/bin/other"), ("no_mapping", None)
    assert found[:3] == [here, here, nowhere]
    assert found[3][1] == "/bin/other"
    assert found[4:6] == [here, here]
    assert found[6][1] == there[1]
    assert decoder.take_unknown() == {5}
    assert decoder.take_unknown() == set()


def test_the_mappings_of_an_exec_come_before_its_record() -> None:
    """As the kernel tells it: what was is gone, the new program's mappings, then the exec; the next exec alone."""
    facts = known()
    other = FILE._replace(build_id=b"\x55" * 20, path=b"/bin/other")
    facts.add("fact_mapping", 2 * MS, {"pid": 5, "flags": wire_layout().enum("mapping_flag")["MAPPING_FIRST"]})
    add_mapping(facts, 5, 3 * MS, Mapped(TEXT, TEXT + 0x1000, 0, other), 0)
    facts.add("exec", 4 * MS, {"pid": 5, "start_ns": 1})
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, time_ns=5 * MS)
    facts.add("exec", 6 * MS, {"pid": 5, "start_ns": 1})
    add_stack(facts, 2, 5, (LEAF, SP, 0), WHOLE, time_ns=7 * MS)
    decoder = StackDecoder(wire_layout())
    rows = {row["stack_id"]: row for row in decode(facts, decoder)}
    first, second = decoder.stack_of(np.arange(1, 3, dtype=np.uint64)).to_pylist()
    assert rows[first]["frames"][0]["file"] == "/bin/other"
    assert rows[second]["status"] == "no_mapping"


def test_code_that_a_process_made_has_the_names_it_gave() -> None:
    facts = known()
    text = f"{OWN:x} 10 first\n{OWN + 16:x} 20 py::work:/a.py\n".encode()
    facts.add("fact_module", 0, {"pid": 5, "parts": 1, "content_size": len(text)}, text)
    add_stack(facts, 1, 5, (OWN + 20, SP, SP), words(0, OUTER))
    add_stack(facts, 2, 5, (OWN + 0x100, SP, SP), words(0, OUTER))
    first, second = decode(facts)
    told = [(frame["kind"], frame["symbol"], frame["symbol_offset"], frame["file"]) for frame in first["frames"]]
    assert told == [("jit", "py::work:/a.py", 4, None), ("native", "outer", 0xF, "/bin/work")]
    assert names(second) == [None, "outer"]
    assert second["frames"][0]["file_offset"] is None


def test_without_a_module_by_frame_pointer() -> None:
    facts = writer()
    add_mapping(facts, 5, 0, Mapped(TEXT, TEXT + 0x1000, 0x4000, FILE), LISTED | FIRST)
    add_stack(facts, 1, 5, (LEAF, SP, SP), words(0, OUTER))
    (row,) = decode(facts)
    assert (row["status"], names(row)) == ("fp_used", [None, None])
    assert [frame["file_offset"] for frame in row["frames"]] == [0x4110, 0x430F]


def test_a_module_in_parts() -> None:
    content = MODULE.pack()
    facts, half = writer(), len(content) // 2
    fields = {"build_id_size": 20, "build_id": np.frombuffer(BUILD_ID.ljust(24, b"\0"), np.uint8), "path_size": 2}
    for part, piece in enumerate((content[:half], content[half:])):
        facts.add("fact_module", 0, fields | {"part": part, "parts": 2, "content_size": len(piece)}, b"/w" + piece)
    add_mapping(facts, 5, 0, Mapped(TEXT, TEXT + 0x1000, 0, FILE), LISTED | FIRST)
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE)
    assert names(decode(facts)[0]) == ["leaf", "middle", "outer"]


def test_a_module_that_stands_behind_its_stacks_is_learnt_before() -> None:
    facts, late = writer(), writer()
    add_mapping(facts, 5, 0, Mapped(TEXT, TEXT + 0x1000, 0, FILE), LISTED | FIRST)
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE)
    add_module(late, FILE, MODULE, 50 * MS)
    decoder, behind = StackDecoder(wire_layout()), batch_of(late)
    decoder.learn(behind)
    assert [row["status"] for row in decode(facts, decoder)] == ["complete"]
    assert decoder.take(behind) is None


def test_more_than_are_walked_at_once() -> None:
    facts, decoder = known(), StackDecoder(wire_layout())
    for call in range(2500):
        add_stack(facts, call, 5, (LEAF + call % 7, SP, 0), WHOLE)
    rows = decode(facts, decoder)
    assert len(rows) == 7
    ids = decoder.stack_of(np.arange(2500, dtype=np.uint64)).to_pylist()
    assert ids == [rows[call % 7]["stack_id"] for call in range(2500)]


def test_too_many_distinct_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_rows, "WRITTEN_LIMIT", 3)
    monkeypatch.setattr(stack_rows, "DISTINCT_LIMIT", 3)
    monkeypatch.setattr(stack_rows, "NAMES_LIMIT", 3)
    facts, decoder = known(), StackDecoder(wire_layout())
    for call in range(4):
        add_stack(facts, call, 5, (LEAF + call, SP, 0), WHOLE)
    assert len(decode(facts, decoder)) == 4
    facts = writer()
    for call in range(4, 6):
        add_stack(facts, call, 5, (LEAF + call, SP, 0), WHOLE)
    assert decode(facts, decoder) == []
    assert decoder.unwritten == 2
    assert decoder.stack_of(np.array([5], np.uint64)).null_count == 0


def test_a_batch_without_stacks_is_nothing() -> None:
    decoder = StackDecoder(wire_layout())
    assert decoder.take(Batch({}, 5)) is None
    assert decoder.take(batch_of(known())) is None
    assert decoder.stack_of(np.empty(0, np.uint64)).to_pylist() == []
