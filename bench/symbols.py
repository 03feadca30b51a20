"""What names of places cost: functions of libc from its symbol table, and which of them hold 1,000 places.

    python -m bench.symbols [ROUNDS]

The table: `Symbols.of` (numpy) against pyelftools reading the same symbols. The look-ups: a batch, and one after
another with the name demangled, against a search by bisection in what pyelftools has read, sorted, which it leaves to
its user. Kept: rows and symbols of a module from its file in the cache, against building both. Least CPU time of the
rounds, which take turns.
"""

import gc
import sys
import tempfile
from bisect import bisect_right
from pathlib import Path

import numpy as np
from bench._gates import Gates, rounds_from
from bench.unwind import cpu_seconds
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tracehound.symbols.elf import PT_LOAD, Elf
from tracehound.symbols.instructions import analyse
from tracehound.symbols.module import Module

PLACES = 1000


def read_by_elftools(path: str) -> list[tuple[int, int, str]]:
    """Return (address, size, name) of every function, sorted."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        kinds = ("STT_FUNC", "STT_LOOS")  # GNU's indirect functions have the latter
        found = [
            one for one in table.iter_symbols() if one["st_info"]["type"] in kinds and one["st_shndx"] != "SHN_UNDEF"
        ]
        return sorted((one["st_value"], one["st_size"], one.name) for one in found)


def search(rows: list[tuple[int, int, str]], starts: list[int], places: list[int]) -> int:
    """Return how many of the places a function holds."""
    found = 0
    for place in places:
        at = bisect_right(starts, place) - 1
        found += at >= 0 and place < rows[at][0] + rows[at][1]
    return found


def main() -> None:
    """Measure, print, state the gates."""
    gates, rounds = Gates(), rounds_from(sys.argv, 5)
    lines = Path("/proc/self/maps").read_text().splitlines()
    libc = next(line.split()[-1] for line in lines if "/libc.so" in line)
    with tempfile.TemporaryDirectory() as folder:
        cache, nowhere = Path(folder), Path("/dev/null/none")
        gc.disable()
        alone = Elf.open(libc)
        table, other = cpu_seconds(rounds, lambda: Elf.open(libc).symbols, lambda: read_by_elftools(libc))
        print(f"{libc}, {len(alone.symbols)} functions: {table * 1e3:.1f} ms, pyelftools {other * 1e3:.0f} ms")

        module = Module.open(libc, cache=cache)
        code = max((one for one in module.elf.segments if one.kind == PT_LOAD), key=lambda one: one.flags & 1)
        places = np.random.default_rng(1).integers(code.offset, code.offset + code.file_size, PLACES).astype("u8")
        one_by_one = [int(place) for place in places]
        rows = read_by_elftools(libc)
        starts = [row[0] for row in rows]
        assert len(module.symbols) > len(rows) / 2  # read before it is timed
        batch, single, plain = cpu_seconds(
            rounds,
            lambda: module.symbols_at(places),
            lambda: [module.symbol_at(place) for place in one_by_one],
            lambda: search(rows, starts, one_by_one),
        )
        each = f"one by one {single * 1e6:.0f} us, bisection {plain * 1e6:.0f} us"
        print(f"{PLACES} places: batch {batch * 1e6:.0f} us, {each}")

        def everything(folder: Path) -> int:
            opened = Module.open(libc, cache=folder)
            return len(opened.rows) + len(opened.symbols)

        everything(cache)
        kept, built = cpu_seconds(rounds, lambda: everything(cache), lambda: everything(nowhere))
        print(f"rows and symbols: kept {kept * 1e3:.1f} ms, built {built * 1e3:.0f} ms")

        functions = module.functions("*")
        (first,) = cpu_seconds(1, lambda: analyse(module, functions))
        (again,) = cpu_seconds(1, lambda: analyse(Module.open(libc, cache=cache), functions))
        print(f"returns of {len(functions)} functions: {first * 1e3:.0f} ms, kept {again * 1e3:.0f} ms")
        gates.at_least("functions of libc, times faster than pyelftools", other / table, 10)
        gates.at_least("1,000 places in a batch, times faster than one by one", single / batch, 3)
        gates.at_least("rows and symbols kept, times faster than built", built / kept, 5)
        gates.at_least("returns kept, times faster than read", first / again, 3)
        gates.exit()


if __name__ == "__main__":
    main()
