"""What goes wrong while `attach` runs, or before it can: one clear line, the right exit code, and nothing left."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import TRACEHOUND, RunCli, Running, StartCli, rows, wait_for
from tests.live.test_attach import line_of, say, wait_for_rows
from tests.live.test_bad_days import said
from tests.live.test_doctor import hidden

import tracehound
from tracehound.recording import Recording

PythonTarget = Callable[..., list[str]]
SERVE = """
import http.client, http.server, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = http.client.HTTPConnection(*server.server_address)
print("ready", flush=True)
for line in sys.stdin:
    for number in range(int(line)):
        client.request("GET", f"/{number}" + "x" * 100)
        client.getresponse().read()
    print("done", flush=True)
"""


@contextmanager
def serving() -> Iterator["subprocess.Popen[str]"]:
    """Run a program that makes as many requests of itself as each line of its input says."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVE], stdin=pipe, stdout=pipe, text=True) as process:
        assert line_of(process.stdout) == "ready\n"
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def ask(process: "subprocess.Popen[str]", requests: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{requests}\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pid", 1 << 23), (f"no process {1 << 23}",)),
        (("--cgroup", "no/such/group"), ("no cgroup no/such/group",)),
        (("--container", "no-such-container"), ("no running container no-such-container",)),
    ],
)
def test_no_such_target(arguments: tuple[object, ...], words: tuple[str, ...], run_cli: RunCli) -> None:
    result = run_cli("attach", *arguments)
    said(result, 2, *words)
    assert not result.objects.prog_id


def test_the_second_interrupt_ends_at_once(start_cli: StartCli, tmp_path: Path) -> None:
    """Whoever reads the rows has stopped to, so the first one cannot come to its end."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    try:
        with serving() as process:
            running = start_cli("attach", "--pid", process.pid, "--record", tmp_path / "record", stdout=writer)
            wait_for_rows(tmp_path / "record")
            ask(process, 200)
            assert line_of(process.stdout) == "done\n"
            wait_for(lambda: waits_in_a_pipe(running.pid), what="a write that waits")
            os.kill(running.pid, signal.SIGINT)
            wait_for(lambda: is_over(running, signal.SIGINT), 20, "the end")
            finished = running.finish(20)
            assert finished.code == 130
            assert process.poll() is None
    finally:
        os.close(reader)
        os.close(writer)
    Recording(tmp_path / "record").table("processes")


def waits_in_a_pipe(pid: int) -> bool:
    """Tell whether a thread waits for room in a pipe."""
    try:
        return any("pipe_write" in (task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # a thread ended amid the look
        return False


def is_over(running: Running, number: int) -> bool:
    """Tell whether it has ended; if not, send a signal: two that come close together may be taken as one."""
    if running.process.poll() is None:
        os.kill(running.pid, number)
    return running.process.poll() is not None


def test_a_target_that_is_killed(start_cli: StartCli, tmp_path: Path) -> None:
    with serving() as process:
        running = start_cli("attach", "--pid", process.pid, "--record", tmp_path / "record")
        wait_for_rows(tmp_path / "record")
        ask(process, 10)
        assert line_of(process.stdout) == "done\n"
        process.kill()
        finished = running.finish(30)
    assert finished.code == 0
    assert f"tracehound: pid {process.pid} has ended" in finished.lines and "nothing lost" in finished.err
    recording = Recording(tmp_path / "record")
    (end,) = [row for row in recording.table("processes").to_pylist() if row["event"] == "exit"]
    assert end["signal"] == "SIGKILL"
    assert recording.table("requests").num_rows == 20


EXEC = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
for each in (client, server):
    each.set_inheritable(True)
print("ready", flush=True)
sys.stdin.readline()
code = "import os, sys; os.write(%d, b'after'); os.read(%d, 5); print('done', flush=True); sys.stdin.readline()"
os.execv(sys.executable, [sys.executable, "-c", code % (client.fileno(), server.fileno())])
"""


def test_a_target_that_execs() -> None:
    """It is still the same process: the exec is a row, and its connections go on."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", EXEC], stdin=pipe, stdout=pipe, text=True) as process:
        assert line_of(process.stdout) == "ready\n"
        with tracehound.trace(pid=process.pid) as trace:
            say(process)
            assert line_of(process.stdout) == "done\n"
            say(process)
            trace.wait(20)
        process.communicate()
    assert [row["event"] for row in rows(trace.processes)] == ["start", "exec", "exit"]
    assert {row["pid"] for row in rows(trace.processes)} == {process.pid}
    events = [(row["event"], row["bytes_sent"]) for row in rows(trace.connections) if row["role"] == "client"]
    assert events == [("snapshot", 0), ("close", 5)]
    assert rows(trace.losses) == []


def test_an_exec_during_the_attach(start_cli: StartCli) -> None:
    """A process that execs all the time is taken in, whenever the attach comes."""
    loop = 'exec sh -c "$0" "$0"'
    with subprocess.Popen(["sh", "-c", loop, loop]) as process:
        try:
            with tracehound.trace(pid=process.pid) as trace:
                wait_for(lambda: trace.sql("select 1 from processes where event = 'exec'").num_rows > 20, 30, "execs")
        finally:
            process.kill()
    found: list[dict[str, Any]] = rows(trace.processes)
    assert {row["pid"] for row in found} == {process.pid}
    assert [row["event"] for row in found if row["preexisting"]] == ["start"]
    assert rows(trace.losses) == []


@pytest.mark.parametrize("strict", [False, True])
def test_a_full_disk(strict: bool, start_cli: StartCli, tmp_path: Path) -> None:
    """Rows that found no room are counted, the summary says why in one line, and the target does not notice."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=32k none {disk} && exec "$@"'
    prefix = ["unshare", "--mount", "/bin/sh", "-c", script, "sh", *TRACEHOUND]
    options = ["--format", "none", "--record", disk / "record", *(["--strict"] if strict else [])]
    with serving() as process:
        running = start_cli("attach", "--pid", process.pid, *options, "--format", "table", prefix=prefix)
        lines = iter(lambda: os.path.exists(f"/proc/{running.pid}/root{disk}/record/processes"), True)
        wait_for(lambda: next(lines, True), 30, "the attach")
        for _ in range(4):
            ask(process, 300)
            assert line_of(process.stdout) == "done\n"
        assert process.poll() is None
        os.kill(running.pid, signal.SIGINT)
        finished = running.finish(60)
    assert finished.code == (121 if strict else 0), finished.err
    (line,) = (line for line in finished.lines if "lost" in line)
    assert re.fullmatch(r" lost [\d,]+ of [\d,]+ events \(disk_full\); try a disk with more room", line), line


@pytest.mark.skipif(not os.path.isdir("/sys/kernel/tracing"), reason="this kernel has no tracefs to hide")
def test_no_tracefs(start_cli: StartCli, tmp_path: Path) -> None:
    """It works as before: nothing needs it."""
    with serving() as process:
        prefix = [*hidden("/sys/kernel/tracing"), *TRACEHOUND]
        options = ["--strict", "--record", tmp_path / "record"]
        running = start_cli("attach", "--pid", process.pid, *options, prefix=prefix)
        wait_for_rows(tmp_path / "record")
        ask(process, 5)
        assert line_of(process.stdout) == "done\n"
        process.kill()
        finished = running.finish(30)
    assert finished.code == 0, finished.err
    assert len([line for line in finished.out.splitlines() if "GET /" in line]) == 10
    assert finished.lines[0].endswith("Ctrl-C ends it"), "a line about tracefs, which nothing needs"


def test_no_btf(run_cli: RunCli) -> None:
    prefix = [*hidden("/sys/kernel/btf"), *TRACEHOUND]
    said(run_cli("attach", "--pid", os.getppid(), prefix=prefix), 2, "/sys/kernel/btf/vmlinux", "--btf FILE")


def test_no_rights(run_cli: RunCli) -> None:
    as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "--regid=65534", "--inh-caps=-all"]
    result = run_cli("attach", "--pid", os.getpid(), prefix=[*as_nobody, "--bounding-set=-all", *TRACEHOUND])
    said(result, 2, "CAP_BPF", "CAP_PERFMON", lines=2)


FULL_AT_ONCE = """
import sys
from tracehound import account, cli
account.NOTED_FROM = 0
sys.exit(cli.main())
"""


def fills(text: str) -> list[str]:
    """Return the options that lines about full rings name."""
    return re.findall(r"^ the \w+ ring was up to \d+ % full of \d+ MiB: --([\w-]+) makes", text, re.MULTILINE)


def test_the_fill_of_the_rings_is_in_the_summary(run_cli: RunCli, start_cli: StartCli, tmp_path: Path) -> None:
    """Here of any fill: how full they get depends on the load."""
    prefix = [sys.executable, "-c", FULL_AT_ONCE]
    assert "lifecycle-ring-mib" in fills(run_cli("run", "--no-record", "--", "/bin/true", prefix=prefix).err)
    with serving() as process:
        running = start_cli("attach", "--pid", process.pid, "--record", tmp_path / "record", prefix=prefix)
        wait_for_rows(tmp_path / "record")
        ask(process, 20)
        assert line_of(process.stdout) == "done\n"
        process.kill()
        assert "ring-mib" in fills(running.finish(30).err)
