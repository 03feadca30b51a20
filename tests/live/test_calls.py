"""Calls: every call of a point and no other, with its arguments and its return; targets stay as they were."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.conftest import Finished, Row, RunCli, StartCli, rows, wait_for

import tracehound

pytest.importorskip("capstone")


class Shown(NamedTuple):
    """What `tracehound call` of a C target gave."""

    finished: Finished
    rows: list[Row]
    lost: int

    @property
    def hits(self) -> dict[str, int]:
        """Of each point, from the table at the end."""
        found = re.findall(r"^ *(\d+) +(\d+) +\d+ .*?(\S+)$", self.finished.err, re.MULTILINE)
        return {name: int(hits) for hits, _, name in found}


@pytest.fixture
def call(run_cli: RunCli, c_target: Callable[[str], Path], tmp_path: Path) -> Callable[..., Shown]:
    def run(points: list[str], *arguments: object, code: int = 0, options: tuple[str, ...] = ()) -> Shown:
        record = tmp_path / f"record{len(list(tmp_path.iterdir()))}"
        command = ("call", *options, "--record", record, *points, "--", c_target("calls"), *arguments)
        finished = run_cli(*command)
        assert finished.code == code, finished.err
        kept = tracehound.open(record)
        losses = sum(row["count"] for row in rows(kept.losses))
        return Shown(finished, rows(kept.calls), losses)

    return run


def values(row: Row) -> list[str | None]:
    return [each["value"] for each in row["args"]]


def test_arguments_type_by_type(call: Callable[..., Shown]) -> None:
    numbers = "calls:take_numbers[int8,uint16,int32,uint64x,size_t,ptr]"
    shown = call([numbers, "calls:take_text[str:5,buf:arg2,size_t]", "calls:take_bad[str]"], "types")
    found = [(row["symbol"], values(row), row["incomplete"]) for row in sorted(shown.rows, key=lambda r: r["entry_ns"])]
    assert found == [
        ("take_numbers", ["-5", "65535", "-70000", "0xdeadbeefcafe", "1234567890123", "0x10"], False),
        ("take_text", ["été", "0102007f", "4"], False),
        ("take_text", ["", "6162", "2"], False),
        ("take_bad", [None], False),
    ]
    assert [row["return_value"] for row in shown.rows if row["symbol"] == "take_bad"] == [1]
    assert 'calls:take_text("été", 0102007f, 4) = 10' in shown.finished.out
    assert all(row["duration_ns"] == row["return_ns"] - row["entry_ns"] > 0 for row in shown.rows)
    assert all(row["sp"] and row["ip"] and row["caller_ip"] for row in shown.rows)


def test_how_calls_end(call: Callable[..., Shown]) -> None:
    recursion = call(["calls:factorial[long]"], "recursion", 8).rows
    assert {int(values(row)[0] or 0): row["return_value"] for row in recursion} == {
        1: 1, 2: 2, 3: 6, 4: 24, 5: 120, 6: 720, 7: 5040, 8: 40320,
    }  # fmt: skip
    jumped = call(["calls:jump[int]"], "longjmp", 5).rows
    assert Counter(values(row)[0] for row in jumped) == {str(depth): 5 for depth in range(4)}
    assert all(row["incomplete"] and row["return_ns"] is None for row in jumped)
    left = call(["calls:leave[int]"], "exit", code=7).rows
    assert [(values(row), row["incomplete"]) for row in left] == [(["0"], False), (["1"], True)]
    forked = call(["calls:leave[int]"], "fork").rows
    assert {(row["args"][0]["value"], row["incomplete"]) for row in forked} == {("0", False), ("1", True)}
    assert len({row["pid"] for row in forked}) == 2


def test_threads_do_not_mix(call: Callable[..., Shown]) -> None:
    shown = call(["calls:tick[long]"], "threads", 500)
    by_thread: dict[int, list[Row]] = {}
    for row in shown.rows:
        by_thread.setdefault(row["tid"], []).append(row)
        assert row["return_value"] == 2 * int(values(row)[0] or 0) and not row["incomplete"]
    assert [sorted(int(values(row)[0] or 0) for row in each) for each in by_thread.values()] == [[*range(500)]] * 4


def test_a_place_within_a_function(call: Callable[..., Shown], c_target: Callable[[str], Path]) -> None:
    from tracehound.kernel.points import find_points

    (tick,) = find_points([f"{c_target('calls')}:tick"])
    shown = call([f"calls:{tick.returns[0]:#x}"], "threads", 5)
    assert [(row["event"], row["symbol"], row["file_offset"], row["incomplete"]) for row in shown.rows] == [
        ("entry", "tick", tick.returns[0], False)
    ] * 20


@pytest.mark.parametrize(("rate", "count"), [(1_000, 1_000), (10_000, 10_000), (50_000, 50_000)])
def test_hits_are_rows_and_losses(call: Callable[..., Shown], rate: int, count: int) -> None:
    shown = call(["calls:tick[long]"], "rate", count, rate, options=("--format", "none", "--ring-mib", "32"))
    assert shown.hits == {"calls:tick": count}
    numbers = [int(values(row)[0] or 0) for row in shown.rows]
    assert len(numbers) == len(set(numbers)) and set(numbers) <= set(range(count))
    assert all(row["incomplete"] or row["return_value"] == 2 * int(values(row)[0] or 0) for row in shown.rows)
    lost = count - len(shown.rows)
    assert lost == 0 if shown.lost == 0 else lost <= shown.lost
    print(f"{rate} hits/s: {len(shown.rows)} rows, {shown.lost} records lost")


def test_a_small_ring_loses_and_says_so_and_pairs_no_wrong_ones(call: Callable[..., Shown]) -> None:
    options = ("--format", "none", "--ring-mib", "1", "--backlog-mib", "1")
    shown = call(["calls:tick[long]"], "threads", 20_000, options=options)
    assert shown.hits == {"calls:tick": 80_000}
    assert len(shown.rows) <= 80_000 <= len(shown.rows) + shown.lost
    assert all(row["incomplete"] or row["return_value"] == 2 * int(values(row)[0] or 0) for row in shown.rows)


def test_more_than_64_points_at_once(run_cli: RunCli, tmp_path: Path) -> None:
    numbers = range(70)
    functions = "".join(f"__attribute__((noinline)) int f{n}(int n) {{ kept += n; return {n}; }}\n" for n in numbers)
    calls = "".join(f"for (int i = 0; i < {n}; i++) f{n}(i);\n" for n in numbers)
    (tmp_path / "many.c").write_text(f"volatile int kept;\n{functions}int main(void) {{\n{calls}return 0; }}\n")
    subprocess.run(["cc", "-O1", "-o", tmp_path / "many", tmp_path / "many.c"], check=True, timeout=60)
    options = ("--format", "none", "--record", tmp_path / "record")
    finished = run_cli("call", *options, "many:f?", "many:f??", "--", tmp_path / "many")
    assert finished.code == 0, finished.err
    found = rows(tracehound.open(tmp_path / "record").calls)
    assert Counter(row["symbol"] for row in found) == {f"f{n}": n for n in numbers if n}
    assert all(row["return_value"] == int(row["symbol"][1:]) for row in found)


class Server:
    """The C target as a process that calls `tick` as often as it is told, and says whether its code is whole."""

    def __init__(self, binary: Path) -> None:
        self.process = subprocess.Popen([binary, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tick(self, count: int) -> bool:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()[0] == "1"


@pytest.fixture
def server(c_target: Callable[[str], Path]) -> Iterator[Server]:
    running = Server(c_target("calls"))
    with running.process as process:
        running.tick(1)
        yield running
        process.kill()


def test_text_is_whole_after_the_end_and_after_a_kill(server: Server, start_cli: StartCli, tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        output = tmp_path / f"rows-{number}"
        options = ("--no-record", "--format", "json", "--output", output, "--pid", server.process.pid)
        running = start_cli("call", *options, "calls:tick[long]")

        def is_shown(output: Path = output) -> bool:
            is_whole = server.tick(1)
            return not is_whole and output.exists() and '"point":"calls:tick"' in output.read_text()

        wait_for(is_shown, what="a row, and a breakpoint in the target")
        running.process.send_signal(number)
        _, err = running.process.communicate(timeout=60)
        assert running.process.returncode == (0 if number == signal.SIGINT else -number), err
        wait_for(lambda: server.tick(1), what="the target's own code")
    assert server.process.poll() is None


def test_a_file_that_was_replaced_is_refused(c_target: Callable[[str], Path], tmp_path: Path, run_cli: RunCli) -> None:
    binary = tmp_path / "calls"
    shutil.copy(c_target("calls"), binary)
    running = Server(binary)
    with running.process as process:
        running.tick(1)
        shutil.copy(binary, tmp_path / "new")
        os.replace(tmp_path / "new", binary)
        finished = run_cli("call", "--no-record", "--pid", process.pid, "calls:tick")
        process.kill()
    assert finished.code == 2
    assert finished.lines == [
        f"tracehound: {binary} was replaced since pid {process.pid} mapped it: points of it cannot be placed. "
        "Start it again"
    ]


def test_a_strict_sandbox_lives(call: Callable[..., Shown]) -> None:
    shown = call(["calls:tick[long]"], "strict", 50, code=3)
    assert [row["return_value"] for row in shown.rows] == [2 * number for number in range(50)]


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_a_go_program_lives(run_cli: RunCli, tmp_path: Path) -> None:
    source = tmp_path / "grow.go"
    source.write_text(
        "package main\n//go:noinline\nfunc grow(n int) int {\n\tvar room [256]int\n\troom[n%256] = n\n"
        "\tif n == 0 {\n\t\treturn room[0]\n\t}\n\treturn grow(n-1) + room[n%256]/n\n}\n"
        "func main() {\n\tdone := make(chan int)\n\tfor i := 0; i < 8; i++ {\n"
        "\t\tgo func() { done <- grow(300) }()\n\t}\n"
        '\tfor i := 0; i < 8; i++ {\n\t\tif <-done != 300 {\n\t\t\tpanic("wrong")\n\t\t}\n\t}\n}\n'
    )
    environment = os.environ | {"GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off", "HOME": str(tmp_path)}
    subprocess.run(["go", "build", "-o", tmp_path / "grow", source], check=True, timeout=300, env=environment)
    command = ("call", "--format", "none", "--record", tmp_path / "record", "grow:main.grow", "--", tmp_path / "grow")
    finished = run_cli(*command)
    assert finished.code == 0, finished.err
    found = rows(tracehound.open(tmp_path / "record").calls)
    assert len(found) >= 8 * 301  # a stack that grows runs a function's first instructions again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("libc:mallok", "--", "/bin/true"), "no function mallok. Near: malloc"),
        (("libc:malloc[sizet]", "--", "/bin/true"), "no type 'sizet'. Near: size_t, ssize_t"),
        (("libpthreat:x", "--", "/bin/true"), "nothing named libpthreat is known"),
        (("libc:malloc",), "name one target"),
        (("libc:malloc", "--pid", "4194305"), "no process 4194305"),
        (("--watch", "libc:environ", "--pid", "4194305"), "no process 4194305"),
        (("sys:openat", "--stack", "--", "/bin/true"), "--stack is of functions, not of system calls"),
        (("libc:malloc", "--pdi", "1"), "no option --pdi. Near: --pid"),
        ((), "no point"),
    ],
)
def test_mistakes_are_one_line(run_cli: RunCli, arguments: tuple[str, ...], message: str) -> None:
    began = time.monotonic()
    finished = run_cli("call", "--no-record", *arguments)
    assert finished.code == 2 and len(finished.lines) == 1 and message in finished.err
    assert time.monotonic() - began < 30


def test_a_full_disk_for_a_file_of_stacks_is_told_and_counted(run_cli: RunCli, tmp_path: Path) -> None:
    record = tmp_path / "record"
    finished = run_cli(
        "call", "libc:malloc", "--stack", "--flame", "/dev/full", "--record", record, "--", "/bin/ls", "/"
    )
    assert finished.code == 0, finished.err
    assert "tracehound: cannot write /dev/full: No space left on device" in finished.err
    assert re.search(r"^lost: disk_full \d+$", finished.err, re.MULTILINE)
    losses = rows(tracehound.open(record).losses)
    assert [row["counter"] for row in losses if row["count"]] == ["disk_full"]
