"""A tape of a live trace: the same rows again, whatever happened to the trace."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.live.conftest import Row, RunCli, StartCli, wait_for
from tests.sources.taped import Recut, Rows, replayed

import tracehound
from tracehound.recording import Recording
from tracehound.sources.tape import RECORDS, Tape


def assert_rows(recording: Recording, found: Rows) -> None:
    """The rows of a recording are those of a replay, in the same order."""
    for name in recording.tables:
        wanted = recording.table(name)
        assert found.get(name, wanted.schema.empty_table()).equals(wanted), name
    assert set(found) <= set(recording.tables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tape")


@pytest.fixture(scope="module")
def recorded(python_target: Callable[..., list[str]], folder: Path) -> Recording:
    """Trace servers and clients with everything on; the tape is `live.tape`."""
    command = python_target("http_load", "nginx", "python,curl", "mixed", 100, 4, folder)
    with tracehound.trace(command, record=folder / "record", tape=folder / "live.tape", files=True) as trace:
        trace.wait()
    assert trace.exit_code == 0
    return trace.recording


def test_a_replay_gives_the_rows_of_the_live_trace(recorded: Recording, folder: Path) -> None:
    found, notes = replayed(folder / "live.tape")
    assert notes == ()
    assert_rows(recorded, found)
    requests: list[Row] = found["requests"].to_pylist()
    assert len(requests) == 400
    kept = tracehound.open(folder / "live.tape")
    assert kept.requests.to_arrow().equals(recorded.table("requests"))


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.integers(1, 500), min_size=1, max_size=20))
def test_cut_into_other_pieces_it_gives_the_same_rows(recorded: Recording, folder: Path, pieces: list[int]) -> None:
    with Tape(folder / "live.tape") as tape:
        found, _ = replayed(Recut(tape, pieces))
    assert_rows(recorded, found)


def test_run_says_that_a_tape_holds_secrets(
    run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    tape, record = tmp_path / "x.tape", tmp_path / "record"
    command = python_target("steady_http", 0.5, tmp_path / "log")
    result = run_cli("run", "--tape", tape, "--record", record, "--", *command)
    assert result.code == 0
    warning, *summary = result.lines
    assert warning == (
        f"tracehound: {tape} will hold the raw traffic, secrets too; before you show it: tracehound tape scrub"
    )
    assert tape.stat().st_mode & 0o777 == 0o600
    found, _ = replayed(tape)
    assert_rows(Recording(record), found)
    again = run_cli("replay", tape)
    assert [line for line in summary if not line.startswith(" kept in ")] == again.lines


def test_attach_has_a_tape_too(start_cli: StartCli, python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    tape, record, log = tmp_path / "x.tape", tmp_path / "record", tmp_path / "log"
    with subprocess.Popen(python_target("steady_http", 30, log)) as process:
        try:
            wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 5, what="requests")
            options = ["--duration", "1", "--tape", tape, "--record", record, "--format", "none"]
            result = start_cli("attach", "--pid", process.pid, *options).finish()
        finally:
            (tmp_path / "log.stop").touch()
            process.terminate()
    assert result.code == 0, result.err
    found, notes = replayed(tape)
    assert notes == ()
    assert_rows(Recording(record), found)
    assert True in found["connections"]["preexisting"].to_pylist()


def test_what_was_written_before_sigkill_is_there(
    start_cli: StartCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    tape, log = tmp_path / "x.tape", tmp_path / "log"
    running = start_cli("run", "--no-record", "--tape", tape, "--", *python_target("steady_http", 30, log))

    def frames() -> int:
        if not tape.exists():
            return 0
        with Tape(tape) as found:
            return sum(frame.type == RECORDS for frame in found.frames())

    try:
        wait_for(lambda: tape.exists() and tape.stat().st_size > 5000 and frames() > 30, 30, "frames")
    finally:
        running.process.send_signal(signal.SIGKILL)
        (tmp_path / "log.stop").touch()
        running.process.wait(20)
    found, notes = replayed(tape)
    assert len(notes) == 1 and "is cut at byte" in notes[0]
    answered = {row["resource"] for row in found["requests"].to_pylist() if row["status"] == 200}
    logged = [line.split()[1] for line in log.read_text().splitlines()[1:]]
    assert len(answered) > 5 and answered <= set(logged)
    counters = {row["counter"] for row in found["losses"].to_pylist() if row["stage"] == "tape"}
    assert "tape_cut" in counters <= {"tape_cut", "incomplete"}


def test_a_trace_that_does_not_begin_leaves_no_tape(run_cli: RunCli, tmp_path: Path) -> None:
    tape = tmp_path / "x.tape"
    assert run_cli("run", "--tape", tape, "--", "/no/such/command").code == 127
    assert not tape.exists()
    tape.write_text("mine")
    result = run_cli("run", "--tape", tape, "--", "true")
    assert (result.code, result.err) == (2, f"tracehound: {tape} is there already; a tape is a new file\n")
    result = run_cli("run", "--tape", tmp_path / "no" / "x.tape", "--", "true")
    assert (result.code, result.err) == (
        2,
        f"tracehound: cannot write {tmp_path}/no/x.tape: No such file or directory\n",
    )
    assert tape.read_text() == "mine"
