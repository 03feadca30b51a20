"""Switches: off means that the programs are not attached, at the start and while running, under load.

What is seen again after a switch is exact; who is traced is kept while `processes` is off.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import RunCli, Traced, held_by, rows, wait_for

from tracehound import LiveTrace
from tracehound.errors import UsageError
from tracehound.kernel.probes import DEFAULT_FEATURES, FEATURES, PROGRAMS, RUN_ON_DEMAND

ROUNDS = 100
ALL_ON: dict[str, Any] = {"files": True, "nat": True}
RINGBUF = "27"  # of enum bpf_map_type
PORT_REST_NS = 900_000_000  # the kernel gives a port again after a second at the earliest (tcp_tw_reuse)
SEEN = ("processes", "tcp", "requests")  # the features whose rows the target's account is held against


class Round(NamedTuple):
    """One round of the target, as it tells it."""

    before_ns: int
    after_ns: int
    number: int
    port: int
    child: int


def told(log: Path) -> list[Round]:
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 4] if log.exists() else []
    return [Round(*map(int, line)) for line in lines]


def links() -> int:
    return len(held_by(os.getpid()).link_id)


def wanted(off: set[str]) -> int:
    """Return how many links there are to be."""
    programs = [
        program
        for program in PROGRAMS
        if program.point not in RUN_ON_DEMAND and program.instead_of is None and program.feature in SWITCHED
    ]
    return sum(program.stands_in is (program.feature in off) for program in programs)


def wait_for_rounds(log: Path, more: int) -> None:
    done = len(told(log))
    wait_for(lambda: len(told(log)) >= done + more, what=f"{more} rounds of the target")


SWITCHED = tuple(each for each in FEATURES if each not in ("calls", "stacks", "syscalls"))  # nothing without points


@pytest.mark.parametrize("feature", SWITCHED)
def test_a_hundred_times_under_load(
    feature: str, traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    counted: list[tuple[int, int, int]] = []
    off: list[tuple[int, int]] = []
    on_again: list[int] = []

    def switch(trace: LiveTrace) -> None:
        wait_for_rounds(log, 5)
        assert trace.switches == {name: name in SWITCHED for name in FEATURES}
        before = held_by(os.getpid())
        for _ in range(ROUNDS):
            trace.disable(feature)
            trace.disable(feature)
            off_links = links()
            assert trace.switches[feature] is False
            trace.enable(feature)
            trace.enable(feature)
            counted.append((off_links, links(), len(held_by(os.getpid()).map_id ^ before.map_id)))
        trace.disable(feature)
        off.append((time.monotonic_ns(), 0))
        wait_for_rounds(log, 10)
        off[-1] = (off[-1][0], time.monotonic_ns())
        trace.enable(feature)
        on_again.append(time.monotonic_ns())
        wait_for_rounds(log, 20)
        Path(f"{log}.stop").touch()

    trace = traced(python_target("busy_tree", 60, log), switch, record=str(tmp_path / "record"), **ALL_ON)
    assert trace.exit_code == 0, "the target met an error"
    assert set(counted) == {(wanted({feature}), wanted(set()), 0)}
    silent = [each for each in told(log) if each.before_ns > off[0][0] and each.after_ns < off[0][1]]
    later = [each for each in told(log) if each.before_ns > on_again[0]][1:]
    assert len(silent) >= 8 and len(later) >= 15
    seen = Seen(trace)
    assert {name: seen.of(name, later) for name in SEEN} == dict.fromkeys(SEEN, len(later))
    assert {name: seen.of(name, silent) for name in SEEN} == {
        name: 0 if name == feature else len(silent) for name in SEEN
    }


class Seen:
    """How many rounds have all their rows of a feature; `roles`: the ends of connections that are looked at."""

    def __init__(self, trace: LiveTrace, roles: tuple[str, ...] = ("client", "server")) -> None:
        self.roles = roles
        self.processes = [(row["pid"], row["event"], row["exit_code"]) for row in rows(trace.processes)]
        self.tcp = [
            (row["role"], row["event"], row["local_port"], row["remote_port"], row["time_ns"])
            for row in rows(trace.connections)
            if row["event"] != "snapshot"
        ]
        self.requests = Counter(row["resource"] for row in rows(trace.requests) if row["status"] == 200)

    def of(self, feature: str, rounds: list[Round]) -> int:
        return sum(self._has(feature, each) for each in rounds)

    def _has(self, feature: str, each: Round) -> bool:
        if feature == "processes":
            found = [row[1:] for row in self.processes if row[0] == each.child]
            return found == [("start", None), ("exec", None), ("exit", 7)]
        if feature == "tcp":
            until_ns = each.after_ns + PORT_REST_NS
            ends = [row[:2] for row in self.tcp if each.port in row[2:4] and each.before_ns < row[4] < until_ns]
            both = [("client", "open"), ("server", "accept"), ("client", "close"), ("server", "close")]
            wanted_ends = [end for end in both if end[0] in self.roles]
            return Counter(end for end in ends if end[0] in self.roles) == Counter(wanted_ends)
        return [self.requests[f"/{kind}/{each.number}"] for kind in ("kept", "own")] == [2, 2]


@pytest.mark.parametrize("feature", SWITCHED)
def test_off_at_the_start(
    feature: str, traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    counted: list[int] = []
    switched: list[int] = []

    def watch(trace: LiveTrace) -> None:
        counted.append(links())
        wait_for_rounds(log, 10)
        switched.append(len(told(log)))
        assert trace.switches == {name: name in SWITCHED and name != feature for name in FEATURES}
        trace.enable(feature)
        counted.append(links())
        wait_for_rounds(log, 20)
        Path(f"{log}.stop").touch()

    trace = traced(python_target("busy_tree", 60, log), watch, record=str(tmp_path / "record"), off={feature}, **ALL_ON)
    assert trace.exit_code == 0
    assert counted == [wanted({feature}), wanted(set())]
    first, last = told(log)[: switched[0]], told(log)[-15:]
    seen = Seen(trace, ("client",))  # the listener was not watched when it began
    assert {name: seen.of(name, last) for name in SEEN} == dict.fromkeys(SEEN, len(last))
    assert {name: seen.of(name, first) for name in SEEN} == {
        name: 0 if name == feature else len(first) for name in SEEN
    }


def test_no_ring_of_what_is_off(traced: Traced, tmp_path: Path) -> None:
    found: list[list[str]] = []

    def watch(trace: LiveTrace) -> None:
        found.append(rings_mapped())
        trace.enable("requests")
        found.append(rings_mapped())

    settings = {"off": {"requests"}, "ring_mib": 8, "lifecycle_ring_mib": 2}
    traced(["/bin/sleep", "0.3"], watch, record=str(tmp_path / "record"), **settings)
    assert found == [["2"], ["2", "8"]]


def rings_mapped() -> list[str]:
    """Return the sizes in MiB of the rings that this process has a descriptor of."""
    found = []
    for entry in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            fields = dict(line.split(":", 1) for line in entry.read_text().splitlines())
            if fields.get("map_type", "").strip() == RINGBUF:
                found.append(str(int(fields["max_entries"]) >> 20))
    return sorted(set(found))


def test_no_such_switch(traced: Traced, tmp_path: Path) -> None:
    def switch(trace: LiveTrace) -> None:
        with pytest.raises(UsageError, match=r"no such switch: request\. Switches: processes, tcp, requests"):
            trace.enable("request")

    traced(["/bin/sleep", "0.1"], switch, record=str(tmp_path / "record"))


def test_switches_of_the_command_line(run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    record = tmp_path / "record"
    off = [f"--no-{feature}" for feature in DEFAULT_FEATURES if feature != "requests"]
    result = run_cli("run", "--record", record, *off, "--", *python_target("busy_tree", 1, tmp_path / "log"))
    assert result.code == 0
    query = "select (select count(*) from processes), (select count(*) from connections where event = 'open')"
    counts = run_cli("query", record, query, "--format", "csv").out.splitlines()[1]
    assert counts == "0,0"
    found = run_cli("query", record, "select count(*) from requests", "--format", "csv").out.splitlines()[1]
    assert int(found) >= 4 * (len(told(tmp_path / "log")) - 1) > 0
