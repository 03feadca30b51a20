"""What a function costs while its calls are counted: by `tracehound call --count` and by bpftrace's `@ = count()`.

    python -m bench.call_count [ROUNDS]

A small C program times short loops of calls of one function, always the same process; series are interleaved in one
run and the least of each is taken (noise only adds). Both tools count the calls of that process only, and each says
how many it counted. Needs root and bpftrace.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench._gates import Gates, rounds_from

from tracehound.kernel.plans import PointOptions
from tracehound.kernel.points import find_points
from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged

MIB = 1 << 20
SERIES = ("untraced", "tracehound", "bpftrace")
CALLS = 20_000
TIMINGS = 9
LIMIT = 1.2
PROGRAM = r"""
#include <stdio.h>
#include <time.h>

static volatile long kept;

__attribute__((noinline, noclone)) long counted(long n) { kept += n; return n; }

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

int main(void)
{
	double start;
	int n;

	while (scanf("%d", &n) == 1) {
		start = now();
		for (int i = 0; i < n; i++)
			counted(i);
		printf("%.1f\n", (now() - start) / n);
		fflush(stdout);
	}
	return 0;
}
"""


class Target:
    """The C program, asked for one timing at a time."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self) -> float:
        """Return ns per call, the least of a few timings."""
        assert self.process.stdin and self.process.stdout
        found = []
        for _ in range(TIMINGS):
            print(CALLS, file=self.process.stdin, flush=True)
            found.append(float(self.process.stdout.readline()))
        return min(found)

    def close(self) -> None:
        """End the program."""
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def by_tracehound(target: Target) -> float:
    """Return ns per call while tracehound counts; SystemExit if it miscounts."""
    features = frozenset({"processes", "calls"})
    points = find_points([f"{target.program}:counted"], (target.process.pid,), None, PointOptions(by=()))
    with Privileged(LoadSettings(MIB, MIB, features=features)) as kernel:
        kernel.mark(target.process.pid, TRACE_ON)
        kernel.call_points().add(points, lambda _: None)
        found = target.time()
        check("tracehound", kernel.call_points().counts(0).hits)
    return found


def by_bpftrace(target: Target) -> float:
    """Return ns per call while bpftrace counts; SystemExit if it miscounts."""
    script = f'BEGIN {{ printf("ready\\n"); }} uprobe:{target.program}:counted {{ @ = count(); }}'
    command = ["bpftrace", "-p", str(target.process.pid), "-e", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        said = ""
        while "ready" not in said:
            line = process.stdout.readline()
            if not line:
                sys.exit(f"bpftrace did not start: {said}")
            said += line
        target.time()  # it says so before it is attached everywhere
        found = target.time()
        process.terminate()
        counted = re.search(r"@: (\d+)", process.stdout.read())
    if not counted or int(counted[1]) < CALLS * TIMINGS:
        sys.exit("bpftrace did not count")
    return found


def check(name: str, counted: int) -> None:
    """End the bench if a tool counted other than it was called."""
    if counted != CALLS * TIMINGS:
        sys.exit(f"{name} counted {counted} of {CALLS * TIMINGS} calls")


def main() -> None:
    """Print ns per call of each series, and what counting adds."""
    rounds = rounds_from(sys.argv, 5)
    if os.geteuid() != 0:
        sys.exit("needs root: it loads BPF programs")
    if shutil.which("bpftrace") is None:
        sys.exit("needs bpftrace, to compare with")
    best = dict.fromkeys(SERIES, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "call_count"
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", program], input=PROGRAM, text=True, check=True)
        target = Target(program)
        try:
            ways = {"untraced": Target.time, "tracehound": by_tracehound, "bpftrace": by_bpftrace}
            for round_number in range(rounds):
                for name in random.Random(round_number).sample(SERIES, len(SERIES)):
                    best[name] = min(best[name], ways[name](target))
        finally:
            target.close()
    print(f"least of {rounds} interleaved rounds, ns per call")
    for name, figure in best.items():
        print(f"{name:12}{figure:10.1f}")
    gates = Gates()
    added = [best[name] - best["untraced"] for name in SERIES[1:]]
    gates.at_most("what counting adds to a call, tracehound / bpftrace", added[0] / added[1], LIMIT)
    gates.exit()


if __name__ == "__main__":
    main()
