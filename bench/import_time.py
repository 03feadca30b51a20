"""What `import tracehound` costs, against `import numpy, cffi`, which everything it does needs anyhow.

    python -m bench.import_time [ROUNDS]

Fresh interpreters in turn, each import once a round; CPU time of the whole process (user and system, with the
interpreter's own start), the least of the rounds. `tracehound.trace` is what a program then asks for: it loads the face
of a trace, neither pyarrow nor duckdb. What a second series of the same command shows is the noise.
"""

import os
import random
import subprocess
import sys
from typing import Final

from bench._gates import Gates, rounds_from

BASE: Final = "import numpy, cffi"
OURS: Final = "import tracehound"
TRACE: Final = "import tracehound; tracehound.trace"
SERIES: Final = {
    "nothing": "pass",
    BASE: BASE,
    f"{BASE}, again": BASE,
    OURS: OURS,
    TRACE: TRACE,
}
HEAVY: Final = ("pyarrow", "duckdb", "pandas", "polars")


def cpu_ms(code: str) -> float:
    """Run `code` in a fresh interpreter; return the CPU time of its process."""
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`{code}` failed")
    return (usage.ru_utime + usage.ru_stime) * 1000


def loaded(code: str) -> list[str]:
    """Return which heavy modules `code` loads."""
    ask = f"{code}\nimport sys\nprint(*set({HEAVY}) & set(sys.modules))"
    return subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True).stdout.split()


def main() -> None:
    """Measure, print, state the gates."""
    rounds = rounds_from(sys.argv, 15)
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for name in random.Random(number).sample(list(SERIES), len(SERIES)):
            spent = cpu_ms(SERIES[name])
            if number:  # the first fills the page cache
                best[name] = min(spent, best.get(name, spent))
    print(f"least of {rounds} interleaved rounds, ms of CPU")
    for name, spent in best.items():
        print(f"  {name:40}{spent:8.1f}")
    base = min(best[BASE], best[f"{BASE}, again"])
    noise = abs(best[BASE] / best[f"{BASE}, again"] - 1)
    print(f"noise (the same command twice): +-{noise:.3f}")
    print(f"`{TRACE}` / `{BASE}`: {best[TRACE] / base:.2f} (no gate)")
    gates = Gates()
    gates.at_most(f"`{OURS}` / `{BASE}`", best[OURS] / base, 1.5)
    for code in (OURS, TRACE):
        found = loaded(code)
        gates.holds(f"`{code}` loads none of {', '.join(HEAVY)}{': ' + ', '.join(found) if found else ''}", not found)
    gates.exit()


if __name__ == "__main__":
    main()
