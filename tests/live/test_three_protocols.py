"""HTTP, Redis and PostgreSQL at once: the servers' own counts while it runs, and the same rows from tape and capture.

`TRACEHOUND_LIVE_SECONDS=60` makes the part that looks on while it runs that long; CI takes 15 s.
"""

import json
import os
import random
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis
from tests.live.conftest import TRACEHOUND, Row, Running, Traced, rows, wait_for
from tests.live.postgresql_server import FOLDER as POSTGRESQL
from tests.live.postgresql_server import LOGGED
from tests.live.test_captures import SAME, SEARCHED
from tests.sources.packets import read
from tests.sources.taped import Counted, Recut, Rows, assert_cut, frame_ends, replayed

from tracehound import LiveTrace
from tracehound.recording import Recording
from tracehound.replay import TapeReplay
from tracehound.sources.tape import Tape

SECONDS: Final = int(os.environ.get("TRACEHOUND_LIVE_SECONDS", "15"))
SECOND_NS: Final = 1_000_000_000
LATE_S: Final = 10.0  # so long a busy machine may keep rows back, which is told
OPERATIONS: Final = {"http1": ("GET",), "redis": ("GET", "SET"), "postgresql": ("SELECT", "INSERT", "CREATE")}
ROLES: Final = ("client", "server")
SAID: Final = (*SAME, "statement", "statement_id", "rows", "db_user", "db_namespace", "error_message")
SNAPLEN: Final = "262144"
CUTS: Final = 8

pytestmark = [
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed"),
    pytest.mark.skipif(POSTGRESQL is None, reason="no PostgreSQL server in /usr/lib/postgresql"),
]
Counts = dict[str, int]


# ---- while it runs


class Told(NamedTuple):
    """What the servers counted at a moment between `after_ns` and `before_ns`."""

    after_ns: int
    before_ns: int
    counts: Counts


def ask_servers(folder: Path, store: "redis.Redis", log: Path) -> Told:
    after_ns = time.monotonic_ns()
    stats: Any = store.info("commandstats")
    counts = {
        "http1": (folder / "http.log").read_bytes().count(b"\n"),
        "redis": sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("get", "set")),
        "postgresql": sum("things" in statement for statement in LOGGED.findall(log.read_text())),
    }
    return Told(after_ns, time.monotonic_ns(), counts)


def between(trace: LiveTrace, told: Told) -> dict[tuple[str, str], tuple[int, int]]:
    """Return, by protocol and role, how many exchanges had ended before the servers were asked, and how many had begun.

    A request that still waits for its answer has no row, so it is asked for first.
    """
    waiting = Counter(
        (row["protocol"], row["role"])
        for row in trace.open_requests().to_pylist()
        if row["operation"] in OPERATIONS.get(row["protocol"], ()) and row["start_ns"] <= told.before_ns
    )
    listed = ", ".join(f"'{name}'" for names in OPERATIONS.values() for name in names)
    found = trace.sql(
        f"select protocol, role, count(*) filter (end_ns <= {told.after_ns}) as ended,"
        f" count(*) filter (start_ns <= {told.before_ns}) as begun"
        f" from requests where operation in ({listed}) and (protocol <> 'postgresql' or statement like '%things%')"
        " group by all"
    ).to_pylist()
    said = {(row["protocol"], row["role"]): (row["ended"], row["begun"]) for row in found}
    return {
        (protocol, role): (ended, begun + waiting[protocol, role])
        for protocol in OPERATIONS
        for role in ROLES
        for ended, begun in (said.get((protocol, role), (0, 0)),)
    }


def wrong(trace: LiveTrace, told: Told) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return what does not agree: (ended, counted, begun)."""
    return {
        (protocol, role): (ended, told.counts[protocol], begun)
        for (protocol, role), (ended, begun) in between(trace, told).items()
        if not ended <= told.counts[protocol] <= begun
    }


def test_sql_agrees_with_the_servers_up_to_a_second_ago(
    traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Once a second. Where the machine was held up, the rows come late, but they come; that is the exception."""
    delays: list[float] = []
    widths: list[int] = []

    def look(trace: LiveTrace) -> None:
        wait_for((tmp_path / "servers.json").exists, 90, "the servers")
        servers = json.loads((tmp_path / "servers.json").read_text())
        log = Path(servers["log"])
        with redis.Redis(port=servers["ports"]["redis"]) as store:
            for _ in range(SECONDS):
                told = ask_servers(tmp_path, store, log)
                time.sleep(max(told.before_ns + SECOND_NS - time.monotonic_ns(), 0) / 1e9)
                delays.append(0.0)
                asked = time.monotonic()
                while found := wrong(trace, told):
                    delays[-1] = time.monotonic() - asked
                    assert delays[-1] < LATE_S, found
                    time.sleep(0.05)
                widths.append(max(begun - ended for ended, begun in between(trace, told).values()))
        (tmp_path / "stop").touch()

    command = python_target("three_protocols", tmp_path, SECONDS * 3 + 60)
    trace = traced(command, look, record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    late = [delay for delay in delays if delay]
    print(f"{SECONDS} times: {len(late)} late {late}; begun and not ended at most {max(widths)}")
    assert len(late) <= max(SECONDS // 5, 1), f"seconds late beyond the first: {late}"
    assert statistics.median(widths) <= 40  # else "agrees" would say little
    assert rows(trace.losses) == []
    told = json.loads((tmp_path / "told.json").read_text())
    found = rows(trace.requests)
    for protocol, counts in told.items():
        for role in ROLES:
            counted = Counter(
                row["operation"]
                for row in found
                if (row["protocol"], row["role"]) == (protocol, role)
                and row["operation"] in OPERATIONS[protocol]
                and (protocol != "postgresql" or "things" in row["statement"])
            )
            assert counted == counts, (protocol, role)
    assert min(sum(counts.values()) for counts in told.values()) > SECONDS * 10
    assert "hunter2" not in repr(found)


# ---- kept: a tape, and a capture of the same traffic


class Kept(NamedTuple):
    folder: Path
    recording: Recording

    @property
    def tape(self) -> Path:
        return self.folder / "live.tape"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, python_target: Callable[..., list[str]]) -> Kept:
    missing = [name for name in ("tcpdump", "ip", "unshare") if shutil.which(name, path=SEARCHED) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("three")
    capture = ["unshare", "--net", *python_target("captured", folder, SNAPLEN), "--"]
    target = python_target("three_protocols", folder, 2)
    arguments = ["run", "--record", folder / "record", "--tape", folder / "live.tape", "--", *target]
    finished = Running(arguments, {}, {"prefix": [*capture, *TRACEHOUND]}).finish(180)
    assert finished.code == 0, finished.err
    assert "nothing lost" in finished.err
    return Kept(folder, Recording(folder / "record"))


def of_tcp(found: list[Row]) -> list[Row]:
    return [row for row in found if row["remote_ip"] is not None]


def test_a_capture_gives_one_row_for_each_exchange(kept: Kept) -> None:
    live = of_tcp(kept.recording.table("requests").to_pylist())
    told = json.loads((kept.folder / "told.json").read_text())
    expected = {row["exchange"]: row for row in live if row["role"] == "client"}
    assert None not in expected
    assert {row["exchange"] for row in live if row["role"] == "server"} == set(expected)
    counted = Counter(row["protocol"] for row in expected.values())
    for protocol, counts in told.items():
        assert counted[protocol] >= sum(counts.values()) > 50
    capture = read(kept.folder / f"{SNAPLEN}.pcap")
    assert capture.error is None and capture.of("losses") == []
    found = {row["exchange"]: row for row in capture.of("requests")}
    assert len(found) == len(capture.of("requests")) and set(found) == set(expected)
    for exchange, row in found.items():
        other = expected[exchange]
        assert {name: row[name] for name in SAID} == {name: other[name] for name in SAID}
        assert not (row["gap"] or row["truncated"] or row["joined_midstream"])
        assert {row[name] for name in ("role", "pid", "tid", "comm", "service")} == {None}
    assert "hunter2" not in repr(found)


def assert_rows(recording: Recording, found: Rows) -> None:
    for name in recording.tables:
        wanted = recording.table(name)
        assert found.get(name, wanted.schema.empty_table()).equals(wanted), name
    assert set(found) <= set(recording.tables)


def test_a_tape_gives_the_rows_of_the_live_run(kept: Kept) -> None:
    found, notes = replayed(kept.tape)
    assert notes == ()
    assert_rows(kept.recording, found)
    assert {"http1", "redis", "postgresql"} <= set(found["requests"]["protocol"].to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_a_tape_in_other_pieces_gives_the_same_rows(seed: int, kept: Kept) -> None:
    rolls = random.Random(seed)
    pieces = [rolls.randint(1, rolls.choice((3, 50, 2000))) for _ in range(20)]
    with Tape(kept.tape) as tape:
        found, notes = replayed(Recut(tape, pieces))
    assert notes == ()
    assert_rows(kept.recording, found)


def test_a_tape_cut_at_any_byte_gives_the_rows_before_the_cut(kept: Kept, tmp_path: Path) -> None:
    """They are the first of each table, as in the whole; one line says where it was cut."""
    data, cut, whole = kept.tape.read_bytes(), tmp_path / "cut.tape", Counted()
    with TapeReplay(whole.watch(Tape(kept.tape))) as replay:
        replay.run([whole])
    assert_rows(kept.recording, whole.rows)
    ends = frame_ends(data)
    rolls = random.Random(len(data))
    reached = 0
    for size in [*(rolls.randrange(ends[1], ends[-3]) for _ in range(CUTS)), ends[-3]]:
        cut.write_bytes(data[:size])
        found, (note,) = replayed(cut)
        position = max(end for end in ends if end <= size)
        assert "\n" not in note and f"{cut} is cut at byte {position:,}" in note
        before = whole.before[ends.index(position) - 1]
        assert_cut(found, whole.rows, before)
        reached = max(reached, before.get("requests", 0))
    assert reached > 50
