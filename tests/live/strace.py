"""A program under strace and under tracehound, as lines without what differs from run to run."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracehound.agent import Trace
from tracehound.cli._syscalls import call_text
from tracehound.config import Settings
from tracehound.kernel.syscalls import Wishes
from tracehound.syscalls import SyscallSettings, find_calls
from tracehound.target import Command

Threads = list[list[str]]  # lines of each

LIMIT = 32
TIMES = re.compile(r"tv_sec=\d+, tv_([nu])sec=\d+")
NUMBER = re.compile(r"\b\d+\b")
ADDRESS = re.compile(r"0x[0-9a-f]{5,16}")

# Calls whose numbers are those of the moment or of the machine: each is N.
MOMENTARY = ("sysinfo", "statfs", "fstatfs", "times", "getrusage", "gettimeofday", "clock_gettime", "time", "wait4",
             "waitid",
             "sched_getaffinity", "sched_setaffinity", "getitimer", "getpriority")  # fmt: skip
# Calls whose first argument, or whose result, is an id that the kernel makes anew each time.
MADE_ANEW = ("shmat", "shmctl", "semop", "semctl", "semtimedop", "msgsnd", "msgrcv", "msgctl")
MAKE = ("shmget", "semget", "msgget", "setpgid", "getppid", "getsid", "getpgid")


class Kept:
    """A sink that keeps the rows of `calls` and what was lost."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.losses: list[dict[str, Any]] = []

    def write(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        for name, kept in (("calls", self.rows), ("losses", self.losses)):
            if name in tables:
                kept += tables[name].to_pylist()

    def flush(self) -> None:
        pass

    def take_losses(self) -> None:
        return None

    def close(self) -> None:
        pass


def by_tracehound(command: Sequence[str], names: str = "all", **copied: Any) -> tuple[Kept, Trace]:
    """Run a command under tracehound; return its rows, and the trace when it has ended."""
    wishes = Wishes(tuple(find_calls(names)), SyscallSettings(**({"limit": LIMIT, "with_data": True} | copied)))
    kept = Kept()
    with Trace(
        Command(tuple(command)), Settings(redact=False), frozenset({"processes", "syscalls"}), syscalls=wishes
    ) as trace:
        trace.load()
        trace.start([kept])
        trace.wait()
        trace.stop()
    return kept, trace


def by_strace(command: Sequence[str], folder: Path) -> dict[int, list[str]]:
    """Run a command under strace; return the lines of each thread."""
    folder.mkdir()
    subprocess.run(["strace", "-ff", "-s", str(LIMIT), "-o", str(folder / "t"), *command], check=False, timeout=60)
    return {int(path.suffix[1:]): path.read_text().splitlines() for path in folder.iterdir()}


def lines_of(rows: Sequence[Mapping[str, Any]]) -> dict[int, list[str]]:
    """Return rows as lines of each thread, in the order in which the calls began."""
    found: dict[int, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["entry_ns"]):
        found.setdefault(row["tid"], []).append(call_text(row))
    return found


def normalised(one: Mapping[int, Sequence[str]], other: Mapping[int, Sequence[str]]) -> tuple[Threads, Threads]:
    """Return the lines of each thread of two runs, in the order of their ids, with what is of one run replaced.

    The id of a thread is what the two do not have alike: by chance a size or an inode is the same number.
    """
    plain = [[[_line(line, {}) for line in _calls(run[tid])] for tid in sorted(run)] for run in (one, other)]
    alike = [frozenset(a) & frozenset(b) for a, b in zip(*plain, strict=False)]
    made = []
    for run, kept in zip((one, other), plain, strict=True):
        tids = {str(tid): f"T{at}" for at, tid in enumerate(sorted(run))}
        both = alike + [frozenset[str]()] * (len(kept) - len(alike))
        made.append(
            [
                [line if line in same else _line(raw, tids) for line, raw in zip(lines, _calls(run[tid]), strict=True)]
                for tid, lines, same in zip(sorted(run), kept, both, strict=True)
            ]
        )
    return made[0], made[1]


def _calls(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not line.startswith(("---", "+++"))]


def _line(line: str, tids: Mapping[str, str]) -> str:
    line = re.sub(r"\) += ", ") = ", line)
    name = line.split("(")[0]
    line = re.sub(r"\b\d+\b", lambda found: tids.get(found[0], found[0]), line)
    line = ADDRESS.sub("ADDR", line)
    line = re.sub(r'"[0-9a-f]{12}-[0-9a-f]{12} [^"]*"', '"MAPS"', line)
    line = re.sub(r"htons\(\d{5}\)", "htons(PORT)", line)
    line = re.sub(r"left \{[^}]*\}", "left T", line)
    if name in ("clock_nanosleep", "nanosleep") and "ERESTART" in line:
        line = TIMES.sub("T", line)
    if name in MAKE:
        line = re.sub(r"= \d+$", "= N", line)
    if name in MADE_ANEW:
        line = re.sub(r"\(\d+", "(N", line)
    if name == "getrandom":
        line = re.sub(r"(\\x[0-9a-f]{2})+", "BYTES", line)
    if name in MOMENTARY:
        line = NUMBER.sub("N", line)
    return line


def fresh(folder: Path) -> Path:
    """Return a folder, emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
