"""Every server with every client: each request is one row at each end, as in the server's own log, exactly paired."""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.live.conftest import TARGETS, Row, Traced, rows
from tests.live.test_http_servers import check_pairs, check_row, read_log, triples

SERVERS: Final = ("nginx", "haproxy", "gunicorn", "uvicorn", "aiohttp", "node", "go")
CLIENTS: Final = ("python", "curl", "requests", "httpx", "aiohttp", "node", "go")
REQUESTS: Final = 40  # of each client
CONNECTIONS: Final = 4  # of each client at once; every other one is closed after each request


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The Go server and client, built; None where Go is not installed."""
    compiler = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if compiler is None:
        return None
    folder = tmp_path_factory.mktemp("go")
    environment = {"HOME": str(folder), **os.environ, "GO111MODULE": "off", "GOTOOLCHAIN": "local"}
    command = [compiler, "build", "-o", str(folder / "http_go"), str(TARGETS / "http_go.go")]
    subprocess.run(command, check=True, timeout=300, env=environment)
    return folder / "http_go"


@pytest.mark.parametrize("server", SERVERS)
def test_rows_are_the_servers_log(
    server: str, traced: Traced, python_target: Callable[..., list[str]], go_program: Path | None, tmp_path: Path
) -> None:
    clients = [name for name in CLIENTS if is_there(name, go_program)]
    if not is_there(server, go_program):
        pytest.skip(f"{server} is not installed")
    if go_program:
        shutil.copy(go_program, tmp_path)
    command = python_target("http_load", server, ",".join(clients), "mixed", REQUESTS, CONNECTIONS, tmp_path)
    trace = traced(command, record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    told = json.loads((tmp_path / "sent.json").read_text())
    sent = Counter(tuple(triple) for client in clients for triple in told["sent"][client])
    assert sent.total() == len(clients) * REQUESTS
    hops = {told["port"]: "access.log"}
    if server == "haproxy":
        hops = {told["port"]: "proxy.log", told["behind"]: "access.log"}

    assert rows(trace.losses) == []
    by_port: dict[int, list[Row]] = {port: [] for port in hops}
    for row in rows(trace.requests):
        by_port[row["remote_port" if row["role"] == "client" else "local_port"]].append(row)
    for port, log in hops.items():
        assert read_log(tmp_path / log) == sent  # the target itself is right
        check_hop(by_port[port], port, sent, answers_early=server in ("nginx", "haproxy"))
    check_clients([row for row in by_port[told["port"]] if row["role"] == "client"], clients)


def is_there(name: str, go_program: Path | None) -> bool:
    return go_program is not None if name == "go" else name != "node" or shutil.which("node") is not None


def check_hop(found: list[Row], port: int, sent: Counter[tuple[str, str, int]], answers_early: bool) -> None:
    """Both ends of one listening port give every request once."""
    ends = {role: [row for row in found if row["role"] == role] for role in ("client", "server")}
    assert len(found) == 2 * sent.total()
    for of_role in ends.values():
        assert triples(of_role) == sent
    check_pairs(ends["client"], ends["server"], answers_early)
    for row in found:
        check_row(row, port)


def check_clients(found: list[Row], clients: list[str]) -> None:
    """Each client used as many connections as it was told to, and the rows are of that client's program."""
    for client in clients:
        own = [row for row in found if row["resource"].split("/")[2] == client]
        kept = [row for row in own if int(row["resource"].split("/")[3]) % CONNECTIONS % 2 == 0]
        assert len({row["connection"] for row in kept}) == CONNECTIONS / 2
        assert len({row["connection"] for row in own}) == CONNECTIONS / 2 + REQUESTS / 2
        named = {"curl": "curl", "node": "node", "go": "http_go"}.get(client)
        assert named is None or {row["comm"] for row in own} == {named}
