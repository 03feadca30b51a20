"""Records of system calls in, rows of `calls` out."""

import struct
from typing import Any

from tests.decode.batches import LAYOUT, Record, batch, cut, one, rows, whole_rows

from tracehound.decode.calls import Calls, rows_in_order
from tracehound.decode.syscalls import PIECE_FAULT, Syscalls
from tracehound.kernel.call_extras import EVERY_POINT
from tracehound.syscalls import FACT_POINT, SYSCALLS_MAX, SyscallSettings, numbers

FIRST = LAYOUT.enum("call_limit")["CALL_POINTS_MAX"] - SYSCALLS_MAX
COLUMNS = ("call", "time_ns", "event", "symbol", "return_value", "errno", "incomplete")


def fact(**settings: Any) -> Record:
    text = SyscallSettings(**({"machine": "x86_64"} | settings)).to_text().encode()
    return one("fact_point", 1, text, point=FACT_POINT, text_size=len(text))


def tail(pieces: tuple[bytes | None, ...]) -> bytes:
    sizes = [PIECE_FAULT if piece is None else len(piece) for piece in pieces]
    return struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(filter(None, pieces))


def entry(
    time_ns: int, call: int, name: str, *registers: int, pieces: tuple[bytes | None, ...] = (), **fields: Any
) -> Record:
    padded = [number & (1 << 64) - 1 for number in (*registers, *[0] * (6 - len(registers)))]
    given = {"pid": 7, "tid": 8, "point": FIRST + numbers("x86_64")[name], "arguments": padded, "pieces": len(pieces)}
    return one("call_entry", time_ns, tail(pieces), call=call, **(given | fields))


def returned(
    time_ns: int, call: int, name: str, value: int, entry_ns: int, pieces: tuple[bytes | None, ...] = ()
) -> Record:
    fields = {"call": call, "value": value & (1 << 64) - 1, "entry_ns": entry_ns, "pieces": len(pieces)}
    return one("call_return", time_ns, tail(pieces), pid=7, tid=8, point=FIRST + numbers("x86_64")[name], **fields)


def decoded(*records: Record) -> list[tuple[Any, ...]]:
    syscalls = Syscalls(LAYOUT)
    found = rows(syscalls.decode(batch([fact(), *records])), *COLUMNS)
    return found + rows(syscalls.finish(900), *COLUMNS)


def test_what_is_shown_of_registers_is_no_fact_of_system_calls() -> None:
    text = b'{"registers": ["rip"]}'
    shown = one("fact_point", 1, text, point=EVERY_POINT, text_size=len(text))
    assert decoded(shown, entry(20, 5, "close", 3), returned(35, 5, "close", 0, 20)) == [
        (5, 35, "call", "close", 0, None, False)
    ]


def test_a_whole_row() -> None:
    given = entry(20, 5, "openat", -100, 64, 0x80000, pieces=(b"/etc/x",), ip=16, sp=32, cpu=1)
    found = Syscalls(LAYOUT).decode(batch([fact(), given, returned(35, 5, "openat", 3, 10)]))
    args = [
        ("dirfd", "dirfd", "AT_FDCWD"),
        ("pathname", "path", '"/etc/x"'),
        ("flags", "open_flags", "O_RDONLY|O_CLOEXEC"),
    ]
    assert whole_rows(found) == [
        {"time_ns": 35, "pid": 7, "tid": 8, "preexisting": False, "call": 5, "event": "call", "point": "sys:openat"}
        | {"symbol": "openat", "ip": 16, "sp": 32, "entry_ns": 10, "return_ns": 35, "duration_ns": 25, "cpu": 1}
        | {"return_value": 3, "incomplete": False}
        | {"args": [dict(zip(("name", "type", "value"), each, strict=True)) for each in args]}
    ]


def test_errors_restarts_and_what_never_returns() -> None:
    assert decoded(
        entry(2, 1, "close", 9),
        returned(3, 1, "close", -9, 2),
        entry(4, 2, "read", 0, 64, 1),
        returned(5, 2, "read", -512, 4),
        entry(6, 3, "exit_group", 2),
        entry(7, 4, "futex", 64, 0, 1),
    ) == [
        (1, 3, "call", "close", -1, "EBADF", False),
        (2, 5, "call", "read", None, "ERESTARTSYS", False),
        (3, 6, "entry", "exit_group", None, None, False),
        (4, 900, "call", "futex", None, None, True),
    ]


def test_an_exec_ends_other_calls_and_not_itself() -> None:
    records = (
        entry(2, 1, "futex", 64, 0, 1, tid=9),
        entry(3, 2, "execve", 64, 0, 0, pieces=(b"/x", b"x\0", b"\0")),
        one("exec", 4, pid=7, tid=7),
        returned(5, 2, "execve", 0, 3),
        entry(6, 3, "pause"),
        one("exit", 7, pid=7, tid=7),
    )
    assert decoded(*records) == [
        (1, 4, "call", "futex", None, None, True),
        (2, 5, "call", "execve", 0, None, False),
        (3, 7, "call", "pause", None, None, True),
    ]


def test_a_thread_is_in_one_call_at_a_time() -> None:
    assert decoded(
        entry(2, 1, "close", 9),
        entry(4, 2, "close", 9, tid=9),
        entry(5, 3, "pause"),
        returned(6, 2, "close", 0, 4),
        returned(7, 1, "close", 0, 2),
    ) == [
        (1, 5, "call", "close", None, None, True),
        (2, 6, "call", "close", 0, None, False),
        (3, 900, "call", "pause", None, None, True),
    ]


def test_what_the_command_is_looked_for_with_has_no_row() -> None:
    """Before the exec that makes a command, its paths are tried: `replaced` says so."""
    assert decoded(
        entry(2, 1, "execve", 64, 0, 0, replaced=1),
        returned(3, 1, "execve", -2, 2),
        entry(4, 2, "execve", 64, 0, 0, replaced=1),
        returned(5, 2, "execve", 0, 4),
    ) == [(2, 5, "call", "execve", 0, None, False)]


def test_what_could_not_be_read_is_an_address_and_others_stay_in_place() -> None:
    given = entry(2, 1, "renameat", -100, 16, -100, 32, pieces=(None, b"new"))
    found = Syscalls(LAYOUT).decode(batch([fact(), given, returned(3, 1, "renameat", -14, 2)]))
    assert [each["value"] for each in whole_rows(found)[0]["args"]] == ["AT_FDCWD", "0x10", "AT_FDCWD", '"new"']


def test_a_record_that_is_cut_short_is_shown_as_far_as_it_goes() -> None:
    given = entry(2, 1, "open", 16, 0, pieces=(b"long",))
    for size in range(len(given.tail)):
        short = Record(given.kind, given.fields, given.tail[:size])
        found = Syscalls(LAYOUT).decode(batch([fact(), short, returned(3, 1, "open", 3, 2)]))
        assert whole_rows(found)[0]["args"][0]["value"] in ('"lon"', '"lo"', '"l"', '""', "0x10")


def test_descriptors_come_last() -> None:
    given = entry(2, 1, "dup2", 3, 4, pieces=(b"/old", None))
    back = returned(3, 1, "dup2", 4, 2, (b"/old",))
    found = Syscalls(LAYOUT).decode(batch([fact(paths=True), given, back]))
    shown = [each["value"] for each in whole_rows(found)[0]["args"]]
    assert shown == ["3</old>", "4", "4</old>"]


def test_functions_keep_their_records_and_all_rows_are_in_the_order_of_time() -> None:
    syscalls, calls = Syscalls(LAYOUT), Calls(LAYOUT)
    function = one("call_entry", 4, call=9, point=0, pid=7, tid=8)
    both = batch([fact(), entry(2, 1, "close", 9), function, returned(6, 1, "close", 0, 2)])
    of_functions = syscalls.functions_only(both)
    assert [len(of_functions.records[kind]) for kind in ("call_entry",)] == [1]
    assert "call_return" not in of_functions.records
    table = rows_in_order([calls.decode(of_functions), syscalls.decode(both)])
    assert rows(table, "call", "time_ns") == [(9, 4), (1, 6)]


def test_cuts_of_the_stream_change_nothing() -> None:
    records = [fact()]
    for at in range(20):
        records += [entry(10 * at + 2, at + 1, "close", at), returned(10 * at + 15, at + 1, "close", 0, 10 * at + 2)]
    whole = decoded(*records)
    for every in (3, 7, 50):
        syscalls = Syscalls(LAYOUT)
        found = [row for part in cut(records, range(1, 300, every)) for row in rows(syscalls.decode(part), *COLUMNS)]
        assert found + rows(syscalls.finish(900), *COLUMNS) == whole
