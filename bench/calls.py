"""What tracing costs a program per system call: captured calls, filter misses, calls that are not of sockets.

    python -m bench.calls [ROUNDS]

A small C program times short loops of calls, always the same process; series are interleaved in one run and the least
of each is taken (noise only adds). `untraced` twice shows the noise. `bystander`: the programs are loaded and trace
another process; its getppid is to cost no more than the noise. `traced`: they trace this one. The kernel's own count of
time in each program (bpf_stats, which adds about 40 ns to a run) stands beside it, for that is below the noise of a
loopback send. Needs root.
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench._gates import Gates, rounds_from

from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged
from tracehound.kernel.ring import Drain

MIB = 1 << 20
SERIES = ("untraced", "untraced again", "bystander", "traced")
CASES = (("getppid", 0), ("send+receive 64 B", 64), ("send+receive 4 KiB", 4096))
SLICE = {0: 20_000, 64: 1_000, 4096: 1_000}  # calls of one timing: short, so that some are not interrupted
TIMINGS = 5
FOREIGN_RUNS = 1.02  # runs, of ours: the programs run for every process, and a miss is cheap
LEAST_NOISE = 0.03  # two series agree no better than this, whatever they say of each other
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
PROGRAM = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server;
	static char buffer[4096] = "GET / HTTP/1.1\r\n\r\n"; /* what is recognised is captured whole */
	int one = 1, size, n, i;
	double start;

	bind(listener, (struct sockaddr *)&address, sizeof(address));
	listen(listener, 1);
	getsockname(listener, (struct sockaddr *)&address, &length);
	connect(client, (struct sockaddr *)&address, sizeof(address));
	server = accept(listener, NULL, NULL);
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (scanf("%d %d", &size, &n) == 2) {
		start = now();
		for (i = 0; i < n; i++) {
			if (!size)
				syscall(SYS_getppid);
			else if (write(client, buffer, size) != size || read(server, buffer, size) <= 0)
				return 1;
		}
		printf("%.1f\n", (now() - start) / n);
		fflush(stdout);
	}
	return 0;
}
"""


class Target:
    """The C program, asked for one timing at a time."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, size: int, calls: int) -> float:
        """Return ns per call (or per send and receive of `size` bytes)."""
        assert self.process.stdin and self.process.stdout
        print(size, calls, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the program."""
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def empty(drain: Drain, stop: threading.Event) -> None:
    """Throw away what the drain has, as fast as decode never will: the bench is of the kernel side."""
    while not stop.wait(0.005):
        drain.take()


def measure(program: Path, rounds: int) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """Return the least ns of each (series, case), and the least ns that the kernel counted in a program's run."""
    best: dict[tuple[str, str], float] = {}
    inside: dict[tuple[str, str], float] = {}
    target, other = Target(program), Target(program)
    try:
        for round_number in range(rounds):
            for series in random.Random(round_number).sample(SERIES, len(SERIES)):
                times, runs = run_series(series, target, other)
                for found, kept in ((times, best), (runs, inside)):
                    for case, figure in found.items():
                        kept[series, case] = min(figure, kept.get((series, case), figure))
    finally:
        target.close()
        other.close()
    return best, inside


def run_series(series: str, target: Target, other: Target) -> tuple[dict[str, float], dict[str, float]]:
    """Time every case once for one series; `other` is what is traced when `target` is a bystander."""
    if series.startswith("untraced"):
        return time_cases(target), {}
    stop = threading.Event()
    with Privileged(LoadSettings(32 * MIB, 4 * MIB)) as kernel, drain_of(kernel) as drain:
        kernel.mark((target if series == "traced" else other).process.pid, TRACE_ON)
        worker = threading.Thread(target=empty, args=(drain, stop))
        worker.start()
        try:
            times = time_cases(target)
            with counted_runs():
                runs = {name: run_ns(kernel, target, size) for name, size in CASES if size}
            return ({}, {}) if any(kernel.losses()) else (times, runs)  # what finds no room is cheaper
        finally:
            stop.set()
            worker.join()


def time_cases(target: Target) -> dict[str, float]:
    """Return the least ns of each case of several timings."""
    return {name: min(target.time(size, SLICE[size]) for _ in range(TIMINGS)) for name, size in CASES}


@contextmanager
def counted_runs() -> Iterator[None]:
    """Have the kernel count the time in BPF programs."""
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(before)


def run_ns(kernel: Privileged, target: Target, size: int) -> float:
    """Return ns per run of on_send and on_receive, by the kernel's count; inf if others sent much meanwhile."""
    calls, before = 3 * SLICE[size], kernel.runs()
    target.time(size, calls)
    after = kernel.runs()
    names = ("on_send", "on_receive")
    runs = sum(after[name].hits - before[name].hits for name in names)
    spent_ns = sum(after[name].run_time_ns - before[name].run_time_ns for name in names)
    return spent_ns / runs if runs <= 2 * calls * FOREIGN_RUNS else float("inf")


def drain_of(kernel: Privileged) -> Drain:
    """Return a drain over both rings."""
    fds = kernel.ring_fds()
    return Drain([(fds["lifecycle"], 4 * MIB, 1), (fds["data"], 32 * MIB, 2)], limit_map_fd=-1)


def main() -> None:
    """Print a row per case: ns of each series, and what tracing adds to one call."""
    rounds = rounds_from(sys.argv, 15)
    if os.geteuid() != 0:
        sys.exit("needs root: it loads BPF programs")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "calls"
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", program], input=PROGRAM, text=True, check=True)
        best, inside = measure(program, rounds)
    if ("traced", "getppid") not in best:
        sys.exit("records were lost in every round: this machine is too busy")
    print(f"least of {rounds} interleaved rounds, ns per call (getppid) or per pair of send and receive")
    print(f"{'':22}" + "".join(f"{series:>16}" for series in SERIES))
    for name, _ in CASES:
        print(f"{name:22}" + "".join(f"{best[series, name]:16.0f}" for series in SERIES))
    print("the kernel's count, ns per run of on_send or on_receive (bpf_stats' own 40 ns included)")
    for name, size in CASES:
        if size:
            miss, captured = inside["bystander", name], inside["traced", name]
            print(f"{name:22}{'filter miss':>16}{miss:8.0f}{'captured':>16}{captured:8.0f}")
    series = [best[name, "getppid"] for name in SERIES[:2]]
    noise = max(series) / min(series) - 1
    print(f"noise of getppid (second untraced series): +-{noise:.3f}")
    gates = Gates()
    ratio = best["bystander", "getppid"] / max(series)
    gates.at_most("getppid of a bystander / untraced, the dearer of two series", ratio, 1 + max(noise, LEAST_NOISE))
    gates.exit()


if __name__ == "__main__":
    main()
