"""`attach --container` with a real runtime.

The container is run by runc: a root of bind mounts, the host's network, cgroups that have the container's id.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import StartCli, rows, wait_for
from tests.live.test_attach import line_of, say
from tests.live.test_attach_cgroup import CONNECT

import tracehound

OWN = ("proc", "dev", "tmp", "sys", "run")  # top folders that a container has of its own
CHECKOUT = Path(__file__).parents[2]
PARENT = "tracehound-test"


class Container(NamedTuple):
    """A running container: its id, its first process outside and its streams."""

    id: str
    pid: int
    process: Any


def write_bundle(bundle: Path, name: str, arguments: list[str]) -> None:
    """Write a bundle of the OCI runtime specification whose files are this machine's, read-only."""
    root = bundle / "rootfs"
    mounts: list[dict[str, Any]] = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    for place in (*Path("/").iterdir(), *([CHECKOUT] if CHECKOUT.parts[1] in OWN else [])):
        target = root / place.relative_to("/")
        if place.is_symlink():
            root.mkdir(exist_ok=True)
            target.symlink_to(place.readlink())
        elif place.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            if place.name not in OWN:
                bind = {"destination": str(place), "type": "bind", "source": str(place), "options": ["rbind", "ro"]}
                mounts.append(bind)
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": arguments,
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "linux": {
            "cgroupsPath": f"/{PARENT}/{name}",
            "resources": {},
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "uts", "ipc")],
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))


@contextmanager
def running(folder: Path, arguments: list[str]) -> Iterator[Container]:
    """Run a container until the end of the block."""
    name, state = secrets.token_hex(32), folder / "state"
    bundle = folder / f"bundle-{name[:8]}"
    write_bundle(bundle, name, arguments)
    command = ["runc", "--root", str(state), "run", "--bundle", str(bundle), name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            first = line_of(process.stdout)
            if first != "ready\n":
                pytest.skip(f"runc runs no container here: {process.communicate()[1].strip()}")
            told = json.loads(subprocess.check_output(["runc", "--root", str(state), "state", name]))
            yield Container(name, told["pid"], process)
        finally:
            if process.poll() is None:
                subprocess.run(["runc", "--root", str(state), "kill", name, "KILL"], check=False, capture_output=True)
            process.communicate()
            for pattern in (PARENT, f"*/{PARENT}"):
                for parent in Path("/sys/fs/cgroup").glob(pattern):
                    parent.rmdir()


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    if shutil.which("runc") is None:
        pytest.skip("there is no runc on this machine")
    with running(tmp_path, [sys.executable, "-c", CONNECT]) as found:
        yield found


def test_a_container_by_the_beginning_of_its_id(container: Container) -> None:
    with tracehound.trace(container=container.id[:12]) as trace:
        say(container.process)
        port = int(line_of(container.process.stdout))
        container.process.stdin.write("child\n")
        container.process.stdin.flush()
        second = int(line_of(container.process.stdout))
        container.process.communicate()
        trace.wait(20)
        assert trace.has_ended
    found = [row for row in rows(trace.connections) if row["event"] == "open"]
    assert [row["local_port"] for row in found] == [port, second]
    assert {(row["pid"], row["ns_pid"]) for row in found} == {(container.pid, 1)}
    processes = rows(trace.processes)
    assert {row["container"] for row in processes if row["pid"] == container.pid} == {container.id}
    assert 9 in {row["exit_code"] for row in processes}
    assert {row["pid"] for row in rows(trace.listens)} == {container.pid}
    assert rows(trace.losses) == []


def test_the_command_line_attaches_to_a_container(container: Container, start_cli: StartCli, tmp_path: Path) -> None:
    record = tmp_path / "record"
    attached = start_cli("attach", "--container", container.id, "--record", record)
    wait_for(lambda: list(record.glob("processes/*")), 30, "the attach")
    say(container.process)
    line_of(container.process.stdout)
    os.kill(attached.pid, signal.SIGINT)
    finished = attached.finish(30)
    assert finished.code == 0 and "nothing lost" in finished.err
    assert container.process.poll() is None
    near = start_cli("attach", "--container", container.id[:20] + "0" * 12).finish(30)
    assert near.code == 2 and len(near.lines) == 1 and container.id[:12] in near.lines[0]
