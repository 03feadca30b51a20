"""`tracehound attach`: what it refuses, in one line; the rest is tests/live/test_attach.py."""

import os

import pytest

from tracehound.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to trace. Name one of: --pid N, --cgroup PATH, --container NAME, --all"),
        (["--pid", "1", "--all"], "--pid and --all do not go together: name one target"),
        (["--cgroup", "x", "--container", "y"], "--cgroup and --container do not go together: name one target"),
        (["--pid", "no-such-name-at-all"], "--pid takes a number, not no-such-name-at-all"),
        (["--pid", "4194305"], "no process 4194305"),
        (["--pid", str(os.getpid())], f"process {os.getpid()} is tracehound itself, which is never traced"),
        (["--pid", str(os.getppid()), "--duration", "-1"], "--duration must be above 0, not -1"),
        (["--cgroup", "/no/such/cgroup/here"], "no cgroup /no/such/cgroup/here"),
        (["--container", "no-such-container-here"], "no running container no-such-container-here"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tracehound: {said}")
