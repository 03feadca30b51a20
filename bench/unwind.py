"""What stacks cost: building the unwind table of libc, and walking stacks in C and in Python.

    python -m bench.unwind [ROUNDS]

The table: `build_rows` (Python and numpy) against pyelftools decoding the same .eh_frame, every CIE and FDE, which is
less work, for it makes no table. The stacks: a program without frame pointers waits below qsort of libc, with its real
tables, in a batch of 1,000 equal copies of 4 KiB each at places of their own. Least CPU time of
the rounds, which take turns; garbage collection off.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from bench._gates import Gates, rounds_from
from elftools.common.exceptions import DWARFError
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from tests.symbols.stopped import Captured, capture, compile_program, waiting

from tracehound.symbols.ehframe import build_rows
from tracehound.symbols.elf import Elf
from tracehound.symbols.unwind import Status, unwind, unwind_slowly

BATCH = 1000
STACK_BYTES = 4096


def cpu_seconds(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """Return the least CPU time of each action in seconds; they take turns, so that a busy machine is busy for all."""
    best = [float("inf")] * len(actions)
    for _ in range(rounds):
        for at, action in enumerate(actions):
            began = time.process_time()
            action()
            best[at] = min(best[at], time.process_time() - began)
    return best


def decode_by_elftools(path: str) -> int:
    """Decode every entry of the file; return how many functions that were decoded: it refuses some instructions."""
    with open(path, "rb") as file:
        entries = [one for one in ELFFile(file).get_dwarf_info().EH_CFI_entries() if isinstance(one, FDE)]
        decoded = 0
        for entry in entries:
            with suppress(DWARFError, ValueError):
                entry.get_decoded()
                decoded += 1
        return decoded


def stopped_program() -> Captured:
    """Return the stack of a program that waits below qsort."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder), "calls.c", "-O2", "-fomit-frame-pointer")
        with waiting(program, "qsort") as (pid, tid):
            return capture(pid, tid, STACK_BYTES)


def main() -> None:
    """Measure, print, state the gates."""
    gates, rounds = Gates(), rounds_from(sys.argv, 5)
    captured = stopped_program()
    libc = next(one.name for one in captured.elfs if "/libc" in one.name)
    gc.disable()
    table, other = cpu_seconds(rounds, lambda: build_rows(Elf.open(libc)), lambda: decode_by_elftools(libc))
    print(f"{libc}, {len(build_rows(Elf.open(libc)))} rows: {table * 1e3:.0f} ms, pyelftools {other * 1e3:.0f} ms")

    samples = np.repeat(captured.samples, BATCH)
    samples["stack_at"] = np.arange(BATCH) * len(captured.stack)
    stacks = np.frombuffer(captured.stack * BATCH, dtype=np.uint8)
    found = unwind(captured.tables, captured.ranges, samples, stacks)
    gates.holds("every stack is complete", bool((found.statuses == Status.COMPLETE).all()))
    fast, slow = cpu_seconds(
        rounds,
        lambda: unwind(captured.tables, captured.ranges, samples, stacks),
        lambda: unwind_slowly(captured.tables, captured.ranges, samples, stacks),
    )
    fast, slow = fast / BATCH, slow / BATCH
    print(
        f"stack of {found.depths[0]} frames, batch of {BATCH}: {fast * 1e6:.2f} us in C, {slow * 1e6:.1f} us in Python"
    )
    gates.at_least("table of libc, times faster than pyelftools", other / table, 10)
    gates.at_least("stacks in C, times faster than in Python", slow / fast, 10)
    gates.exit()


if __name__ == "__main__":
    main()
