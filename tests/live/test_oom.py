"""A process that the kernel kills for its memory says so; one that is killed by anybody else does not."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.live.conftest import RunCli

from tracehound.recording import Recording

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
LIMIT = 40 << 20
GREEDY = f"x = bytearray({4 * LIMIT})"
# The shell enters the group, then becomes the greedy one; the other is killed by its parent.
SCRIPT = """
sh -c 'echo $$ > "$0"/cgroup.procs && exec "$1" -c "$2"' "$1" "$2" "$3"
echo "greedy $?"
sleep 30 & kill -KILL $!; wait $!
echo "killed $?"
"""


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """Make a cgroup with a memory limit, of version 1 or 2; removed afterwards."""
    name = f"tracehound-test-{os.getpid()}"
    if (V1 / "memory.limit_in_bytes").exists():
        group, limit = V1 / name, "memory.limit_in_bytes"
    elif "memory" in (V2 / "cgroup.subtree_control").read_text().split():
        group, limit = V2 / name, "memory.max"
    else:
        pytest.skip("no cgroup of this machine has the memory controller")
    group.mkdir()
    try:
        (group / limit).write_text(str(LIMIT))
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            with suppress(OSError):  # absent without swap accounting
                (group / swap).write_text(str(LIMIT) if "memsw" in swap else "0")
        yield group
    finally:
        group.rmdir()


def test_the_reason_of_an_oom_kill(run_cli: RunCli, memory_group: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", SCRIPT, "driver", memory_group, sys.executable, GREEDY]
    finished = run_cli("run", "--record", tmp_path / "record", "--", *command)
    assert finished.out.split() == ["greedy", "137", "killed", "137"]
    table = Recording(tmp_path / "record").table("processes").to_pylist()
    ends = [row for row in table if row["event"] == "exit" and row["signal"] is not None]
    argv_of = {row["pid"]: row["argv"] for row in table if row["event"] == "exec"}
    assert [(row["signal"], row["reason"], row["exit_code"]) for row in ends] == [
        ("SIGKILL", "oom_kill", None),
        ("SIGKILL", "none", None),
    ]
    assert argv_of[ends[0]["pid"]] == [sys.executable, "-c", GREEDY]
    assert "1 killed (SIGKILL, out of memory), 1 killed (SIGKILL)" in finished.err
