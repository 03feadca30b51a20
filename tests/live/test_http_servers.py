"""Real servers and clients: every request is one row at each end, as in the server's own log, and nothing is lost."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.conftest import Row, Traced, rows

REQUESTS = 1000
CONNECTIONS = 10


def triples(ends: list[Row]) -> Counter[tuple[str, str, int]]:
    return Counter((row["operation"], row["resource"], row["status"]) for row in ends)


def outcome_of(status: int) -> str:
    return {4: "client_error", 5: "server_error"}.get(status // 100, "ok")


@pytest.mark.parametrize("mode", ["keep-alive", "close"])
@pytest.mark.parametrize(
    ("server", "client"), [("nginx", "python"), ("http.server", "python"), ("uvicorn", "python"), ("nginx", "curl")]
)
def test_every_request_is_one_row_at_each_end(
    server: str, client: str, mode: str, traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    trace = traced(
        python_target("http_load", server, client, mode, REQUESTS, CONNECTIONS, tmp_path),
        record=str(tmp_path / "record"),
    )
    assert trace.exit_code == 0
    told = json.loads((tmp_path / "sent.json").read_text())
    sent = Counter(tuple(triple) for triple in told["sent"][client])
    logged = read_log(tmp_path / "access.log")
    assert sent == logged and sent.total() == REQUESTS  # the target itself is right

    assert rows(trace.losses) == []
    found = rows(trace.requests)
    clients = [row for row in found if row["role"] == "client"]
    servers = [row for row in found if row["role"] == "server"]
    assert (len(clients), len(servers), len(found)) == (REQUESTS, REQUESTS, 2 * REQUESTS)
    assert triples(clients) == logged
    assert triples(servers) == logged
    check_pairs(clients, servers, answers_early=server == "nginx")
    for row in found:
        check_row(row, told["port"])
    opened = {row["connection"] for row in clients}
    assert len(opened) == (CONNECTIONS if mode == "keep-alive" else REQUESTS)


def read_log(log: Path) -> Counter[tuple[str, str, int]]:
    triples = [line.split() for line in log.read_text().splitlines()]
    return Counter((method, path, int(status)) for method, path, status in triples)


def check_pairs(clients: list[Row], servers: list[Row], answers_early: bool) -> None:
    """Each client row has exactly one server row of its exchange, which says the same.

    A server that answers a POST before it has read its body says another size of the request than its client.
    """
    by_exchange = {row["exchange"]: row for row in servers}
    assert None not in by_exchange and len(by_exchange) == len(clients)
    assert {row["exchange"] for row in clients} == by_exchange.keys()
    for row in clients:
        other = by_exchange[row["exchange"]]
        same = ["operation", "resource", "status", "outcome", "response_bytes", "request_position"]
        if row["operation"] != "POST" or not answers_early:
            same.append("request_bytes")
        assert [row[name] for name in same] == [other[name] for name in same]
        assert (row["local_port"], row["remote_port"]) == (other["remote_port"], other["local_port"])
        assert row["pid"] != other["pid"]
        assert row["connection"] != other["connection"]


def check_row(row: Row, port: int) -> None:
    """What holds for every row of these runs."""
    assert row["protocol"] == "http1"
    assert row["outcome"] == outcome_of(row["status"])
    assert row["remote_port" if row["role"] == "client" else "local_port"] == port
    assert row["start_ns"] <= row["first_response_ns"] <= row["end_ns"] == row["time_ns"]
    assert row["duration_ns"] == row["end_ns"] - row["start_ns"]
    assert not (row["truncated"] or row["gap"] or row["joined_midstream"])
    assert row["comm"] and row["service"] and row["process_start_ns"] and row["wall_time"]
