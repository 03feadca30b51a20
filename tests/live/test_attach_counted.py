"""UDP and unix sockets that are there before an attach: told once, marked, with roles, addresses and paths."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.conftest import Row, StartCli, rows
from tests.live.targets.counted_before import REQUEST, RESPONSE
from tests.live.test_attach import line_of, say

import tracehound
from tracehound.config import Filter

PythonTarget = Callable[..., list[str]]


@contextmanager
def target(python_target: PythonTarget, folder: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    command = python_target("counted_before", folder)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, json.loads(line_of(process.stdout))
        finally:
            process.kill()  # the server ends with its pipe
            process.communicate()


def test_sockets_from_before_are_told_once_and_marked(python_target: PythonTarget, tmp_path: Path) -> None:
    with target(python_target, tmp_path) as (process, told):
        with tracehound.trace(pid=told["client"]) as trace:
            open_now = {key_of(row): row for row in trace.open_connections().to_pylist()}
            say(process)
            assert line_of(process.stdout) == "done\n"
            open_then = {key_of(row): row for row in trace.open_connections().to_pylist()}
            say(process)
            trace.wait(20)
        assert rows(trace.losses) == []
    client, server, path = told["client"], told["server"], str(tmp_path / "listen")
    old = {
        (client, "unix", "client", None, path, None, None),
        (server, "unix", "server", path, None, None, None),
        (client, "unix", None, None, None, None, None),  # both ends of the datagrams' pair
        (server, "unix", None, None, None, None, None),
        (client, "udp", "client", None, None, told["udp_client_port"], told["udp_port"]),
        (server, "udp", "server", None, None, told["udp_port"], None),
    }
    assert open_now.keys() == old
    assert open_then.keys() >= old
    assert all(row["bytes_sent"] == row["bytes_received"] == 0 for row in open_now.values())
    carried = {name: (row["bytes_sent"], row["bytes_received"]) for name, row in open_then.items() if name in old}
    sizes = (len(REQUEST), len(RESPONSE), 3, 4)
    assert sorted(carried.values()) == sorted([sizes[:2], sizes[1::-1], (3, 3), (3, 3), (3, 4), (4, 3)])
    check_rows(rows(trace.connections), old, client)
    fds = {row["fd"] for row in rows(trace.connections) if row["pid"] == client and row["preexisting"]}
    assert fds >= set(told["fds"].values())


def key_of(row: Row) -> tuple[Any, ...]:
    names = ("pid", "transport", "role", "local_path", "remote_path", "local_port", "remote_port")
    return tuple(row[name] for name in names)


def check_rows(found: list[Row], old: set[tuple[Any, ...]], client: int) -> None:
    """Each from before begins with a snapshot and ends with a close; the one that was not used before just opens."""
    events: dict[int, list[Row]] = {}
    for row in sorted(found, key=lambda row: (row["time_ns"], row["event"] == "close")):
        events.setdefault(row["connection"], []).append(row)
    before = [each for each in events.values() if each[0]["preexisting"]]
    assert Counter(key_of(each[0]) for each in before) == dict.fromkeys(old, 1)
    for each in before:
        assert [row["event"] for row in each] == ["snapshot", "snapshot", "snapshot", "close"]
        assert all(row["preexisting"] for row in each)
    (new,) = [each for each in events.values() if not each[0]["preexisting"]]
    assert [row["event"] for row in new if row["event"] != "snapshot"] == ["open", "close"]
    assert (new[0]["pid"], new[0]["transport"], new[-1]["bytes_sent"]) == (client, "udp", 3)


def test_requests_on_a_unix_socket_from_before_meet(python_target: PythonTarget, tmp_path: Path) -> None:
    with target(python_target, tmp_path) as (process, told), tracehound.trace(pid=told["client"]) as trace:
        say(process)
        assert line_of(process.stdout) == "done\n"
        say(process)
        trace.wait(20)
    found = rows(trace.requests)
    assert {(row["pid"], row["role"], row["resource"], row["status"]) for row in found} == {
        (told["client"], "client", "/before", 200),
        (told["server"], "server", "/before", 200),
    }
    assert len({row["exchange"] for row in found}) == 1 and found[0]["exchange"] is not None


def test_a_listening_unix_socket_from_before(python_target: PythonTarget, tmp_path: Path) -> None:
    with target(python_target, tmp_path) as (process, told), tracehound.trace(pid=told["client"]) as trace:
        say(process)
        say(process)
        trace.wait(20)
    (opened, closed) = sorted(rows(trace.listens), key=lambda row: row["time_ns"])
    path = str(tmp_path / "listen")
    assert (opened["event"], opened["local_path"], opened["family"], opened["backlog"]) == ("open", path, "unix", 7)
    assert (opened["preexisting"], opened["pid"]) == (True, told["server"])
    assert (closed["event"], closed["local_path"], closed["cookie"]) == ("close", path, opened["cookie"])


def test_filters_by_port_leave_out_other_udp_and_all_unix_sockets(python_target: PythonTarget, tmp_path: Path) -> None:
    with target(python_target, tmp_path) as (process, told):
        with (
            tracehound.trace(pid=told["client"], filters=(Filter("port", True, told["udp_port"]),)) as only,
            tracehound.trace(pid=told["client"], filters=(Filter("port", False, told["udp_port"]),)) as others,
        ):
            say(process)
            assert line_of(process.stdout) == "done\n"
            say(process)
            only.wait(20)
            others.wait(20)
        assert {row["transport"] for row in rows(only.connections)} == {"udp"}
        assert Counter(row["event"] for row in rows(only.connections)) == {"snapshot": 2, "close": 2}
        assert rows(only.requests) == [] and rows(only.listens) == []
        assert told["udp_port"] not in {
            port for row in rows(others.connections) for port in (row["local_port"], row["remote_port"])
        }
        assert {row["resource"] for row in rows(others.requests)} == {"/before"}


def test_requests_switched_on_later_take_in_what_is_there(python_target: PythonTarget, tmp_path: Path) -> None:
    with target(python_target, tmp_path) as (process, told):
        with tracehound.trace(pid=told["client"], off=frozenset({"requests"})) as trace:
            assert trace.open_connections().num_rows == 0
            trace.enable("requests")
            assert trace.open_connections().num_rows == 6
            say(process)
            assert line_of(process.stdout) == "done\n"
            say(process)
            trace.wait(20)
        began = Counter((row["event"], row["preexisting"]) for row in rows(trace.connections))
        assert began["close", True] == 6 and began["open", False] == 1


def test_the_command_connections_lists_them(start_cli: StartCli, python_target: PythonTarget, tmp_path: Path) -> None:
    with target(python_target, tmp_path) as (_, told):
        finished = start_cli("connections", "--pid", told["client"], "--format", "json").finish(30)
        assert finished.code == 0
        found = [json.loads(line) for line in finished.out.splitlines()]
        assert Counter(row["transport"] for row in found) == {"unix": 4, "udp": 2}
        assert all(row["bytes_sent"] is None for row in found)  # nobody has counted them
        text = start_cli("connections", "--pid", told["client"]).finish(30).out
        assert str(tmp_path / "listen")[:20] in text
