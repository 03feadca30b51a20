"""Prints how many bytes so many idle connections take, and their requests: `measure_idle.py CONNECTIONS`.

Each is opened, carries one request with its answer, and is quiet from then on; records in, rows thrown away.
"""

import gc
import os
import sys
from collections.abc import Mapping
from typing import Any

from tests.decode.records import CLIENT, SERVER, Recorder, Socket
from tests.decode.test_requests import HTTP1, get, reply

from tracehound.agent import Line
from tracehound.config import Settings

AT_ONCE = 500


class Nowhere:
    """A sink that counts requests and keeps nothing."""

    def __init__(self) -> None:
        self.requests = 0

    def write(self, tables: Mapping[str, Any]) -> None:
        self.requests += tables["requests"].num_rows if "requests" in tables else 0

    def flush(self) -> None:
        pass

    def take_losses(self) -> None:
        return None

    def close(self) -> None:
        pass


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def feed(line: Line, recorder: Recorder, first: int, count: int) -> None:
    for number in range(first, first + count):
        role = (CLIENT, SERVER)[number % 2]
        socket = Socket(recorder, 100 + number, role, local=(bytes((10, 0, 0, 1)), 1 + number % 65535), verdict=HTTP1)
        socket.open()
        calls = (socket.send, socket.receive) if role == CLIENT else (socket.receive, socket.send)
        calls[0](get(f"/{number}"))
        calls[1](reply(200, b"x" * 100))
    recorder.add("fact_tick", time_ns=recorder.time_ns + 1_000_000_000)
    line.feed(recorder.batch())
    recorder.raw.clear()
    recorder.times.clear()
    line.advance()


def main() -> None:
    connections = int(sys.argv[1])
    sink, recorder = Nowhere(), Recorder()
    line = Line(Settings(), [sink])
    feed(line, recorder, 0, AT_ONCE)  # what is loaded and made once
    before = resident_bytes()
    for first in range(AT_ONCE, AT_ONCE + connections, AT_ONCE):
        feed(line, recorder, first, min(AT_ONCE, AT_ONCE + connections - first))
    print(resident_bytes() - before, sink.requests)


if __name__ == "__main__":
    main()
