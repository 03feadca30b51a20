"""Traces of other processes: what is shown of their command lines, and that a process without any is none."""

import os

import pytest

from tracehound.kernel.others import RunningTrace, command_words, examine_holder


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["python", "/x/bin/tracehound", "attach", "--all", ""], ["attach", "--all"]),
        (
            ["tracehound", "run", "--strict", "--", "psql", "--password", "hunter2", ""],
            ["run", "--strict", "--", "..."],
        ),
        (["python", "notebook.py", "--token", "hunter2"], ["(library)"]),
    ],
)
def test_command_lines_are_shown_without_what_they_run(argv: list[str], words: list[str]) -> None:
    assert command_words(argv) == words


def test_a_process_without_bpf_is_no_trace() -> None:
    assert list(examine_holder(os.getpid())) == []


def test_text() -> None:
    idle = RunningTrace(7, "tracehound run -- ...", 24, None, 0, {"traced": (1, 65536)}, {"data": (8192, 1 << 20)})
    assert idle.text() == "tracehound run -- ...: 24 programs; traced 1 of 65536; rings data 0 % of 1 MiB; lost nothing"
