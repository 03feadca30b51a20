"""Who is traced of a cgroup: what comes in is, what leaves stays so, and tracehound itself never is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.conftest import TRACEHOUND, StartCli, rows, wait_for
from tests.live.test_attach import UNIFIED, line_of, say

import tracehound
from tracehound.recording import Recording

CONNECT = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
for line in sys.stdin:
    if line == "child\\n" and os.fork() == 0:
        os._exit(9)
    with socket.create_connection(listener.getsockname()) as one, listener.accept()[0] as other:
        print(one.getsockname()[1], flush=True)
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    folder = UNIFIED / f"tracehound-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text().split(), 10, "the cgroup to be empty")
    folder.rmdir()


def test_a_process_that_leaves_a_cgroup_stays_traced(cgroup: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONNECT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert line_of(process.stdout) == "ready\n"
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        with tracehound.trace(cgroup=cgroup) as trace:
            say(process)
            ports = [int(line_of(process.stdout))]
            (UNIFIED / "cgroup.procs").write_text(str(process.pid))
            assert process.stdin is not None
            process.stdin.write("child\n")
            process.stdin.flush()
            ports.append(int(line_of(process.stdout)))
            process.communicate()
        found = [row for row in rows(trace.connections) if row["event"] == "open"]
        assert [row["local_port"] for row in found] == ports
        assert {row["pid"] for row in found} == {process.pid}
        assert 9 in {row["exit_code"] for row in rows(trace.processes)}, "its children after it left are told too"
        assert rows(trace.losses) == []


@pytest.mark.parametrize("prefix", [[], ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]])
def test_tracehound_in_a_cgroup_that_it_traces_is_not_traced(
    prefix: list[str], start_cli: StartCli, cgroup: Path, tmp_path: Path
) -> None:
    """In a pid namespace of its own too, where its pid is not the kernel's. It opens files all the time."""
    record = tmp_path / "record"
    with subprocess.Popen(["sleep", "60"]) as member:
        (cgroup / "cgroup.procs").write_text(str(member.pid))
        command = [*prefix, *TRACEHOUND]
        running = start_cli("attach", "--cgroup", cgroup, "--files", "--record", record, prefix=command)
        wait_for(lambda: list(record.glob("probes/*")), 30, "the attach")
        own = running.pid
        if prefix:
            own = int(Path(f"/proc/{own}/task/{own}/children").read_text().split()[0])
        (cgroup / "cgroup.procs").write_text(str(own))
        opener = subprocess.run(
            ["sh", "-c", f"echo $$ > {cgroup}/cgroup.procs; exec cat /etc/hostname"], check=True, stdout=subprocess.PIPE
        )
        assert opener.stdout
        wait_for(lambda: list(record.glob("files/*")), 30, "files of the cgroup")
        os.kill(own, signal.SIGINT)
        finished = running.finish(30)
        assert finished.code == 0
        assert ("outside of this pid namespace" in finished.err) is bool(prefix)
        member.kill()
    recording = Recording(record)
    for table in ("processes", "files", "connections", "requests"):
        assert own not in {row["pid"] for row in recording.table(table).to_pylist()}, table
    assert recording.table("files").num_rows
