"""Many short connections, counted: `short_connections.py CONNECTIONS THREADS RESULT`.

A server process reads two sizes and as many bytes as the first says, answers with as many as the second, and closes
after the client. RESULT gets the port, the pids and what each side sent and received in all.
"""

import json
import os
import signal
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

CONNECTIONS, THREADS = int(sys.argv[1]), int(sys.argv[2])
Counts = tuple[int, int]


def receive_exactly(connection: socket.socket, size: int) -> int:
    left = size
    while left:
        data = connection.recv(left)
        assert data, "end of stream too early"
        left -= len(data)
    return size


def call(port: int, number: int) -> Counts:
    """Make one connection; return bytes sent and received."""
    request, response = 1 + number * 7 % 500, number * 13 % 900
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        message = struct.pack("!II", request, response) + b"\x00" * request
        connection.sendall(message)
        return len(message), receive_exactly(connection, response)


def serve(listener: socket.socket) -> Counts:
    """Serve all connections; return bytes sent and received."""

    def one(connection: socket.socket) -> Counts:
        with connection:
            request, response = struct.unpack("!II", connection.recv(8, socket.MSG_WAITALL))
            receive_exactly(connection, request)
            connection.sendall(b"\x01" * response)
            assert connection.recv(1) == b""
            return response, 8 + request

    with ThreadPoolExecutor(THREADS) as threads:
        counts = list(threads.map(one, (listener.accept()[0] for _ in range(CONNECTIONS))))
    return sum(sent for sent, _ in counts), sum(received for _, received in counts)


def main() -> None:
    signal.alarm(90)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    port = listener.getsockname()[1]
    readable, writable = os.pipe()
    server = os.fork()
    if server == 0:
        signal.alarm(90)
        os.write(writable, json.dumps(serve(listener)).encode())
        os._exit(0)
    listener.close()
    with ThreadPoolExecutor(THREADS) as threads:
        counts = list(threads.map(lambda number: call(port, number), range(CONNECTIONS)))
    served = json.loads(os.read(readable, 4096))
    _, status = os.waitpid(server, 0)
    assert status == 0, f"the server ended with {status}"
    told = {
        "port": port,
        "client": {"pid": os.getpid(), "sent": sum(c[0] for c in counts), "received": sum(c[1] for c in counts)},
        "server": {"pid": server, "sent": served[0], "received": served[1]},
    }
    with open(sys.argv[3], "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main()
