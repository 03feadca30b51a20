"""call records in, rows of `calls` out."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.decode.batches import LAYOUT, Record, batch, cut, one, rows, whole_rows

from tracehound.decode.call_arguments import PIECE_CUT, PIECE_FAULT, PIECE_NULL
from tracehound.decode.calls import Calls


def point(number: int, *arguments: tuple[str, bool], has_return: bool = True) -> Record:
    given: list[dict[str, Any]] = []
    for at, (kind, is_hex) in enumerate(arguments):
        form = kind if kind in ("str", "buf") else "number"
        where = {"register": at} if form == "number" else {"piece": sum("piece" in each for each in given)}
        given.append(
            {"name": f"arg{at}", "type": kind, "form": form, "shown": kind, "hex": is_hex, "exit": False} | where
        )
    facts = {"point": f"lib:f{number}", "module": "/lib", "symbol": f"f{number}", "file_offset": 16}
    text = json.dumps(facts | {"has_return": has_return, "arguments": given}).encode()
    return one("fact_point", 1, text, point=number, text_size=len(text))


def entry(time_ns: int, call: int, number: int = 0, pieces: tuple[bytes | int, ...] = (), **fields: Any) -> Record:
    given = {"pid": 7, "tid": 8, "point": number, "sp": 64, "caller_ip": 9, "pieces": len(pieces), **fields}
    return one("call_entry", time_ns, tail(pieces), call=call, **given)


def tail(pieces: Sequence[bytes | int]) -> bytes:
    """Return the tail of a record with these pieces; a number is the flags of one without bytes."""
    sizes = [piece if isinstance(piece, int) else len(piece) for piece in pieces]
    return np.array(sizes, "<u4").tobytes() + b"".join(each for each in pieces if isinstance(each, bytes))


def returned(time_ns: int, call: int, value: int = 0) -> Record:
    return one("call_return", time_ns, call=call, value=value, pid=7, tid=8)


def ends(*records: Record) -> list[tuple[Any, ...]]:
    calls = Calls(LAYOUT)
    found = rows(calls.decode(batch([point(0), *records])), *COLUMNS)
    return found + rows(calls.finish(900), *COLUMNS)


COLUMNS = ("call", "time_ns", "duration_ns", "return_value", "incomplete")


def test_a_whole_row() -> None:
    spec = (("int8", False), ("uint16", True), ("str", False), ("buf", False), ("ptr", True))
    registers = np.array([0xFFFFFFFFFFFFFFFB, 0x1FFFF, 1, 2, 0xFFFF800000000000, 0], np.uint64)
    record = entry(10, 5, 0, ("\xe9t\xe9".encode(), b"\x00\xff"), arguments=registers, ip=16, bp=32, cpu=1)
    names = [f"arg{number}" for number in range(5)]
    types = ["int8", "uint16", "str", "buf", "ptr"]
    values = ["-5", "0xffff", "\xe9t\xe9", "00ff", "0xffff800000000000"]
    args = [{"name": n, "type": t, "value": v} for n, t, v in zip(names, types, values, strict=True)]
    found = Calls(LAYOUT).decode(batch([point(0, *spec), record, returned(25, 5, 2**64 - 1)]))
    assert whole_rows(found) == [
        {"time_ns": 25, "pid": 7, "tid": 8, "preexisting": False, "call": 5, "event": "call", "point": "lib:f0"}
        | {"module": "/lib", "symbol": "f0", "file_offset": 16, "ip": 16, "bp": 32, "sp": 64, "caller_ip": 9}
        | {"entry_ns": 10, "return_ns": 25, "duration_ns": 15, "args": args, "return_value": -1, "cpu": 1}
        | {"incomplete": False}
    ]


def test_what_could_not_be_read_is_null_and_what_is_empty_is_not() -> None:
    records = [
        point(0, ("str", False), ("str", False), has_return=False),
        entry(1, 1, 0, (PIECE_FAULT, b"x")),
        entry(2, 2, 0, (b"", b"")),
    ]
    (args,) = zip(*rows(Calls(LAYOUT).decode(batch(records)), "args"), strict=True)
    assert [[each["value"] for each in one] for one in args] == [[None, "x"], ["", ""]]


def test_points_of_one_batch_do_not_mix() -> None:
    records = [point(0, ("int", False)), point(1, has_return=False), point(2, ("str", False), has_return=False)]
    records[0] = point(0, ("int32", False), has_return=False)
    registers = np.arange(6, dtype=np.uint64) + 3
    records += [entry(at, at, at % 3, (b"t%d" % at,) if at % 3 == 2 else (), arguments=registers) for at in range(2, 9)]
    found = rows(Calls(LAYOUT).decode(batch(records)), "point", "args")
    expected = {0: ["3"], 1: [], 2: None}
    for at, (name, args) in zip(range(2, 9), found, strict=True):
        assert name == f"lib:f{at % 3}"
        assert [each["value"] for each in args] == (expected[at % 3] if at % 3 < 2 else [f"t{at}"])


def test_how_calls_end() -> None:
    assert ends(entry(10, 1), entry(20, 2), returned(30, 2, 4), returned(50, 1, 3)) == [
        (2, 30, 10, 4, False),
        (1, 50, 40, 3, False),
    ]
    assert ends(entry(10, 1), entry(20, 2, replaced=1), returned(30, 2)) == [
        (1, 20, None, None, True),
        (2, 30, 10, 0, False),
    ]
    assert ends(returned(30, 2)) == []  # its entry was lost
    assert ends(entry(10, 1)) == [(1, 900, None, None, True)]
    for kind in ("exec", "exit"):
        assert ends(entry(10, 1), entry(11, 2, pid=9), one(kind, 40, pid=7)) == [
            (1, 40, None, None, True),
            (2, 900, None, None, True),
        ]


def test_a_cut_changes_nothing() -> None:
    generator = np.random.default_rng(5)
    records, under_way = [point(0), point(1, has_return=False)], list[int]()
    for at in range(2, 400):
        if under_way and generator.random() < 0.45:
            records.append(returned(at, under_way.pop(), at))
        elif generator.random() < 0.1:
            records.append(one("exit", at, pid=7))
            under_way.clear()
        else:
            is_replacing = under_way and generator.random() < 0.2
            records.append(entry(at, at, 0, replaced=under_way.pop() if is_replacing else 0))
            under_way.append(at)
    whole = Calls(LAYOUT)
    expected = rows(whole.decode(batch(records)), *COLUMNS) + rows(whole.finish(900), *COLUMNS)
    assert len(expected) == sum(record.kind == "call_entry" for record in records)
    for marks in (range(2, 400), [100, 101, 333], generator.integers(2, 400, 20).tolist()):
        calls, found = Calls(LAYOUT), []
        for part in cut(records, marks):
            found += rows(calls.decode(part), *COLUMNS)
        assert found + rows(calls.finish(900), *COLUMNS) == expected


def argument(
    name: str, form: str, kind: str, shown: str = "", *, is_exit: bool = False, **where: int
) -> dict[str, Any]:
    return {"name": name, "form": form, "type": kind, "shown": shown or kind, "hex": False, "exit": is_exit} | where


def point_of(number: int, *arguments: dict[str, Any]) -> Record:
    facts = {"point": f"lib:f{number}", "module": "/lib", "symbol": f"f{number}", "file_offset": 16}
    text = json.dumps(facts | {"has_return": True, "arguments": arguments}).encode()
    return one("fact_point", 1, text, point=number, text_size=len(text))


def test_a_return_value_is_as_wide_as_its_type() -> None:
    facts = json.dumps({"point": "lib:f", "has_return": True, "return": "int32", "arguments": []}).encode()
    records = [
        one("fact_point", 1, facts, point=0, text_size=len(facts)),
        entry(2, 1),
        entry(3, 2, sp=128),
        one("call_return", 4, call=1, value=0x1_FFFF_FFFE),
        one("call_return", 5, call=2, value=0x7_0000_0005),
    ]
    found = rows(Calls(LAYOUT).decode(batch(records)), "return_value", "errno")
    assert found == [(-2, "ENOENT"), (5, None)]


def test_values_of_the_exit_take_their_places() -> None:
    records = [
        point_of(
            0,
            argument("out", "str", "str", is_exit=True, piece=0),
            argument("size", "number", "int32", register=1),
            argument("count", "number", "int32", "*int32", is_exit=True, piece=1),
        ),
        point_of(1, argument("text", "str", "str", piece=0)),
        entry(10, 1, 0, arguments=np.array([9, 5, 0, 0, 0, 0], np.uint64)),
        entry(11, 2, 1, (b"abc",)),
        one("call_return", 20, tail((b"out", (7).to_bytes(4, "little"))), call=1, value=0, point=0, pieces=2),
        one("call_return", 21, tail(()), call=2, value=2**64 - 2, point=1),
    ]
    found = rows(Calls(LAYOUT).decode(batch(records)), "args", "errno")
    shown = [([(each["name"], each["type"], each["value"]) for each in args], errno) for args, errno in found]
    assert shown == [
        ([("out", "str", "out"), ("size", "int32", "5"), ("count", "*int32", "7")], None),
        ([("text", "str", "abc")], "ENOENT"),
    ]


def test_what_became_of_a_piece() -> None:
    facts = [
        argument("text", "str", "str", piece=0),
        argument("bytes", "buf", "buf", piece=1),
        argument("number", "number", "int64", piece=2),
        argument("time", "array", "timespec", piece=3),
    ]
    cut = (
        np.array([3 | PIECE_CUT, 2 | PIECE_CUT, 8, 16], "<u4").tobytes()
        + b"abc\1\2"
        + bytes(7)
        + b"\x80"
        + b"\1"
        + bytes(15)
    )
    records = [
        point_of(0, *facts),
        one("call_entry", 2, cut, call=1, pieces=4),
        entry(3, 2, 0, (PIECE_FAULT | PIECE_NULL, b"", PIECE_FAULT, PIECE_FAULT)),
        one("call_entry", 4, b"\1\0", call=3, pieces=4),  # a tail of another version
        one("call_entry", 5, np.full(4, 0x1FFFFFFF, "<u4").tobytes() + b"ab", call=4, pieces=4),
    ]
    calls = Calls(LAYOUT)
    calls.decode(batch(records))
    found = [[each["value"] for each in args] for (args,) in rows(calls.finish(9), "args")]
    assert found == [
        ["abc\u2026", "0102\u2026", str(-(1 << 63)), "{tv_sec=1, tv_nsec=0}"],
        ["NULL", "", None, None],
        [None] * 4,
        ["ab", "", None, ""],
    ]
