"""What runs inside an emulated machine: `guest.py (programs | rows | attach | attach_namespace | line | no_btf)...`.

It says what it found, a line a cell: `@@CELL row value reason`, tab-separated. `programs` loads and attaches every
program as the product does. `rows` runs the product on `talk.py` and compares the rows with what was done. `attach`
attaches it to the whole machine while `talk_before.py` runs, `attach_namespace` from a pid namespace of its own. `line`
and `no_btf` run it where it cannot work.
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
TRACEHOUND: Final = str(Path(sys.executable).with_name("tracehound"))
PRODUCT: Final = [TRACEHOUND, "run"]
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
        compare(f"rows.{name}", *check(recording, truth), bool(losses))


def compare(row: str, expected: Counter[Any], found: Counter[Any], is_loss_told: bool) -> None:
    """Tell the cell of rows that were found, and where they differ from what was due."""
    value = judge(expected, found, is_loss_told)
    differs = f"missing {list((expected - found).elements())}; too many {list((found - expected).elements())}"
    say(row, value, None if value == "exact" else differs[:2000])


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


@contextmanager
def attached(row: str, prefix: list[str], recording: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Attach to the whole machine until the end of the block, then as Ctrl-C does; a failure is a cell."""
    command = [*prefix, TRACEHOUND, "attach", "--all", "--record", str(recording), *options]
    with subprocess.Popen(command, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        lines = list[str]()
        while not lines or (lines[-1] and "Ctrl-C ends it" not in lines[-1]):
            lines.append(process.stderr.readline())
        if not lines[-1]:
            say(row, "wrong", "".join(lines).strip())
            sys.exit(1)
        yield process
        for child in children_of(process.pid) if prefix else [process.pid]:
            subprocess.run(["kill", f"-{int(signal.SIGINT)}", str(child)], check=True)
        said = process.stderr.read()
    print(said)
    say(row, "ok" if process.returncode == 0 else "wrong", f"exit code {process.returncode}: {said.strip()}")
    say(f"{row}.nothing_lost", "ok" if "nothing lost" in said else "lost", said.strip().replace("\n", " / "))


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, by their pids outside of its namespace."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def talk_during(name: str) -> Iterator[None]:
    """Run `talk_before.py` up to its first request, and on after the yield, to its end."""
    command = [sys.executable, "-m", name, str(TRUTH)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate("\n")
    if process.returncode != EXPECTED_CODE:
        say("attach.talk", "wrong", f"exit code {process.returncode}")


def check_attach() -> None:
    """Attach host-wide while a client and a server speak, and compare."""
    talk = talk_during("tests.vm.talk_before")
    next(talk)
    with attached("attach", [], RECORDING) as product:
        next(talk, None)
    from tracehound.recording import Recording

    recording, truth = Recording(RECORDING), json.loads(TRUTH.read_text())
    losses = rows(recording, "select stage, counter, count from losses")
    for name, check in ATTACH_CHECKS.items():
        compare(f"attach.{name}", *check(recording, truth), bool(losses))
    check_own(recording, "attach.own", product.pid)


def compare_attached_processes(recording: Any, truth: Any) -> Compared:
    """The two that were there before: marked, and each with its end."""
    query = "select event, pid, preexisting, exit_code from processes where pid in ({client}, {server})"
    expected: Counter[Any] = Counter()
    for name, code in (("client", EXPECTED_CODE), ("server", truth["server_status"])):
        expected["start", truth[name], True, None] += 1
        expected["exit", truth[name], False, code] += 1
    return expected, rows(recording, query.format(**truth))


def compare_attached_connections(recording: Any, truth: Any) -> Compared:
    """One from before with its bytes from its beginning, others from their opening."""
    query = (
        "select role, event, preexisting, case role when 'client' then local_port else remote_port end as port, "
        "case event when 'close' then bytes_sent end, case event when 'close' then bytes_received end "
        "from connections where transport = 'tcp' and port is not null and pid in ({client}, {server})"
    )
    expected: Counter[Any] = Counter()
    for each, is_old in [(truth["kept"], True), *((each, False) for each in truth["short"])]:
        for role, sent, received in (("client", "sent", "received"), ("server", "received", "sent")):
            opening = "snapshot" if is_old else "open" if role == "client" else "accept"
            expected[role, opening, is_old, each["port"], None, None] += 1
            expected[role, "close", is_old, each["port"], each[sent], each[received]] += 1
    return expected, rows(recording, query.format(**truth))


def compare_attached_sockets(recording: Any, truth: Any) -> Compared:
    """UDP and unix sockets that were there before."""
    query = (
        "select pid, event, transport, preexisting, local_port from connections "
        "where transport <> 'tcp' and pid in ({client}, {server})"
    )
    expected: Counter[Any] = Counter()
    for event in ("snapshot", "close"):
        expected[truth["client"], event, "udp", True, truth["udp_port"]] += 1
        for name in ("client", "server"):
            expected[truth[name], event, "unix", True, None] += 1
    return expected, rows(recording, query.format(**truth))


def compare_attached_requests(recording: Any, truth: Any) -> Compared:
    """What was asked after the attach, of both ends."""
    query = (
        "select role, resource, status, request_bytes, response_bytes from requests where pid in ({client}, {server})"
    )
    requests = [request for each in (truth["kept"], *truth["short"]) for request in each["requests"]]
    expected = Counter((role, *request) for request in requests for role in ("client", "server"))
    return expected, rows(recording, query.format(**truth))


ATTACH_CHECKS: Final[dict[str, Callable[[Any, Any], Compared]]] = {
    "processes": compare_attached_processes,
    "connections": compare_attached_connections,
    "sockets": compare_attached_sockets,
    "requests": compare_attached_requests,
}


def check_own(recording: Any, row: str, pid: int) -> None:
    """The product never traces itself: there is no row of it in any table."""
    tables = ("processes", "connections", "requests", "files", "listens")
    found = {name: sum(rows(recording, f"select 1 from {name} where pid = {pid}").values()) for name in tables}
    say(row, "ok" if not any(found.values()) else "wrong", f"rows of pid {pid}: {found}")


def check_attach_namespace() -> None:
    """The same from a pid namespace of its own, where its pid is not the kernel's; it opens files all the time."""
    folder = Path("/tmp/recording_namespace")
    prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with attached("attach_namespace", prefix, folder, "--files") as product:
        (own,) = children_of(product.pid)
        subprocess.run(["/bin/sh", "-c", "exec cat /etc/hostname"], check=True)
        until = time.monotonic() + 60
        while not list(folder.glob("files/*")) and time.monotonic() < until:
            time.sleep(0.1)  # until it has opened files of its own to write that
    from tracehound.recording import Recording

    recording = Recording(folder)
    others = sum(rows(recording, f"select 1 from files where pid <> {own}").values())
    say("attach_namespace.files", "ok" if others else "none")
    check_own(recording, "attach_namespace.own", own)


def check_without_btf() -> None:
    """Hide the kernel's BTF, then as check_line."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/sys/kernel/btf"], check=True)
    check_line("line.no_btf")


def check_line(row: str = "line.lockdown") -> None:
    """Run the product where it cannot work: it must say so in one line, exit with 2, and start nothing."""
    commands = {"run": [*PRODUCT, "--", "/bin/touch", "/tmp/started"], "attach": [TRACEHOUND, "attach", "--all"]}
    for name, command in commands.items():
        done = subprocess.run(command, check=False, text=True, stderr=subprocess.PIPE)
        lines = done.stderr.strip().splitlines()
        good = done.returncode == 2 and len(lines) == 1 and not Path("/tmp/started").exists()
        say(f"{row}.{name}", "ok" if good else "wrong", f"exit code {done.returncode}: {done.stderr.strip()}")


MODES: Final = {
    "programs": check_programs,
    "rows": check_rows,
    "attach": check_attach,
    "attach_namespace": check_attach_namespace,
    "line": check_line,
    "no_btf": check_without_btf,
}

if __name__ == "__main__":
    for mode in sys.argv[1:]:
        MODES[mode]()
