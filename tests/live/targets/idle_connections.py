"""Connections that do nothing, after and before one exchange each: `idle_connections.py COUNT FOLDER`.

Makes some thousand requests on one connection, so that what a trace needs once is there, and writes FOLDER/warm. Waits
for FOLDER/open, opens them all, makes one request on each, writes FOLDER/idle; waits for FOLDER/ask, makes another
request on each, and closes them all. A child has the other ends. Ends by itself after some minutes.
"""

import os
import resource
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

COUNT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
LONGEST_S = 240
WARM = 6_000
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.02)


def serve(listener: socket.socket) -> None:
    """Answer each request until all connections were closed."""
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    left = COUNT + 1
    while left:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                waiting.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            assert isinstance(key.fileobj, socket.socket)
            if key.fileobj.recv(4096):
                key.fileobj.sendall(ANSWER)
                continue
            waiting.unregister(key.fileobj)
            key.fileobj.close()
            left -= 1


def ask(client: socket.socket, path: str) -> None:
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    assert client.recv(4096) == ANSWER


def main() -> None:
    signal.alarm(LONGEST_S)
    hard = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], COUNT + 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = os.fork()
    if server == 0:
        signal.alarm(LONGEST_S)
        serve(listener)
        os._exit(0)
    with socket.create_connection(listener.getsockname(), 20) as first:
        for _ in range(WARM):
            ask(first, "/warm/0")
    (FOLDER / "warm").touch()
    wait_for("open")
    clients = []
    for number in range(COUNT):
        clients.append(socket.create_connection(listener.getsockname(), 20))
        ask(clients[-1], f"/first/{number}")
    (FOLDER / "idle").touch()
    wait_for("ask")
    for number, client in enumerate(clients):
        ask(client, f"/second/{number}")
        client.close()
    _, status = os.waitpid(server, 0)
    assert status == 0, f"the server ended with {status}"


if __name__ == "__main__":
    main()
