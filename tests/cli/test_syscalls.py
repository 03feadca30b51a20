"""What `call sys:...` takes and prints."""

import argparse
from typing import Any

import pytest

from tracehound.cli._call_output import add_output_arguments
from tracehound.cli._syscalls import add_syscall_arguments, call_text, end_text, line_end, summary_text, take_syscalls
from tracehound.errors import UsageError
from tracehound.kernel.syscalls import Total


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_syscall_arguments(parser)
    add_output_arguments(parser)
    parser.add_argument("--no-redact", action="store_true")
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--stack", action="store_true")
    return parser.parse_args(words)


def test_points_are_told_apart() -> None:
    others, wishes = take_syscalls(["libc:puts", "sys:close,open", "sys:%epoll"], options("--paths", "--size", "9"))
    assert others == ["libc:puts"] and wishes is not None
    assert {"close", "epoll_wait"} <= {call.name for call in wishes.calls}
    assert (wishes.settings.limit, wishes.settings.paths, wishes.settings.with_data) == (9, True, False)
    assert not wishes.is_quiet
    others, wishes = take_syscalls(["libc:puts", "sys:read"], options("--summary"))
    assert others == ["libc:puts"] and wishes is not None and wishes.is_quiet
    assert take_syscalls(["libc:puts"], options()) == (["libc:puts"], None)


@pytest.mark.parametrize(
    ("points", "words", "said"),
    [
        (["libc:puts"], ["--paths"], "--paths is of system calls"),
        (["sys:read"], ["--stack"], "--stack is of functions, not of system calls"),
        (["sys:read"], ["--size", "0"], "--size takes 1 to 4095"),
        (["sys:read"], ["--rate", "5"], "--rate is of functions"),
        (["sys:reads"], [], "no system call reads. Near: read"),
    ],
)
def test_wrong_use(points: list[str], words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as error:
        take_syscalls(points, options(*words))
    assert said in str(error.value)


def row(name: str, *args: tuple[str, str], **columns: Any) -> dict[str, Any]:
    given = [{"name": each, "type": "", "value": value} for each, value in args]
    return {"point": f"sys:{name}", "args": given, "return_value": None, "errno": None, "duration_ns": None} | columns


def test_lines() -> None:
    assert call_text(row("close", ("fd", "3"), return_value=0)) == "close(3) = 0"
    failed = row("close", ("fd", "3"), return_value=-1, errno="EBADF", duration_ns=1500)
    assert line_end(failed) == "close(3) = -1 EBADF (Bad file descriptor)  1.5 µs"
    assert call_text(row("brk", ("addr", "NULL"), return_value=4096)) == "brk(NULL) = 0x1000"
    assert call_text(row("dup", ("oldfd", "3</x>"), ("return", "4</x>"), return_value=4)) == "dup(3</x>) = 4</x>"
    assert line_end(row("exit_group", ("status", "0"))) == "exit_group(0) = ?"


class Ended:
    syscall_totals: tuple[list[Total], dict[str, int]] = (
        [Total("read", 4, 1, 3_000_000, 2_500_000), Total("close", 2, 0, 1_000_000, 600_000)],
        {},
    )


def test_the_summary() -> None:
    assert summary_text(Ended()) == (  # type: ignore[arg-type]
        "% time     seconds  usecs/call   max usecs     calls    errors syscall\n"
        " 75.00    0.003000       750.0      2500.0         4         1 read\n"
        " 25.00    0.001000       500.0       600.0         2           close\n"
        "100.00    0.004000                                 6         1 total"
    )


def test_what_has_no_line_is_told() -> None:
    ended = Ended()
    ended.syscall_totals = ([], {"no_entry": 1, "compat": 2})
    _, wishes = take_syscalls(["sys:read"], options())
    assert wishes is not None
    assert end_text(ended, wishes, {"ring_full": 0}).splitlines() == [  # type: ignore[arg-type]
        "not shown: 1 call begun before tracing did",
        "not shown: 2 calls of 32-bit programs, which have other numbers",
        "lost: nothing",
    ]
