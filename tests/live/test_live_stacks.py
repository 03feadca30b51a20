"""Stacks of calls in running traces: whole, of programs that are over in a moment, live and from their tape."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import RunCli

from tracehound.recording import Recording

pytest.importorskip("capstone")
TIMES = 3  # stack_short calls


def symbols(stack: dict[str, Any]) -> list[str]:
    return [str(frame["symbol"]).split("@")[0] for frame in stack["frames"]]


def test_a_short_program_without_a_file_has_whole_stacks(
    c_target: Callable[[str], Path], run_cli: RunCli, tmp_path: Path
) -> None:
    program = tmp_path / "short"
    shutil.copy(c_target("stack_short"), program)
    record, tape, folded = (tmp_path / name for name in ("record", "tape", "folded"))
    files = ("--record", record, "--tape", tape, "--folded", folded)
    result = run_cli("call", "--stack", *files, f"{program}:innermost[int]", "--", program)
    assert result.code == 0, result.err
    assert not program.exists() and "lost: nothing" in result.err
    calls, stacks = (Recording(record).table(name).to_pylist() for name in ("calls", "stacks"))
    assert len({call["pid"] for call in calls}) == 2 and len(calls) == 2 * TIMES
    assert {call["return_value"] for call in calls} == set(range(1, TIMES + 1))
    by_id = {stack["stack_id"]: stack for stack in stacks}
    for call in calls:
        stack = by_id[call["stack_id"]]
        assert (stack["status"], symbols(stack)[:3]) == ("complete", ["innermost", "middle", "main"])
        assert symbols(stack)[-1] == "_start"
    (line,) = folded.read_text().splitlines()
    assert line.startswith("short;_start;") and line.endswith(f";main;middle;innermost {2 * TIMES}")
    printed = result.out.splitlines()
    at = next(number for number, text in enumerate(printed) if ":innermost(0) = 1" in text)
    assert printed[at + 1].strip().startswith("innermost+0x0  ")

    replayed = run_cli("replay", tape, "--record", tmp_path / "again")
    assert replayed.code == 0, replayed.err
    for name, rows in (("calls", calls), ("stacks", stacks)):
        assert Recording(tmp_path / "again").table(name).to_pylist() == rows


@pytest.mark.parametrize(("size", "status"), [(512, "truncated"), (32768, "complete")])
def test_a_stack_that_is_longer_than_its_copy_is_told(
    size: int, status: str, c_target: Callable[[str], Path], run_cli: RunCli, tmp_path: Path
) -> None:
    program, record = c_target("stack_short"), tmp_path / "record"
    words = ("--stack", "--stack-size", size, "--record", record)
    result = run_cli("call", *words, f"{program}:innermost", "--", program, "deep")
    assert result.code == 0, result.err
    (stack,) = Recording(record).table("stacks").to_pylist()
    assert (stack["status"], symbols(stack)[:3]) == (status, ["innermost", "middle", "deeper"])
    assert ("_start" in symbols(stack)) == (status == "complete")
    assert ("      [truncated]" in result.out.splitlines()) == (status == "truncated")
