"""Writes the golden samples: registers, stack and the rows that matter of waiting programs, stacks as gdb says.

    python -m tests.symbols.golden.make

Run where gdb is; replayed by tests/symbols/test_unwind.py without gdb, compiler and programs.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from tests.symbols.stopped import Captured, capture, compile_program, gdb_stack, waiting

from tracehound.symbols import ehframe
from tracehound.symbols.unwind import FRAME_RETURN, RANGE, Stacks, Status, unwind

HERE = Path(__file__).parent
BYTES = 4096
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


def main() -> None:
    """Write all, or end with what differs."""
    folder = Path(tempfile.mkdtemp())
    programs = {name: compile_program(folder, *source) for name, source in BUILDS.items()}
    for build, way in SAMPLES:
        with waiting(programs[build], way) as (pid, tid):
            captured = capture(pid, tid, BYTES)
            expected = gdb_stack(pid, tid)
        found = unwind(captured.tables, captured.ranges, captured.samples, captured.stack)
        if found.addresses[0, : found.depths[0]].tolist() != expected[: found.depths[0]]:
            sys.exit(f"{build} {way}: not as gdb has it")
        rows, ranges = needed_rows(captured, found)
        captured.samples["ranges"] = len(ranges)
        stack = np.frombuffer(captured.stack, dtype=np.uint8)
        np.savez_compressed(
            HERE / f"{build}-{way}.npz", rows=rows, ranges=ranges, samples=captured.samples, stack=stack,
            expected=np.array(expected[: found.depths[0]], dtype=np.uint64), status=found.statuses[0],
        )  # fmt: skip
        print(build, way, Status(found.statuses[0]).name, found.depths[0])


if __name__ == "__main__":
    main()
