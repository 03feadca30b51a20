"""A capture that tcpdump takes of the traffic of a live run gives the rows of the run: one for each `exchange`."""

import json
import shutil
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from tests.live.conftest import TRACEHOUND, Row, Running
from tests.sources.packets import Rows, read

from tracehound.recording import Recording

REQUESTS: Final = 60  # of each client
SNAPLENS: Final = ("262144", "512", "96")
SEARCHED: Final = "/usr/sbin:/sbin:/usr/bin:/bin"
CONNECTIONS: Final = 4  # of each client at once; every other one is closed after each request
SAME: Final = (
    "protocol", "operation", "resource", "status", "outcome", "error_type", "host", "request_position",
    "response_position", "request_bytes", "response_bytes", "local_ip", "local_port", "remote_ip", "remote_port",
)  # fmt: skip
ENDS: Final = ("local_ip", "local_port", "remote_ip", "remote_port")


class Live(NamedTuple):
    requests: list[Row]
    connections: list[Row]
    captures: dict[str, Rows]

    def by_exchange(self) -> dict[bytes, Row]:
        """Return the clients' rows; each call is one."""
        found = {row["exchange"]: row for row in self.requests if row["role"] == "client"}
        assert None not in found
        return found


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, python_target: Callable[..., list[str]]) -> Live:
    missing = [name for name in ("tcpdump", "ip", "unshare", "nginx") if shutil.which(name, path=SEARCHED) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("captures")
    target = python_target("http_load", "nginx", "python,requests,curl", "mixed", REQUESTS, CONNECTIONS, folder)
    capture = ["unshare", "--net", *python_target("captured", folder, ",".join(SNAPLENS)), "--"]
    arguments = ["run", "--record", folder / "record", "--", *target]
    finished = Running(arguments, {}, {"prefix": [*capture, *TRACEHOUND]}).finish(180)
    assert finished.code == 0, finished.err
    assert "nothing lost" in finished.err
    recording = Recording(folder / "record")
    requests, connections = (recording.table(name).to_pylist() for name in ("requests", "connections"))
    told = json.loads((folder / "sent.json").read_text())
    assert sum(map(len, told["sent"].values())) == 3 * REQUESTS
    return Live(requests, connections, {length: read(folder / f"{length}.pcap") for length in SNAPLENS})


@pytest.mark.parametrize("snaplen", SNAPLENS[:2])
def test_one_row_for_each_exchange_of_the_live_run(snaplen: str, live: Live) -> None:
    """As long as the heads of all messages are in the capture."""
    expected, rows = live.by_exchange(), live.captures[snaplen]
    assert rows.error is None and rows.of("losses") == []
    found = {row["exchange"]: row for row in rows.of("requests")}
    assert len(found) == len(rows.of("requests")) == len(expected) == 3 * REQUESTS
    for exchange, row in found.items():
        other = expected[exchange]
        assert {name: row[name] for name in SAME} == {name: other[name] for name in SAME}
        assert not (row["gap"] or row["truncated"] or row["joined_midstream"])
        assert {row[name] for name in ("role", "pid", "tid", "comm", "service")} == {None}
        away_ns = row["wall_time"].value - other["wall_time"].value
        assert abs(away_ns) < 1_000_000_000


@pytest.mark.parametrize("snaplen", SNAPLENS)
def test_connections_are_those_of_the_live_run(snaplen: str, live: Live) -> None:
    def opened_and_closed(rows: list[Row], role: str | None) -> dict[tuple[object, ...], list[object]]:
        found: dict[tuple[object, ...], list[object]] = {}
        for row in rows:
            if row["role"] == role and row["transport"] == "tcp":
                of_ends = found.setdefault(tuple(row[name] for name in ENDS), [None, None, None])
                if row["event"] == "close":
                    of_ends[1:] = row["bytes_sent"], row["bytes_received"]
                else:
                    of_ends[0] = row["event"]
        return found

    expected = opened_and_closed(live.connections, "client")
    assert len(expected) > 3 * (CONNECTIONS // 2 + REQUESTS // 2)  # and those that saw that the server is there
    assert opened_and_closed(live.captures[snaplen].of("connections"), None) == expected


def test_a_short_snaplen_is_right_or_marked(live: Live) -> None:
    """96 bytes hold 30 of payload: no whole head. What is not marked is as in the live run."""
    expected, rows = live.by_exchange(), live.captures["96"]
    assert rows.error is None
    for row in rows.of("requests"):
        if not (row["truncated"] or row["gap"]):
            other = expected[row["exchange"]]
            assert {name: row[name] for name in SAME} == {name: other[name] for name in SAME}
    lost = rows.lost()
    assert set(lost) == {"uncaptured"}
    with_bytes = {row["connection"] for row in rows.of("connections") if row["protocol"] == "http1"}
    assert len(with_bytes) == 3 * (CONNECTIONS // 2 + REQUESTS // 2)
    assert {row["connection"] for row in rows.of("losses")} == with_bytes
