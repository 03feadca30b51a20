"""SQL while the trace runs: every row older than 1 s is there, here and in another process, and after a SIGKILL."""

import csv
import gc
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.conftest import RunCli, StartCli, Traced, rows, wait_for

from tracehound import LiveTrace

SECOND = 1_000_000_000
QUERY = "select resource from requests where role = 'client'"


def logged(log: Path, before_ns: int) -> set[str]:
    """Return the paths whose responses had come before this time."""
    lines = [line.split() for line in log.read_text().splitlines()[1:] if line.count(" ") == 1]
    return {path for time_ns, path in lines if path and int(time_ns) < before_ns}


def requests_made(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def query(run_cli: RunCli, recording: object) -> set[str]:
    """Ask from another process."""
    result = run_cli("query", recording, QUERY, "--format", "csv")
    assert (result.code, result.err) == (0, "")
    header, *found = csv.reader(result.out.splitlines())
    assert header == ["resource"]
    return {resource for (resource,) in found}


def test_library_sees_rows_older_than_a_second(
    traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    missing: list[set[str]] = []
    seen: list[int] = []

    def ask(trace: LiveTrace) -> None:
        wait_for(lambda: requests_made(log) > 100, what="the target's first requests")
        for _ in range(12):
            now = time.monotonic_ns()
            found = {row["resource"] for row in trace.sql(QUERY).to_pylist()}
            missing.append(logged(log, now - SECOND) - found)
            seen.append(len(found))
            time.sleep(0.1)
        Path(f"{log}.stop").touch()

    trace = traced(python_target("steady_http", 60, log), ask, record=str(tmp_path / "record"))
    assert missing == [set()] * 12
    assert seen[0] > 40 and seen == sorted(seen) and seen[-1] > seen[0]
    everything = logged(log, time.monotonic_ns())
    assert {row["resource"] for row in trace.sql(QUERY).to_pylist()} == everything
    assert {row["resource"] for row in rows(trace.requests)} == everything


@pytest.mark.parametrize("recording", ["last", "record"])
def test_other_process_sees_rows_older_than_a_second(
    recording: str, start_cli: StartCli, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    where = [] if recording == "last" else ["--record", tmp_path / recording]
    running = start_cli("run", *where, "--", *python_target("steady_http", 60, log))
    wait_for(lambda: requests_made(log) > 100, what="the target's first requests")
    recorded = recording if recording == "last" else tmp_path / recording
    for _ in range(2):
        due = logged(log, time.monotonic_ns() - SECOND)
        assert due - query(run_cli, recorded) == set()
        assert running.process.poll() is None, "the queries came too late to be live"
    Path(f"{log}.stop").touch()
    assert running.finish().code == 0
    assert query(run_cli, recorded) == logged(log, time.monotonic_ns())


def test_recording_opens_after_sigkill(
    start_cli: StartCli, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    running = start_cli("run", "--record", tmp_path / "record", "--", *python_target("steady_http", 30, log))
    wait_for(lambda: requests_made(log) > 150, what="the target's first requests")
    killed_ns = time.monotonic_ns()
    os.kill(running.pid, signal.SIGKILL)
    made = requests_made(log)
    wait_for(lambda: requests_made(log) > made + 5, what="the target to go on alone")
    for pid in reversed(log.read_text().splitlines()[0].split()):  # the client first: it would complain of the server
        os.kill(int(pid), signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    found = query(run_cli, tmp_path / "record")
    assert logged(log, killed_ns - SECOND) - found == set()
    assert found <= logged(log, time.monotonic_ns())


def test_a_recording_without_a_name_goes_with_its_trace(traced: Traced) -> None:
    trace = traced(["/bin/true"])
    folder = trace.recording.directory
    assert len(trace.processes) == 3 and folder.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del trace
        gc.collect()
    assert not folder.parent.exists()
