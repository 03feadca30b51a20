"""Connections that do nothing cost next to nothing, and the request after a long silence has its row."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.live.conftest import RunCli, StartCli, wait_for

COUNT: Final = 8_000  # with both ends 16,000 sockets
ADDED_MIB: Final = 96  # 6 KiB each, with all that a burst leaves behind
PATIENCE_S: Final = 100
IDLE_CPU: Final = 0.05  # of one core


def anonymous_mib(pid: int) -> float:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def cpu_share(pid: int, seconds: float) -> float:
    """Return how much of one core a process takes."""

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, began = ticks(), time.monotonic()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


def test_idle_connections_cost_little(
    start_cli: StartCli,
    run_cli: RunCli,
    python_target: Callable[..., list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recording = tmp_path / "record"
    running = start_cli("run", "--record", recording, "--", *python_target("idle_connections", COUNT, tmp_path))

    def is_quiet() -> bool:
        return cpu_share(running.pid, 1.0) < IDLE_CPU

    wait_for((tmp_path / "warm").exists, PATIENCE_S, what="the trace to begin")
    wait_for(is_quiet, PATIENCE_S, what="decode to have done what came first")
    before_mib = anonymous_mib(running.pid)
    (tmp_path / "open").touch()
    wait_for((tmp_path / "idle").exists, PATIENCE_S, what="the connections")
    wait_for(is_quiet, PATIENCE_S, what="decode to have done all of them, and to cost next to nothing then")
    added_mib = anonymous_mib(running.pid) - before_mib
    (tmp_path / "ask").touch()
    result = running.finish(PATIENCE_S)
    assert result.code == 0 and "nothing lost" in result.err
    with capsys.disabled():
        print(f"\n{2 * COUNT:,} idle connections add {added_mib:.1f} MiB")
    assert added_mib <= ADDED_MIB
    sql = "select role, split_part(resource, '/', 2) as turn, count(distinct resource) as n"
    sql += " from requests where resource <> '/warm/0' group by all"
    found = run_cli("query", recording, f"select * from ({sql}) order by all", "--format", "csv").out.split()
    expected = [f"{role},{turn},{COUNT}" for role in ("client", "server") for turn in ("first", "second")]
    assert found == ["role,turn,n", *expected]
