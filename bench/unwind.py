"""What stacks cost: building the unwind table of libc, and walking stacks in C and in Python, against libdw's ways.

    python -m bench.unwind [ROUNDS]

The table: `build_rows` (Python and numpy) against pyelftools decoding the same .eh_frame, every CIE and FDE, which is
less work, for it makes no table. The stacks: a program without frame pointers waits below qsort of libc, with its real
tables, in a batch of 1,000 equal copies of 4 KiB each at places of their own. libdw walks the same copies, once from a
loop in C (tests/symbols/oracle), once with Python functions as its callbacks; its files are open and its tables read
before. Least CPU time of the rounds, which take turns; garbage collection off.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from bench._gates import Gates, rounds_from
from elftools.common.exceptions import DWARFError
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from tests.symbols.libdw import ByCallbacks, Shim
from tests.symbols.stopped import Captured, capture, compile_program, waiting

from tracehound.symbols.ehframe import build_rows
from tracehound.symbols.elf import Elf
from tracehound.symbols.unwind import Status, unwind, unwind_slowly

BATCH = 1000
FEW = 200  # of them, by the slow ways
TIMES = 10  # the batch in one turn, so that what the others did is not in the caches' way
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


@contextmanager
def stopped_program() -> Iterator[tuple[Captured, Shim, ByCallbacks]]:
    """Yield the stack of a program that waits below qsort, and both ways of libdw for it."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder), "calls.c", "-O2", "-fomit-frame-pointer")
        with waiting(program, "qsort") as (pid, tid):
            captured = capture(pid, tid, STACK_BYTES)
            shim, callbacks = Shim(Path(folder), captured, pid), ByCallbacks(captured, pid)
            yield captured, shim, callbacks
            shim.close()
            callbacks.close()


def main() -> None:
    """Measure, print, state the gates."""
    gates, rounds = Gates(), rounds_from(sys.argv, 5)
    with stopped_program() as (captured, shim, callbacks):
        libc = next(one.name for one in captured.elfs if "/libc" in one.name)
        gc.disable()
        table, other = cpu_seconds(rounds, lambda: build_rows(Elf.open(libc)), lambda: decode_by_elftools(libc))
        print(f"{libc}, {len(build_rows(Elf.open(libc)))} rows: {table * 1e3:.0f} ms, pyelftools {other * 1e3:.0f} ms")
        gates.at_least("table of libc, times faster than pyelftools", other / table, 10)
        compare_walkers(gates, rounds, captured, shim, callbacks)
    gates.exit()


def compare_walkers(gates: Gates, rounds: int, captured: Captured, shim: Shim, callbacks: ByCallbacks) -> None:
    """Walk the same stacks in four ways."""
    samples = np.repeat(captured.samples, BATCH)
    samples["stack_at"] = np.arange(BATCH) * len(captured.stack)
    copies = captured.stack * BATCH
    stacks = np.frombuffer(copies, dtype=np.uint8)
    few = samples[:FEW]
    found = unwind(captured.tables, captured.ranges, samples, stacks)
    addresses = found.addresses[0, : found.depths[0]].tolist()
    gates.holds("every stack is complete", bool((found.statuses == Status.COMPLETE).all()))
    gates.holds("libdw finds the same frames", addresses == shim.walk(copies, len(captured.stack)))
    gates.holds("by callbacks too", addresses == callbacks.walk(captured.stack))
    fast, slow, dw, dw_slow = cpu_seconds(
        rounds,
        lambda: [unwind(captured.tables, captured.ranges, samples, stacks, room=found) for _ in range(TIMES)],
        lambda: unwind_slowly(captured.tables, captured.ranges, few, stacks),
        lambda: [shim.walk(copies, len(captured.stack)) for _ in range(TIMES)],
        lambda: [callbacks.walk(captured.stack) for _ in range(FEW)],
    )
    fast, slow, dw, dw_slow = fast / BATCH / TIMES, slow / FEW, dw / BATCH / TIMES, dw_slow / FEW
    print(f"stack of {found.depths[0]} frames, batch of {BATCH}, us:")
    print(f"  in C {fast * 1e6:.2f}, libdw through C {dw * 1e6:.1f}")
    print(f"  in Python {slow * 1e6:.1f}, libdw through ctypes callbacks {dw_slow * 1e6:.1f}")
    gates.at_least("stacks in C, times faster than in Python", slow / fast, 10)
    gates.at_least("stacks in C, times faster than libdw through C", dw / fast, 10)
    gates.at_least("stacks in Python, times as fast as libdw through ctypes callbacks", dw_slow / slow, 1)


if __name__ == "__main__":
    main()
