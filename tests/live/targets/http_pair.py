"""A client and a server process that move bytes exactly as told: `http_pair.py SCENARIOS RESULT`.

SCENARIOS is a JSON list of `[name, client steps, server steps]`; each is one connection, one after another. Steps:
`["send", text, cuts]`, `["receive", size, cuts]` (cuts: piece size, 0 = whole, or a list of positions), `["eof"]`,
`["shutdown"]`, `["close"]`, `["reset"]`, `["sleep", seconds]`, `["sendfile", size]`, `["mark", label]`,
`["drain", size, seconds per MiB]`. Text is latin-1. RESULT gets pids, the listener's port, and for each scenario the
client's port and the marks (CLOCK_MONOTONIC) of both.
"""

import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator

import fresh_port  # type: ignore[import-not-found]  # beside this file

Step = list[object]
Marks = dict[str, int]


def pieces(size: int, cuts: object) -> Iterator[tuple[int, int]]:
    """Yield start and end of each piece of `size` bytes."""
    if isinstance(cuts, int):
        positions = list(range(cuts, size, cuts)) if cuts else []
    else:
        assert isinstance(cuts, list)
        positions = [cut for cut in cuts if 0 < cut < size]
    yield from zip([0, *positions], [*positions, size], strict=True)


def receive_exactly(connection: socket.socket, size: int) -> None:
    while size:
        data = connection.recv(size)
        assert data, f"end of stream, {size} bytes early"
        size -= len(data)


def receive_to_end(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass


def drain(connection: socket.socket, size: int, pause_s: float) -> None:
    """Read `size` bytes with a pause after each MiB."""
    buffer = memoryview(bytearray(1 << 18))
    got = 0
    while got < size:
        before = got
        got += connection.recv_into(buffer[: size - got])
        assert got > before, "end of stream too early"
        if before >> 20 != got >> 20:
            time.sleep(pause_s)


def send_file(connection: socket.socket, size: int) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        sent = 0
        while sent < size:
            sent += os.sendfile(connection.fileno(), file.fileno(), sent, size - sent)


def play(connection: socket.socket, steps: list[Step]) -> Marks:
    marks: Marks = {}
    connection.settimeout(20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, *arguments in steps:
        match name, arguments:
            case "send", [str(text), cuts]:
                data = text.encode("latin-1")
                for start, end in pieces(len(data), cuts):
                    connection.sendall(data[start:end])
            case "receive", [int(size), cuts]:
                for start, end in pieces(size, cuts):
                    receive_exactly(connection, end - start)
            case "eof", []:
                receive_to_end(connection)
            case "shutdown", []:
                connection.shutdown(socket.SHUT_WR)
            case "close", []:
                connection.close()
            case "reset", []:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            case "sleep", [int() | float() as seconds]:
                time.sleep(seconds)
            case "sendfile", [int(size)]:
                connection.setblocking(True)
                send_file(connection, size)
            case "drain", [int(size), int() | float() as pause_s]:
                drain(connection, size, pause_s)
            case "mark", [str(label)]:
                marks[label] = time.monotonic_ns()
            case _:
                raise SystemExit(f"no such step: {name} {arguments}")
    return marks


def serve(listener: socket.socket, scenarios: list[tuple[str, list[Step], list[Step]]], out: int) -> None:
    """Play the server's part of every scenario; after its steps, read to the end of the stream."""
    told = {}
    for name, _, steps in scenarios:
        connection, _ = listener.accept()
        with connection:
            told[name] = play(connection, steps)
            if connection.fileno() >= 0:
                receive_to_end(connection)
    with os.fdopen(out, "w") as pipe:
        json.dump(told, pipe)


def main() -> None:
    signal.alarm(90)
    with open(sys.argv[1]) as file:
        scenarios = json.load(file)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    readable, writable = os.pipe()
    server = os.fork()
    if server == 0:
        signal.alarm(90)
        serve(listener, scenarios, writable)
        os._exit(0)
    listener.close()
    os.close(writable)
    client_marks, client_ports = {}, {}
    for name, steps, _ in scenarios:
        with fresh_port.connect(("127.0.0.1", port)) as connection:
            client_ports[name] = connection.getsockname()[1]
            client_marks[name] = play(connection, steps)
    with os.fdopen(readable) as pipe:
        server_marks = json.load(pipe)
    _, status = os.waitpid(server, 0)
    assert status == 0, f"the server ended with {status}"
    with open(sys.argv[2], "w") as file:
        json.dump(
            {
                "pids": {"client": os.getpid(), "server": server},
                "port": port,
                "ports": client_ports,
                "marks": {"client": client_marks, "server": server_marks},
            },
            file,
        )


if __name__ == "__main__":
    main()
