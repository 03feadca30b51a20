"""Every kernel, every program: `python -m tests.vm [--update] [SERIES...]`, what `make vm` runs.

Each series boots in emulation, loads and attaches all programs, traces `talk.py` and compares the rows; then the
kernels of today are traced as a whole, and run under lockdown and without BTF, where one clear line is due. What came
out is compared with `expected.txt`, where `exact/lossy` allows either; --update writes it. A series that no archive
serves is a line SKIP with the reason. Exit code 1: other than expected, or nothing could be run.
"""

import argparse
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.vm.boot import Result, missing_tools, run_in
from tests.vm.kernels import SERIES, Archive, Kernel, NotServedError

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
EXPECTED: Final = HERE / "expected.txt"
CACHE: Final = ROOT / "build" / "vm"
TODAYS: Final = ("6.12", "newest")  # series that are also traced as a whole, and run where tracing cannot work
GOOD: Final = ("ok", "exact")
Cells = dict[str, dict[str, str]]  # row -> series -> value


def main() -> int:
    """Run the series, print the table, compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.vm", description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write expected.txt instead of comparing")
    parser.add_argument("--verbose", action="store_true", help="print all that the guests say")
    parser.add_argument("series", nargs="*", help=", ".join(each.name for each in SERIES))
    options = parser.parse_args()
    if platform.machine() != "x86_64" or missing_tools():
        print(f"cannot emulate here: {', '.join(missing_tools()) or platform.machine()} is not supported or missing")
        return 1
    cells: Cells = {}
    for kernel in kernels(options.series):
        for row, value, reason in examine(kernel, options.verbose):
            cells.setdefault(row, {})[kernel.series] = value
            if value not in GOOD:
                print(f"  {row}: {value}: {reason}")
    if not cells:
        print("no kernel could be run")
        return 1
    print(render(cells))
    if options.update:
        EXPECTED.write_text(render(merged(read_expected(), cells)) + "\n")
        return 0
    return compare(read_expected(), cells)


def kernels(names: list[str]) -> Iterator[Kernel]:
    """Yield the wanted kernels; those that cannot be had are told."""
    try:
        archive = Archive(CACHE)
    except NotServedError as error:
        print(f"SKIP all: {error}")
        return
    for series in SERIES:
        if names and series.name not in names:
            continue
        try:
            yield archive.fetch(series)
        except NotServedError as error:
            print(f"SKIP {series.name}: {error}")


def examine(kernel: Kernel, is_verbose: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (row, value, reason) of all that is tried on a kernel."""
    yield from boot(kernel, "", "programs rows", is_verbose)
    if kernel.series in TODAYS:
        yield from boot(kernel, "", "attach attach_namespace", is_verbose, "attach ")
        yield from boot(kernel, "lockdown=integrity", "rows no_btf", is_verbose)
        yield from boot(kernel, "lockdown=confidentiality", "line", is_verbose)


def boot(kernel: Kernel, arguments: str, todo: str, is_verbose: bool, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Boot once and yield its cells; one that did not come to its end has the cell `boot` with what was said last."""
    started, prefix = time.monotonic(), f"{arguments} " if arguments else ""
    script = f"cd {ROOT} && {sys.executable} {HERE / 'guest.py'} {todo}"
    result: Result = run_in(kernel, ["/bin/sh", "-c", script], arguments)
    print(f"{kernel.series}: {kernel.release} {arguments} {todo}: {time.monotonic() - started:.1f} s", flush=True)
    if is_verbose:
        print(result.text)
    for row, value, reason in re.findall(r"^@@CELL\t([^\t]*)\t([^\t]*)\t(.*)$", result.text, re.MULTILINE):
        yield prefix + row, value, reason
    last = " / ".join(result.text.strip().splitlines()[-12:])
    yield f"{prefix}{name}boot", "ok" if result.code == 0 else "failed", last


def render(cells: Cells) -> str:
    """Return the table as text, a line a row."""
    names = [each.name for each in SERIES]
    width = max(map(len, cells))
    lines = [" ".join([f"{'':{width}}", *(f"{name:>8}" for name in names)])]
    lines += [
        " ".join([f"{row:{width}}", *(f"{values.get(name, '-'):>8}" for name in names)])
        for row, values in cells.items()
    ]
    return "\n".join(lines)


def read_expected() -> Cells:
    """Return the committed table."""
    text = EXPECTED.read_text() if EXPECTED.exists() else ""
    cells: Cells = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        values = words[-len(SERIES) :]
        row = " ".join(words[: -len(SERIES)])
        cells[row] = {each.name: value for each, value in zip(SERIES, values, strict=True) if value != "-"}
    return cells


def merged(old: Cells, new: Cells) -> Cells:
    """Return the old table with the new cells in it; of a series that was run, cells that are gone go."""
    run = {series for values in new.values() for series in values}
    kept = {row: {name: value for name, value in values.items() if name not in run} for row, values in old.items()}
    rows = dict.fromkeys([*new, *kept])
    found = {row: kept.get(row, {}) | new.get(row, {}) for row in rows}
    for row, values in old.items():  # one of several that are allowed changes nothing
        found[row] |= {name: value for name, value in values.items() if found[row].get(name) in value.split("/")}
    return {row: values for row, values in found.items() if values}


def compare(expected: Cells, cells: Cells) -> int:
    """Print where a series that was run differs from the committed table; return the exit code."""
    run = {series for values in cells.values() for series in values}
    code = 0
    for row in dict.fromkeys([*expected, *cells]):
        for series in sorted(run):
            before, now = expected.get(row, {}).get(series, "-"), cells.get(row, {}).get(series, "-")
            if now not in before.split("/"):
                print(f"DIFFERS {series} {row}: expected {before}, found {now}")
                code = 1
    print("differs from expected.txt" if code else "as expected")
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the emulator ends too
    sys.exit(main())
