"""Several traces at once, in one process and in several: each sees its own target whole, and nothing of another's."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.live.conftest import TRACEHOUND, Row, RunCli, StartCli, held_by, leftovers, rows
from tests.live.test_switches import told, wait_for_rounds

import tracehound
from tracehound import LiveTrace
from tracehound.recording import Recording

TRACES = 3


def requested(requests: list[Row]) -> Counter[tuple[object, ...]]:
    return Counter((row["pid"], row["role"], row["resource"], row["status"]) for row in requests)


def expected(log: Path) -> set[str]:
    return {f"/{kind}/{each.number}" for each in told(log) for kind in ("kept", "own")}


def check_whole(trace: LiveTrace, log: Path) -> None:
    """Hold a trace's rows against the account of its own target, and against nothing else."""
    assert trace.exit_code == 0
    found = Counter(row["resource"] for row in rows(trace.requests) if row["status"] == 200)
    assert found == dict.fromkeys(expected(log), 2)
    children = {row["pid"] for row in rows(trace.processes) if row["exit_code"] == 7}
    assert children == {each.child for each in told(log)}
    assert rows(trace.losses) == []


def test_in_one_process(python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    """One is switched and one ends while the others run."""
    logs = [tmp_path / f"log-{number}" for number in range(TRACES)]
    traces = [
        tracehound.trace(python_target("busy_tree", 60, log), record=str(tmp_path / f"record-{number}"))
        for number, log in enumerate(logs)
    ]
    try:
        threads = [threading.Thread(target=trace.start) for trace in traces]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for log in logs:
            wait_for_rounds(log, 5)
        held = held_by(os.getpid())
        switched = traces[0]
        for _ in range(10):
            switched.disable("requests")
            switched.enable("requests")
        Path(f"{logs[1]}.stop").touch()
        traces[1].wait()
        traces[1].stop()
        wait_for_rounds(logs[2], 10)
        for number in (0, 2):
            Path(f"{logs[number]}.stop").touch()
            traces[number].wait()
    finally:
        for trace in traces:
            trace.stop()
    assert not any(leftovers(held))
    for number in (1, 2):
        check_whole(traces[number], logs[number])
    pids = [{row["pid"] for row in rows(trace.processes)} for trace in traces]
    assert len(set.union(*pids)) == sum(map(len, pids)), "a process is in two traces"


def test_in_several_processes(
    start_cli: StartCli, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    logs = [tmp_path / f"log-{number}" for number in range(TRACES)]
    records = [tmp_path / f"record-{number}" for number in range(TRACES)]
    started = [
        start_cli("run", "--strict", "--record", record, "--", *python_target("busy_tree", 60, log))
        for log, record in zip(logs, records, strict=True)
    ]
    for log in logs:
        wait_for_rounds(log, 6)
        Path(f"{log}.stop").touch()
    assert [running.finish().code for running in started] == [0] * TRACES
    for log, record in zip(logs, records, strict=True):
        recording = Recording(record)
        found = Counter(row["resource"] for row in recording.table("requests").to_pylist() if row["status"] == 200)
        assert found == dict.fromkeys(expected(log), 2)


def test_two_see_the_same(run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    """One traces the other and, through it, the other's target."""
    log, outer, inner = tmp_path / "log", tmp_path / "outer", tmp_path / "inner"
    nested = [*TRACEHOUND, "run", "--record", inner, "--", *python_target("busy_tree", 2, log)]
    began = time.monotonic_ns()
    assert run_cli("run", "--record", outer, "--", *nested).code == 0
    assert len(told(log)) > 5 and all(each.before_ns > began for each in told(log))
    tables = [Recording(folder) for folder in (outer, inner)]
    both = [requested(recording.table("requests").to_pylist()) for recording in tables]
    assert both[0] == both[1]
    assert {row[2] for row in both[0]} == expected(log)
    pids = [{row["pid"] for row in recording.table("processes").to_pylist()} for recording in tables]
    assert pids[1] < pids[0]
