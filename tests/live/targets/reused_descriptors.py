"""Connections whose descriptors are used again in every way: `reused_descriptors.py TOLD`.

TOLD gets a JSON list of what happened, in order: `["release", first, last]` when slots were emptied or replaced,
`["first-call", local port, descriptor]` when a connection was written to for the first time. Another process serves.
"""

import array
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

import fresh_port  # type: ignore[import-not-found]  # beside this file

CLOSE_RANGE = 436
SLOTS = 12
LIBC = ctypes.CDLL(None, use_errno=True)
told: list[tuple[str, int, int]] = []
LISTENER = socket.create_server(("127.0.0.1", 0))


def serve() -> None:
    """Read from every connection to its end, forever."""
    import threading

    def drain(connection: socket.socket) -> None:
        with connection:
            while connection.recv(100):
                pass

    while True:
        threading.Thread(target=drain, args=(LISTENER.accept()[0],), daemon=True).start()


def release(first: int, last: int | None = None) -> None:
    told.append(("release", first, first if last is None else last))


def connect() -> tuple[int, int]:
    """Return local port and descriptor of a new connection."""
    connection = fresh_port.connect(LISTENER.getsockname())
    port = connection.getsockname()[1]
    return port, connection.detach()


def use(port: int, descriptor: int) -> None:
    os.write(descriptor, b"x")
    told.append(("first-call", port, descriptor))


def close(descriptor: int) -> None:
    release(descriptor)
    os.close(descriptor)


def close_range(first: int, last: int) -> None:
    release(first, last)
    assert LIBC.syscall(CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(last), 0) == 0


def fill() -> list[int]:
    """Use one connection in each slot, so that what happened before does not matter."""
    opened = [connect() for _ in range(SLOTS)]
    for connection in opened:
        use(*connection)
    return [descriptor for _, descriptor in opened]


def main() -> None:
    signal.alarm(30)
    child = os.fork()
    if child == 0:
        serve()
    slots = fill()
    for descriptor in reversed(slots):
        close(descriptor)
    for _ in range(50):  # the same slot again and again
        port, descriptor = connect()
        use(port, descriptor)
        close(descriptor)

    _, replaced = connect()
    port, other = connect()
    release(replaced)
    os.dup2(other, replaced)
    use(port, replaced)
    port, _ = connect()
    release(other)
    os.dup2(replaced, other, inheritable=False)  # dup3
    os.dup2(other, other)  # changes nothing
    close_range(slots[0], slots[-1])
    close_range(500, 100_000)  # counts for all slots
    port, descriptor = connect()
    copy = os.dup(descriptor)
    use(port, copy)

    ours, theirs = socket.socketpair()
    port, passed = connect()
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed]))])
    _, received, _, _ = socket.recv_fds(theirs, 1, 1)
    close(passed)
    use(port, received[0])
    for end in (ours, theirs):
        close(end.detach())
    close_range(slots[0], slots[-1])
    fill()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    Path(sys.argv[1]).write_text(json.dumps({"pid": os.getpid(), "events": told}))


if __name__ == "__main__":
    main()
