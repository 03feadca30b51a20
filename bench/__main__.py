"""Runs every bench and prints one page, the gates once more at its end (`make bench`).

    python -m bench [NAME...]

Exit code 1 if a gate does not hold or a bench fails.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


def names() -> list[str]:
    """Return every bench."""
    return sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


def run(name: str) -> tuple[list[str], bool]:
    """Run one bench; return its gates' lines and whether it succeeded. Its output is passed on as it comes."""
    print(f"== {name}", flush=True)
    gates = []
    command = [sys.executable, "-u", "-m", f"bench.{name}"]
    with subprocess.Popen(command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(("PASS  ", "FAIL  ")):
                gates.append(f"{line[:6]}{name}: {line[6:].rstrip()}")
    return gates, process.returncode == 0


def main() -> int:
    """Run all, or those that are named."""
    chosen = sys.argv[1:] or names()
    if unknown := set(chosen) - set(names()):
        sys.exit(f"no bench {', '.join(sorted(unknown))}. There are: {', '.join(names())}")
    gates, failed, began = [], [], time.monotonic()
    for name in chosen:
        found, succeeded = run(name)
        gates += found
        if not succeeded:
            failed.append(name)
    print(f"== gates, after {time.monotonic() - began:.0f} s")
    print(*gates, sep="\n")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
