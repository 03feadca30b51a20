"""Descriptors are never identity: copied, inherited, passed on or used again, each socket keeps its own rows."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import Row, Traced, rows

CASES = (
    "dup", "dup2", "close_range", "fork", "passed_on", "exit_without_close", "half_close", "close_during_read",
    "reused", "served_by_exec",
)  # fmt: skip
ROLES = ("client", "server")
By = dict[tuple[str, int], list[Row]]  # by role and the client's port


class Run(NamedTuple):
    told: dict[str, Any]
    events: By
    requests: By
    losses: list[Row]

    def of(self, case: str) -> list[dict[str, Any]]:
        found = [connection for connection in self.told["connections"] if connection["case"] == case]
        assert found
        return found


@pytest.fixture(scope="module")
def run(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("descriptors")
    trace = traced(python_target("descriptors", folder / "told"), record=str(folder / "record"))
    assert trace.exit_code == 0
    tables: tuple[By, By] = (defaultdict(list), defaultdict(list))
    for by, table in zip(tables, (trace.connections, trace.requests), strict=True):
        tcp = [
            row for row in rows(table) if row["local_port"] is not None
        ]  # it also passes descriptors by unix sockets
        for row in sorted(tcp, key=lambda row: (row.get("request_position", 0), row["time_ns"])):
            by[row["role"], row["local_port" if row["role"] == "client" else "remote_port"]].append(row)
    return Run(json.loads((folder / "told").read_text()), *tables, rows(trace.losses))


@pytest.mark.parametrize("case", CASES)
def test_connection_opens_and_closes_once(case: str, run: Run) -> None:
    for connection in run.of(case):
        opened, closed = run.events["client", connection["port"]]
        accepted, other = run.events["server", connection["port"]]
        assert [row["event"] for row in (opened, closed, accepted, other)] == ["open", "close", "accept", "close"]
        assert {row["error"] for row in (opened, closed, accepted, other)} == {None}
        assert connection["closed_after_ns"] <= closed["time_ns"] <= connection["closed_before_ns"]
        counted = (connection["sent"], connection["received"])
        assert (closed["bytes_sent"], closed["bytes_received"]) == counted
        assert (other["bytes_received"], other["bytes_sent"]) == counted
        assert opened["connection"] == closed["connection"] != accepted["connection"] == other["connection"]


@pytest.mark.parametrize("case", CASES)
def test_requests_are_of_their_connection_and_process(case: str, run: Run) -> None:
    for connection in run.of(case):
        clients, servers = (run.requests[role, connection["port"]] for role in ROLES)
        assert [(row["resource"], row["pid"]) for row in clients] == [tuple(each) for each in connection["requests"]]
        server = connection["server_pid"] or run.told["server"]
        assert [(row["resource"], row["pid"]) for row in servers] == [
            (path, server) for path, _ in connection["requests"]
        ]
        assert [row["exchange"] for row in clients] == [row["exchange"] for row in servers]
        for row in (*clients, *servers):
            said = (row["status"], row["outcome"], row["truncated"], row["gap"], row["joined_midstream"])
            assert said == (200, "ok", False, False, False)
        for role, of_role in zip(ROLES, (clients, servers), strict=True):
            (number,) = {row["connection"] for row in run.events[role, connection["port"]]}
            assert {row["connection"] for row in of_role} == {number}


def test_response_read_on_a_closed_descriptor_takes_its_time(run: Run) -> None:
    (row,) = (row for row in run.requests["client", run.of("close_during_read")[0]["port"]])
    assert row["duration_ns"] > 250_000_000


def test_there_is_no_other_row_and_no_loss(run: Run) -> None:
    assert run.losses == []
    ports = {connection["port"] for connection in run.told["connections"]}
    assert {port for _, port in (*run.events, *run.requests)} == ports
    counted = Counter(row["event"] for ends in run.events.values() for row in ends)
    assert counted == {"open": len(ports), "accept": len(ports), "close": 2 * len(ports)}
