"""Records of watched addresses and of registers -> rows of `calls`: made records in, whole values out."""

import json
from typing import Any

import numpy as np
import pytest

from tracehound.batch import Batch, Records
from tracehound.btf import wire_layout
from tracehound.decode.registers import Registers
from tracehound.decode.watches import Watches
from tracehound.tables import TABLES, build

LAYOUT = wire_layout()
MASK = 0b1_0110_0001  # rax, rdi, rbp, rip: bits 0, 5, 6, 8
Row = dict[str, Any]


def fixed(kind: str, rows: list[Row]) -> Any:
    array = np.zeros(len(rows), LAYOUT.dtypes[kind])
    for at, row in enumerate(rows):
        for name, value in row.items():
            array[name][at] = value
    return array


def records(kind: str, rows: list[Row], tails: list[bytes] | None = None) -> Records:
    tails = tails or [b""] * len(rows)
    offsets = np.concatenate(([0], np.cumsum([len(tail) for tail in tails]))).astype(np.int64)
    return Records(fixed(kind, rows), offsets, b"".join(tails))


def point(number: int, facts: Row) -> Records:
    text = json.dumps(facts).encode()
    return records("fact_point", [{"point": number, "text_size": len(text)}], [text])


def test_hits_of_watches() -> None:
    facts = point(9, {"point": "prog:total:w", "module": "/bin/prog", "symbol": "total"})
    hit = {"time_ns": 5, "pid": 7, "tid": 8, "cpu": 1, "call": 65536, "ip": 0x40, "sp": 0x80, "bp": 0x90, "point": 9,
           "address": 0x1000, "size_bytes": 4}  # fmt: skip
    hits = [
        {**hit, "old_value": 1, "new_value": 0xFFFFFFFF, "known": 3},
        {**hit, "new_value": 2, "known": 2},
        {**hit, "size_bytes": 0, "point": 10},
    ]
    rows = Watches(LAYOUT).decode(Batch({"fact_point": facts, "call_watch": records("call_watch", hits)}))
    assert rows is not None and rows.schema.names == [
        column.name for column in (*build(TABLES["calls"], 0, {}).schema,)
    ]
    first, second, third = rows.to_pylist()
    address = {"name": "address", "type": "ptr", "value": "0x1000"}
    assert first["args"] == [
        address,
        {"name": "old", "type": "uint32", "value": "0x1"},
        {"name": "new", "type": "uint32", "value": "0xffffffff"},
    ]
    names = ("event", "point", "module", "symbol", "time_ns", "entry_ns", "pid", "tid", "cpu", "call", "ip", "sp", "bp")
    assert [first[name] for name in names] == [
        "watch", "prog:total:w", "/bin/prog", "total", 5, 5, 7, 8, 1, 65536, 0x40, 0x80, 0x90,
    ]  # fmt: skip
    assert [each["value"] for each in second["args"]] == ["0x1000", None, "0x2"]
    assert third["args"] == [address] and third["point"] is None
    assert first["incomplete"] is False and first["return_ns"] is None and first["caller_ip"] is None


def stack(call: int, values: list[int], mask: int = MASK, count: int | None = None) -> tuple[Row, bytes]:
    registers = b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in values)
    known = len(values) if count is None else count
    return {"call": call, "abi_registers": mask, "abi": 2, "register_count": known}, registers


def shown(registers: Registers, calls: list[int]) -> list[Any]:
    rows = registers.fill(build(TABLES["calls"], len(calls), {"call": calls}))
    assert rows is not None
    found = rows["registers"].to_pylist()
    return [each and [(one["name"], one["value"]) for one in each] for each in found]


def taken(names: list[str], *stacks: tuple[Row, bytes]) -> Registers:
    registers = Registers()
    registers.take(Batch({"fact_point": point(1, {}) if not names else point(1, {"registers": names})}))
    rows, tails = [row for row, _ in stacks], [tail for _, tail in stacks]
    registers.take(Batch({"call_stack": records("call_stack", rows, tails)}))
    return registers


def test_registers_wait_for_the_row_of_their_call_and_are_given_once() -> None:
    registers = taken(["rip", "rax"], stack(1, [10, 11, 12, -1]), stack(2, [20, 21, 22, 23]))
    assert shown(registers, [3, 2]) == [None, [("rip", 23), ("rax", 20)]]
    assert shown(registers, [1, 2]) == [[("rip", -1), ("rax", 10)], None]


def test_nothing_is_shown_that_was_not_asked_for() -> None:
    assert shown(taken([], stack(1, [10, 11, 12, 13])), [1]) == [None]


@pytest.mark.parametrize(
    "lie",
    [
        stack(1, [], count=4),  # not in the record
        stack(1, [1, 2], count=2),  # not as many as the mask says
        stack(1, [1, 2, 3, 4], mask=(1 << 64) - 1),
        stack(1, [], count=0),  # a kernel thread: abi 0
    ],
)
def test_records_that_cannot_be_have_no_registers_and_harm_no_other(lie: tuple[Row, bytes]) -> None:
    registers = taken(["rax"], lie, stack(2, [5, 6, 7, 8]))
    assert shown(registers, [1, 2]) == [None, [("rax", 5)]]
