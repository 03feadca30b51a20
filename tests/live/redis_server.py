"""A Redis server of a test's own: a free port of loopback, nothing kept, gone at the end."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.live.conftest import free_port

SERVER_S: Final = 60.0


@contextmanager
def running_server(folder: Path) -> Iterator[tuple[int, int]]:
    """Run a server until the end of the block; gives its pid and port."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + SERVER_S
            while not answers(port):
                assert process.poll() is None and time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.02)
            yield process.pid, port
        finally:
            process.terminate()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
