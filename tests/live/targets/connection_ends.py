"""Every way in which a connection ends, by name: `connection_ends.py RESULT`.

RESULT gets, for each name, the ports of both ends and the process that has them; `left_open` stays open in a process
(`holder`) that outlives this one for a few seconds.
"""

import errno
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path

told: dict[str, dict[str, int]] = {}
kept: list[socket.socket] = []


def pair(name: str) -> tuple[socket.socket, socket.socket]:
    """Return client and server end of a new connection on a new listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), 10)
        server, address = listener.accept()
    told[name] = {"client": address[1], "server": server.getsockname()[1], "pid": os.getpid()}
    return client, server


def refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    kept.append(socket.socket())
    kept[-1].bind(("127.0.0.1", port))  # so that no later listener is given it
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    told["refused"] = {"server": port, "pid": os.getpid()}


def reset() -> None:
    client, server = pair("reset")
    client.sendall(b"before the reset")
    assert server.recv(100) == b"before the reset"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    try:
        raise SystemExit(f"no reset but {server.recv(1)!r}")
    except ConnectionResetError:
        server.close()


def idle() -> None:
    """Nothing is ever sent; the client closes, then the server."""
    client, server = pair("idle")
    client.close()
    assert server.recv(1) == b""
    server.close()


def half_closed() -> None:
    client, server = pair("half_closed")
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    while server.recv(100):
        pass
    server.sendall(b"the answer")
    server.close()
    while client.recv(100):
        pass
    client.close()


def ended_by_exit() -> None:
    """No close(2): the process that has both ends just exits."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        client, server = pair("ended_by_exit")
        client.sendall(b"12345")
        server.recv(5)
        os.write(writable, json.dumps(told["ended_by_exit"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    told["ended_by_exit"] = json.loads(os.read(readable, 4096))


def left_open() -> None:
    """A child that outlives this process keeps both ends."""
    client, server = pair("left_open")
    client.sendall(b"abc")
    server.recv(3)
    holder = os.fork()
    if holder == 0:
        signal.alarm(8)  # its end
        signal.pause()
    told["left_open"]["holder"] = holder


def main() -> None:
    signal.alarm(30)
    for end in (refused, reset, idle, half_closed, ended_by_exit, left_open):
        end()
    Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
