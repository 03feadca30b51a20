"""Connections: each is opened and closed once, its bytes are what the programs counted, and no bystander is seen."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import Row, Traced, rows

from tracehound import LiveTrace

CONNECTIONS = 10_000
TABLES_WITH_PIDS = ("connections", "requests", "processes", "listens")


class Run(NamedTuple):
    """One traced target: the trace, what the target told, and what a bystander did meanwhile."""

    trace: LiveTrace
    told: dict[str, Any]
    bystander: dict[str, Any]


def events(run: Run, **wanted: object) -> list[Row]:
    """Return the rows of `connections` whose columns have these values."""
    return [row for row in rows(run.trace.connections) if all(row[name] == value for name, value in wanted.items())]


@pytest.fixture(scope="module")
def short(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """10,000 short connections; a bystander makes 500 of its own, outside the tree but started by the same process."""
    folder = tmp_path_factory.mktemp("short")

    def bystander(_: object) -> None:
        subprocess.run(python_target("short_connections", 500, 2, folder / "bystander"), check=True, timeout=60)

    trace = traced(
        python_target("short_connections", CONNECTIONS, 4, folder / "told"), bystander, record=str(folder / "record")
    )
    assert trace.exit_code == 0
    return Run(trace, *(json.loads((folder / name).read_text()) for name in ("told", "bystander")))


@pytest.fixture(scope="module")
def ends(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ends")
    trace = traced(python_target("connection_ends", folder / "told"), record=str(folder / "record"))
    assert trace.exit_code == 0
    told = json.loads((folder / "told").read_text())
    with suppress(ProcessLookupError):
        os.kill(told["left_open"]["holder"], signal.SIGTERM)
    return Run(trace, told, {})


def test_every_connection_opens_and_closes_once(short: Run) -> None:
    assert rows(short.trace.losses) == []
    counted = Counter(
        (row["event"], row["role"]) for row in rows(short.trace.connections) if row["event"] != "snapshot"
    )
    assert counted == {
        ("open", "client"): CONNECTIONS,
        ("accept", "server"): CONNECTIONS,
        ("close", "client"): CONNECTIONS,
        ("close", "server"): CONNECTIONS,
    }
    opened = Counter(row["connection"] for row in events(short, event="open") + events(short, event="accept"))
    closed = Counter(row["connection"] for row in events(short, event="close"))
    assert opened == closed and set(opened.values()) == {1}


@pytest.mark.parametrize("role", ["client", "server"])
def test_bytes_are_what_the_program_counted(role: str, short: Run) -> None:
    closes = events(short, event="close", role=role)
    told = short.told[role]
    assert sum(row["bytes_sent"] for row in closes) == told["sent"]
    assert sum(row["bytes_received"] for row in closes) == told["received"]
    assert {row["pid"] for row in closes} == {told["pid"]}
    assert {row["error"] for row in closes} == {None}


def test_bytes_of_each_connection_agree_at_both_ends(short: Run) -> None:
    sides: tuple[dict[int, list[Row]], ...] = ({}, {})
    for row in sorted(events(short, event="close"), key=lambda row: row["time_ns"]):
        is_client = row["role"] == "client"
        port = row["local_port" if is_client else "remote_port"]  # of the client; used again after a while
        sides[is_client].setdefault(port, []).append(row)
    servers, clients = sides
    assert clients.keys() == servers.keys()
    for port, of_port in clients.items():
        for client, server in zip(of_port, servers[port], strict=True):
            assert (client["bytes_sent"], client["bytes_received"]) == (server["bytes_received"], server["bytes_sent"])


def test_no_row_is_of_a_bystander(short: Run) -> None:
    pids = {short.bystander[role]["pid"] for role in ("client", "server")}
    for name in TABLES_WITH_PIDS:
        for row in rows(getattr(short.trace, name)):
            assert row["pid"] not in pids
            assert short.bystander["port"] not in (row.get("local_port"), row.get("remote_port"))
            assert row["pid"] != os.getpid() or name == "processes"


@pytest.mark.parametrize("fixture", ["short", "ends"])
def test_cookie_is_never_0(fixture: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(fixture)
    cookies = [row["cookie"] for row in rows(run.trace.connections) + rows(run.trace.listens)]
    assert cookies and all(cookies)


@pytest.mark.parametrize(("fixture", "still_open"), [("short", 0), ("ends", 2)])
def test_books_balance(fixture: str, still_open: int, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(fixture)
    counted = Counter(row["event"] for row in rows(run.trace.connections))
    preexisting = len({row["connection"] for row in rows(run.trace.connections) if row["preexisting"]})
    assert counted["open"] + counted["accept"] + preexisting == counted["close"] + still_open


def at(run: Run, name: str, role: str) -> list[Row]:
    """Return the rows of one end of a named connection, in order."""
    ports = run.told[name]
    near, far = ("client", "server") if role == "client" else ("server", "client")
    found = events(run, local_port=ports[near], remote_port=ports[far])
    return sorted(found, key=lambda row: row["time_ns"])


def test_refused_connection_is_one_error(ends: Run) -> None:
    (row,) = events(ends, remote_port=ends.told["refused"]["server"])
    said = (row["event"], row["error"], row["role"], row["pid"], row["remote_ip"])
    assert said == ("error", "ECONNREFUSED", "client", ends.told["refused"]["pid"], "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "sent", "received"), [("reset", 16, 0), ("idle", 0, 0), ("half_closed", 8, 10), ("ended_by_exit", 5, 0)]
)
def test_end_is_told_by_both_sides(name: str, sent: int, received: int, ends: Run) -> None:
    opened, closed = at(ends, name, "client")
    accepted, other = at(ends, name, "server")
    assert [row["event"] for row in (opened, closed, accepted, other)] == ["open", "close", "accept", "close"]
    assert (closed["bytes_sent"], closed["bytes_received"]) == (sent, received)
    assert (other["bytes_sent"], other["bytes_received"]) == (received, sent)
    assert {row["pid"] for row in (opened, closed, accepted, other)} == {ends.told[name]["pid"]}
    assert other["error"] == ("ECONNRESET" if name == "reset" else None)
    if name != "reset":
        assert closed["error"] is None


@pytest.mark.parametrize("role", ["client", "server"])
def test_connection_left_open_has_no_close(role: str, ends: Run) -> None:
    found = [row["event"] for row in at(ends, "left_open", role)]
    assert found[0] == {"client": "open", "server": "accept"}[role]
    assert "close" not in found and found[-1] == "snapshot"


def test_listening_sockets_open_and_close_once(ends: Run) -> None:
    ports = [ends.told[name]["server"] for name in ends.told]
    found = Counter((row["local_port"], row["event"]) for row in rows(ends.trace.listens))
    assert found == {(port, event): 1 for port in ports for event in ("open", "close")}
