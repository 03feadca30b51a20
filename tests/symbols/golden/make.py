"""Writes the golden samples: registers, stack and the rows that matter of waiting programs, stacks as gdb says.

    python -m tests.symbols.golden.make [BUILD ...]

Run where gdb is; replayed by tests/symbols/test_unwind.py without gdb, compiler and programs.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from tests.symbols.conftest import GO
from tests.symbols.stopped import FOLDER, Captured, capture, compile_program, gdb_stack, waiting
from tests.symbols.test_real_stacks import ENDS, SCRIPT

from tracehound.decode.stack_scrub import NOT_ZERO, Code
from tracehound.symbols import ehframe
from tracehound.symbols.unwind import FRAME_RETURN, RANGE, Stacks, Status, unwind

HERE = Path(__file__).parent
BYTES = 4096
LONG = 16384
BUILDS = {
    "nofp": ("calls.c", "-O2", "-fomit-frame-pointer"),
    "fp": ("calls.c", "-O1", "-fno-omit-frame-pointer"),
    "static": ("calls.c", "-O2", "-static"),
    "cpp": ("exceptions.cpp", "-O2"),
}
SAMPLES = (
    *(("nofp", way) for way in ("recursion", "alloca", "realigned", "tail_call", "qsort", "thread", "signal")),
    ("fp", "recursion"), ("static", "qsort"), ("static", "fault"), ("cpp", "destructor"),
)  # fmt: skip


def needed_rows(captured: Captured, found: Stacks) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, ranges) of one table that holds a row for each frame, with pcs from the lowest range."""
    kept, ranges = [], []
    for address, kind in zip(found.addresses[0, : found.depths[0]].tolist(), found.kinds[0].tolist(), strict=False):
        named = address - (kind & FRAME_RETURN)
        one = next(one for one in captured.ranges.tolist() if one[0] <= named < one[1])
        rule, offset, rbp = captured.tables[one[3]].at(named - one[2]) if one[3] >= 0 else (ehframe.GAP, 0, 0)
        kept.append((named, offset, rule, rbp))
    kept = sorted(set(kept))
    rows = np.array([(at, *rest) for at, (_, *rest) in enumerate(kept)], dtype=ehframe.ROW)
    for at, (named, *_) in enumerate(kept):  # a range of one byte each, so that nothing else is covered
        ranges.append((named, named + 1, named - at, 0))
    return rows, np.array(ranges, dtype=RANGE)


def without_values(stack: bytes, sp: int, ranges: np.ndarray) -> np.ndarray:
    """Return a stack in which only addresses of frames and of the stack are left: the rest is of this machine."""
    words = np.frombuffer(stack, "<u8", len(stack) // 8).copy()
    stays = Code(ranges["start"], ranges["end"]).holds(words)
    stays |= (words >= np.uint64(sp)) & (words - np.uint64(sp) < np.uint64(len(stack)))
    words[~stays & (words != 0)] = NOT_ZERO
    return words.view(np.uint8)


def others(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Return commands of programs in other languages."""
    rust, go = str(folder / "rust"), str(folder / "go")
    subprocess.run(["rustc", "-O", "--edition=2021", "-o", rust, str(FOLDER / "stacks.rs")], check=True)
    subprocess.run([str(GO), "build", "-o", go, str(FOLDER / "stacks.go")], check=True)
    python = ["/usr/bin/python3", "-c", SCRIPT + ENDS["main"]]
    return {("rust", "sort"): [rust], ("go", "sort"): [go], ("cpython", "native"): python}


def main() -> None:
    """Write all, or end with what differs."""
    folder = Path(tempfile.mkdtemp())
    programs = {name: compile_program(folder, *source) for name, source in BUILDS.items()}
    commands = {(build, way): [str(programs[build]), way] for build, way in SAMPLES} | others(folder)
    wanted = set(sys.argv[1:])
    for (build, way), command in commands.items():
        if wanted and build not in wanted:
            continue
        with waiting(Path(command[0]), *command[1:]) as (pid, tid):
            captured = capture(pid, tid, LONG if build == "cpython" else BYTES)
            expected = [address for address in gdb_stack(pid, tid) if address]  # Go's outermost returns to 0
        found = unwind(captured.tables, captured.ranges, captured.samples, captured.stack)
        if found.addresses[0, : found.depths[0]].tolist() != expected[: found.depths[0]]:
            sys.exit(f"{build} {way}: not as gdb has it")
        rows, ranges = needed_rows(captured, found)
        captured.samples["ranges"] = len(ranges)
        stack = without_values(captured.stack, int(captured.samples["sp"][0]), ranges)
        np.savez_compressed(
            HERE / f"{build}-{way}.npz", rows=rows, ranges=ranges, samples=captured.samples, stack=stack,
            expected=np.array(expected[: found.depths[0]], dtype=np.uint64), status=found.statuses[0],
        )  # fmt: skip
        print(build, way, Status(found.statuses[0]).name, found.depths[0])


if __name__ == "__main__":
    main()
