"""Our own CPU per HTTP request row, by stage, on live traffic: drain, split, merge, parse, tables, enrich, Parquet.

    python -m bench.http_cpu [RUNS] [REQUESTS]

Traces a client and a server that exchange small requests over keep-alive connections, so each request gives two rows.
Several runs, a fresh process each; printed are median, least and most. Every stage's time is CPU time of its own
thread; what is not in a stage (drain thread, Parquet thread, waking up) stands in `rest`. Loading, attaching, imports
and the end are paid once a trace: each run has a partner of a few requests, whose CPU is taken off and printed apart.
To beat: 20 us a request, the best that is published for an agent, which sees a request at its server; aim: 5 us a row.
Needs root.
"""

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from bench._gates import Gates, rounds_from, spread

RUNS: Final = 5
REQUESTS: Final = 20_000
FEW: Final = 40  # requests of a run that is all start and end
BEST_PUBLISHED_US: Final = 20.0
AIM_US: Final = 5.0
IN_ALL: Final = "in all"
REST: Final = "rest (drain thread, Parquet thread, waking up)"
ONCE: Final = "once a trace, ms"
ONE_RUN: Final = "one-run"
# module, class or "", function, the stage that its time is
STAGES: Final = (
    ("tracehound.kernel.ring", "Drain", "take", "take"),
    ("tracehound.agent", "", "split", "split"),
    ("tracehound.batch", "Merge", "push", "merge"),
    ("tracehound.batch", "Merge", "take", "merge"),
    ("tracehound.decode.requests", "Requests", "decode", "parse and pair"),
    ("tracehound.decode.request_rows", "RequestRows", "build", "request table"),
    ("tracehound.decode", "Decoder", "decode", "other tables"),
    ("tracehound.agent", "Line", "write", "enrich and redact"),
    ("tracehound.sinks.parquet", "ParquetSink", "write", "recording"),
    ("tracehound.sinks.parquet", "ParquetSink", "flush", "recording"),
)
STAGE_NAMES: Final = tuple(dict.fromkeys(stage for *_, stage in STAGES))
COUNTED: Final = ("requests", "losses")

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

    def wrap_all(self) -> None:
        """Have every stage of the line counted."""
        for module, owner, name, stage in STAGES:
            found = importlib.import_module(module)
            self._wrap(getattr(found, owner) if owner else found, name, stage)

    def _wrap(self, owner: Any, name: str, stage: str) -> None:
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


def trace_once(requests: int) -> dict[str, int]:
    """Trace one run of the target in this process; return CPU nanoseconds by stage, and counts of rows."""
    import tracehound

    stages = Stages()
    stages.wrap_all()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TARGET, str(requests)]
        before = time.process_time_ns()
        with tracehound.trace(command=command, record=f"{folder}/recording") as trace:
            trace.wait()
        whole = time.process_time_ns() - before
        counted = {name: len(getattr(trace, name)) for name in COUNTED}
    return {**stages.spent, REST: whole - stages.spent.total(), IN_ALL: whole, **counted}


def run_once(requests: int) -> dict[str, int]:
    """Do one run in a process of its own."""
    run = [sys.executable, "-m", "bench.http_cpu", ONE_RUN, str(requests)]
    found: dict[str, int] = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    return found


def measure(requests: int) -> dict[str, float]:
    """Return us a row by stage without what is paid once a trace, that in ms, and the counts."""
    few, many = run_once(FEW), run_once(requests)
    rows = many["requests"] - few["requests"]
    found: dict[str, float] = {
        name: (value - few.get(name, 0)) / rows / 1000 for name, value in many.items() if name not in COUNTED
    }
    return found | {ONCE: few[IN_ALL] / 1e6} | {name: many[name] for name in COUNTED}


def main() -> None:
    """Print a row per stage: us per request row."""
    if sys.argv[1:2] == [ONE_RUN]:
        print(json.dumps(trace_once(int(sys.argv[2]))))
        return
    count = rounds_from(sys.argv, RUNS)
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else REQUESTS
    runs = [measure(requests) for _ in range(count)]
    print(f"{requests} requests, two rows each, {count} runs: us a row, median (least to most)")
    for stage in sorted(set(runs[0]) - set(COUNTED), key=[*STAGE_NAMES, REST, IN_ALL, ONCE].index):
        print(f"  {stage:50}{spread([run[stage] for run in runs])}")
    gates = Gates()
    gates.holds(
        f"every run has {2 * requests} rows and no losses",
        all(run["requests"] == 2 * requests and run["losses"] == 0 for run in runs),
    )
    whole = [run[IN_ALL] for run in runs]
    print(f"a request traced at both ends is two rows: {2 * statistics.median(whole):.2f} us; aim: {AIM_US:g} us a row")
    gates.at_most(
        "us of own CPU a request seen at one end (a row), median", statistics.median(whole), BEST_PUBLISHED_US
    )
    gates.exit()


if __name__ == "__main__":
    main()
