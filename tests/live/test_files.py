"""Files: every open that ended, and nothing else, with path, resolved path, flags, mode and result right."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import Row, RunCli, Traced, rows

MANY = 1000
STRACE_LINE = re.compile(
    r"(?:\d+ +)?(?:open|openat|openat2|creat)\((?P<arguments>.*)\) += (?P<result>-?\d+)(?: (?P<error>E\w+))?.*"
)
STRACE_PATH = re.compile(r'"(?P<path>(?:[^"\\]|\\.)*)"(?P<cut>\.\.\.)?')


class Run(NamedTuple):
    """Rows of the target's process in order, and what it told."""

    rows: list[Row]
    told: list[dict[str, Any]]
    folder: Path


@pytest.fixture(scope="module")
def opens(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("files").resolve() / "traced-folder"
    folder.mkdir()
    trace = traced(python_target("open_files", folder, MANY), files=True, record=str(folder.parent / "record"))
    assert trace.exit_code == 0
    assert rows(trace.losses) == []
    told = json.loads((folder / "told.json").read_text())
    mine = [row for row in rows(trace.files) if row["pid"] == told["pid"]]
    return Run(sorted(mine, key=lambda row: row["time_ns"]), told["opens"], folder)


def as_told(row: Row) -> dict[str, Any]:
    result = row["errno"] if row["fd"] is None else row["fd"]
    return {"path": row["path"], "resolved": row["resolved_path"], "flags": row["flags"], "mode": row["mode"]} | {
        "result": result,
        "cut": row["path_truncated"],
    }


def test_every_open_is_as_the_program_did_it(opens: Run) -> None:
    def is_of_the_list(row: Row) -> bool:
        path = row["path"]
        if path is None:
            return True
        return "traced-many-" not in path and "traced-" in path.replace(
            f"{opens.folder.parent}/traced-folder/told.json", ""
        )

    found = [as_told(row) for row in opens.rows if is_of_the_list(row)]
    whole = {"path": str(opens.folder / "sub")}
    assert [row for row in found if row["path"] != whole["path"]] == opens.told


def test_a_thousand_opens_of_four_threads(opens: Run) -> None:
    found = [row for row in opens.rows if (row["path"] or "").startswith("traced-many-")]
    assert sorted(row["path"] for row in found) == sorted(f"traced-many-{number}" for number in range(MANY))
    assert {row["resolved_path"] for row in found} == {str(opens.folder / row["path"]) for row in found}
    assert {(row["mode"], row["errno"], tuple(row["flags"])) for row in found} == {
        (0o600, None, ("O_WRONLY", "O_CREAT", "O_CLOEXEC"))
    }
    assert len({row["tid"] for row in found}) == 4
    assert all(0 < row["duration_ns"] < 5_000_000_000 and row["service"] == "open_files" for row in found)


def test_the_list_is_that_of_strace(traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    """Compare every open of a whole Python program, from the loader on."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folders = [tmp_path.resolve() / name / "traced-folder" for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    told_by_strace = tmp_path / "strace"
    strace = ["strace", "-o", told_by_strace, "-s", "8192", "-e", "trace=open,openat,openat2,creat"]
    subprocess.run([*map(str, strace), *python_target("open_files", folders[0], 0)], check=True, timeout=60)
    trace = traced(python_target("open_files", folders[1], 0), files=True, record=str(tmp_path / "record"))
    pid = json.loads((folders[1] / "told.json").read_text())["pid"]
    found = [
        (row["path"], row["errno"] if row["fd"] is None else str(row["fd"]))
        for row in sorted(rows(trace.files), key=lambda row: row["time_ns"])
        if row["pid"] == pid
    ]
    expected = [open_of(line) for line in told_by_strace.read_text().splitlines() if "(" in line]
    assert len(expected) > 50
    assert found == [(path and path.replace(str(folders[0]), str(folders[1])), result) for path, result in expected]


def open_of(line: str) -> tuple[str | None, str]:
    """Return path and result of a line of strace; what it shows of a path that is too long is one byte short."""
    match = STRACE_LINE.fullmatch(line)
    assert match, line
    path = STRACE_PATH.search(match["arguments"])
    text = None if path is None else path["path"] + ("x" if path["cut"] else "")
    return text, match["error"] or match["result"]


def test_nothing_is_seen_without_the_switch(traced: Traced, tmp_path: Path) -> None:
    trace = traced(["cat", "/etc/hostname"], record=str(tmp_path / "record"))
    assert rows(trace.files) == []
    assert not {row["point"] for row in rows(trace.probes)} & {"sys_enter", "sys_exit"}


def test_the_summary_names_the_folder(run_cli: RunCli, tmp_path: Path) -> None:
    script = 'for i in 1 2 3; do echo $i > "$0/out-$i"; done; echo > /dev/null; cat "$0/out-1" > /dev/null'
    finished = run_cli("run", "--files", "--no-record", "--", "sh", "-c", script, tmp_path, env={"COLUMNS": "200"})
    assert f" Files  3 opened for writing in {tmp_path}" in finished.err


def test_bystanders_are_not_seen(traced: Traced, tmp_path: Path) -> None:
    name = tmp_path / "traced-bystander"

    def bystander(_: object) -> None:
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            name.write_text("x")

    trace = traced(["sleep", "0.5"], bystander, files=True, record=str(tmp_path / "record"))
    assert {row["pid"] for row in rows(trace.files)} == {row["pid"] for row in rows(trace.processes)}
    assert str(name) not in {row["path"] for row in rows(trace.files)}
    assert os.getpid() not in {row["pid"] for row in rows(trace.files)}
