"""`tracehound call`: how a call is shown, and the table at the end."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.stack_rows import SOURCE, calls, frame, stacks

from tracehound.agent import Trace
from tracehound.cli import main
from tracehound.cli._call_output import Counts, Lines, add_output_arguments, line_of, open_outputs, say_empty
from tracehound.cli._call_points import told_of_points
from tracehound.cli._options import Parser
from tracehound.cli.call import COMMAND, _take_options_behind
from tracehound.config import Settings
from tracehound.errors import SinkError, UsageError
from tracehound.kernel.call_points import PointCounts
from tracehound.kernel.points import Point
from tracehound.sinks._profile_sink import ProfileSink, open_profile
from tracehound.tables import TABLES, build
from tracehound.target import Command

ROW: dict[str, Any] = {
    "time_ns": 5_250_000_000, "wall_time": None, "pid": 7, "tid": 8, "comm": "shop", "service": None,
    "point": "libc:open", "event": "call", "args": [], "return_value": 3, "duration_ns": 1500, "incomplete": False,
}  # fmt: skip

WATCHED: list[dict[str, Any]] = [
    {"name": "address", "type": "ptr", "value": "0x10"},
    {"name": "old", "type": "uint32", "value": "0x1"},
    {"name": "new", "type": "uint32", "value": "0x2"},
]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "libc:open() = 3  1.5 µs"),
        ({"incomplete": True, "return_value": None, "duration_ns": None}, "libc:open() = ?"),
        ({"event": "entry"}, "libc:open()"),
        (
            {
                "args": [
                    {"name": "arg0", "type": "str", "value": "a\x1b"},
                    {"name": "arg1", "type": "int32", "value": "-1"},
                ]
            },
            'libc:open("a\\x1b", -1) = 3  1.5 µs',
        ),
        ({"args": [{"name": "arg0", "type": "buf", "value": None}]}, "libc:open(?) = 3  1.5 µs"),
        (
            {"args": [{"name": "a", "type": "str", "value": each} for each in ("NULL", '"\\', "\\xff\n")]},
            r'libc:open(NULL, "\"\\", "\xff\n") = 3  1.5 µs',
        ),
        (
            {"event": "watch", "point": "a:n:w", "args": WATCHED, "ip": 0x1234},
            "a:n:w  at 0x10  0x1 -> 0x2  before 0x1234",
        ),
        (
            {"event": "watch", "point": "a:n:rw", "args": [WATCHED[0], WATCHED[1], WATCHED[1] | {"name": "new"}]},
            "a:n:rw  at 0x10  0x1",
        ),
        ({"event": "watch", "point": "a:f:x", "args": WATCHED[:1], "ip": 0x10}, "a:f:x  at 0x10"),
    ],
)
def test_a_line(fields: dict[str, Any], expected: str) -> None:
    assert line_of(ROW | fields) == f"        5.250  shop[8]  {expected}"


def test_buffers_as_hexdump(capsys: pytest.CaptureFixture[str]) -> None:
    data = bytes(range(0x41, 0x41 + 18)) + b"\x00\xff|"
    arguments = [
        {"name": "arg0", "type": "int32", "value": "1"},
        {"name": "text", "type": "buf", "value": data.hex()},
        {"name": "arg2", "type": "buf:x2", "value": "0a"},
        {"name": "arg3", "type": "buf", "value": ""},
        {"name": "arg4", "type": "buf", "value": None},
        {"name": "arg5", "type": "str", "value": "6162"},
    ]
    columns = {name: [value] for name, value in (ROW | {"args": arguments}).items()}
    lines = Lines(is_dumped=True)
    lines.write({"calls": build(TABLES["calls"], 1, columns)})
    lines.write({"losses": build(TABLES["losses"], 0, {})})
    lines.close()
    assert capsys.readouterr().out.splitlines() == [
        '        5.250  shop[8]  libc:open(1, <21 bytes>, <1 bytes>, <0 bytes>, ?, "6162") = 3  1.5 µs',
        "    text",
        "    00000000  41 42 43 44 45 46 47 48  49 4a 4b 4c 4d 4e 4f 50  |ABCDEFGHIJKLMNOP|",
        "    00000010  51 52 00 ff 7c                                    |QR..||",
        "    arg2",
        "    00000000  0a                                                |.|",
    ]


def test_lines_end_when_nobody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    batch = build(TABLES["calls"], 1, {name: [value] for name, value in ROW.items()})
    with open(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        lines = Lines()
        lines.write({"calls": batch})
        lines.write({"calls": batch})
        lines.close()
        monkeypatch.undo()
        with suppress(BrokenPipeError):
            stream.close()


def test_the_table_at_the_end() -> None:
    counts = Counts()
    for durations, values in (([1000, 3000, 2000], [-1, 7, 0xFFFFFFFF]), ([None], [None])):
        rows = {"point": ["a:f"] * len(durations), "duration_ns": durations, "return_value": values}
        incomplete = pa.array([each is None for each in durations])
        counts.write({"calls": build(TABLES["calls"], len(durations), rows | {"incomplete": incomplete})})
    counts.write({"losses": build(TABLES["losses"], 1, {"counter": ["ring_full"], "count": [4]})})
    numbers = {"a:g": PointCounts(0, 0, 0, 0), "a:f": PointCounts(6, 2, 0, 0)}
    counted = [(Point(name, "/a", None, 0), each) for name, each in numbers.items()]
    assert counts.text(counted).splitlines() == [
        "      hits       rows  no return     errors     total      mean       max  point",
        "         6          4          1          2    6.0 µs    2.0 µs    3.0 µs  a:f",
        "         0          0          0          0                                a:g",
        "lost: ring_full 4",
    ]


def test_files_of_stacks_are_opened_before_anything_is_traced(tmp_path: Path) -> None:
    parser = Parser(prog="tracehound call")
    add_output_arguments(parser)
    parser.set_defaults(format="table")
    files = {name: tmp_path / name for name in ("flame", "folded", "pprof")}
    words = [f"--{name}={path}" for name, path in files.items()]
    with Trace(Command(("true",)), Settings()) as trace:
        sinks = open_outputs(parser.parse_args([*words, "--weight", "duration"]), trace)
        assert len(sinks) == 4 and len(open_outputs(parser.parse_args(["--summary"]), trace)) == 0
        with pytest.raises(UsageError, match=r"no weight durations\. Near: duration_ns"):
            open_outputs(parser.parse_args(["--weight", "durations"]), trace)
        with pytest.raises(SinkError, match="cannot write"):
            open_outputs(parser.parse_args([f"--flame={tmp_path}/none/x"]), trace)
    for sink in sinks:
        sink.write({"calls": calls([(1, 20)]), "stacks": stacks({1: [frame("main")]})})
        sink.close()
    assert files["folded"].read_text() == "shop;main 20\n"
    assert b"<title>true - tracehound</title>" in files["flame"].read_bytes()
    assert files["pprof"].read_bytes()[:2] == b"\x1f\x8b"


def test_a_file_without_stacks_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [open_profile("folded", str(tmp_path / name), SOURCE) for name in "abc"]
    files[1].write({"calls": calls([(None, 20)])})
    files[2].write({"calls": calls([(1, 20)])})
    say_empty([*files, Counts()])
    for file in files:
        file.close()
    assert capfd.readouterr().err.splitlines() == [
        f"tracehound: {tmp_path}/a: there was no call",
        f"tracehound: {tmp_path}/b: no call has a stack: add --stack",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--filter", "fdd == 3", "libc:write[fd=int]"), "no point has an argument 'fdd'. Near: fd"),
        (("--filter", "fd ~ 3", "libc:write[fd=int]"), "is no filter. Write NAME OP VALUE"),
        (("--filter", "fd == x", "libc:write[fd=int]"), "'x' is no number"),
        (("--filter", "fd == 3000000000", "libc:write[fd=int]"), "3000000000 is no int32"),
        (("--count", "durration", "libc:write[fd=int]"), "nothing to count by is named 'durration'"),
        (("--histogram", "s", "libc:puts[s=str]"), "a histogram is of whole numbers"),
        (("--by", "pid", "libc:write"), "--by is for --count and --histogram"),
        (("--rate", "5", "--count", "libc:write"), "--rate is for rows"),
        (("--caller", "libnone", "libc:write"), "nothing named libnone is known"),
        (("libc:write[int:rdx+]",), "is no offset"),
        (("[vdso]:x",), "no code of a file is there"),
        (("0x1234",), "it needs --pid"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("capstone")
    assert main(["call", "--no-record", *arguments, "--", "/bin/true"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and message in said.err, said.err


def test_standard_output_has_nothing_beside_stacks() -> None:
    parser = Parser(prog="tracehound call")
    add_output_arguments(parser)
    parser.set_defaults(format="table")
    with Trace(Command(("true",)), Settings()) as trace:
        (only,) = open_outputs(parser.parse_args(["--folded", "-"]), trace)
    assert isinstance(only, ProfileSink)


def test_a_file_of_stacks_that_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    sink = open_profile("folded", "/dev/full", SOURCE)
    sink.write({"calls": calls([(1, 20)]), "stacks": stacks({1: [frame("main")]})})
    sink.close()
    say_empty([sink])
    assert capsys.readouterr().err == "tracehound: cannot write /dev/full: No space left on device\n"
    losses = sink.take_losses()
    assert losses is not None and losses["counter"].to_pylist() == ["disk_full"]


@pytest.mark.parametrize(
    ("words", "points", "given"),
    [
        (["a:f"], ["a:f"], {"pid": None}),
        (["a:f", "--pid", "7", "b:g", "--stack", "--pid=8"], ["a:f", "b:g"], {"pid": [7, 8], "stack": True}),
        (["a:f", "--count", "b:g", "--", "ls", "--paths"], ["a:f", "b:g", "--", "ls", "--paths"],
         {"count": "", "paths": False}),
        (["--count", "comm", "a:f", "--rate", "3", "--", "-x"], ["a:f", "--", "-x"], {"count": "comm", "rate": 3}),
    ],
)  # fmt: skip
def test_options_behind_points(words: list[str], points: list[str], given: dict[str, Any]) -> None:
    parser = Parser(prog="tracehound call", allow_abbrev=False)
    COMMAND.add_arguments(parser)
    options = parser.parse_args(words)
    _take_options_behind(options)
    assert options.points == points
    assert {name: getattr(options, name) for name in given} == given


def test_an_unknown_option_behind_a_point() -> None:
    parser = Parser(prog="tracehound call", allow_abbrev=False)
    COMMAND.add_arguments(parser)
    with pytest.raises(UsageError, match=r"no option --pathes\. Near: --paths"):
        _take_options_behind(parser.parse_args(["sys:open", "--pathes", "--", "ls"]))


def test_functions_whose_end_is_not_seen_are_told() -> None:
    whole = Point("a:f", "/a", "f", 0, returns=(1,), is_function=True)
    inner = Point("a:f+0x1", "/a", "f", 1, why_no_return="it is a place within a function")
    entries = [Point(f"a:g{n}", "/a", f"g{n}", n, is_function=True, why_no_return="why") for n in range(7)]
    told = told_of_points([whole, inner, *entries])
    assert told == [*(f"a:g{n}: entry only, why" for n in range(5)), "and 2 more points are entry only"]
    assert not told_of_points([whole, inner])
