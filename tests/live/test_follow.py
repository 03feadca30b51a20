"""Rows as they come, and requests under way, of a real program."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.conftest import wait_for

import tracehound
from tracehound.errors import UsageError


def requests_made(log: Path) -> int:
    """Count the requests in the log; its first line has pids."""
    return max(log.read_text().count("\n") - 1, 0) if log.exists() else 0


def test_follow_gives_every_request_and_ends_with_the_command(
    python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    loop = tracehound.trace(python_target("steady_http", 3, log)).follow("requests", role="client")
    rows = list(loop)
    assert {row["table"] for row in rows} == {"requests"} and {row["role"] for row in rows} == {"client"}
    assert len(rows) == requests_made(log) > 50
    assert [row["time_ns"] for row in rows] == sorted(row["time_ns"] for row in rows)


def test_rows_of_all_tables_while_another_waits(python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    log = tmp_path / "log"
    tables = set()
    with tracehound.trace(python_target("steady_http", 60, log)) as trace:
        for row in trace.follow():
            tables.add(row["table"])
            if {"requests", "connections", "processes"} <= tables:
                break
        made = requests_made(log)
        wait_for(lambda: requests_made(log) > made, what="the target to go on")
        assert not trace.has_ended, "leaving the loop ended a trace that it had not begun"
        Path(f"{log}.stop").touch()
        assert trace.wait() == 0
    assert len(trace.requests) > 0


def test_leaving_the_loop_ends_the_trace_that_it_began(python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    trace = tracehound.trace(python_target("steady_http", 60, tmp_path / "log"))
    for _ in trace.follow("requests"):
        break
    wait_for(lambda: trace.has_ended, what="the trace to end")
    trace.signal(15)
    trace.wait()


def test_what_there_is_not_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column 'verb'"):
        tracehound.trace(["touch", str(tmp_path / "made")]).follow("requests", verb="GET")
    assert not (tmp_path / "made").exists()


def test_open_requests_are_those_without_an_answer(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(
        "import socket, sys, time\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(server.getsockname())\n"
        "served, _ = server.accept()\n"
        "client.sendall(b'GET /slow HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')\n"
        "assert served.recv(1000)\n"
        "sys.stdin.readline()\n"
    )
    command = ["sh", "-c", f'sleep 60 | exec "$0" {program}', "python3"]
    with tracehound.trace(command) as trace:
        wait_for(lambda: trace.open_requests().num_rows == 2, what="both ends' request")
        rows = trace.open_requests().to_pylist()
        assert [(row["resource"], row["outcome"], row["end_ns"], row["status"]) for row in rows] == [
            ("/slow", "unknown", None, None)
        ] * 2
        assert {row["role"] for row in rows} == {"client", "server"}
        assert time.monotonic_ns() - rows[0]["start_ns"] > 0
        assert len(trace.requests) == 0
        trace.signal(15)
        trace.wait()
    assert trace.open_requests().num_rows == 0
    assert [row["resource"] for row in trace.requests.to_arrow().to_pylist()] == ["/slow"] * 2
