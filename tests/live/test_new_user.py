"""What someone meets on the first day: the README, containers, a full disk, a target that dies."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.live.conftest import TRACEHOUND, RunCli, StartCli, wait_for

ROOT: Final = Path(__file__).parents[2]
REQUESTS: Final = "select role, count(*) as n from requests group by all order by all"


# ---- the README


def readme(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_readme_commands_work_in_their_order() -> None:
    """Those that begin with tracehound, as they stand there, in the folder of the demo that they name."""
    blocks = [block for block in readme("sh") if re.match(r"(sudo )?\.venv/bin/tracehound ", block)]
    assert len(blocks) >= 2
    for block in blocks:
        command = re.sub(r"^(sudo )?\.venv/bin/tracehound", shlex.join(TRACEHOUND), block)
        result = subprocess.run(
            ["/bin/sh", "-c", command], cwd=ROOT / "demo", check=False, capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0, block + result.stderr
        assert "tracehound: " not in result.stderr
        shown = result.stderr if " run " in block else result.stdout
        assert "/orders/" in shown, block + shown


def test_readme_tape_commands_work(tmp_path: Path) -> None:
    """Those of the block about tapes, in a folder with the demo in it."""
    shutil.copytree(ROOT / "demo", tmp_path, dirs_exist_ok=True)
    (block,) = [block for block in readme("console") if "--tape" in block]
    commands = re.findall(r"^\$ (?:sudo )?\.venv/bin/tracehound (.*)$", block, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["run", "replay", "query", "tape"]
    for command in commands:
        result = subprocess.run(
            ["/bin/sh", "-c", f"{shlex.join(TRACEHOUND)} {command}"], cwd=tmp_path, check=False, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        is_refused = "be scrubbed yet" in result.stderr  # a protocol that the demo speaks and scrub does not know
        assert result.returncode == int(is_refused and command.startswith("tape")), command + result.stderr
        if not command.startswith("tape"):
            assert "/orders/" in result.stdout + result.stderr, command
    assert (tmp_path / "to-show.tape").stat().st_size > 1000


def test_readme_call_commands_work(tmp_path: Path) -> None:
    """Those of the block about calls: what each line of output has in common with what is shown."""
    shutil.copytree(ROOT / "demo", tmp_path, dirs_exist_ok=True)
    (block,) = [block for block in readme("console") if "--flame" in block]
    commands = re.findall(r"^\$ (?:sudo )?\.venv/bin/tracehound (.*)$", block, re.MULTILINE)
    shown = (
        r'libc:open(64)?\("',
        r"openat\(AT_FDCWD</.* = 3</",
        r"^100\.00 ",
        r"libc:malloc  \d+$",
        r"^      (__libc_)?malloc",
        r"^ls;.*(__libc_)?malloc \d+$",
    )
    assert len(commands) == len(shown)
    for command, pattern in zip(commands, shown, strict=True):
        result = subprocess.run(
            ["/bin/sh", "-c", f"{shlex.join(TRACEHOUND)} {command}"], cwd=tmp_path, check=False, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert result.returncode == 0, command + result.stderr
        assert re.search(pattern, result.stdout + result.stderr, re.MULTILINE), command + result.stdout + result.stderr
        assert "lost: nothing" in result.stderr or command.startswith("flame"), result.stderr
    assert b"<title>ls" in (tmp_path / "calls.html").read_bytes()


def test_readme_library_example_works(state_folder: Path) -> None:
    (block,) = readme("python")
    script = block + "\nprint('rows', trace.requests.to_arrow().num_rows, trace.exit_code)\n"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "demo", check=False, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    words = result.stdout.splitlines()[-1].split()
    assert words[0] == "rows" and int(words[1]) > 100 and words[2] == "0"


# ---- a pid namespace, as in a container


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_own_pid_namespace(
    start_cli: StartCli, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Pids are those of the whole machine, `ns_pid` what the programs call themselves."""
    log = tmp_path / "log"
    prefix = ["unshare", "--pid", "--fork", "--mount-proc", *TRACEHOUND]
    running = start_cli(
        "run", "--record", tmp_path / "record", "--", *python_target("steady_http", 20, log), prefix=prefix
    )
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 10, what="the target's first requests")
    (ours,) = children(running.pid)
    (client,) = children(ours)
    (server,) = children(client)
    Path(f"{log}.stop").touch()
    result = running.finish()
    assert (result.code, "nothing lost" in result.err) == (0, True), result.err
    first, *made = log.read_text().splitlines()
    ns_pids = dict(zip((server, client), map(int, first.split()), strict=True))
    for table in ("requests", "processes"):
        sql = f"select pid, ns_pid, service, count(*) as n from {table} group by all"
        found = run_cli("query", tmp_path / "record", sql, "--format", "json").out.splitlines()
        by_pid = {row["pid"]: row for row in map(json.loads, found)}
        assert {pid: row["ns_pid"] for pid, row in by_pid.items()} == ns_pids
        assert {row["service"] for row in by_pid.values()} == {"steady_http"}
        assert table == "processes" or {row["n"] for row in by_pid.values()} == {len(made)}


# ---- a full disk


@pytest.mark.parametrize(("recording", "strict"), [("record", False), ("last", True)])
def test_full_disk(
    recording: str, strict: bool, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    """The command does not notice; rows that found no room are counted, and the summary says why in one line."""
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    where = disk / "record" if recording == "record" else "last"
    query = shlex.join([*TRACEHOUND, "query", str(where), REQUESTS, "--format", "csv"])
    script = f'mount -t tmpfs -o size=32k none {disk} || exit; "$@"; code=$?; {query} >{tmp_path}/found; exit $code'
    prefix = ["unshare", "--mount", "/bin/sh", "-c", script, "sh", *TRACEHOUND]
    options = (["--record", where] if recording == "record" else []) + (["--strict"] if strict else [])
    command = python_target("steady_http", 2, log)
    result = run_cli("run", *options, "--", *command, prefix=prefix, env={"XDG_STATE_HOME": str(disk)})
    assert result.code == (121 if strict else 0), result.err
    made = len(log.read_text().splitlines()) - 1
    assert made > 50
    (line,) = (line for line in result.lines if "lost" in line)
    lost = re.fullmatch(r" lost ([\d,]+) of [\d,]+ events \(disk_full\); try a disk with more room", line)
    assert lost is not None, line
    header, *counted = (tmp_path / "found").read_text().split()
    kept = sum(int(row.split(",")[1]) for row in counted)
    assert header == "role,n" and 0 <= kept < 2 * made <= kept + int(lost[1].replace(",", ""))


@pytest.mark.parametrize("form", ["table", "json"])
def test_output_on_a_full_disk(
    form: str, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    options = ["--no-record", "--format", form, "--output", "/dev/full"]
    result = run_cli("run", *options, "--", *python_target("steady_http", 1, tmp_path / "log"))
    assert result.code == 0
    assert "disk_full" in result.err and "nothing lost" not in result.err


def test_command_whose_own_output_is_full(run_cli: RunCli) -> None:
    with open("/dev/full", "w") as full:
        result = run_cli("run", "--no-record", "--", "/bin/sh", "-c", "echo x || exit 9", stdout=full)
    assert result.code == 9 and "nothing lost" in result.err


# ---- a target that dies


def test_target_killed_from_outside(
    start_cli: StartCli, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Its rows are whole, and its child that goes on is named."""
    log = tmp_path / "log"
    running = start_cli("run", "--record", tmp_path / "record", "--", *python_target("steady_http", 20, log))
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 20, what="the target's first requests")
    server, client = map(int, log.read_text().splitlines()[0].split())
    os.kill(server, signal.SIGSTOP)  # it must not end with its client
    os.kill(client, signal.SIGKILL)
    try:
        running.process.wait(60)
    finally:
        os.kill(server, signal.SIGKILL)
    result = running.finish()
    assert result.code == 128 + signal.SIGKILL
    assert "SIGKILL" in result.lines[0] and f"still running, no longer traced: python ({server})" in result.err
    made = len(log.read_text().splitlines()) - 1
    found = run_cli("query", tmp_path / "record", REQUESTS, "--format", "csv").out.split()
    counts = dict(row.split(",") for row in found[1:])
    assert int(counts["server"]) in (made, made + 1) and int(counts["client"]) in (made, made + 1)
