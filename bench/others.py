"""What a server pays for being traced: by tracehound, strace, perf trace and bpftrace.

    python -m bench.others [ROUNDS]

nginx (one process, on CPU 0) answers small requests on 32 keep-alive connections of a C client, which runs on CPU 1 as
the tracers do. Measured are the server's own CPU time (schedstat) and the tracer's, both per request, in slices of a
quarter of a second; series in random order, a server of its own each; a second untraced series shows the noise. Least
and median of the slices: the least leaves out what others did on this machine meanwhile.

tracehound runs as users do: `tracehound run -- nginx`, every request decoded, nothing kept. The others trace the
server's process only; what they tell is far less: `strace -c` and `perf trace -s` count system calls, bpftrace makes a
histogram of their times. A tool that is not installed is left out (Debian: strace, linux-perf, bpftrace). The client
asks as fast as it can, and shares its CPU with the tracer: fewer requests a second also make each dearer to the server,
which then finds fewer of them at a time. Gates: tracehound adds to a request at most a fifth of what tools add that are
told of every call, as it is. Needs root and nginx.
"""

import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from bench._gates import Gates, rounds_from
from bench._tracefs import need_tracefs

SLICES: Final = 6  # of one series in one round
SLICE_S: Final = 0.25
LEAST_ANSWERS: Final = 64  # two of each connection
START_S: Final = 1.5  # what a tool that does not say when it is ready is given
READY_S: Final = 20.0
SERVER_CPU: Final = "0"
OTHER_CPU: Final = "1"
UNTRACED: Final = "untraced"
AGAIN: Final = "untraced again"
OURS: Final = "tracehound run"
HISTOGRAM: Final = """
BEGIN { printf("ready\\n"); }
tracepoint:raw_syscalls:sys_enter /pid == PID/ { @start[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@start[tid]/ { @ns[args->id] = hist(nsecs - @start[tid]); delete(@start[tid]); }
"""
TOOLS: Final = {  # PID: the server's process
    "strace -c": ["strace", "-c", "-f", "-p", "PID"],
    "perf trace -s": ["perf", "trace", "-s", "-p", "PID"],
    "bpftrace histogram": ["bpftrace", "-e", HISTOGRAM],
}
GATES: Final = {"strace -c": 0.2, "perf trace -s": 0.2}
# what a tool says when it has begun, and what in the end
READY: Final = {"strace -c": "attached", "bpftrace histogram": "ready"}
PROOF: Final = {"strace -c": "epoll_wait", "perf trace -s": "epoll_wait", "bpftrace histogram": "@ns["}

CONFIG: Final = """
daemon off;
master_process off;
pid FOLDER/pid;
error_log /dev/null crit;
events { worker_connections 256; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path FOLDER/a; proxy_temp_path FOLDER/b; fastcgi_temp_path FOLDER/c;
    uwsgi_temp_path FOLDER/d; scgi_temp_path FOLDER/e;
    server { listen 127.0.0.1:PORT; location / { return 200 "an answer of about the size of a small JSON object"; } }
}
"""

# argv: port, ms. Prints how many answers came in that time.
CLIENT: Final = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	static const char request[] = "GET /orders/7?customer=9 HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n";
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct epoll_event events[32], event = {.events = EPOLLIN};
	int epoll = epoll_create1(0), one = 1, count, i;
	char buffer[4096];
	long answers = 0;
	double end;

	address.sin_port = htons(atoi(argv[1]));
	for (i = 0; i < 32; i++) {
		event.data.fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(event.data.fd, (struct sockaddr *)&address, sizeof(address)))
			return 1;
		setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
		if (write(event.data.fd, request, sizeof(request) - 1) < 0)
			return 1;
	}
	end = now() + atoi(argv[2]);
	while (now() < end) {
		count = epoll_wait(epoll, events, 32, 100);
		for (i = 0; i < count; i++) {
			if (read(events[i].data.fd, buffer, sizeof(buffer)) <= 0)
				return 1;
			answers++;
			if (write(events[i].data.fd, request, sizeof(request) - 1) < 0)
				return 1;
		}
	}
	printf("%ld\n", answers);
	return 0;
}
"""


class Slice(NamedTuple):
    """CPU per request of server and tracer, and requests per second."""

    server_us: float
    tool_us: float
    rate: float


class Server:
    """nginx on a port of its own, started by `before`."""

    def __init__(self, folder: Path, before: list[str]) -> None:
        folder.mkdir()
        self.port = free_port()
        config = folder / "nginx.conf"
        config.write_text(CONFIG.replace("FOLDER", str(folder)).replace("PORT", str(self.port)))
        nginx = ["taskset", "-c", SERVER_CPU, "nginx", "-e", "/dev/null", "-c", str(config)]
        self.process = subprocess.Popen(before + nginx, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: bool((folder / "pid").exists() and (folder / "pid").read_text().strip()), "nginx")
        self.pid = int((folder / "pid").read_text())

    def close(self) -> None:
        """End nginx, and with it what started it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self.process.wait(READY_S)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + READY_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not start")
        time.sleep(0.02)


def cpu_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(path.read_text().split()[0])
    return total


@contextmanager
def traced_by(name: str, server: Server, folder: Path) -> Iterator[int]:
    """Have a tool trace the server; yields the tool's pid. Raises SystemExit if it has nothing to tell in the end."""
    output = folder / "output"
    command = [word.replace("PID", str(server.pid)) for word in TOOLS[name]]
    with output.open("w") as stream:
        tool = subprocess.Popen(["taskset", "-c", OTHER_CPU, *command], stdout=stream, stderr=stream)
    try:
        if name in READY:
            wait_until(lambda: READY[name] in output.read_text(), name)
        else:
            time.sleep(START_S)
        yield tool.pid
    finally:
        tool.send_signal(signal.SIGINT)
        tool.wait(READY_S)
    if PROOF[name] not in output.read_text():
        raise SystemExit(f"{name} traced nothing. It said: {output.read_text()[:300]}")


@contextmanager
def running(name: str, folder: Path) -> Iterator[tuple[Server, int | None]]:
    """Start a server of a series, traced by what the series is named after; yields it and the tracer's pid."""
    before = []
    if name == OURS:
        tracehound = str(Path(sys.executable).parent / "tracehound")
        before = ["taskset", "-c", OTHER_CPU, tracehound, "run", "--no-record", "--format", "none", "--"]
    server = Server(folder / "server", before)
    try:
        if name in TOOLS:
            with traced_by(name, server, folder) as tool:
                yield server, tool
        else:
            yield server, server.process.pid if name == OURS else None
    finally:
        server.close()


def measure(client: Path, server: Server, tool: int | None) -> list[Slice]:
    """Load the server for one slice; nothing if it was hardly let run."""
    before = cpu_ns(server.pid), cpu_ns(tool) if tool else 0
    load = ["taskset", "-c", OTHER_CPU, str(client), str(server.port), str(int(SLICE_S * 1000))]
    began = time.monotonic()
    answers = int(subprocess.run(load, check=True, capture_output=True, text=True).stdout)
    elapsed = time.monotonic() - began
    spent = cpu_ns(server.pid) - before[0], (cpu_ns(tool) if tool else 0) - before[1]
    if answers < LEAST_ANSWERS:
        return []
    return [Slice(spent[0] / answers / 1000, spent[1] / answers / 1000, answers / elapsed)]


def run(client: Path, folder: Path, series: list[str], rounds: int) -> dict[str, list[Slice]]:
    """Return the slices of each series."""
    found: dict[str, list[Slice]] = {name: [] for name in series}
    for number in range(rounds):
        for position, name in enumerate(random.Random(number).sample(series, len(series))):
            place = folder / f"{number}-{position}"
            place.mkdir()
            with running(name, place) as (server, tool):
                measure(client, server, tool)  # warms up
                for _ in range(SLICES):
                    found[name] += measure(client, server, tool)
    return found


def report(found: dict[str, list[Slice]]) -> None:
    """Print a row a series, and state the gates."""
    least = {name: min(one.server_us for one in slices) for name, slices in found.items()}
    base = min(least[UNTRACED], least[AGAIN])
    print(f"{'us of CPU a request':22}{'server':>8}{'added':>8}{'median':>8}{'tracer':>8}{'requests/s':>12}")
    for name, slices in found.items():
        middle = statistics.median(one.server_us for one in slices)
        tool = statistics.median(one.tool_us for one in slices)
        rate = statistics.median(one.rate for one in slices)
        print(f"{name:22}{least[name]:8.2f}{least[name] - base:8.2f}{middle:8.2f}{tool:8.2f}{rate:12.0f}")
    print(f"noise (least of the two untraced series): {abs(least[UNTRACED] - least[AGAIN]):.2f} us")
    gates = Gates()
    for name in found:
        if name in GATES:
            ratio = (least[OURS] - base) / (least[name] - base)
            gates.at_most(f"CPU added to the server a request, {OURS} / {name}", ratio, GATES[name])
    gates.exit()


def main() -> None:
    """Measure all that is installed."""
    rounds = rounds_from(sys.argv, 3)
    if os.geteuid() != 0:
        sys.exit("needs root: it loads BPF programs")
    if (os.cpu_count() or 1) < 2:
        sys.exit("needs two CPUs: one for the server, one for the rest")
    need_tracefs("others")
    absent = [name for name, command in TOOLS.items() if shutil.which(command[0]) is None]
    if absent:
        print(f"left out, not installed: {', '.join(absent)}")
    series = [UNTRACED, AGAIN, OURS, *(name for name in TOOLS if name not in absent)]
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder) / "client"
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", client], input=CLIENT, text=True, check=True)
        print(f"nginx, 32 keep-alive connections, {rounds} rounds of {SLICES} slices of {SLICE_S:g} s")
        found = run(client, Path(folder), series, rounds)
    report(found)


if __name__ == "__main__":
    main()
