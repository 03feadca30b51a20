"""What a copy of the stack costs a traced function, at each call.

    python -m bench.stacks [ROUNDS]

A small C program times short loops of calls of an empty function, always the same process; series are interleaved in
one run and the least of each is taken (noise only adds). All have the same point, without its returns, with its
entry's record in the BPF ring; beside it `76 bytes`: an output through the perf ring with nothing but what BPF gives,
which is 76 bytes with its padding; `8 KiB`: the same with all registers, the call chain and 8 KiB of the stack; `8 KiB
again` shows the noise.
Loops are short enough that no ring fills, for a record that finds no room is cheaper: a round that lost any is left
out. Needs root.
"""

import os
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench._gates import Gates, rounds_from
from bench.calls import drain_of

from tracehound.kernel.call_options import CallOptions
from tracehound.kernel.perf import PAGES_MOST, STACK_BYTES_DEFAULT, ExtraOptions, PerfReader
from tracehound.kernel.points import find_points
from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged
from tracehound.kernel.ring import Drain

MIB: Final = 1 << 20
SERIES: Final = {
    "untraced": None,
    "entry": None,
    "76 bytes": ExtraOptions(),
    "8 KiB": CallOptions(stack_bytes=STACK_BYTES_DEFAULT).extra,
    "8 KiB again": CallOptions(stack_bytes=STACK_BYTES_DEFAULT).extra,
}
CALLS: Final = 300  # of one timing: 2.5 MiB of a ring of 4
TIMINGS: Final = 40
MOST_ADDED: Final = 1.6
PROGRAM: Final = r"""
#include <alloca.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static volatile long kept;

__attribute__((noinline, noclone)) void hook(long n) { kept += n; }

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

static void loop(long n)
{
	double start = now();

	for (long i = 0; i < n; i++)
		hook(i);
	printf("%.1f\n", (now() - start) / n);
	fflush(stdout);
}

int main(void)
{
	char *room = alloca(1 << 16); /* so that there is as much to copy as is asked for */
	long n;

	memset(room, 1, 1 << 16);
	while (scanf("%ld", &n) == 1) {
		loop(n);
		kept += room[n];
	}
	return 0;
}
"""


class Target:
    """The C program, asked for one timing at a time."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self) -> float:
        """Return ns per call."""
        assert self.process.stdin and self.process.stdout
        print(CALLS, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the program."""
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def run_series(name: str, target: Target, program: Path) -> float | None:
    """Return the least ns per call of one series, None if something was lost."""
    extra = SERIES[name]
    if name == "untraced":
        return min(target.time() for _ in range(TIMINGS))
    features = frozenset({"processes", "calls", *({"stacks"} if extra else ())})
    with Privileged(LoadSettings(32 * MIB, 4 * MIB, features=features)) as kernel:
        reader = None if extra is None else PerfReader(kernel.map_fd("call_stacks"), PAGES_MOST, extra)
        try:
            points = [replace(point, returns=()) for point in find_points([f"{program}:hook"])]
            kernel.call_points().add(points, lambda numbered: None)
            with drain_of(kernel) as drain:
                if reader is not None:
                    reader.read_by(drain, 64 * MIB)
                kernel.mark(target.process.pid, TRACE_ON)
                times = [timed(target, drain) for _ in range(TIMINGS)]
                return None if any(kernel.losses()) else min(times)
        finally:
            if reader is not None:
                reader.close()


def timed(target: Target, drain: Drain) -> float:
    """Return one timing, and throw away what it filled the rings with."""
    ns = target.time()
    drain.take()
    return ns


def main() -> None:
    """Print ns per call of each series, and what a stack adds."""
    rounds = rounds_from(sys.argv, 6)
    if os.geteuid() != 0:
        sys.exit("needs root: it loads BPF programs")
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "hooked"
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", program], input=PROGRAM, text=True, check=True)
        target = Target(program)
        try:
            for number in range(rounds):
                for name in random.Random(number).sample(list(SERIES), len(SERIES)):
                    ns = run_series(name, target, program)
                    if ns is not None:
                        best[name] = min(ns, best.get(name, ns))
        finally:
            target.close()
    if best.keys() != SERIES.keys():
        sys.exit("records were lost in every round: this machine is too busy")
    print(f"least of {rounds} interleaved rounds of {TIMINGS} loops, ns per call of the function")
    for name, ns in best.items():
        print(f"{name:16}{ns:10.0f}{ns / best['76 bytes']:10.2f} of 76 bytes")
    gates = Gates()
    largest = max(best["8 KiB"], best["8 KiB again"])
    claim = f"8 KiB of stack / 76 bytes ({largest:.0f} / {best['76 bytes']:.0f} ns), the dearer of two series"
    gates.at_most(claim, largest / best["76 bytes"], MOST_ADDED)
    gates.exit()


if __name__ == "__main__":
    main()
