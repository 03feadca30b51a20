"""Rows that the tests of outputs share: a shop of a few services, as UX.md tells it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tracehound.tables import TABLES, build

WALL_NS = 1_700_000_000_204_000_000
BOTH_ENDS = b"A" * 8
ONE_END = b"B" * 8


def batch(table: str, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows of a table; what a row lacks is null."""
    names = sorted({name for row in rows for name in row})
    return build(TABLES[table], len(rows), {name: [row.get(name) for row in rows] for name in names})


def call(name: str, peer: str | None, port: int, **values: Any) -> dict[str, Any]:
    """Return one client row of `requests`."""
    row: dict[str, Any] = {
        "time_ns": 1_000_000, "wall_time": WALL_NS, "pid": 42, "service": name, "comm": "python", "role": "client",
        "protocol": "http1", "peer_service": peer, "remote_ip": "127.0.0.1", "remote_port": port, "operation": "GET",
        "resource": "/orders/17", "route": "/orders/{id}", "status": 200, "outcome": "ok", "duration_ns": 2_000_000,
        "request_bytes": 190, "response_bytes": 6000, "exchange": BOTH_ENDS + bytes(8),
    }  # fmt: skip
    return row | values


def shop() -> dict[str, pa.RecordBatch]:
    """Return the rows of a run: calls of both ends and of one, errors, a refused connection, bad exits."""
    requests = [call("web", "orders", 8001, duration_ns=1_400_000 * (1 + i % 10)) for i in range(198)]
    requests += [call("web", "orders", 8001, status=500, outcome="server_error", duration_ns=900_000)] * 2
    redis = {"protocol": "redis", "status": None, "resource": "cart:17", "route": None}
    requests += [call("orders", "redis", 6379, duration_ns=30_000 * (1 + i % 10), **redis) for i in range(600)]
    far = {"remote_ip": "203.0.113.9", "protocol": "tls", "status": None, "operation": None, "route": None}
    requests += [call("orders", None, 443, duration_ns=88_000_000, **(far | {"resource": None}))]
    sql = {"protocol": "postgresql", "status": None, "statement": "SELECT * FROM orders WHERE id = ?"}
    failed = {"outcome": "client_error", "error_type": "23505", "duration_ns": 22_400_000}
    message = 'duplicate key value violates unique constraint "orders_pkey"'
    requests += [call("orders", "postgres", 5432, **sql, **failed, error_message=message)]
    served = {"role": "server", "peer_service": None, "remote_port": 40001, "local_port": 8001}
    requests += [call("orders", None, 0, **served)] * 200
    requests += [call("orders", None, 0, **(served | {"remote_ip": "10.0.0.5"}), exchange=ONE_END + bytes(8))] * 7
    requests += [call("redis", None, 0, **(served | {"local_port": 6379}), **redis) | {"comm": "redis-server"}]
    refused = {"event": "error", "service": "worker", "pid": 7, "time_ns": 2_000_000, "wall_time": WALL_NS}
    refused |= {"remote_ip": "127.0.0.1", "remote_port": 5672, "error": "ECONNREFUSED"}
    exits: list[dict[str, Any]] = [{"event": "start"}] * 9
    exits += [{"event": "exit", "exit_code": 0}, {"event": "exit", "exit_code": 3}]
    exits += [{"event": "exit", "signal": "SIGKILL", "reason": "oom_kill"}]
    opens: list[dict[str, Any]] = [
        {"resolved_path": f"/tmp/shop/{i % 3}/order", "flags": ["O_WRONLY"]} for i in range(13)
    ]
    opens += [{"resolved_path": "/tmp/shop/log", "flags": ["O_RDWR", "O_CREAT"]}]
    opens += [
        {"resolved_path": "/etc/passwd", "flags": ["O_RDONLY"]},
        {"resolved_path": "/dev/null", "flags": ["O_WRONLY"]},
    ]
    denied = {"resolved_path": "/etc/shadow", "flags": ["O_WRONLY"], "errno": "EACCES"}
    return {
        "files": batch("files", [*({"fd": 3} | row for row in opens), denied]),
        "requests": batch("requests", requests),
        "connections": batch("connections", [refused] * 3),
        "processes": batch("processes", exits),
    }
