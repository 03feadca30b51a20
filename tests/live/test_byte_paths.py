"""HTTP over every way in which bytes reach a TCP socket: rows, positions and counts are those of the programs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.live.conftest import Row, Traced, rows

BODIES = (10, 100_000, 300_000)
# A star: only bodies go this way, heads by write and read.
READABLE = [
    "write:read", "write:read:nonblocking", "send:recv", "send:recv:nonblocking", "writev:readv",
    "writev:readv:nonblocking", "sendmsg:recvmsg", "sendmsg:recvmsg:nonblocking", "sendmmsg:recvmmsg",
    "sendmmsg:recvmmsg:nonblocking", "zerocopy:peek", "zerocopy:peek:nonblocking",
]  # fmt: skip
OPAQUE_BODIES = [
    "*sendfile:read", "*sendfile:read:nonblocking", "*splice:read", "*splice:*splice", "*splice:*splice:nonblocking",
    "send:*truncate", "*uring:*uring", "*uring:*uring:nonblocking", "*uring_worker:*uring_worker",
]  # fmt: skip
OPAQUE = ["uring:uring", "uring_worker:uring_worker", "uring:uring:nonblocking"]
LONG_VECTORS = ["writev300:readv300"]
PATHS = [*READABLE, *OPAQUE_BODIES, *OPAQUE, *LONG_VECTORS]
ROLES = ("client", "server")


@dataclass(frozen=True, slots=True)
class End:
    """What a program said of one end of a connection, and the rows of it."""

    pid: int
    sent: int
    received: int
    requests: list[Row]
    close: Row


@pytest.fixture(scope="module")
def ends(
    traced: Traced, c_target: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], End]:
    folder = tmp_path_factory.mktemp("paths")
    told = folder / "told"
    trace = traced([c_target("byte_paths"), told, *PATHS], record=str(folder / "record"))
    assert trace.exit_code == 0
    port_of = {"client": "local_port", "server": "remote_port"}
    requests: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows(trace.requests), key=lambda row: row["request_position"]):
        requests.setdefault((row["role"], row[port_of[row["role"]]]), []).append(row)
    closes = {
        (row["role"], row[port_of[row["role"]]]): row for row in rows(trace.connections) if row["event"] == "close"
    }
    found = {}
    for line in told.read_text().splitlines():
        path, role, pid, port, sent, received = line.split()
        key = role, int(port)
        found[path, role] = End(int(pid), int(sent), int(received), requests.get(key, []), closes[key])
    assert set(found) == {(path, role) for path in PATHS for role in ROLES}
    uncertain = {row["connection"] for row in rows(trace.losses) if row["stage"] in ("stream", "pairing", "parse")}
    assert uncertain == {found[path, role].close["connection"] for path in LONG_VECTORS for role in ROLES}
    return found


def messages(path: str) -> Iterator[tuple[str, int, int]]:
    """Yield resource, request and response size of a path's exchanges."""
    for number, body in enumerate(BODIES):
        request = f"POST /{path}/{number} HTTP/1.1\r\nHost: test\r\nX-Fill: {0:0200}\r\nContent-Length: {body}\r\n\r\n"
        response = f"HTTP/1.1 20{number} Text\r\nX-Fill: {0:0200}\r\nContent-Length: {body}\r\n\r\n"
        yield f"/{path}/{number}", len(request) + body, len(response) + body


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", PATHS)
def test_bytes_are_what_the_program_counted(path: str, role: str, ends: dict[tuple[str, str], End]) -> None:
    end = ends[path, role]
    assert (end.close["bytes_sent"], end.close["bytes_received"]) == (end.sent, end.received)
    assert end.close["pid"] == end.pid


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", [*READABLE, *OPAQUE_BODIES])
def test_requests_are_exact(path: str, role: str, ends: dict[tuple[str, str], End]) -> None:
    expected, position = [], [0, 0]
    for number, (resource, request, response) in enumerate(messages(path)):
        expected.append(("POST", resource, 200 + number, request, response, *position, False, False))
        position[0] += request
        position[1] += response
    names = (
        "operation", "resource", "status", "request_bytes", "response_bytes", "request_position", "response_position",
        "gap", "truncated",
    )  # fmt: skip
    assert [tuple(row[name] for name in names) for row in ends[path, role].requests] == expected


@pytest.mark.parametrize("path", [*READABLE, *OPAQUE_BODIES])
def test_both_ends_agree_on_the_exchange(path: str, ends: dict[tuple[str, str], End]) -> None:
    client, server = ([row["exchange"] for row in ends[path, role].requests] for role in ROLES)
    assert client == server
    assert None not in client


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", OPAQUE)
def test_connection_that_only_io_uring_moves_says_why_it_is_not_read(
    path: str, role: str, ends: dict[tuple[str, str], End]
) -> None:
    close = ends[path, role].close
    assert (close["protocol"], close["why"]) == (None, "its bytes are moved by io_uring, which is not read")
    assert close["send_calls"] >= len(BODIES)
    assert close["receive_calls"] >= len(BODIES)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", LONG_VECTORS)
def test_head_in_more_than_128_iovecs_is_truncated(path: str, role: str, ends: dict[tuple[str, str], End]) -> None:
    found = ends[path, role].requests
    assert [row["resource"] for row in found] == [resource for resource, _, _ in messages(path)]
    assert all(row["truncated"] and not row["gap"] for row in found)


@pytest.mark.parametrize("threads", [2, 4, 8])
def test_threads_that_share_a_socket(
    threads: int, traced: Traced, c_target: Callable[[str], Path], tmp_path: Path
) -> None:
    count = 2000
    trace = traced([c_target("shared_socket"), threads, count], record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    found: dict[str, dict[bytes, Row]] = {role: {} for role in ROLES}
    for row in rows(trace.requests):
        found[row["role"]][row["exchange"]] = row
    assert found["client"].keys() == found["server"].keys()
    wanted = sorted(f"/{thread}/{number}" for thread in range(threads) for number in range(count))
    for role in ROLES:
        assert sorted(row["resource"] for row in found[role].values()) == wanted
        positions = sorted(row["request_position"] for row in found[role].values())
        assert positions == [512 * number for number in range(threads * count)]
        assert {(row["status"], row["gap"]) for row in found[role].values()} == {(200, False)}
    for exchange, row in found["client"].items():
        assert row["resource"] == found["server"][exchange]["resource"]
    assert rows(trace.losses) == []
