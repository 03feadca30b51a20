"""PostgreSQL's own server and real drivers: rows are the statements of the server's log, and nothing is lost."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import TARGETS, Row, RunCli, Traced, rows, wait_for
from tests.live.postgresql_server import FOLDER, PASSWORD, USER, Server, running_server

import tracehound
from tracehound.protocols._sql import Sql

pytestmark = pytest.mark.skipif(FOLDER is None, reason="no PostgreSQL server in /usr/lib/postgresql")
ROUNDS = 50
PLANTED = ("hunter2-planted", PASSWORD)
NOT_LOGGED = ("STARTUP", "PREPARE", "message", "CANCEL")  # rows that log_statement does not log
NOT_FETCHED = (
    "dial tcp",
    "lookup",
    "timeout",
    "module lookup disabled",
    "reading http",
    "not found",
)  # by Go, of modules
Target = Callable[..., list[str]]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(postgresql: Server) -> Server:
    """The server, with an empty table."""
    postgresql.sql("drop table if exists things; create table things (id int primary key, name text)")
    return postgresql


def cleaned(statements: list[str]) -> Counter[str | None]:
    """Return the statements of a log as rows say them."""
    sql = Sql()
    return Counter(part.text for text in statements for _, part in sql.read(text.encode()) if part.text)


def told(found: list[Row]) -> Counter[str | None]:
    return Counter(row["statement"] for row in found if row["operation"] not in NOT_LOGGED)


def check_all(found: list[Row], role: str = "client") -> None:
    """What holds for every row of these runs."""
    for row in found:
        assert row["protocol"] == "postgresql" and row["role"] == role
        assert row["start_ns"] <= row["end_ns"] == row["time_ns"], row
        assert not (row["gap"] or row["joined_midstream"] or row["prepared_unknown"]), row
        assert (row["db_user"], row["db_namespace"]) == (USER, "postgres"), row
        assert row["status"] is None
        assert row["exchange"] is not None or row["operation"] == "message"
    for planted in PLANTED:
        assert planted not in repr(found)


def pgbench(server: Server, *options: str, unix: bool = False) -> list[str]:
    assert FOLDER is not None
    return [str(FOLDER / "pgbench"), "-n", *options, server.url(unix)]


@pytest.mark.parametrize(
    ("mode", "unix"), [("simple", False), ("extended", False), ("prepared", False), ("simple", True)]
)
def test_pgbench(mode: str, unix: bool, postgresql: Server, traced: Traced) -> None:
    subprocess.run(pgbench(postgresql, "-i", "-q"), check=True, capture_output=True, timeout=60)
    since = len(postgresql.log())
    trace = traced(pgbench(postgresql, "-M", mode, "-t", "100", "-c", "4", unix=unix))
    assert trace.exit_code == 0
    assert rows(trace.losses) == []
    found = rows(trace.requests)
    check_all(found)
    assert {row["outcome"] for row in found} == {"ok"}
    logged = cleaned(postgresql.statements(since))
    assert told(found) == logged and logged.total() >= 2800
    assert {row["rows"] for row in found if row["operation"] == "UPDATE"} == {1}
    kinds = Counter(row["operation"] for row in found)
    assert kinds["STARTUP"] == 5 and kinds["PREPARE"] == (28 if mode == "prepared" else 0)


@pytest.mark.parametrize("way", ["psycopg", "asyncpg", "pipeline"])
@pytest.mark.parametrize("unix", [False, True])
def test_driver(way: str, unix: bool, server: Server, traced: Traced, python_target: Target) -> None:
    since = len(server.log())
    trace = traced(python_target("postgresql_load", way, server.url(unix), ROUNDS))
    assert trace.exit_code == 0
    assert rows(trace.losses) == []
    found = rows(trace.requests)
    check_all(found)
    ran = [row for row in found if row["error_type"] != "skipped"]
    assert told(ran) == cleaned(server.statements(since))
    if way == "pipeline":
        failed = [row for row in found if row["error_type"] == "23505"]
        assert [row["error_message"] for row in failed] == [
            'duplicate key value violates unique constraint "things_pkey"'
        ]
        skipped = [row for row in found if row["error_type"] == "skipped"]
        assert [(row["outcome"], row["response_bytes"]) for row in skipped] == [("unknown", 0)] * 2
    else:
        assert {row["outcome"] for row in found} == {"ok"}


@pytest.mark.parametrize(
    ("program", "module", "options"),
    [
        ("postgresql_go", "github.com/lib/pq", ""),
        ("postgresql_pgx", "github.com/jackc/pgx", ""),
        ("postgresql_pgx", "github.com/jackc/pgx", "&default_query_exec_mode=exec"),
        ("postgresql_pgx", "github.com/jackc/pgx", "&default_query_exec_mode=simple_protocol"),
    ],
)
def test_go_driver(program: str, module: str, options: str, server: Server, traced: Traced, tmp_path: Path) -> None:
    client = built_in_go(program, module, tmp_path)
    since = len(server.log())
    trace = traced([client, f"{server.url()}?sslmode=disable{options}", ROUNDS])
    assert trace.exit_code == 0 and rows(trace.losses) == []
    found = rows(trace.requests)
    check_all(found)
    ran = [row for row in found if row["error_type"] is None or row["error_type"] == "23505"]
    logged = cleaned(server.statements(since))
    divisions = logged.pop("select ?/?")
    assert told(ran) == logged and divisions == 2
    assert Counter(row["error_type"] for row in found if row["error_type"]) == {"23505": 2, "22012": 2}


def built_in_go(program: str, module: str, folder: Path) -> Path:
    """Build a program of `targets`; skip where there is no Go, or where its driver cannot be had."""
    go = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if go is None:
        pytest.skip("no go command")
    source, client = shutil.copytree(TARGETS / program, folder / "source"), folder / "client"
    build = [go, "build", "-o", str(client), "."]
    built = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=300, check=False)
    if built.returncode and module in built.stderr and any(word in built.stderr for word in NOT_FETCHED):
        pytest.skip(f"the module {module} could not be fetched: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return client


def test_errors(server: Server, traced: Traced, python_target: Target) -> None:
    trace = traced(python_target("postgresql_load", "errors", server.url(), 1))
    assert trace.exit_code == 0 and rows(trace.losses) == []
    found = rows(trace.requests)
    check_all(found)
    failed = [(row["error_type"], row["outcome"], row["error_message"]) for row in found if row["outcome"] != "ok"]
    assert failed == [
        ("23505", "client_error", 'duplicate key value violates unique constraint "things_pkey"'),
        ("22P02", "client_error", 'invalid input syntax for type integer: "?"'),
        ("22P02", "client_error", 'invalid input syntax for type integer: "?"'),
        ("42601", "client_error", 'syntax error at or near "?"'),
        ("42P01", "client_error", 'relation "missing" does not exist'),
        ("P0001", "client_error", "(raised by the application: its text is not kept)"),
        ("28P01", "client_error", f'password authentication failed for user "{USER}"'),
    ]
    assert [row["operation"] for row in found if row["error_type"] == "28P01"] == ["STARTUP"]


def test_copy_both_ways(server: Server, traced: Traced, python_target: Target) -> None:
    count = 20_000
    trace = traced(python_target("postgresql_load", "copy", server.url(), count))
    assert trace.exit_code == 0 and rows(trace.losses) == []
    found = rows(trace.requests)
    check_all(found)
    copied = [row for row in found if row["operation"] == "COPY"]
    size = sum(len(f"{number}\thunter2-planted\n") for number in range(count))
    assert [(row["resource"], row["rows"], row["copied_bytes"], row["outcome"]) for row in copied] == [
        ("things", count, size, "ok"),
        (None, count, size, "ok"),
    ]
    assert copied[0]["request_bytes"] > size and copied[1]["response_bytes"] > size
    assert found[-1]["statement"] == "select ?" and found[-1]["outcome"] == "ok"


@pytest.mark.parametrize("way", ["large", "large-asyncpg"])
def test_result_of_50_megabytes(way: str, server: Server, traced: Traced, python_target: Target) -> None:
    trace = traced(python_target("postgresql_load", way, server.url(), 1))
    assert trace.exit_code == 0
    found = rows(trace.requests)
    check_all(found)
    large, last = [row for row in found if row["operation"] == "SELECT"][-2:]
    assert large["rows"] == 50_000 and large["outcome"] == last["outcome"] == "ok"
    assert large["response_bytes"] > 50_000_000
    assert large["first_response_ns"] < large["end_ns"] <= last["start_ns"]
    assert not last["truncated"] and last["rows"] == 1


def test_notifications(server: Server, traced: Traced, python_target: Target) -> None:
    trace = traced(python_target("postgresql_load", "listen", server.url(), 5))
    assert trace.exit_code == 0 and rows(trace.losses) == []
    found = rows(trace.requests)
    check_all(found)
    pushed = [row for row in found if row["operation"] == "message"]
    assert [(row["resource"], row["outcome"], row["response_bytes"]) for row in pushed] == [("news", "ok", None)] * 5


def test_cancel(server: Server, traced: Traced, python_target: Target) -> None:
    trace = traced(python_target("postgresql_load", "cancel", server.url(), 1))
    assert trace.exit_code == 0 and rows(trace.losses) == []
    found = rows(trace.requests)
    (slept,) = [row for row in found if row["statement"] == "select pg_sleep(?)"]
    assert (slept["error_type"], slept["outcome"]) == ("57014", "server_error")
    assert slept["error_message"] == "canceling statement due to user request"
    (cancel,) = [row for row in found if row["operation"] == "CANCEL"]
    assert (cancel["outcome"], cancel["request_bytes"], cancel["response_bytes"]) == ("ok", 16, None)
    assert slept["start_ns"] < cancel["start_ns"] < slept["end_ns"]


def test_attached_in_mid_session(server: Server, python_target: Target) -> None:
    command = python_target("postgresql_load", "session", server.url(), 10)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None and client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        with tracehound.trace(pid=client.pid) as trace:
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == "done\n"
            wait_for(lambda: len(trace.requests.to_arrow()) >= 12, what="the rows")
            client.stdin.write("\n")
            client.stdin.flush()
            client.wait(60)
        found = rows(trace.requests)
    unknown = [row for row in found if row["prepared_unknown"]]
    assert len(unknown) == 10
    for row in unknown:
        assert (row["operation"], row["statement"]) == ("EXECUTE", None)
        assert row["statement_id"].startswith("_pg3_") and row["outcome"] == "ok"
    known = [(row["operation"], row["resource"], row["outcome"]) for row in found if not row["prepared_unknown"]]
    assert known.count(("SELECT", "things", "ok")) == 2
    assert all(row["joined_midstream"] and row["db_user"] is None for row in found)


def test_both_ends_say_the_same(server: Server, python_target: Target) -> None:
    """The server's processes are traced from their fork on, the client as a process of its own."""
    since = len(server.log())
    command = ["sh", "-c", 'read line; exec "$@"', "sh"]
    command += python_target("postgresql_load", "pipeline", server.url(), ROUNDS)
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as client:
        with tracehound.trace(pid=[server.pid, client.pid]) as trace:
            client.communicate("go\n", timeout=60)
            wait_for(lambda: "disconnection: session" in server.log()[since:], what="the server's end of the session")
        assert client.returncode == 0
    found = rows(trace.requests)
    ends: dict[str, dict[Any, Row]] = {
        role: {row["exchange"]: row for row in found if row["role"] == role} for role in ("client", "server")
    }
    assert rows(trace.losses) == []
    assert ends["client"].keys() == ends["server"].keys() and None not in ends["client"]
    assert len(found) == 2 * len(ends["client"])
    same = (
        "operation", "resource", "statement", "statement_id", "outcome", "error_type", "error_message", "rows",
        "request_bytes", "response_bytes", "request_position", "response_position", "db_user", "application_name",
    )  # fmt: skip
    for exchange, row in ends["client"].items():
        other = ends["server"][exchange]
        assert [row[name] for name in same] == [other[name] for name in same]
    ran = [row for row in ends["server"].values() if row["error_type"] != "skipped"]
    assert told(ran) == cleaned(server.statements(since))


def test_summary_and_query(server: Server, run_cli: RunCli) -> None:
    assert FOLDER is not None
    text = "select count(*) from things where name = 'hunter2-planted'"
    result = run_cli("run", "--", FOLDER / "psql", server.url(), "-XAtc", text)
    assert result.code == 0 and "postgresql" in result.err and "hunter2" not in result.err
    asked = run_cli("query", "last", "select statement from requests where operation = 'SELECT'")
    assert "select count(*) from things where name = ?" in asked.out and "hunter2" not in asked.out
