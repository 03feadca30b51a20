"""Requests whose number stands in the path, in the status and in the size of the response: `numbered_http.py FOLDER`.

Phases a (exact number), b (as fast as can be, until FOLDER/b-stop), c (exact number, on the old connections and on new
ones); b and c begin when FOLDER/b-go, FOLDER/c-go exist. FOLDER gets a-done, b-done, and `told.json`: for each request
its phase, number, client port, time before and after, and for each port the bytes sent and received.
"""

import json
import os
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

FOLDER = Path(sys.argv[1])
CONNECTIONS = 4
EXACT = 250  # requests a connection in phases a and c
PAUSE_S = 0.005  # between them
SMALL, LARGE = 300, 8000  # bytes of a response's body, and up to 1012 more; large ones in phase b
REQUEST = "GET /{phase}/{number:07d} HTTP/1.1\r\nHost: test\r\n\r\n"
HEAD = "HTTP/1.1 {status} Text\r\nContent-Length: {size:05d}\r\nX-Number: {number:07d}\r\n\r\n"
Sent = tuple[str, int, int, int, int]


def answer(phase: str, number: int) -> bytes:
    """Return the response of a request: its status and its size tell its number."""
    size = (LARGE if phase == "b" else SMALL) + number % 1013
    return HEAD.format(status=400 + number % 89, size=size, number=number).encode() + b"." * size


def serve(connection: socket.socket) -> None:
    with connection:
        while request := connection.recv(4096):
            found = re.match(rb"GET /(.)/(\d+) ", request)
            assert found and request.endswith(b"\r\n\r\n")
            connection.sendall(answer(found[1].decode(), int(found[2])))


class Client:
    """One connection; numbers are its own: `first`, `first` + step, ..."""

    def __init__(self, port: int, first: int, step: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.port: int = self.socket.getsockname()[1]
        self.number, self.step = first, step
        self.sent_bytes = self.received_bytes = 0

    def call(self, phase: str) -> Sent:
        request = REQUEST.format(phase=phase, number=self.number).encode()
        expected = answer(phase, self.number)
        before = time.monotonic_ns()
        self.socket.sendall(request)
        assert self.socket.recv(len(expected), socket.MSG_WAITALL) == expected
        row = (phase, self.number, self.port, before, time.monotonic_ns())
        self.sent_bytes += len(request)
        self.received_bytes += len(expected)
        self.number += self.step
        return row

    def exact(self, phase: str) -> list[Sent]:
        sent = []
        for _ in range(EXACT):
            sent.append(self.call(phase))
            time.sleep(PAUSE_S)
        return sent

    def flood(self, stop: Path) -> list[Sent]:
        sent: list[Sent] = []
        end = time.monotonic() + 10
        while not (len(sent) % 16 == 0 and stop.exists()) and time.monotonic() < end:
            sent.append(self.call("b"))
        return sent


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.01)


def main() -> None:
    signal.alarm(180)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = os.fork()
    if server == 0:
        signal.alarm(180)
        with ThreadPoolExecutor(2 * CONNECTIONS) as threads:
            list(threads.map(serve, (listener.accept()[0] for _ in range(2 * CONNECTIONS))))
        os._exit(0)
    listener.close()
    step = 2 * CONNECTIONS
    sent: list[Sent] = []
    clients = [Client(port, first, step) for first in range(CONNECTIONS)]
    with ThreadPoolExecutor(step) as threads:
        sent += chain.from_iterable(threads.map(lambda client: client.exact("a"), clients))
        (FOLDER / "a-done").touch()
        wait_for("b-go")
        sent += chain.from_iterable(threads.map(lambda client: client.flood(FOLDER / "b-stop"), clients))
        (FOLDER / "b-done").touch()
        wait_for("c-go")
        clients += [Client(port, CONNECTIONS + first, step) for first in range(CONNECTIONS)]
        sent += chain.from_iterable(threads.map(lambda client: client.exact("c"), clients))
    for client in clients:
        client.socket.close()
    _, status = os.waitpid(server, 0)
    assert status == 0, f"the server ended with {status}"
    counts = {client.port: (client.sent_bytes, client.received_bytes) for client in clients}
    told = {"pids": {"client": os.getpid(), "server": server}, "port": port, "sent": sent, "bytes": counts}
    (FOLDER / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
