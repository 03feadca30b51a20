"""What runs inside an emulated machine: `guest.py (programs | rows | line | no_btf)...`.

It says what it found, a line a cell: `@@CELL row value reason`, tab-separated. `programs` loads and attaches every
program as the product does. `rows` runs the product on `talk.py` and compares the rows with what was done. `line` and
`no_btf` run it where it cannot work.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
PRODUCT: Final = [str(Path(sys.executable).with_name("tracehound")), "run"]
RECORDING: Final = Path("/tmp/recording")
TRUTH: Final = Path("/tmp/truth.json")
EXPECTED_CODE: Final = 7  # talk.py's


def say(row: str, value: str, reason: str | None = None) -> None:
    """Tell one cell of the table."""
    print(f"@@CELL\t{row}\t{value}\t{reason or ''}", flush=True)


def check_programs() -> None:
    """Load and attach every program of every feature, and say of each whether that went well."""
    from tracehound.errors import LoadError
    from tracehound.kernel.privileged import LoadSettings, Privileged
    from tracehound.kernel.probes import PROGRAMS

    statuses = {}
    reason = ""
    try:
        features = frozenset(program.feature for program in PROGRAMS)
        with Privileged(LoadSettings(1 << 20, 1 << 20, features=features)) as kernel:
            statuses = {status.program.name: status for status in kernel.statuses}
    except LoadError as error:
        reason = str(error)
    for program in PROGRAMS:
        row, status = f"{program.object}.{program.name}", statuses.get(program.name)
        if status is None and statuses:
            continue  # another program does the same
        if status is None:
            say(row, "refused", reason)
        else:
            say(row, "ok" if status.attached else "refused", status.reason)


def check_rows() -> None:
    """Trace `talk.py` and compare."""
    command = [sys.executable, str(HERE / "talk.py"), str(TRUTH)]
    done = subprocess.run(
        [*PRODUCT, "--record", str(RECORDING), "--", *command], check=False, text=True, stderr=subprocess.PIPE
    )
    print(done.stderr)
    if done.returncode != EXPECTED_CODE:
        is_clear = done.returncode == 2 and len(done.stderr.splitlines()) == 1
        say("rows", "refused" if is_clear else "wrong", f"exit code {done.returncode}: {done.stderr.strip()}")
        return
    say("rows", "ok")
    from tracehound.recording import Recording

    recording, truth = Recording(RECORDING), json.loads(TRUTH.read_text())
    losses = rows(recording, "select stage, counter, count from losses")
    say("rows.nothing_lost", "ok" if "nothing lost" in done.stderr and not losses else "lost", str(losses))
    for name, check in CHECKS.items():
        expected, found = check(recording, truth)
        value = judge(expected, found, bool(losses))
        differs = f"missing {list((expected - found).elements())}; too many {list((found - expected).elements())}"
        say(f"rows.{name}", value, None if value == "exact" else differs[:2000])


def judge(expected: Counter[Any], found: Counter[Any], is_loss_told: bool) -> str:
    """Return exact, none, lossy (`losses` tells it; rows are missing or have nulls, no value is wrong) or wrong."""
    if found == expected or not found:
        return "exact" if found == expected else "none"
    left = expected - found
    for row in (found - expected).elements():
        meant = next((each for each in left.elements() if is_part(row, each)), None)
        if meant is None:
            return "wrong"
        left[meant] -= 1
    return "lossy" if is_loss_told else "wrong"


def is_part(row: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    """Tell whether a row is another one but for nulls."""
    return all(value is None or value == other for value, other in zip(row, whole, strict=True))


Compared = tuple[Counter[Any], Counter[Any]]


def rows(recording: Any, query: str) -> Counter[Any]:
    """Return the rows of a query, each with its count."""
    return Counter(tuple(row.values()) for row in recording.sql(query).to_pylist())


def compare_processes(recording: Any, truth: Any) -> Compared:
    """Exit codes and signals of the shells that talk.py ran."""
    found = rows(
        recording,
        "select coalesce(exit_code, 128 + x) from (select exit_code, signal, case signal "
        "when 'SIGTERM' then 15 end as x from processes where event = 'exit' and comm = 'sh')",
    )
    return Counter((code,) for code in truth["children"]), found


def compare_connections(recording: Any, truth: Any) -> Compared:
    """Final byte counts of both ends of each connection."""
    query = "select role, case role when 'client' then local_port else remote_port end, bytes_sent, bytes_received "
    expected: Counter[Any] = Counter()
    for each in truth["connections"]:
        expected["client", each["port"], each["sent"], each["received"]] += 1
        expected["server", each["port"], each["received"], each["sent"]] += 1
    return expected, rows(recording, query + "from connections where event = 'close'")


def compare_requests(recording: Any, truth: Any) -> Compared:
    """Path, status and sizes of each request, as the client and as the server saw it."""
    query = "select role, resource, status, request_bytes, response_bytes from requests"
    requests = [request for each in truth["connections"] for request in each["requests"]]
    expected = Counter((role, *request) for request in requests for role in ("client", "server"))
    return expected, rows(recording, query)


CHECKS: Final[dict[str, Callable[[Any, Any], Compared]]] = {
    "processes": compare_processes,
    "connections": compare_connections,
    "requests": compare_requests,
}


def check_without_btf() -> None:
    """Hide the kernel's BTF, then as check_line."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/sys/kernel/btf"], check=True)
    check_line("line.no_btf")


def check_line(row: str = "line.lockdown") -> None:
    """Run the product where it cannot work: it must say so in one line, exit with 2, and start nothing."""
    done = subprocess.run(
        [*PRODUCT, "--", "/bin/touch", "/tmp/started"], check=False, text=True, stderr=subprocess.PIPE
    )
    lines = done.stderr.strip().splitlines()
    good = done.returncode == 2 and len(lines) == 1 and not Path("/tmp/started").exists()
    say(row, "ok" if good else "wrong", f"exit code {done.returncode}: {done.stderr.strip()}")


MODES: Final = {"programs": check_programs, "rows": check_rows, "line": check_line, "no_btf": check_without_btf}

if __name__ == "__main__":
    for mode in sys.argv[1:]:
        MODES[mode]()
