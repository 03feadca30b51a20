"""Our own CPU per request row, by stage, on live traffic: drain, split, merge, parse, tables, enrich, Parquet.

    python -m bench.own_cpu [RUNS] [REQUESTS]

HTTP: a client and a server that exchange small requests over keep-alive connections, both traced, so each request gives
two rows. Redis: redis-benchmark, which asks for one key over four connections; PostgreSQL: pgbench with a prepared
statement; both against their own servers, which are not traced: a row each.
Several runs, a fresh process each; printed are median, least and most. Every stage's time is CPU time of its own
thread; what is not in a stage (drain thread, Parquet thread, waking up) stands in `rest`. Loading, attaching, imports
and the end are paid once a trace: each run has a partner of a few requests, whose CPU is taken off and printed apart.
To beat: 20 us a request, the best that is published for an agent, which sees a request at its server; aim: 5 us a row.
Needs root.
"""

import contextlib
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench._gates import Gates, rounds_from, spread
from tests.live import postgresql_server, redis_server

RUNS: Final = 5
REQUESTS: Final = 20_000
CONNECTIONS: Final = 4
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
    ("tracehound.line", "", "split", "split"),
    ("tracehound.batch", "Merge", "push", "merge"),
    ("tracehound.batch", "Merge", "take", "merge"),
    ("tracehound.decode.requests", "Requests", "decode", "parse and pair"),
    ("tracehound.decode.request_rows", "RequestRows", "build", "request table"),
    ("tracehound.decode", "Decoder", "decode", "other tables"),
    ("tracehound.line", "Line", "write", "enrich and redact"),
    ("tracehound.sinks.parquet", "ParquetSink", "write", "recording"),
    ("tracehound.sinks.parquet", "ParquetSink", "flush", "recording"),
)
STAGE_NAMES: Final = tuple(dict.fromkeys(stage for *_, stage in STAGES))
COUNTED: Final = ("requests", "losses")
# what bench `http_cpu` printed of HTTP when there was no other protocol, on a machine as busy as in docs/bench.md
FIRST: Final = {"parse and pair": 7.0, IN_ALL: 14.0}

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


Load = Callable[[int], list[str]]  # how many requests -> a command that makes them


class Case(NamedTuple):
    """A protocol; `load` is None if its server is not installed."""

    name: str
    rows: int  # of each request
    load: Load | None


@contextlib.contextmanager
def redis_load() -> Iterator[Load | None]:
    """Run a server until the end of the block."""
    if not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, redis_server.running_server(Path(folder)) as (_, port):
        command = ["redis-benchmark", "-p", str(port), "-c", str(CONNECTIONS), "-t", "get", "-q"]
        yield lambda requests: [*command, "-n", str(requests)]


@contextlib.contextmanager
def postgresql_load() -> Iterator[Load | None]:
    """Run a server until the end of the block."""
    binaries = postgresql_server.FOLDER
    if binaries is None:
        yield None
        return
    with postgresql_server.running_server() as server, tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\\set x random(1, 100000)\nselect :x::int + 1;\n")
        script.flush()
        command = [str(binaries / "pgbench"), "-n", "-M", "prepared", "-f", script.name, "-c", str(CONNECTIONS)]
        yield lambda requests: [*command, "-t", str(requests // CONNECTIONS), server.url()]


def trace_once(command: list[str]) -> dict[str, int]:
    """Trace one run of a command in this process; return CPU nanoseconds by stage, and counts of rows."""
    import tracehound

    stages = Stages()
    stages.wrap_all()
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time_ns()
        with tracehound.trace(command=command, record=f"{folder}/recording") as trace:
            code = trace.wait()
        whole = time.process_time_ns() - before
        counted = {name: len(getattr(trace, name)) for name in COUNTED}
    if code:
        sys.exit(f"exit {code}: {' '.join(command)}")
    return {**stages.spent, REST: whole - stages.spent.total(), IN_ALL: whole, **counted}


def run_once(command: list[str]) -> dict[str, int]:
    """Do one run in a process of its own; what the command prints is not ours."""
    run = [sys.executable, "-m", "bench.own_cpu", ONE_RUN, *command]
    output = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    found: dict[str, int] = json.loads(output.splitlines()[-1])
    return found


def measure(load: Load, requests: int) -> dict[str, float]:
    """Return us a row by stage without what is paid once a trace, that in ms, and the counts of the rest."""
    few, many = run_once(load(FEW)), run_once(load(requests))
    rows = many["requests"] - few["requests"]
    found: dict[str, float] = {
        name: (value - few.get(name, 0)) / rows / 1000 for name, value in many.items() if name not in COUNTED
    }
    return found | {ONCE: few[IN_ALL] / 1e6, "requests": rows, "losses": many["losses"]}


def print_case(case: Case, load: Load, count: int, requests: int, gates: Gates) -> None:
    """Print a row per stage: us per request row; of HTTP beside what it was at first."""
    runs = [measure(load, requests) for _ in range(count)]
    print(f"{case.name}: {requests} requests, {case.rows} rows each, {count} runs: us a row, median (least to most)")
    for stage in sorted(set(runs[0]) - set(COUNTED), key=[*STAGE_NAMES, REST, IN_ALL, ONCE].index):
        first = f"   at first, HTTP: {FIRST[stage]:g}" if stage in FIRST else ""
        print(f"  {stage:50}{spread([run[stage] for run in runs])}{first}")
    gates.holds(
        f"{case.name}: every run has {case.rows} rows a request and no losses",
        all(run["requests"] == case.rows * (requests - FEW) and run["losses"] == 0 for run in runs),
    )
    whole = statistics.median(run[IN_ALL] for run in runs)
    print(f"{case.name}: {whole:.2f} us a row; aim: {AIM_US:g}")
    if case.name == "HTTP":
        gates.at_most("HTTP: us of own CPU a request seen at one end (a row), median", whole, BEST_PUBLISHED_US)


def main() -> None:
    """Measure every protocol whose server is there."""
    if sys.argv[1:2] == [ONE_RUN]:
        print(json.dumps(trace_once(sys.argv[2:])))
        return
    count = rounds_from(sys.argv, RUNS)
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else REQUESTS
    gates = Gates()
    with redis_load() as redis, postgresql_load() as postgresql:
        cases = (
            Case("HTTP", 2, lambda requests: [sys.executable, "-c", TARGET, str(requests)]),
            Case("Redis", 1, redis),
            Case("PostgreSQL", 1, postgresql),
        )
        for case in cases:
            if case.load is None:
                print(f"{case.name}: its server is not installed")
            else:
                print_case(case, case.load, count, requests, gates)
    gates.exit()


if __name__ == "__main__":
    main()
