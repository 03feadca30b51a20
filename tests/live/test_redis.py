"""Redis as its programs speak it: every command is one row at each end, as the server's own count says."""

import json
import shutil
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from tests.live.conftest import Row, Traced, rows, wait_for
from tests.live.redis_server import running_server

import tracehound
from tracehound import LiveTrace
from tracehound.protocols._redis_commands import PLAIN, UNKNOWN, find_command

PythonTarget = Callable[..., list[str]]
PIPELINED: Final = {"set": "set", "get": "get", "mixed": "incr,lpush,rpop,sadd,hset,spop,zadd,mset"}
REQUESTS: Final = {"set": 100_000, "get": 100_000, "mixed": 20_000}
RATE: Final = 20_000
ENDPOINTS: Final = ("protocol", "role", "local_port", "remote_port")
COUNTED: Final = ("connection", "operation", "outcome", "request_position", "request_bytes", "start_ns")
BIG: Final = 30_000_000

pytestmark = pytest.mark.skipif(
    not (shutil.which("redis-server") and shutil.which("redis-benchmark")), reason="redis-server is not installed"
)


def told_by(folder: Path) -> tuple[int, Counter[str]]:
    told = json.loads((folder / "told.json").read_text())
    return told["port"], Counter(told["calls"])


def of_port(trace: LiveTrace, port: int, columns: Sequence[str] = ()) -> dict[str, list[Row]]:
    """Return the rows of the server's port, by role; all columns, or some."""
    ends: dict[str, list[Row]] = {"client": [], "server": []}
    table = trace.requests.to_arrow()
    found: list[Row] = (table.select([*ENDPOINTS, *columns]) if columns else table).to_pylist()
    for row in found:
        if port == row["remote_port" if row["role"] == "client" else "local_port"]:
            assert row["protocol"] == "redis"
            ends[row["role"]].append(row)
    return ends


# ---- counts


def check_counts(trace: LiveTrace, port: int, calls: Counter[str], commands: set[str]) -> bool:
    """Assert that rows and missing commands are what the server counted; return whether nothing was lost.

    The commands of one connection are of one size, so the bytes that no row has tell how many are missing; each such
    range lies in an interval in which `losses` says that something was lost.
    """
    losses = rows(trace.losses)
    totals = {
        (row["role"], row["connection"]): row["bytes_sent" if row["role"] == "client" else "bytes_received"]
        for row in rows(trace.connections)
        if row["event"] == "close"
    }
    for role, found in of_port(trace, port, COUNTED).items():
        by_connection: dict[int, list[Row]] = defaultdict(list)
        for row in found:
            by_connection[row["connection"]].append(row)
        counted: Counter[str] = Counter()
        for connection, its_rows in by_connection.items():
            names = {row["operation"] for row in its_rows} & commands
            if not names:
                continue
            (name,) = names
            missing = missing_ranges(its_rows, totals[role, connection])
            (size,) = {row["request_bytes"] for row in its_rows}
            counted[name] += len(its_rows) + sum((stop - start) // size for start, stop, _, _ in missing)
            assert all((stop - start) % size == 0 for start, stop, _, _ in missing)
            for start, stop, after_ns, before_ns in missing:
                assert any(
                    loss["connection"] in (None, connection)
                    and loss["first_ns"] <= before_ns
                    and loss["last_ns"] >= after_ns
                    for loss in losses
                ), f"nothing tells why {role} {name} has no rows for bytes {start} to {stop}"
        assert counted == Counter({name: calls[name] for name in commands}), role
        if not losses:
            assert Counter(row["operation"] for row in found if row["operation"] in commands) == counted
            assert {row["outcome"] for row in found} <= {"ok", "client_error"}
    return not losses


def missing_ranges(found: list[Row], total: int) -> list[tuple[int, int, int, int]]:
    """Return the ranges of a connection's request bytes that no row has, with the times of the rows around."""
    found = sorted(found, key=lambda row: int(row["request_position"]))
    missing, reached, after_ns = [], 0, 0
    for row in found:
        assert row["request_position"] >= reached, "two rows of the same bytes"
        if row["request_position"] > reached:
            missing.append((reached, row["request_position"], after_ns, row["start_ns"]))
        reached, after_ns = row["request_position"] + row["request_bytes"], row["start_ns"]
    if reached < total:
        missing.append((reached, total, after_ns, 1 << 62))
    return missing


@pytest.mark.parametrize("name", sorted(PIPELINED))
def test_rows_are_the_servers_count(name: str, traced: Traced, python_target: PythonTarget, tmp_path: Path) -> None:
    """As fast as it goes: what a busy machine loses is told, to the byte; nothing is lost in the best of three."""
    commands = {one.upper(): REQUESTS[name] for one in PIPELINED[name].split(",")}
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if run_load(traced, python_target, folder, ("benchmark", PIPELINED[name], REQUESTS[name]), commands):
            return
    pytest.fail("three times something was lost")


def test_nothing_is_lost_at_20_000_a_second(traced: Traced, python_target: PythonTarget, tmp_path: Path) -> None:
    assert run_load(traced, python_target, tmp_path, ("paced", RATE, 3), {"GET": 3 * RATE})


def run_load(
    traced: Traced, python_target: PythonTarget, folder: Path, arguments: Sequence[object], sent: dict[str, int]
) -> bool:
    """Run a load; rows and what is told as lost are exact; return whether nothing was lost."""
    what, *rest = arguments
    trace = traced(python_target("redis_target", what, folder, *rest), record=str(folder / "record"))
    assert trace.exit_code == 0
    port, calls = told_by(folder)
    assert {name: calls[name] for name in sent} == sent
    return check_counts(trace, port, calls, set(sent))


# ---- ways of speaking


def test_every_way_of_speaking(traced: Traced, python_target: PythonTarget, tmp_path: Path) -> None:
    trace = traced(python_target("redis_target", "talk", tmp_path), record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    port, calls = told_by(tmp_path)
    ends = of_port(trace, port)
    client = ends["client"]
    assert [loss for loss in rows(trace.losses) if loss["counter"] != "uncaptured"] == []
    known = [row for row in client if not (row["error_message"] or "").startswith("unknown")]
    sent = Counter(row["operation"] for row in known if row["operation"] not in ("message", "INFO"))
    assert sent == calls - Counter(INFO=calls["INFO"], GET=1)  # one GET was a script's
    assert not [row for row in client if "secret" in str(row) or "hunter2" in str(row)]

    pairs = {row["exchange"]: row for row in ends["server"] if row["exchange"] is not None}
    for row in client:
        if row["operation"] == "message":
            continue
        other = pairs[row["exchange"]]
        same = ("operation", "resource", "statement", "request_bytes", "request_position")
        assert [row[name] for name in same] == [other[name] for name in same]
        if not other["gap"] and not other["truncated"]:
            assert (row["outcome"], row["response_bytes"], row["rows"]) == (
                other["outcome"], other["response_bytes"], other["rows"],
            )  # fmt: skip

    def some(**wanted: Any) -> list[Row]:
        return [row for row in client if all(row[name] == value for name, value in wanted.items())]

    assert some(operation="GET", statement="GET cart:17", rows=1, outcome="ok")
    assert some(operation="GET", statement="GET big", rows=1)[0]["response_bytes"] > 300_000
    assert some(operation="SET", statement="SET big ?")[0]["request_bytes"] > 300_000
    assert some(operation="LRANGE", rows=200)[0]["response_bytes"] > 40_000
    assert some(operation="LPUSH", error_type="WRONGTYPE", outcome="client_error")
    (executed,) = some(operation="EXEC")
    assert (executed["rows"], executed["error_type"], executed["outcome"]) == (3, "ERR", "client_error")
    assert len(some(operation="EVALSHA", error_type="NOSCRIPT")) == 1
    assert some(operation="EVALSHA", outcome="ok")[0]["statement_id"] is not None
    assert some(operation="EVAL", resource="a")[0]["error_type"] == "MINE"
    assert len(some(operation="PING", outcome="ok")) >= 5_000
    assert some(operation="SUBSCRIBE", resource="news", outcome="ok")
    statements = Counter(row["statement"] for row in some(operation="message"))
    assert statements == {"message news ?": 1, "pmessage n* news ?": 1, "invalidate cart:17": 1}
    (waited,) = some(operation="BLPOP")
    assert waited["duration_ns"] > 900_000_000 and waited["rows"] == 0
    assert some(operation="GET", resource="a", db_namespace="2", rows=0)
    (refused,) = some(operation="?")
    assert (refused["error_type"], refused["error_message"]) == ("ERR", "unknown command ?")


def test_a_replica_says_why_it_is_not_read(traced: Traced, python_target: PythonTarget, tmp_path: Path) -> None:
    trace = traced(python_target("redis_target", "replica", tmp_path), record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    shaken = [row for row in rows(trace.requests) if row["operation"] in ("PSYNC", "REPLCONF")]
    assert {row["operation"] for row in shaken} == {"PSYNC", "REPLCONF"}
    links = {row["connection"] for row in shaken}
    whys = {row["why"] for row in rows(trace.connections) if row["connection"] in links and row["event"] == "close"}
    assert whys == {"the replication stream behind PSYNC is not read"}
    assert "secret" not in str([row for row in rows(trace.requests) if row["protocol"] == "redis"])


# ---- joined in the middle


def read_exactly(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(connection.recv(min(size, 1 << 16)))


def test_joined_in_the_middle_of_a_reply(tmp_path: Path) -> None:
    """A command is sent while a reply is under way; what comes after both is paired, and the reply has no row."""
    value = b"x" * BIG
    head = b"$%d\r\n" % len(value)
    with running_server(tmp_path) as (pid, port), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n" + head + value + b"\r\n")
        read_exactly(connection, 5)
        connection.sendall(b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n")
        read_exactly(connection, len(head) + 1_000_000)
        with tracehound.trace(pid=pid, record=str(tmp_path / "record")) as trace:
            connection.sendall(b"*2\r\n$3\r\nGET\r\n$6\r\nmiddle\r\n")
            read_exactly(connection, len(value) - 1_000_000 + 2 + 5)
            time.sleep(1.5)  # so long without a byte no answer is owed any more
            for number in range(5):
                connection.sendall(b"*2\r\n$3\r\nGET\r\n$4\r\nno:%d\r\n" % number)
                read_exactly(connection, 5)
            connection.sendall(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n")
            read_exactly(connection, 15)
            last = "select 1 from requests where operation = 'ECHO'"
            wait_for(lambda: trace.sql(last).num_rows == 1, what="the last row")
    found = of_port(trace, port)["server"]
    said = [(row["operation"], row["resource"], row["outcome"], row["response_bytes"]) for row in found]
    assert said == [
        ("GET", "middle", "unknown", None),
        *(("GET", f"no:{number}", "ok", 5) for number in range(5)),
        ("PING", None, "ok", 7),
        ("ECHO", None, "ok", 8),
    ]
    assert all(row["joined_midstream"] for row in found)


def test_the_servers_commands_are_known_with_their_keys(tmp_path: Path) -> None:
    """Only keys are shown, so which arguments are keys must be what the server says."""
    with running_server(tmp_path) as (_, port), redis.Redis(port=port) as client:
        told: Any = client.execute_command("COMMAND")
    checked = 0
    for name, one in told.items():
        words = name.encode().split(b" ")
        command = find_command(words[0])
        assert command is not UNKNOWN, name
        if command.within is not None or command.effect != PLAIN or command.count_at or one["first_key_pos"] == 0:
            continue
        keys = (one["first_key_pos"], one["last_key_pos"], one["step_count"])
        assert (command.first, command.last, command.step) == keys, name
        checked += 1
    assert checked > 150
