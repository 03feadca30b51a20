"""`doctor` on this machine as it is, and without BTF, tracefs and rights: one clear line for each, and `run` as told.

What is missing is hidden by a mount namespace of the test's own.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.live.conftest import TRACEHOUND, RunCli, StartCli, wait_for
from tests.live.test_bad_days import AS_NOBODY, said

from tracehound.kernel.probes import FEATURES

HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


def hidden(folder: str) -> list[str]:
    """Return the prefix that runs a command where a folder is empty."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", HIDE, folder]


def test_what_works_here(run_cli: RunCli) -> None:
    result = run_cli("doctor", "--json", "--pid", os.getpid())
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    names = {feature["name"] for feature in found["features"] if feature["status"] == "ok"}
    assert {*FEATURES, "tables"} <= names
    assert found["process"]["pid"] == os.getpid()
    assert "BTF yes" in found["kernel"]


def test_no_btf(run_cli: RunCli) -> None:
    prefix = [*hidden("/sys/kernel/btf"), *TRACEHOUND]
    result = run_cli("doctor", prefix=prefix)
    assert (result.code, result.err) == (0, "")
    assert "BTF no" in result.out.splitlines()[0]
    lines = [line for line in result.out.splitlines() if "/sys/kernel/btf/vmlinux" in line]
    assert len(lines) == 1 and lines[0].startswith(" off   tracing") and "--btf FILE" in lines[0]
    said(run_cli("run", "--", "echo", "started", prefix=prefix), 2, "/sys/kernel/btf/vmlinux", "--btf FILE")


@pytest.mark.skipif(not os.path.isdir("/sys/kernel/tracing"), reason="this kernel has no tracefs to hide")
def test_no_tracefs(run_cli: RunCli) -> None:
    prefix = [*hidden("/sys/kernel/tracing"), *TRACEHOUND]
    result = run_cli("doctor", prefix=prefix)
    lines = [line for line in result.out.splitlines() if "tracefs" in line]
    assert len(lines) == 1 and "nothing here needs it" in lines[0]
    assert set(FEATURES) <= set(result.out.splitlines()[1].replace(",", "").split())
    ran = run_cli("run", "--strict", "--no-record", "--", "echo", "started", prefix=prefix)
    assert (ran.code, ran.out) == (0, "started\n")


def test_no_rights(run_cli: RunCli) -> None:
    result = run_cli("doctor", prefix=[*AS_NOBODY, *TRACEHOUND])
    assert (result.code, result.err) == (0, "")
    assert "uid 65534" in result.out.splitlines()[0] and result.out.splitlines()[1] == " ok    query"
    for name in ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"):
        assert sum(line.startswith(f" warn  {name} ") for line in result.out.splitlines()) == 1


def test_no_such_process(run_cli: RunCli) -> None:
    said(run_cli("doctor", "--pid", 1 << 23), 2, f"no process {1 << 23}")


TARGET = """
import socket, sys, threading
def pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]
request = b"GET /a HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
response = b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n"
def exchange(one, other, sent, received):
    one.sendall(sent); assert other.recv(65536)
    other.sendall(received); assert one.recv(65536)
spoken, noise, quiet = pair(), pair(), pair()
for _ in range(3):
    exchange(*spoken, request, response)
print(spoken[0].fileno(), noise[0].fileno(), quiet[0].fileno(), flush=True)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.wait(0.02):
    exchange(*spoken, request, response)
    exchange(*noise, bytes(range(128, 256)) * 100, bytes(range(128, 256)) * 100)
"""


def test_a_process_is_watched_for_a_moment(run_cli: RunCli) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", TARGET], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        spoken, noise, quiet = map(int, process.stdout.readline().split())
        result = run_cli("doctor", "--json", "--pid", process.pid, "--seconds", 2)
        text = run_cli("doctor", "--pid", process.pid, "--seconds", 1).out.splitlines()
        process.communicate()
    assert (result.code, result.err) == (0, "")
    report = json.loads(result.out)["process"]
    assert report["runtime"] == "cpython"
    watched = report["watched"]
    assert watched["failure"] is None and watched["requests"] > 2
    losses = watched["losses"]
    assert losses.keys() <= {"unmatched_response"} and sum(losses.values()) <= 2  # the exchange under way, at its ends
    carried = {int(fd): each for fd, each in watched["connections"].items()}
    assert carried[spoken]["protocol"] == "http1" and carried[spoken]["joined_midstream"] >= 1
    assert carried[spoken]["bytes_sent"] > 30 and carried[spoken]["lost"] <= min(sum(losses.values()), 1)
    assert (carried[noise]["protocol"], carried[noise]["why"]) == (None, "no known protocol in its bytes")
    assert (carried[quiet]["protocol"], carried[quiet]["bytes_sent"]) == (None, 0)
    (line,) = [line for line in text if f" fd {spoken} " in line]
    assert "http1, " in line and "joined mid-stream" in line
    assert any(line.startswith("   traced    1 s: ") for line in text)


def test_other_tracehounds_are_listed(run_cli: RunCli, start_cli: StartCli) -> None:
    with subprocess.Popen(["sleep", "300"]) as target:
        running = start_cli("attach", "--pid", target.pid, "--no-record", "--ring-mib", 8)
        try:
            wait_for(lambda: found_running(run_cli, running.pid), 120, "the attach")
            (found,) = found_running(run_cli, running.pid)
            assert found["command"] == f"tracehound attach --pid {target.pid} --no-record --ring-mib 8"
            assert found["tables"]["traced"] == [1, 65536] and found["rings"]["data"][1] == 8 << 20
            assert found["programs"] > 10 and found["lost"] == {}
            assert found["rings"]["data"][0] == 0
            text = run_cli("doctor").out.splitlines()
            assert any(line.startswith(f" runs  {running.pid}  tracehound attach --pid") for line in text)
        finally:
            target.kill()
        finished = running.finish()
        assert finished.code == 0 and "nothing lost" in finished.err, "looking at it has disturbed it"


def found_running(run_cli: RunCli, pid: int) -> list[dict[str, Any]]:
    found = json.loads(run_cli("doctor", "--json").out)["running"]
    return [each for each in found if each["pid"] == pid and each["tables"]["traced"][0] == 1]
