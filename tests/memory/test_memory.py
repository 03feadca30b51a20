"""The budget of user memory: how it is divided, and that many idle connections stay within theirs."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.decode.records import CLIENT, Recorder, Socket
from tests.decode.test_requests import HTTP1, get
from tests.memory.measure_idle import Nowhere

from tracehound.config import MIB, WAITING_BYTES, Settings
from tracehound.line import Line

ROOT = Path(__file__).parents[2]
CONNECTIONS = 16_000
IDLE_MIB = 64  # the budget is 96, on a live system, where a burst leaves some holes
COPIES = 3  # of a record while decode catches up


@pytest.mark.parametrize("protocol", ["http1", "redis", "postgresql"])
def test_idle_connections_take_little(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "tests.memory.measure_idle", str(CONNECTIONS), protocol]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300).stdout.split()
    added, requests = int(told[0]), int(told[1])
    with capsys.disabled():
        each = added / CONNECTIONS / 1024
        print(f"\n{CONNECTIONS:,} idle connections of {protocol} add {added / MIB:.1f} MiB, {each:.1f} KiB each")
    assert requests >= CONNECTIONS, "they were not decoded"
    assert added <= IDLE_MIB * MIB


@pytest.mark.parametrize("memory_mib", [16, 64, 256, 1024])
def test_the_parts_are_within_the_whole(memory_mib: int) -> None:
    budgets = Settings(memory_mib=memory_mib, backlog_mib=4096, lifecycle_backlog_mib=4096).budgets
    records = COPIES * (budgets.backlog_bytes + budgets.lifecycle_backlog_bytes)
    whole = records + budgets.windows_bytes + budgets.waiting_requests * WAITING_BYTES
    assert 0.9 * memory_mib * MIB < whole <= memory_mib * MIB


def test_a_backlog_that_is_less_than_its_part_stays() -> None:
    budgets = Settings(backlog_mib=1, lifecycle_backlog_mib=2).budgets
    assert budgets[:2] == (MIB, 2 * MIB)


def test_windows_and_waiting_requests_are_bounded() -> None:
    """Half messages beyond their part are shed, requests without an answer too; both are told."""
    settings = Settings(memory_mib=1)
    losses: dict[str, int] = {}

    class Counting(Nowhere):
        def write(self, tables: object) -> None:
            for row in tables["losses"].to_pylist() if "losses" in tables else ():  # type: ignore[index, operator]
                losses[row["counter"]] = losses.get(row["counter"], 0) + row["count"]

    line, recorder = Line(settings, [Counting()]), Recorder()
    for number in range(200):
        socket = Socket(recorder, 100 + number, CLIENT, local=(bytes((10, 0, 0, 1)), 1 + number), verdict=HTTP1).open()
        for piece in range(3):
            socket.send(get(f"/{number}/{piece}"))  # no answer
        socket.send(b"POST / HTTP/1.1\r\nX: " + b"x" * 4000)  # no end
    recorder.add("fact_tick", time_ns=recorder.time_ns + 1_000_000_000)
    line.feed(recorder.batch())
    line.advance()
    assert settings.budgets.windows_bytes == MIB // 8 and settings.budgets.waiting_requests == 64
    assert losses["window_shed"] > 400_000
    assert losses["waiting_shed"] > 400
