"""What mypyc makes of parsing and pairing: the engine's loop with the modules of the wheel, and interpreted.

    python -m bench.compiled [ROUNDS]

The rows of `bench.parse`, through `decode/parsing.py` and `decode/pairing.py` as in the line: no records before, no
table behind. Fresh interpreters in turn, a second interpreted series for the noise; ns a row, least of the
rounds. `make compiled` builds what is measured.
"""

import gc
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench._gates import Gates, rounds_from
from bench.parse import CASES, ROWS, Case, Exchange, prepare

from tracehound.protocols._protocol import REQUEST, RESPONSE

ROOT: Final = Path(__file__).parents[1]
SERIES: Final = {
    "interpreted": (ROOT / "src", ".py"),
    "again": (ROOT / "src", ".py"),
    "compiled": (ROOT / "build" / "compiled", ".so"),
}
ONE: Final = "--one"  # measure once, in this interpreter, and print JSON
REPEATS: Final = 3
CALL_NS: Final = 1000


def parse_and_pair(case: Case, exchanges: list[Exchange]) -> int:
    """Move all through the engine as the calls of one client's connection; return the number of rows."""
    from tracehound.decode.exchange import Connection, Stream
    from tracehound.decode.pairing import Pairing
    from tracehound.decode.parsing import Parsing
    from tracehound.decode.request_rows import ROLE_CLIENT, connection_facts
    from tracehound.decode.settings import DecodeSettings

    pairing = Pairing(DecodeSettings(), connection_facts)
    parsing = Parsing(pairing)
    connection = Connection(1, 0, 0)
    connection.role, connection.protocol, connection.state = ROLE_CLIENT, case.protocol, case.protocol.new_state()
    if case.protocol.name == "postgresql":
        prepare(case.protocol, connection.state)
    streams = connection.streams = (Stream(0, REQUEST), Stream(1, RESPONSE))
    time_ns, positions = 0, [0, 0]
    for request, response, size in exchanges:
        for stream, piece, passed in ((streams[0], request, len(request)), (streams[1], response, size)):
            time_ns += CALL_NS
            position = positions[stream.direction]
            stream.start, stream.time_ns, stream.who = position, time_ns, 1
            stream.buffer.append(position, piece, passed)
            positions[stream.direction] = position + passed
            parsing.drive(connection, stream)
            if stream.pending and stream.buffer.end >= stream.pending_end:
                pairing.complete(connection, stream)
    return len(pairing.rows)


def measure() -> dict[str, float]:
    """Return ns a row by case, the least of some repeats in this interpreter."""
    gc.disable()
    found = {}
    for name, case in CASES.items():
        exchanges = case.exchanges()
        spent = []
        for _ in range(REPEATS):
            began = time.thread_time_ns()
            rows = parse_and_pair(case, exchanges)
            spent.append((time.thread_time_ns() - began) / rows)
            assert rows == ROWS
        found[name] = min(spent)
    return found


def measure_form(source: Path, suffix: str) -> dict[str, float]:
    """Measure the package in `source` in a fresh interpreter; exit if its parsers are not of the form wanted."""
    environment = os.environ | {"PYTHONPATH": f"{source}:{ROOT}"}
    command = [sys.executable, "-m", "bench.compiled", ONE]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    file, found = json.loads(done.stdout)
    if not file.startswith(str(source)) or not file.endswith(suffix):
        sys.exit(f"the parsers are {file}, not a {suffix} file in {source}: make compiled")
    return dict(found)


def main() -> None:
    """Measure, print, state the gates."""
    if sys.argv[1:] == [ONE]:
        import tracehound.protocols.http1

        print(json.dumps([tracehound.protocols.http1.__file__, measure()]))
        return
    rounds = rounds_from(sys.argv, 6)
    best: dict[str, dict[str, float]] = {name: {} for name in SERIES}
    for number in range(rounds):
        for name in random.Random(number).sample(list(SERIES), len(SERIES)):
            for case, spent in measure_form(*SERIES[name]).items():
                best[name][case] = min(spent, best[name].get(case, spent))
    print(f"ns a row to parse and pair, least of {rounds} interleaved rounds")
    print(f"{'':12}{'interpreted':>12}{'again':>8}{'compiled':>10}{'ratio':>7}")
    ratios = {}
    for case, again in best["again"].items():
        plain, fast = best["interpreted"][case], best["compiled"][case]
        ratios[case] = min(plain, again) / fast
        print(f"{case:12}{plain:12.0f}{again:8.0f}{fast:10.0f}{ratios[case]:7.2f}")
    gates = Gates()
    gates.at_least("typical HTTP rows: interpreted / compiled by mypyc", ratios["typical"], 2.0)
    gates.exit()


if __name__ == "__main__":
    main()
