"""Prints how many bytes so many idle connections take, and their requests: `measure_idle.py CONNECTIONS [PROTOCOL]`.

Each is one end of a talk whose both ends are traced, of processes with names: it is opened, carries one request with
its answer, and is quiet from then on. Records in; the rows go to the summary alone, as without a recording.
"""

import gc
import os
import sys
from collections.abc import Mapping
from typing import Any

from tests.decode.records import CLIENT, SERVER, Recorder, Socket
from tests.decode.test_requests import get, reply

from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.config import Settings
from tracehound.line import Line
from tracehound.procfs import FactWriter, ProcessFacts
from tracehound.sinks._summary import Summary

AT_ONCE = 500
CALLER, SERVED = 100, 200  # pids
PROTOCOL = sys.argv[2] if __name__ == "__main__" and len(sys.argv) > 2 else "http1"
VERDICT = wire_layout().enum("l7_protocol")[f"L7_{PROTOCOL.upper()}"]


def talk(number: int) -> tuple[bytes, bytes]:
    """Return a request and its answer."""
    if PROTOCOL == "redis":
        key = b"key:%d" % number
        return b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key), b"$100\r\n" + b"x" * 100 + b"\r\n"
    if PROTOCOL == "postgresql":  # joined after its startup
        text = b"select name from things where id = %d\0" % number
        ready = b"C\0\0\0\rSELECT 1\0Z\0\0\0\x05I"
        return b"Q" + (len(text) + 4).to_bytes(4, "big") + text, b"D\0\0\0\x0b\0\1\0\0\0\1x" + ready
    return get(f"/{number}"), reply(200, b"x" * 100)


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
    """Open so many sockets, both ends of a talk one after another, and let them have their request."""
    for number in range(first, first + count, 2):
        near, far = (bytes((10, 0, number >> 16, 1)), 1 + number % 65535), (bytes((10, 1, 0, 1)), 80)
        bases = (1000 + number, 5000 + number)
        client = Socket(recorder, 100 + number, CLIENT, near, far, bases, CALLER, CALLER, verdict=VERDICT)
        server = Socket(recorder, 101 + number, SERVER, far, near, bases[::-1], SERVED, SERVED, verdict=VERDICT)
        request, response = talk(number)
        client.open().send(request)
        server.open().receive(request)
        server.send(response)
        client.receive(response)
    recorder.add("fact_tick", time_ns=recorder.time_ns + 1_000_000_000)
    line.feed(recorder.batch())
    recorder.raw.clear()
    recorder.times.clear()
    line.advance()


def name_processes(line: Line) -> None:
    """Let the two processes be known, so that ends of connections have names."""
    facts = FactWriter(line.layout)
    for pid, name in ((CALLER, b"shop"), (SERVED, b"orders")):
        ProcessFacts(pid, 1, 1, pid, 0, name, b"/usr/bin/" + name, name + b"\0", b"", b"").add_to(facts, 1)
    line.feed(split(facts.take(), line.layout))


def main() -> None:
    sockets = int(sys.argv[1])
    rows, summary, recorder = Nowhere(), Summary(), Recorder()
    line = Line(Settings(), [rows, summary])
    name_processes(line)
    feed(line, recorder, 0, AT_ONCE)  # what is loaded and made once
    before = resident_bytes()
    for first in range(AT_ONCE, AT_ONCE + sockets, AT_ONCE):
        feed(line, recorder, first, min(AT_ONCE, AT_ONCE + sockets - first))
    after = resident_bytes()
    summary.close()
    assert [(group.name, group.peer) for group in summary.calls.groups] == [("shop", "orders")]
    print(after - before, rows.requests)


if __name__ == "__main__":
    main()
