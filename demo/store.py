"""The cache of the demo: a redis-server if one is installed, and as much of a client as `orders` needs."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final

START_S: Final = 10


@contextlib.contextmanager
def redis_server() -> Iterator[str | None]:
    """Run a server that keeps nothing until the end of the block; gives its `host:port`, None if there is none."""
    if shutil.which("redis-server") is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_S
            while not is_listening(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("shop: redis-server does not start")
                time.sleep(0.02)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def is_listening(port: int) -> bool:
    """Tell whether the server answers; the tables of sockets say it without a connection."""
    with open("/proc/net/tcp") as sockets:
        return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in sockets)


class Store:
    """One connection; a context manager."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._replies = self._socket.makefile("rb")

    def ask(self, *words: str) -> bytes | None:
        """Send a command; return its reply, None if there is no such key."""
        parts = [word.encode() for word in words]
        self._socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        line = self._replies.readline().rstrip()
        if line[:1] != b"$":
            return line
        size = int(line[1:])
        return None if size < 0 else self._replies.read(size + 2)[:-2]

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._replies.close()
        self._socket.close()
