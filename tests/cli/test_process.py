"""`doctor --pid`: a process with its sockets, as /proc has them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tracehound.cli import doctor
from tracehound.cli._process import OpenConnection, ProcessReport, examine
from tracehound.errors import TargetError

PROGRAM = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
inet6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 0))
unix = socket.socket(socket.AF_UNIX); unix.bind("\\0tracehound-test-%d" % os.getpid())
each = "listener", "client", "server", "inet6", "udp", "unix"
names = {name: globals()[name].fileno() for name in each}
ports = [listener.getsockname()[1], client.getsockname()[1], inet6.getsockname()[1], udp.getsockname()[1]]
print(names, ports, sep="\\n", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", PROGRAM, "--password", "hunter2"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as running:  # type: ignore[call-overload]
        yield running


def test_a_process_and_its_sockets(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    fds = eval(process.stdout.readline())
    listener, client, inet6, udp = eval(process.stdout.readline())
    report = examine(process.pid)
    assert (report.pid, report.ns_pid, report.uid) == (process.pid, process.pid, os.getuid())
    assert report.exe == os.path.realpath(sys.executable)
    assert report.argv[-2:] == ["--password", "?"]
    here = "127.0.0.1"
    assert report.connections == sorted([
        OpenConnection(fds["listener"], "tcp", f"{here}:{listener}", None, "listen", None),
        OpenConnection(fds["client"], "tcp", f"{here}:{client}", f"{here}:{listener}", "established", "client"),
        OpenConnection(fds["server"], "tcp", f"{here}:{listener}", f"{here}:{client}", "established", "server"),
        OpenConnection(fds["inet6"], "tcp", f"[::1]:{inet6}", None, "listen", None),
        OpenConnection(fds["udp"], "udp", f"{here}:{udp}", None, None, None),
        OpenConnection(fds["unix"], "unix", f"@tracehound-test-{process.pid}", None, None, None),
    ], key=lambda one: one.fd)  # fmt: skip
    assert report.missing[0].startswith("what 2 open connections carried so far")


def test_no_such_process() -> None:
    with pytest.raises(TargetError, match="no process 4194304"):
        examine(4194304)


def test_a_similar_number_is_named() -> None:
    with pytest.raises(TargetError, match=rf"no process {os.getpid()}000\. .*{os.getpid()}"):
        examine(int(f"{os.getpid()}000"))


def test_text_and_json() -> None:
    connections = [OpenConnection(fd, "tcp", "[::1]:80", "[::1]:4000", "established", "server") for fd in range(25)]
    report = ProcessReport(7, 1, "web", "/bin/web", ["web", "-v"], 0, "/a", None, [], connections, ["this"])
    text = doctor.as_text("kernel", [], report).splitlines()
    assert text[2] == " process 7  web, uid 0, pid 1 in its own namespace"
    assert text[3:6] == ["   exe       /bin/web", "   argv      web -v", "   cgroup    /a"]
    assert text[7] == "     fd 0    tcp   [::1]:80 <- [::1]:4000  established"
    assert text[-2:] == ["     and 5 more: --json shows all", "   missing   this"]
    found = json.loads(doctor.as_json("kernel", [], report))["process"]
    assert (found["pid"], len(found["connections"]), found["connections"][3]["fd"]) == (7, 25, 3)
