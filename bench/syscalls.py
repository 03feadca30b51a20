"""What a program pays a system call for being traced: `tracehound call sys:`, strace and perf trace.

    python -m bench.syscalls [ROUNDS]

A program on CPU 0 makes three calls in turn, a read of 64 bytes, an open that fails, getppid, in bursts of 300 every 30
ms, so that no tool has to lose any; tracers run on CPU 1. Measured is the program's own CPU time a call in the bursts
(thread clock), least and median of the slices; series in random order, a program of its own each, and a second
untraced series that shows the noise. Lines go to a file. `--summary`, `strace -c` and `perf trace -s` count only.
A tool that is not installed is left out. Gates: what tracehound adds is at most a tenth of what the others add, with
lines and with counts. Needs root.
"""

import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench._gates import Gates, rounds_from
from bench._tracefs import need_tracefs

SLICES: Final = 5
BURSTS: Final = 8
START_S: Final = 1.5  # what a tool that does not say when it is ready is given
READY_S: Final = 30.0
UNTRACED: Final = "untraced"
AGAIN: Final = "untraced again"
TRACEHOUND: Final = str(Path(sys.executable).parent / "tracehound")
CALL: Final = (TRACEHOUND, "call", "--no-record")
TOOLS: Final = {
    "tracehound lines": [*CALL, "--pid", "PID", "sys:all"],
    "tracehound --paths": [*CALL, "--paths", "--pid", "PID", "sys:all"],
    "tracehound --summary": [*CALL, "--summary", "--pid", "PID", "sys:all"],
    "strace lines": ["strace", "-f", "-p", "PID"],
    "strace -c": ["strace", "-c", "-f", "-p", "PID"],
    "perf trace lines": ["perf", "trace", "-p", "PID"],
    "perf trace -s": ["perf", "trace", "-s", "-p", "PID"],
}
GATES: Final = (
    ("tracehound lines", "strace lines", 0.1),
    ("tracehound lines", "perf trace lines", 0.1),
    ("tracehound --summary", "strace -c", 0.1),
    ("tracehound --summary", "perf trace -s", 0.1),
)
PROOF: Final = "getppid"

# Reads one line a slice, makes so many bursts, prints nanoseconds of CPU a call.
PROGRAM: Final = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int count, char **arguments)
{
	int fd = open("/dev/zero", O_RDONLY), bursts = atoi(arguments[1]);
	char line[64], buffer[64];
	long spent;

	(void)count;
	while (fgets(line, sizeof(line), stdin)) {
		spent = 0;
		for (int burst = 0; burst < bursts; burst++) {
			usleep(30000);
			spent -= now();
			for (int i = 0; i < 100; i++) {
				if (read(fd, buffer, sizeof(buffer)) != 64 || open("/none", O_RDONLY) >= 0)
					return 1;
				syscall(SYS_getppid);
			}
			spent += now();
		}
		printf("%ld\n", spent / (bursts * 300));
		fflush(stdout);
	}
	return 0;
}
"""


class Program:
    """The program on CPU 0."""

    def __init__(self, binary: Path) -> None:
        command = ["taskset", "-c", "0", str(binary), str(BURSTS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def slice_ns(self) -> int:
        """Have it make a slice's calls; return the CPU time of one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(READY_S)


@contextmanager
def traced_by(name: str, pid: int, folder: Path) -> Iterator[None]:
    """Have a tool trace the program. Raises SystemExit if it has not seen its calls in the end, or lost some."""
    output = folder / "output"
    command = [word.replace("PID", str(pid)) for word in TOOLS[name]]
    with output.open("w") as stream:
        tool = subprocess.Popen(["taskset", "-c", "1", *command], stdout=stream, stderr=stream)
    try:
        time.sleep(START_S)
        yield
    finally:
        tool.send_signal(signal.SIGINT)
        tool.wait(READY_S)
    text = output.read_text(errors="replace")
    if PROOF not in text:
        raise SystemExit(f"{name} traced nothing. It said: {text[:300]}")
    lost = re.search(r"^lost: (?!nothing).*|LOST \d+ events.*", text, re.MULTILINE)
    if lost:
        print(f"{name}: {lost[0]}")


def run(binary: Path, folder: Path, series: list[str], rounds: int) -> dict[str, list[int]]:
    """Return the nanoseconds a call of each slice of each series."""
    found: dict[str, list[int]] = {name: [] for name in series}
    for number in range(rounds):
        for position, name in enumerate(random.Random(number).sample(series, len(series))):
            place = folder / f"{number}-{position}"
            place.mkdir()
            program = Program(binary)
            try:
                if name in TOOLS:
                    with traced_by(name, program.process.pid, place):
                        found[name] += [program.slice_ns() for _ in range(SLICES)]
                else:
                    found[name] += [program.slice_ns() for _ in range(SLICES)]
            finally:
                program.close()
    return found


def report(found: dict[str, list[int]]) -> None:
    """Print a row a series, and state the gates."""
    least = {name: min(slices) for name, slices in found.items()}
    base = min(least[UNTRACED], least[AGAIN])
    print(f"{'ns of CPU a call':22}{'least':>8}{'added':>8}{'median':>8}")
    for name, slices in found.items():
        print(f"{name:22}{least[name]:8}{least[name] - base:8}{statistics.median(slices):8.0f}")
    print(f"noise (least of the two untraced series): {abs(least[UNTRACED] - least[AGAIN])} ns")
    gates = Gates()
    for ours, theirs, most in GATES:
        if theirs in found:
            ratio = (least[ours] - base) / (least[theirs] - base)
            gates.at_most(f"CPU added to a call, {ours} / {theirs}", ratio, most)
    gates.exit()


def main() -> None:
    """Measure all that is installed."""
    rounds = rounds_from(sys.argv, 2)
    if os.geteuid() != 0:
        sys.exit("needs root: it loads BPF programs")
    if (os.cpu_count() or 1) < 2:
        sys.exit("needs two CPUs: one for the program, one for the tracers")
    need_tracefs("syscalls")
    absent = [name for name, command in TOOLS.items() if shutil.which(command[0]) is None]
    if absent:
        print(f"left out, not installed: {', '.join(absent)}")
    series = [UNTRACED, AGAIN, *(name for name in TOOLS if name not in absent)]
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "program"
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", binary], input=PROGRAM, text=True, check=True)
        print(f"read, open, getppid in turn, {rounds} rounds of {SLICES} slices of {BURSTS} bursts of 300")
        found = run(binary, Path(folder), series, rounds)
    report(found)


if __name__ == "__main__":
    main()
