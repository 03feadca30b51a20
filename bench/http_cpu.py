"""Our own CPU per HTTP request row, by stage, on live traffic: drain, split, merge, parse, tables, enrich, Parquet.

    python bench/http_cpu.py [REQUESTS]

Traces a client and a server that exchange small requests over keep-alive connections, so each request gives two rows.
Every stage's time is CPU time of its own thread; what is not in a stage (waiting, wake-ups) stands in `rest`. To beat:
20 us a request, the best that is published for an agent; aim: 5 us. Needs root.
"""

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tracehound.agent as agent
from tracehound.batch import Merge
from tracehound.config import Settings
from tracehound.kernel.ring import Drain
from tracehound.recording import Recording
from tracehound.sinks import kind
from tracehound.target import Command

TARGET = r"""
import socket, sys, threading

REQUEST = (b"GET /orders/%d?customer=7 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n"
           b"Accept-Encoding: gzip\r\nConnection: keep-alive\r\n\r\n")
RESPONSE = (b"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: application/json\r\nContent-Length: 64\r\n\r\n"
            + b"x" * 64)

def serve(connection):
    while connection.recv(65536):
        connection.sendall(RESPONSE)

def call(address, count):
    with socket.create_connection(address) as connection:
        for number in range(count):
            connection.sendall(REQUEST % number)
            connection.recv(65536)

listener = socket.create_server(("127.0.0.1", 0))
clients = [threading.Thread(target=call, args=(listener.getsockname(), int(sys.argv[1]) // 4)) for _ in range(4)]
for client in clients:
    client.start()
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
for client in clients:
    client.join()
"""


class Stages:
    """CPU nanoseconds by stage; a wrapped function's time goes to its stage, minus that of stages inside it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._inside = threading.local()

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Replace `owner.name` by a function that counts its CPU time."""
        original: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            outer = getattr(self._inside, "spent", 0)
            self._inside.spent = 0
            begin = time.thread_time_ns()
            try:
                return original(*arguments, **options)
            finally:
                spent = time.thread_time_ns() - begin
                self.spent[stage] += spent - self._inside.spent
                self._inside.spent = outer + spent

        setattr(owner, name, timed)


def wrap_line(stages: Stages) -> None:
    """Have every stage of the line counted."""
    from tracehound.decode import Decoder
    from tracehound.decode.requests import Requests
    from tracehound.sinks.parquet import ParquetSink

    stages.wrap(agent, "split", "split")
    stages.wrap(Drain, "take", "take")
    stages.wrap(Merge, "push", "merge")
    stages.wrap(Merge, "take", "merge")
    stages.wrap(Requests, "decode", "parse and pair")
    stages.wrap(Requests, "_table", "request table")
    stages.wrap(agent.Line, "_decode", "enrich and redact")
    stages.wrap(Decoder, "decode", "other tables")
    stages.wrap(ParquetSink, "write", "recording")
    stages.wrap(ParquetSink, "flush", "recording")


def main() -> None:
    """Print a row per stage: us per request row."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    stages = Stages()
    wrap_line(stages)
    with tempfile.TemporaryDirectory() as folder:
        command = Command((sys.executable, "-c", TARGET, str(requests)))
        with agent.Trace(command, Settings()) as trace:
            trace.load()
            sink = kind("parquet").open(f"{folder}/recording", agent.recording_source(command))
            before = time.process_time_ns()
            trace.start([sink])
            trace.wait()
            trace.stop()
            sink.close()
            whole = time.process_time_ns() - before
        recording = Recording(Path(folder) / "recording")
        rows = recording.table("requests").num_rows
        lost = recording.table("losses").num_rows
    print(f"{requests} requests, {rows} rows, {lost} loss rows")
    spent = stages.spent | {"rest (drain thread, Parquet thread, start and end)": whole - stages.spent.total()}
    for stage, nanoseconds in spent.items():
        print(f"  {stage:52}{nanoseconds / rows / 1000:8.2f} us a row")
    print(f"  {'in all':52}{whole / rows / 1000:8.2f} us a row, {whole / requests / 1000:.2f} us a request of two rows")


if __name__ == "__main__":
    main()
