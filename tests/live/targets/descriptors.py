"""Sockets whose descriptors are copied, inherited, passed on and used again: `descriptors.py RESULT`.

RESULT gets the server's pid and port and, for each connection: its case, the client's port, the requests made on it
with the process that made each, the bytes of both directions, the server's pid where it is another, and the window of
time (CLOCK_MONOTONIC) in which the client's end was really closed.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fresh_port  # type: ignore[import-not-found]  # beside this file

REUSED, THREADS = 1000, 4
ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"
SHELL = f"read -r a; read -r b; read -r c; printf '{ANSWER}'".replace("\r", "\\r").replace("\n", "\\n")


@dataclass(slots=True)
class Connection:
    case: str
    port: int
    requests: list[tuple[str, int]] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    server_pid: int | None = None
    closed_after_ns: int = 0
    closed_before_ns: int = 0


told: list[Connection] = []
listener = socket.create_server(("127.0.0.1", 0), backlog=256)
ADDRESS = listener.getsockname()


def serve() -> None:
    """Answer every request: /delayed after a while, /at-end when the client has shut down its direction."""

    def one(connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(4096):
                if b"/at-end" in request:
                    assert connection.recv(4096) == b""
                if b"/delayed" in request:
                    time.sleep(0.3)
                connection.sendall(ANSWER.encode())

    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


def connect(case: str, address: tuple[str, int] = ADDRESS) -> tuple[socket.socket, Connection]:
    client = fresh_port.connect(address)
    client.settimeout(None)
    connection = Connection(case, client.getsockname()[1])
    told.append(connection)
    return client, connection


def send(fd: int, connection: Connection, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode()
    assert os.write(fd, request) == len(request)
    connection.requests.append((path, os.getpid()))
    connection.sent += len(request)


def receive(fd: int, connection: Connection) -> None:
    got = b""
    while len(got) < len(ANSWER) and (data := os.read(fd, 4096)):
        got += data
    assert got == ANSWER.encode(), got
    connection.received += len(got)


def ask(fd: int, connection: Connection, path: str) -> None:
    send(fd, connection, path)
    receive(fd, connection)


@contextmanager
def closing(*connections: Connection) -> Iterator[None]:
    """What is done in this block closes these connections."""
    after_ns = time.monotonic_ns()
    yield
    for connection in connections:
        connection.closed_after_ns, connection.closed_before_ns = after_ns, time.monotonic_ns()


def child(work: Callable[[], object]) -> int:
    """Fork; the child does this and exits without closing anything."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


def wait(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"a child ended with {status}"


# ---- the cases


def dup() -> None:
    client, connection = connect("dup")
    copy = os.dup(client.fileno())
    ask(client.fileno(), connection, "/dup/0")
    client.close()
    ask(copy, connection, "/dup/1")
    with closing(connection):
        os.close(copy)


def dup2() -> None:
    """One socket's descriptor becomes another's: that one is closed, and the number now is of the first."""
    (kept, kept_one), (replaced, replaced_one) = connect("dup2"), connect("dup2")
    number = replaced.detach()
    ask(kept.fileno(), kept_one, "/dup2/kept/0")
    ask(number, replaced_one, "/dup2/replaced/0")
    with closing(replaced_one):
        os.dup2(kept.fileno(), number)
    ask(number, kept_one, "/dup2/kept/1")
    kept.close()
    ask(number, kept_one, "/dup2/kept/2")
    with closing(kept_one):
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, number)
    os.close(null)
    os.close(number)


def close_range() -> None:
    opened = [connect("close_range") for _ in range(3)]
    numbers = [client.detach() for client, _ in opened]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    for number, (_, connection) in zip(numbers, opened, strict=True):
        ask(number, connection, f"/close_range/{number}")
    with closing(*(connection for _, connection in opened)):
        assert ctypes.CDLL(None, use_errno=True).close_range(numbers[0], numbers[-1], 0) == 0


def fork() -> None:
    """Both use the socket, then the parent closes it, then the child goes on and exits without close."""
    client, connection = connect("fork")
    readable, writable = os.pipe()
    ask(client.fileno(), connection, "/fork/0")

    def work() -> None:
        os.close(writable)
        assert os.read(readable, 1) == b""  # the parent has closed
        ask(client.fileno(), connection, "/fork/2")

    pid = child(work)
    ask(client.fileno(), connection, "/fork/1")
    client.close()
    with closing(connection):
        os.close(writable)
        wait(pid)
    os.close(readable)
    did_in_child(connection, pid, "/fork/2")


def did_in_child(connection: Connection, pid: int, *paths: str) -> None:
    """Take down here what a child did in its own memory."""
    for path in paths:
        connection.requests.append((path, pid))
        connection.sent += len(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
        connection.received += len(ANSWER)


def passed_on() -> None:
    """SCM_RIGHTS to a process that was there before the connection."""
    here, there = socket.socketpair()

    def work() -> None:
        here.close()
        _, (number,), _, _ = socket.recv_fds(there, 1, 1)
        assert there.recv(1) == b"x"  # the sender has closed
        ask(number, Connection("", 0), "/passed_on/1")
        os.close(number)
        there.send(b"x")
        assert there.recv(1) == b""

    pid = child(work)
    there.close()
    client, connection = connect("passed_on")
    ask(client.fileno(), connection, "/passed_on/0")
    socket.send_fds(here, [b"x"], [client.fileno()])
    client.close()
    with closing(connection):
        here.send(b"x")
        assert here.recv(1) == b"x"
    here.close()
    wait(pid)
    did_in_child(connection, pid, "/passed_on/1")


def exit_without_close() -> None:
    readable, writable = os.pipe()

    def work() -> None:
        client, connection = connect("exit_without_close")
        ask(client.fileno(), connection, "/exit_without_close/0")
        os.write(writable, json.dumps(asdict(connection)).encode())

    after_ns = time.monotonic_ns()
    wait(child(work))
    os.close(writable)
    with os.fdopen(readable) as pipe:
        connection = Connection(**json.load(pipe))
    connection.closed_after_ns, connection.closed_before_ns = after_ns, time.monotonic_ns()
    told.append(connection)


def half_close() -> None:
    client, connection = connect("half_close")
    ask(client.fileno(), connection, "/half_close/0")
    send(client.fileno(), connection, "/at-end/half_close/1")
    with closing(connection):  # by the server's FIN, or by close
        client.shutdown(socket.SHUT_WR)
        receive(client.fileno(), connection)
        client.close()


def close_during_read() -> None:
    """A thread waits for a response on a descriptor that is closed and used again meanwhile: the number lies."""
    client, first = connect("close_during_read")
    number = client.detach()
    send(number, first, "/delayed/close_during_read/0")
    reader = threading.Thread(target=receive, args=(number, first))
    reader.start()
    time.sleep(0.1)
    with closing(first):  # by the reader's call: it holds the socket
        os.close(number)
        other, second = connect("close_during_read")
        assert other.fileno() == number
        ask(number, second, "/close_during_read/1")
        reader.join()
    ask(number, second, "/close_during_read/2")
    with closing(second):
        other.close()


def reused() -> None:
    """Few numbers, many sockets, several threads."""
    numbers = set()

    def work(index: int) -> None:
        client, connection = connect("reused")
        numbers.add(client.fileno())
        ask(client.fileno(), connection, f"/reused/{index}")
        with closing(connection):
            client.close()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(REUSED)))
    assert len(numbers) <= 2 * THREADS


def served_by_exec() -> None:
    """As inetd does: the accepted socket becomes the standard streams of another program."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        client, connection = connect("served_by_exec", own.getsockname())
        accepted, _ = own.accept()
        fd = accepted.fileno()
        with subprocess.Popen(["/bin/sh", "-c", SHELL], stdin=fd, stdout=fd) as shell:
            accepted.close()
            connection.server_pid = shell.pid
            ask(client.fileno(), connection, "/served_by_exec/0")
            assert client.recv(1) == b""
    with closing(connection):
        client.close()


CASES = (
    dup, dup2, close_range, fork, passed_on, exit_without_close, half_close, close_during_read, reused, served_by_exec,
)  # fmt: skip


def main() -> None:
    signal.alarm(60)
    server = os.fork()
    if server == 0:
        signal.alarm(60)
        serve()
    listener.close()
    try:
        for case in CASES:
            case()
        time.sleep(0.1)  # the server closes its ends
    finally:
        os.kill(server, signal.SIGTERM)
        os.waitpid(server, 0)
    assert len({connection.port for connection in told}) == len(told)
    everything = {"server": server, "port": ADDRESS[1], "connections": [asdict(connection) for connection in told]}
    Path(sys.argv[1]).write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
