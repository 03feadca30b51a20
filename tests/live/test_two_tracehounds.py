"""Two tracehounds on the same programs see the same, each whole: here one that runs under the other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.live.conftest import TRACEHOUND, RunCli

from tracehound.recording import Recording

SAME = {
    "requests": "role, pid, tid, process_start_ns, operation, resource, status, outcome, request_bytes, "
    "response_bytes, request_position, response_position, hex(exchange) as exchange, connection",
    "connections": "event, role, pid, tid, fd, cookie, connection, local_ip, local_port, remote_ip, remote_port, "
    "error, bytes_sent, bytes_received, send_calls, receive_calls, protocol",
    "listens": "event, pid, cookie, local_ip, local_port, backlog",
    "processes": "event, pid, process_start_ns, ppid, exe, argv, uid, exit_code, signal",
}
LEAST = {"requests": 400, "connections": 400, "listens": 2, "processes": 6}


def test_run_under_run(run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    command = python_target("http_load", "http.server", "python", "mixed", 200, 4, tmp_path)
    nested = [*TRACEHOUND, "run", "--record", inner, "--", "/bin/sh", "-c", '"$@"; exit 5', "sh", *command]
    result = run_cli("run", "--record", outer, "--", *nested)
    assert result.code == 5
    assert result.err.count("nothing lost") == 2
    for table, columns in SAME.items():
        seen_by_inner = read(inner, f"select {columns} from {table}")
        assert len(seen_by_inner) >= LEAST[table]
        pids = f"pid in ({', '.join({str(row['pid']) for row in seen_by_inner})})"
        assert read(outer, f"select {columns} from {table} where {pids}") == seen_by_inner


def read(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Recording(folder).sql(f"{sql} order by all").to_pylist()
    return found
