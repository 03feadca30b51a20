"""Unix and UDP sockets: a row at the first use, one when the end is found, bytes as the programs counted, HTTP rows."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.live.conftest import Row, Traced, rows

ROLES = ("client", "server")
SOCKETS = ("named", "abstract", "pair", "datagrams", "udp", "udp6")
HTTP = ("named", "abstract", "pair")
REQUESTS = 20


@dataclass(frozen=True, slots=True)
class Run:
    """What the programs said (pid, bytes sent and received, calls of both), and the rows."""

    folder: str
    told: dict[str, dict[str, list[int]]]
    names: dict[str, Any]
    connections: list[Row]
    requests: list[Row]
    losses: list[Row]

    def rows_of(self, name: str, role: str) -> list[Row]:
        """Return the connection rows of one end, told by its process, transport and counters."""
        pid, sent, received, *_ = self.told[role][name]
        transport = "udp" if name.startswith("udp") else "unix"
        family = {"udp": "ipv4", "udp6": "ipv6"}.get(name, "unix")
        closes = [
            row for row in self.connections
            if row["event"] == "close" and (row["pid"], row["transport"], row["family"]) == (pid, transport, family)
            and (row["bytes_sent"], row["bytes_received"]) == (sent, received)
        ]  # fmt: skip
        assert len(closes) == 1, f"{name} {role}: {len(closes)} close rows with the bytes that it counted"
        return [row for row in self.connections if row["connection"] == closes[0]["connection"]]


@pytest.fixture(scope="module")
def run(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("unix")
    trace = traced(python_target("unix_udp", folder), record=str(folder / "record"))
    assert trace.exit_code == 0
    told = {role: json.loads((folder / role).read_text()) for role in ROLES}
    names = json.loads((folder / "names").read_text())
    return Run(str(folder), told, names, rows(trace.connections), rows(trace.requests), rows(trace.losses))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", SOCKETS)
def test_socket_opens_and_ends_once_with_the_bytes_that_its_program_counted(name: str, role: str, run: Run) -> None:
    first, close = run.rows_of(name, role)
    told_role = role if name in ("named", "abstract", "udp", "udp6") else None
    assert (first["event"], close["event"]) == ("accept" if told_role == "server" else "open", "close")
    assert (first["role"], close["role"]) == (told_role, told_role)
    *_, sends, receives = run.told[role][name]
    assert (close["send_calls"], close["receive_calls"]) == (sends, receives)
    assert first["time_ns"] <= close["first_read_ns"] <= close["time_ns"]
    assert first["fd"] == close["fd"] >= 0
    assert (first["preexisting"], first["cookie"]) == (False, close["cookie"])
    assert close["cookie"] != 0


def test_paths_and_peers_of_unix_sockets(run: Run) -> None:
    client, server = run.told["client"]["named"][0], run.told["server"]["named"][0]
    assert client != server
    for name, path in (("named", f"{run.folder}/http.sock"), ("abstract", f"@{run.names['abstract']}")):
        for row in run.rows_of(name, "client"):
            assert (row["local_path"], row["remote_path"]) == (None, path)
        for row in run.rows_of(name, "server"):
            assert (row["local_path"], row["remote_path"], row["peer_pid"]) == (path, None, client)


def test_addresses_of_udp_sockets(run: Run) -> None:
    for name, address in (("udp", "127.0.0.1"), ("udp6", "::1")):
        port = run.names["ports"][name]
        for row in run.rows_of(name, "server"):
            ends = (row["local_ip"], row["local_port"], row["remote_ip"], row["remote_port"])
            assert ends == (address, port, None, None)
    for row in run.rows_of("udp", "client"):
        assert (row["remote_ip"], row["remote_port"]) == ("127.0.0.1", run.names["ports"]["udp"])
    for row in run.rows_of("udp6", "client"):  # not connected: each datagram has an address of its own
        assert (row["remote_ip"], row["remote_port"]) == (None, None)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", HTTP)
def test_http_over_unix_sockets(name: str, role: str, run: Run) -> None:
    connection = run.rows_of(name, role)[0]["connection"]
    found = sorted((r for r in run.requests if r["connection"] == connection), key=lambda r: r["request_position"])
    assert [row["resource"] for row in found] == [f"/{name}/{number}" for number in range(REQUESTS)]
    assert [row["status"] for row in found] == [200 + number % 2 for number in range(REQUESTS)]
    assert sum(row["request_bytes"] for row in found) == run.told["client"][name][1]
    assert sum(row["response_bytes"] for row in found) == run.told["client"][name][2]
    assert not any(row["gap"] or row["truncated"] for row in found)


def test_both_ends_agree_on_the_exchange(run: Run) -> None:
    named = [row for row in run.requests if row["role"] is not None]
    counted = Counter(row["exchange"] for row in named)
    assert len(counted) == 2 * REQUESTS
    assert set(counted.values()) == {2}
    assert None not in counted


def test_nothing_was_lost(run: Run) -> None:
    assert run.losses == []
