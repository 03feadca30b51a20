"""What is traced in an emulated machine: processes that end, a client and a server that speak HTTP.

`talk.py TRUTH`: TRUTH gets, as JSON, what was done: exit codes of children, and of each connection its requests
and its bytes. The exit code is 7.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

CONNECTIONS: Final = 3
REQUESTS: Final = 8  # of a connection
CHILDREN: Final = (0, 3, 128 + signal.SIGTERM)
SIZES: Final = (0, 17, 5000, 70000)  # of bodies: none, short, more than a head, more than is captured of a call


def answer(path: str) -> bytes:
    """Return the response to a request: its status and size come from the path."""
    _, status, size, _ = path.split("/")
    return f"HTTP/1.1 {status} Text\r\nContent-Length: {size}\r\n\r\n".encode() + b"." * int(size)


def serve(connection: socket.socket) -> None:
    with connection:
        while request := connection.recv(4096):
            connection.sendall(answer(request.split()[1].decode()))


def receive(connection: socket.socket, size: int) -> None:
    """Receive exactly `size` bytes: by recv, recvmsg and read in turn."""
    ways = (lambda: len(connection.recv(size)), lambda: len(connection.recvmsg(size)[0]))
    turn = 0
    while size:
        got = ways[turn % 2]() if turn % 3 else len(os.read(connection.fileno(), size))
        assert got, f"end of stream, {size} bytes early"
        size -= got
        turn += 1


def send(connection: socket.socket, data: bytes, way: int) -> None:
    """Send by send, writev or sendmsg."""
    if way % 3 == 0:
        connection.sendall(data)
    elif way % 3 == 1:
        assert os.writev(connection.fileno(), [data[:9], data[9:]]) == len(data)
    else:
        assert connection.sendmsg([data[:5], data[5:20], data[20:]]) == len(data)


def exchange(connection: socket.socket, first: int) -> list[tuple[str, int, int, int]]:
    """Make REQUESTS requests on a connection; return path, status and both sizes of each."""
    told = []
    for number in range(first, first + REQUESTS):
        status, size = (404 if number % 5 == 0 else 200), SIZES[number % len(SIZES)]
        path = f"/{status}/{size}/{number}"
        request = f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode()
        send(connection, request, number)
        expected = len(answer(path))
        receive(connection, expected)
        told.append((path, status, len(request), expected))
    return told


def ask(port: int, first: int) -> dict[str, object]:
    """Make the requests of one connection; return them with its bytes."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.setblocking(True)
        return account(connection, exchange(connection, first))


def account(connection: socket.socket, told: list[tuple[str, int, int, int]]) -> dict[str, object]:
    """Return what was done on a connection from its beginning."""
    sent, received = sum(request[2] for request in told), sum(request[3] for request in told)
    return {"port": connection.getsockname()[1], "sent": sent, "received": received, "requests": told}


def main() -> None:
    signal.alarm(300)
    for code in CHILDREN:
        script = f"kill -{code - 128} $$" if code > 128 else f"exit {code}"
        subprocess.run(["/bin/sh", "-c", script], check=False)
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        for _ in range(CONNECTIONS):
            serve(listener.accept()[0])
        os._exit(0)
    port = listener.getsockname()[1]
    listener.close()
    connections = [ask(port, number * REQUESTS) for number in range(CONNECTIONS)]
    _, status = os.waitpid(server, 0)
    assert status == 0, f"the server ended with {status}"
    Path(sys.argv[1]).write_text(json.dumps({"port": port, "connections": connections, "children": CHILDREN}))
    sys.exit(7)


if __name__ == "__main__":
    main()
