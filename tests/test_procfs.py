"""What /proc says of a process, read of processes that the tests start."""

import os
import shutil
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.procfs import FactWriter, add_clock, read_process


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/c\xffat"
    shutil.copy(b"/bin/cat", program)
    pipe = subprocess.PIPE
    with subprocess.Popen([program, b"-"], env={"OTEL_SERVICE_NAME": "x"}, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"x")
        process.stdin.flush()
        # It answers, so its execve has ended: before that, /proc shows its new exe with no arguments.
        assert process.stdout.read(1) == b"x"
        found = read_process(process.pid)
        process.kill()
    assert found is not None
    assert found.exe == program and found.argv == program + b"\0-\0" and found.service == b"x"


def test_a_process_that_is_gone_is_none() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert read_process(process.pid) is None


@pytest.mark.parametrize("waited", [2, 5, 8])
def test_a_wait_between_two_clocks_is_no_step_of_one(waited: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the other clock is read, 3 ms pass in which another program has the CPU."""
    readings, clock = count(), [10_000_000]

    def read() -> int:
        clock[0] += 3_000_000 if next(readings) == waited else 100
        return clock[0]

    monkeypatch.setattr(time, "monotonic_ns", read)
    monkeypatch.setattr(time, "time_ns", lambda: read() + 1_000_000_000)
    facts = FactWriter(wire_layout())
    add_clock(facts)
    (anchor,) = split(facts.take(), wire_layout()).records["fact_clock"].fixed
    assert int(anchor["realtime_ns"]) - int(anchor["monotonic_ns"]) == 1_000_000_000
