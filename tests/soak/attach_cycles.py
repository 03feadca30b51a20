"""Attaches and detaches points of a running program over and over; its code must stay as it is in its file.

    python -m tests.soak.attach_cycles [CYCLES]

Points are added, hit a few times and removed; at times the whole code of the program is compared, byte by byte. Exit
code 1 at the first difference, wrong count, or when the program has died. Needs root.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.live.test_call_points import MIB, code_of
from tests.live.test_calls import Server

from tracehound.kernel.call_points import CallPoints
from tracehound.kernel.points import Point, find_points
from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged

TARGET: Final = Path(__file__).parents[1] / "live" / "targets" / "calls.c"
CYCLES: Final = 10_000
A_LOAD: Final = 1_000  # cycles, before the programs are loaded anew: numbers of points are not used again
COMPARED: Final = 50
HITS: Final = 3


def cycle(points: list[Point], server: Server, kernel: CallPoints) -> str:
    """Do one; return what was wrong."""
    added: list[int] = []
    kernel.add(points, added.extend)
    if server.tick(HITS):
        return "no breakpoint in the code"
    kernel.remove(added)
    hits = [kernel.counts(number).hits for number in added]
    return "" if sum(hits) == HITS else f"{HITS} calls were {hits} hits"


def run(server: Server, binary: Path, cycles: int) -> str:
    """Do all; return what was wrong first."""
    pid, done, began = server.process.pid, 0, time.monotonic()
    points = find_points([f"{binary}:tick[long]", f"{binary}:factorial"], (pid,))
    while done < cycles:
        with Privileged(LoadSettings(MIB, MIB, features=frozenset({"processes", "calls"}))) as kernel:
            kernel.mark(pid, TRACE_ON)
            for _ in range(min(A_LOAD, cycles - done)):
                wrong = cycle(points, server, kernel.call_points())
                done += 1
                if not wrong and done % COMPARED == 0:
                    memory, file = code_of(pid, binary)
                    wrong = "" if memory == file else "its code is not that of the file"
                if wrong or server.process.poll() is not None:
                    return f"cycle {done}: {wrong or 'the program has died'}"
        print(f"{done} cycles of attach and detach, {done / (time.monotonic() - began):.0f} a second", flush=True)
    return ""


def main() -> int:
    """Run as many cycles as the command line says."""
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else CYCLES
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder).resolve() / "calls"
        subprocess.run(["cc", "-O1", "-pthread", "-o", binary, TARGET], check=True)
        server = Server(binary)
        with server.process as process:
            server.tick(1)
            wrong = run(server, binary, cycles)
            process.kill()
    print(wrong or f"{cycles} cycles, the code is whole")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
