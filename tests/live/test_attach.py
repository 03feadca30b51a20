"""Attaching to what runs: nothing after it is missed, nothing is told twice, and what was there before is marked."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest
from tests.live.conftest import BpfObjects, Row, StartCli, existing, held_by, leftovers, rows, wait_for

import tracehound
import tracehound.recording
from tracehound import LiveTrace
from tracehound.config import Filter
from tracehound.errors import TargetError

SHORT, STAYING = 2000, 20
UNIFIED = Path("/sys/fs/cgroup/unified" if Path("/sys/fs/cgroup/unified").is_dir() else "/sys/fs/cgroup")

ACCEPT_LATE = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
input()
listener.accept()[0].recv(9)
input()
"""

PythonTarget = Callable[..., list[str]]


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def say(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def churn(python_target: PythonTarget, short: int, staying: int, result: Path) -> Iterator[tuple[Any, dict[str, int]]]:
    """Run the target up to the point at which its staying connections are open."""
    command = python_target("churn", short, 4, staying, result)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pids = json.loads(line_of(process.stdout))
        try:
            yield process, pids
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                os.kill(pids["server"], signal.SIGKILL)
            process.communicate()


def end_of(trace: LiveTrace, process: "subprocess.Popen[str]") -> None:
    """Let the target end by itself, and the trace with it."""
    say(process)
    trace.wait(20)
    assert trace.has_ended


def wait_for_rows(record: Path) -> None:
    """Wait until a command line has attached: the first row is of the process that was there before."""
    wait_for(lambda: list(record.glob("processes/*")), 30, "the attach")


def by_connection(found: list[Row]) -> dict[int, list[str]]:
    events: dict[int, list[str]] = {}
    for row in sorted(found, key=lambda row: (row["time_ns"], row["event"] in ("close",))):
        events.setdefault(row["connection"], []).append(row["event"])
    return events


def check_connections(trace: LiveTrace, told: dict[str, Any], attached_ns: int) -> None:
    """Each connection that began after the attach opens and closes once at both ends; the others are marked."""
    assert rows(trace.losses) == []
    found = rows(trace.connections)
    after = {port for port, began_ns, _ in told["short"] if began_ns > attached_ns}
    staying = set(told["staying"])
    for role, port_name, opening in (("client", "local_port", "open"), ("server", "remote_port", "accept")):
        mine = [row for row in found if row["role"] == role]
        new = by_connection([row for row in mine if row[port_name] in after and not row["preexisting"]])
        assert Counter(map(tuple, new.values()))[opening, "close"] >= len(after)
        assert not {row[port_name] for row in mine if row["preexisting"]} & after
        old = by_connection([row for row in mine if row[port_name] in staying])
        assert Counter(map(tuple, old.values())) == {("snapshot", "close"): len(staying)}
        assert all(row["preexisting"] for row in mine if row[port_name] in staying)
    every = Counter((row["connection"], row["event"]) for row in found)
    assert set(every.values()) == {1}


def test_attach_before_a_storm_misses_nothing_and_tells_nothing_twice(
    python_target: PythonTarget, tmp_path: Path
) -> None:
    with churn(python_target, SHORT, STAYING, tmp_path / "told") as (process, pids):
        with tracehound.trace(pid=pids["client"]) as trace:
            attached_ns = time.monotonic_ns()
            say(process)
            assert line_of(process.stdout) == "done\n"
            end_of(trace, process)
        told = json.loads((tmp_path / "told").read_text())
        assert len(told["short"]) == SHORT
        check_connections(trace, told, attached_ns)
        check_processes(trace, pids)
        check_bytes(trace, told)


def check_processes(trace: LiveTrace, pids: dict[str, int]) -> None:
    found = rows(trace.processes)
    assert {(row["event"], row["pid"]) for row in found} == {
        (event, pids[name]) for event in ("start", "exit") for name in ("client", "server")
    }
    assert {row["preexisting"] for row in found if row["event"] == "start"} == {True}
    (client,) = [row for row in found if row["event"] == "start" and row["pid"] == pids["client"]]
    assert client["ppid"] == os.getpid() and client["argv"][1].endswith("churn.py")
    assert client["process_start_ns"] < client["time_ns"]
    (listen, unlisten) = sorted(rows(trace.listens), key=lambda row: row["time_ns"])
    assert (listen["event"], listen["preexisting"], listen["local_port"]) == ("open", True, pids["port"])
    assert unlisten["event"] == "close"


def check_bytes(trace: LiveTrace, told: dict[str, Any]) -> None:
    """Positions of what was there before count from the connection's first byte, not from the attach."""
    staying = set(told["staying"])
    for row in rows(trace.connections):
        if row["event"] == "close":
            port = row["local_port"] if row["role"] == "client" else row["remote_port"]
            size = len("before") + len("and after") if port in staying else len("hello")
            assert (row["bytes_sent"], row["bytes_received"]) == (size, size)


def test_attach_in_the_middle_of_a_storm(python_target: PythonTarget, tmp_path: Path) -> None:
    with churn(python_target, SHORT, STAYING, tmp_path / "told") as (process, pids):
        say(process)
        time.sleep(0.1)
        with tracehound.trace(pid=pids["client"]) as trace:
            attached_ns = time.monotonic_ns()
            assert line_of(process.stdout) == "done\n"
            end_of(trace, process)
        told = json.loads((tmp_path / "told").read_text())
        check_connections(trace, told, attached_ns)


def test_two_traces_at_once_see_the_same(python_target: PythonTarget, tmp_path: Path) -> None:
    with churn(python_target, 300, STAYING, tmp_path / "told") as (process, pids):
        with tracehound.trace(pid=pids["client"]) as one, tracehound.trace(pid=pids["client"]) as other:
            say(process)
            assert line_of(process.stdout) == "done\n"
            say(process)
            one.wait(20)
            other.wait(20)
        names = ("event", "cookie", "role", "local_port", "remote_port", "preexisting", "pid")
        seen = [Counter(tuple(row[name] for name in names) for row in rows(each.connections)) for each in (one, other)]
        assert seen[0] == seen[1] and seen[0].total() == 4 * 300 + 4 * STAYING


def test_open_connections_are_told_at_any_moment(python_target: PythonTarget, tmp_path: Path) -> None:
    with churn(python_target, 50, STAYING, tmp_path / "told") as (process, pids):  # noqa: SIM117
        with tracehound.trace(pid=pids["client"]) as trace:
            now = trace.open_connections(role="client").to_pylist()
            assert len(now) == STAYING
            assert {(row["bytes_sent"], row["bytes_received"], row["pid"]) for row in now} == {(6, 6, pids["client"])}
            assert {row["event"] for row in now} == {"snapshot"} and all(row["preexisting"] for row in now)
            assert trace.open_connections().num_rows == 2 * STAYING
            say(process)
            assert line_of(process.stdout) == "done\n"
            assert {row["bytes_sent"] for row in trace.open_connections(role="server").to_pylist()} == {15}


def test_connections_that_nobody_has_accepted_are_told() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ACCEPT_LATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = int(line_of(process.stdout))
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"early")
            with tracehound.trace(pid=process.pid) as trace:
                (row,) = trace.open_connections().to_pylist()
                assert (row["role"], row["remote_port"], row["pid"]) == (
                    "server",
                    connection.getsockname()[1],
                    process.pid,
                )
                say(process)
                say(process)
                trace.wait(10)
            process.communicate()
        events = by_connection(rows(trace.connections))
        assert list(events.values()) == [["snapshot", "snapshot", "close"]]


def test_a_process_storm_during_the_attach(python_target: PythonTarget, tmp_path: Path) -> None:
    count = 2000
    command = python_target("fork_storm", count, tmp_path / "told")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert int(line_of(process.stdout)) == process.pid
        with tracehound.trace(pid=process.pid) as trace:
            attached_ns = time.monotonic_ns()
            wait_for((tmp_path / "told").exists, 60, "the storm's end")
            trace.wait(20)
        assert rows(trace.losses) == []
        children = json.loads((tmp_path / "told").read_text())
        found = rows(trace.processes)
        every = Counter((row["event"], row["pid"], row["process_start_ns"]) for row in found)
        assert set(every.values()) == {1}
        seen = {event: Counter(row["pid"] for row in found if row["event"] == event) for event in ("start", "exit")}
        after = Counter(pid for pid, known_ns in children[1:] if known_ns > attached_ns)
        later = Counter(dict(list(after.items())[1:]))  # the first may have begun before the attach
        assert len(later) > 100, "the storm was over before the attach"
        assert not later - seen["start"] and not later - seen["exit"]
        assert set(seen["start"]) <= {pid for pid, _ in children} | {process.pid}


def test_a_cgroup_and_who_comes_into_it(python_target: PythonTarget, tmp_path: Path) -> None:
    folder = UNIFIED / f"tracehound-test-{os.getpid()}"
    (folder / "below").mkdir(parents=True)
    try:
        with churn(python_target, 100, 5, tmp_path / "told") as (process, pids):
            (folder / "below" / "cgroup.procs").write_text(str(pids["client"]))
            with tracehound.trace(cgroup=folder) as trace:
                say(process)
                assert line_of(process.stdout) == "done\n"
                (folder / "cgroup.procs").write_text(str(pids["server"]))  # comes in while it runs
                time.sleep(0.2)
                say(process)
                process.wait(20)
                time.sleep(0.3)
        found = rows(trace.processes)
        assert [(row["event"], row["preexisting"]) for row in found if row["pid"] == pids["client"]] == [
            ("start", True),
            ("exit", False),
        ]
        assert {row["cgroup"] for row in found if row["pid"] == pids["client"]} == {f"/{folder.name}/below"}
        assert [row["event"] for row in found if row["pid"] == pids["server"]] == ["start", "exit"]
        closed = Counter(row["role"] for row in rows(trace.connections) if row["event"] == "close")
        assert closed["client"] == 105
        assert {row["pid"] for row in found} == {pids["client"], pids["server"]}
    finally:
        wait_for(lambda: not (folder / "below" / "cgroup.procs").read_text().split(), 10, "the cgroup to be empty")
        wait_for(lambda: not (folder / "cgroup.procs").read_text().split(), 10, "the cgroup to be empty")
        (folder / "below").rmdir()
        folder.rmdir()


def test_a_hundred_rounds_leave_nothing(python_target: PythonTarget, tmp_path: Path) -> None:
    with churn(python_target, 20_000, 5, tmp_path / "told") as (process, pids):
        say(process)
        held = BpfObjects()
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            with tracehound.trace(pid=pids["server"]) as trace:
                held = held.united(held_by(os.getpid()))
                assert trace.pid is None and not trace.has_ended
        assert len(held.prog_id) > 100
        assert leftovers(held) == BpfObjects() and not held.common(existing()).prog_id
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert process.poll() is None, "the target was harmed"


def test_a_pid_that_vanishes_is_one_line(start_cli: StartCli, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as process:
        running = start_cli("attach", "--pid", process.pid, "--record", tmp_path / "record")
        wait_for_rows(tmp_path / "record")
        process.communicate("\n")
    finished = running.finish(30)
    assert finished.code == 0
    assert finished.lines[:2] == [
        f"tracehound: tracing pid {process.pid}; Ctrl-C ends it",
        f"tracehound: pid {process.pid} has ended",
    ]
    with pytest.raises(TargetError, match=f"no process {process.pid}"):
        tracehound.trace(pid=process.pid)


def test_ctrl_c_ends_in_order_with_the_summary(
    start_cli: StartCli, python_target: PythonTarget, tmp_path: Path
) -> None:
    with churn(python_target, 10, 2, tmp_path / "told") as (process, pids):
        running = start_cli("attach", "--pid", pids["client"], "--record", tmp_path / "record")
        wait_for_rows(tmp_path / "record")
        say(process)
        assert line_of(process.stdout) == "done\n"
        os.kill(running.pid, signal.SIGINT)
        finished = running.finish(30)
        assert finished.code == 0
        assert f"tracehound  ·  pid {pids['client']}  ·" in finished.err and "nothing lost" in finished.err
        assert process.poll() is None


def test_attach_to_nginx_shows_its_requests(start_cli: StartCli, tmp_path: Path) -> None:
    with nginx(tmp_path) as (pid, port):
        kept = socket.create_connection(("127.0.0.1", port), 5)
        kept.sendall(b"GET /before HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 404")
        running = start_cli("attach", "--pid", pid, "--record", tmp_path / "record", "--duration", 4)
        wait_for_rows(tmp_path / "record")
        kept.sendall(b"GET /again HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 404")
        for number in range(20):
            with socket.create_connection(("127.0.0.1", port), 5) as one:
                one.sendall(f"GET /{number} HTTP/1.0\r\n\r\n".encode())
                assert one.recv(4096).startswith(b"HTTP/1.1 404")
        kept.close()
        finished = running.finish(30)
        assert finished.code == 0
        lines = [line for line in finished.out.splitlines() if "GET /" in line]
        assert len(lines) == 21 and all("127.0.0.1" in line and "404" in line for line in lines)
    found = tracehound.recording.Recording(tmp_path / "record").table("requests").to_pylist()
    assert Counter(row["resource"] for row in found) == Counter(["/again", *(f"/{number}" for number in range(20))])
    assert {row["resource"] for row in found if row["joined_midstream"]} == {"/again"}
    assert {row["role"] for row in found} == {"server"}


def test_attach_to_nginx_under_load_misses_no_request(tmp_path: Path) -> None:
    def call(number: int) -> tuple[str, int, int]:
        """Make one connection with one request; returns its path, its port, and when it began."""
        began_ns = time.monotonic_ns()
        with socket.create_connection(("127.0.0.1", port), 20) as one:
            one.sendall(f"GET /{number} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            head = one.recv(4096)
            assert head.startswith(b"HTTP/1.1 404")
            while one.recv(4096):
                pass
            return f"/{number}", one.getsockname()[1], began_ns

    def load(numbers: Iterator[int], told: list[tuple[str, int, int]], stop: threading.Event) -> None:
        while not stop.is_set():
            told.append(call(next(numbers)))

    told, numbers, stop = list[tuple[str, int, int]](), count(), threading.Event()
    with nginx(tmp_path) as (pid, port), ThreadPoolExecutor(4) as threads:
        kept = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(STAYING)]
        for each in kept:
            each.sendall(b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\n")
            assert each.recv(4096).startswith(b"HTTP/1.1 404")
        before_ports = Counter(each.getsockname()[1] for each in kept)
        running = [threads.submit(load, numbers, told, stop) for _ in range(4)]
        try:
            wait_for(lambda: len(told) > 100, 30, "the load")
            with tracehound.trace(pid=pid) as trace:
                attached_ns, before = time.monotonic_ns(), len(told)
                wait_for(lambda: len(told) > before + SHORT, 60, "the load")
                stop.set()
                for future in running:
                    future.result(20)
                for each in kept:
                    each.close()
                time.sleep(0.3)
        finally:
            stop.set()
    assert rows(trace.losses) == []
    after = {path: port for path, port, began_ns in told if began_ns > attached_ns}
    assert len(after) >= SHORT - 4
    seen = Counter(row["resource"] for row in rows(trace.requests))
    assert {seen[path] for path in after} == {1}, [path for path in after if seen[path] != 1]
    assert seen.keys() <= {path for path, _, _ in told} and set(seen.values()) == {1}
    every = Counter((row["connection"], row["event"]) for row in rows(trace.connections) if row["transport"] == "tcp")
    assert set(every.values()) == {1}
    accepted = Counter(row["remote_port"] for row in rows(trace.connections) if row["event"] == "accept")
    closed = Counter(row["remote_port"] for row in rows(trace.connections) if row["event"] == "close")
    assert not Counter(after.values()) - accepted and not Counter(after.values()) - closed
    marked = Counter(row["remote_port"] for row in rows(trace.connections) if row["event"] == "snapshot")
    assert not before_ports - marked and not before_ports - closed, "what was there before is told, and marked"
    assert all(row["preexisting"] for row in rows(trace.connections) if row["remote_port"] in before_ports)


@contextmanager
def nginx(folder: Path) -> Iterator[tuple[int, int]]:
    """Run nginx with two workers; gives its pid and port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error;\n"
        f"events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ return 404; }} }} }}\n"
    )
    with subprocess.Popen(["nginx", "-c", str(config), "-e", f"{folder}/error"]) as process:
        try:
            wait_for(lambda: can_connect(port), 10, "nginx")
            yield process.pid, port
        finally:
            process.terminate()
            process.wait(10)


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_the_command_connections_lists_what_is_open(
    start_cli: StartCli, python_target: PythonTarget, tmp_path: Path
) -> None:
    with churn(python_target, 1, 3, tmp_path / "told") as (_, pids):
        finished = start_cli("connections", "--pid", pids["client"], "--role", "client", "--format", "json").finish(30)
        assert finished.code == 0
        found = [json.loads(line) for line in finished.out.splitlines()]
        assert {(row["pid"], row["remote_port"], row["bytes_sent"], row["state"]) for row in found} == {
            (pids["client"], pids["port"], 6, "ESTABLISHED")
        }
        assert len(found) == 3


def test_filters_leave_out_ports_processes_and_names(python_target: PythonTarget, tmp_path: Path) -> None:
    with churn(python_target, 50, 3, tmp_path / "told") as (process, pids):
        wanted = [Filter("pid", True, pids["client"]), Filter("comm", False, "nothing-has-it")]
        with (
            tracehound.trace(pid=pids["client"], filters=tuple(wanted)) as one,
            tracehound.trace(pid=pids["client"], filters=(Filter("port", True, 1),)) as none,
            tracehound.trace(pid=pids["client"], filters=(Filter("port", False, 1),)) as all_of_it,
            tracehound.trace(pid=pids["client"], filters=(Filter("uid", False, os.getuid()),)) as nobody,
        ):
            say(process)
            assert line_of(process.stdout) == "done\n"
            say(process)
            for each in (one, none, all_of_it, nobody):
                each.wait(20)
        assert {row["pid"] for row in rows(one.connections)} == {pids["client"]}
        assert Counter(row["event"] for row in rows(one.connections)) == {"open": 50, "close": 53, "snapshot": 3}
        assert {row["pid"] for row in rows(one.processes)} == {pids["client"]}
        assert not rows(none.connections) and not rows(none.listens) and len(rows(none.processes)) == 4
        assert len(rows(all_of_it.connections)) == 2 * 106
        assert not rows(nobody.connections) and not rows(nobody.processes)


def test_a_stranger_with_the_pid_of_one_that_ended_is_not_traced(c_target: Callable[[str], Path]) -> None:
    with subprocess.Popen([c_target("pid_again")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pid = int(line_of(process.stdout))
        with tracehound.trace(pid=pid) as trace:
            say(process)
            outcome = line_of(process.stdout)
            say(process)
            process.communicate(timeout=30)
            trace.wait(20)
        if outcome == "not again\n":
            pytest.skip("clone3 cannot choose a pid here: CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE is missing")
        assert outcome == "again\n"
        assert {(row["resource"], row["pid"]) for row in rows(trace.requests)} == {("/traced", pid)}
        calls = [
            (row["send_calls"], row["receive_calls"]) for row in rows(trace.connections) if row["event"] == "close"
        ]
        assert calls == [(1, 1), (1, 1)]


def test_attach_with_features_off_keeps_who_is_traced(python_target: PythonTarget, tmp_path: Path) -> None:
    """Nothing is told of what is off, and of the rest as much as with all on."""
    folder = UNIFIED / f"tracehound-off-{os.getpid()}"
    folder.mkdir()
    off = frozenset({"processes", "requests"})
    try:
        with (
            churn(python_target, 50, 3, tmp_path / "told") as (process, pids),
            tracehound.trace(pid=pids["client"], off=off) as by_pid,
            tracehound.trace(cgroup=folder, off=off) as by_cgroup,
            tracehound.trace(pid=pids["client"], off=frozenset({"tcp"})) as no_tcp,
        ):
            (folder / "cgroup.procs").write_text(str(pids["client"]))  # comes in while it runs
            say(process)
            assert line_of(process.stdout) == "done\n"
            say(process)
            process.wait(20)
            time.sleep(0.3)
        assert not rows(by_pid.processes) and not rows(by_cgroup.processes)
        told = Counter(row["event"] for row in rows(by_pid.connections) if row["role"] == "client")
        assert told == {"open": 50, "close": 53, "snapshot": 3}
        told = Counter(row["event"] for row in rows(by_cgroup.connections) if row["role"] == "client")
        assert told["open"] == 50
        assert {row["event"] for row in rows(no_tcp.connections)} == {"snapshot"}  # at their first bytes
        assert not rows(no_tcp.listens)
        assert {row["pid"] for row in rows(no_tcp.processes)} >= {pids["client"]}
    finally:
        wait_for(lambda: not (folder / "cgroup.procs").read_text().split(), 10, "the cgroup to be empty")
        folder.rmdir()
