"""Processes: each event once, and argv, exe, exit code and signal right for every one."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import Row, Traced, rows

LOOP = 2000
SCRIPT = 'echo "$$ $0" >> "$1"; exit "$2"'
SHELL_LOOP = f"""i=0; while [ $i -lt {LOOP} ]; do /bin/sh -c '{SCRIPT}' "item $i" "$0" $((i % 7)); i=$((i+1)); done"""
ARGV_KEPT = 4096
NAMES = (
    "threads", "leader-exits", "exec-thread", "vfork-parent", "vfork-child", "killed", "terminated", "by-itself",
    "chain", "script", "odd-arguments", "fork", "failed-exec", "driver",
)  # fmt: skip


class Run(NamedTuple):
    """The rows of `processes` by pid, in order, and what the target told."""

    by_pid: dict[int, list[Row]]
    told: dict[str, dict[str, Any]]


def rows_by_pid(found: list[Row]) -> dict[int, list[Row]]:
    by_pid: dict[int, list[Row]] = {}
    for row in sorted(found, key=lambda row: row["time_ns"]):
        by_pid.setdefault(row["pid"], []).append(row)
    return by_pid


def exe_of(argv: list[str]) -> str:
    return os.path.realpath(shutil.which(argv[0]) or argv[0])


@pytest.fixture(scope="module")
def ends(
    traced: Traced,
    python_target: Callable[..., list[str]],
    c_target: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    folder = tmp_path_factory.mktemp("processes")
    programs = [c_target(name) for name in ("leader_exits", "exec_thread", "vfork_exec")]
    trace = traced(python_target("process_ends", folder, *programs), record=str(folder / "record"))
    assert trace.exit_code == 0
    assert rows(trace.losses) == []
    return Run(rows_by_pid(rows(trace.processes)), json.loads((folder / "told.json").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_each_event_once(name: str, ends: Run) -> None:
    told = ends.told[name]
    start, *execs, last = ends.by_pid[told["pid"]]
    assert (start["event"], last["event"]) == ("start", "exit")
    assert [row["event"] for row in execs] == ["exec"] * len(told["execs"])
    assert [row["argv"] for row in execs] == told["execs"]
    assert [row["exe"] for row in execs] == [exe_of(argv) for argv in told["execs"]]
    assert start["ppid"] == told["ppid"]
    killed = told["code"] < 0
    assert last["exit_code"] == (None if killed else told["code"])
    assert last["signal"] == (signal.Signals(-told["code"]).name if killed else None)
    assert {row["process_start_ns"] for row in (start, *execs, last)} == {start["process_start_ns"]} != {None}
    assert last["duration_ns"] == last["time_ns"] - start["process_start_ns"]


def test_no_thread_is_taken_for_a_process(ends: Run) -> None:
    assert ends.by_pid.keys() == {told["pid"] for told in ends.told.values()}


def test_process_lasts_as_long_as_its_last_thread(ends: Run) -> None:
    last = ends.by_pid[ends.told["leader-exits"]["pid"]][-1]
    assert last["duration_ns"] > 300_000_000


def test_exec_lasts_since_the_one_before(ends: Run) -> None:
    _start, *execs, _ = ends.by_pid[ends.told["chain"]["pid"]]
    assert len(execs) == 3
    for before, row in pairwise(execs):
        assert row["duration_ns"] == row["time_ns"] - before["time_ns"]


def test_long_arguments_are_kept_to_their_limit(ends: Run) -> None:
    (row,) = (row for row in ends.by_pid[ends.told["long-arguments"]["pid"]] if row["event"] == "exec")
    (argv,) = ends.told["long-arguments"]["execs"]
    *whole, last = row["argv"]
    assert whole == argv[: len(whole)] and argv[len(whole)].startswith(last)
    assert ARGV_KEPT - 200 < sum(len(argument) + 1 for argument in row["argv"]) <= ARGV_KEPT + 1


def test_shell_loop_gives_each_process_once(traced: Traced, tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = traced(["/bin/sh", "-c", SHELL_LOOP, log], record=str(tmp_path / "record"))
    assert rows(trace.losses) == []
    pid_of = {item: int(pid) for pid, item in (line.split(" ", 1) for line in log.read_text().splitlines())}
    assert len(pid_of) == len(set(pid_of.values())) == LOOP
    found = rows(trace.processes)
    assert Counter(row["event"] for row in found) == dict.fromkeys(("start", "exec", "exit"), LOOP + 1)
    by_pid = rows_by_pid(found)
    shell = exe_of(["/bin/sh"])
    for number in range(LOOP):
        item = f"item {number}"
        start, execution, last = by_pid[pid_of[item]]
        assert [start["event"], execution["event"], last["event"]] == ["start", "exec", "exit"]
        assert execution["argv"] == ["/bin/sh", "-c", SCRIPT, item, str(log), str(number % 7)]
        assert execution["exe"] == shell
        assert (last["exit_code"], last["signal"]) == (number % 7, None)
