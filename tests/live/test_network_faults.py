"""Networks that drop, peers that refuse, reset, dawdle or die: one row each, with the kernel's own counts."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.live.conftest import Row, Traced, rows

ROLES = ("client", "server")
WHOLE = ("retransmitted", "ipv6", "dual_stack", "client_killed", "server_killed", "slow_reader")
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Run(NamedTuple):
    told: dict[str, dict[str, Any]]
    tables: dict[str, list[Row]]

    def of(self, table: str, case: str, role: str) -> list[Row]:
        """Return the rows of one end of a case, in order."""
        port = self.told[case]["server"]
        own = "local_port" if role == "server" else "remote_port"
        found = [row for row in self.tables[table] if row["role"] == role and row[own] == port]
        return sorted(found, key=lambda row: row["time_ns"])

    def request(self, case: str, role: str) -> Row:
        (row,) = self.of("requests", case, role)
        return row


@pytest.fixture(scope="module")
def run(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    for name in ("unshare", "nft", "ip"):
        if shutil.which(name, path=SEARCHED) is None:
            pytest.skip(f"{name} is not installed")
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", SEARCHED)
        command = ["unshare", "--net", *python_target("network_faults", folder / "told")]
        trace = traced(command, record=str(folder / "record"))
    assert trace.exit_code == 0
    names = ("connections", "requests", "retransmits", "processes", "losses")
    return Run(json.loads((folder / "told").read_text()), {name: rows(getattr(trace, name)) for name in names})


def test_nothing_was_lost(run: Run) -> None:
    assert run.tables["losses"] == []


@pytest.mark.parametrize(
    ("case", "error", "ip", "family"),
    [
        ("refused", "ECONNREFUSED", "127.0.0.1", "ipv4"),
        ("refused_ipv6", "ECONNREFUSED", "::1", "ipv6"),
        ("timed_out", "ETIMEDOUT", "127.0.0.1", "ipv4"),
    ],
)
def test_connection_that_never_was_is_one_error(case: str, error: str, ip: str, family: str, run: Run) -> None:
    (row,) = run.of("connections", case, "client")
    said = (row["event"], row["error"], row["remote_ip"], row["family"], row["pid"])
    assert said == ("error", error, ip, family, run.told[case]["pid"])
    assert run.of("connections", case, "server") == []


def test_syn_is_sent_again(run: Run) -> None:
    (row,) = run.of("connections", "timed_out", "client")
    again = [each for each in run.tables["retransmits"] if each["connection"] == row["connection"]]
    assert len(again) == row["retransmits"] >= 1
    assert {(each["state"], each["size_bytes"], each["pid"]) for each in again} == {("SYN_SENT", 0, row["pid"])}


def test_segment_sent_again_is_counted_and_its_bytes_are_not(run: Run) -> None:
    _, closed = run.of("connections", "retransmitted", "client")
    _, other = run.of("connections", "retransmitted", "server")
    again = [each for each in run.tables["retransmits"] if each["connection"] == closed["connection"]]
    assert len(again) == closed["retransmits"] == run.told["retransmitted"]["retransmits"] >= 2
    requests = run.of("requests", "retransmitted", "client")
    assert len({each["sequence"] for each in again}) == 1
    assert {each["size_bytes"] for each in again} == {requests[1]["request_bytes"]}
    assert closed["bytes_sent"] == other["bytes_received"] == sum(row["request_bytes"] for row in requests)
    assert closed["bytes_received"] == other["bytes_sent"] == sum(row["response_bytes"] for row in requests)
    assert requests[1]["duration_ns"] > 700_000_000 > requests[0]["duration_ns"]


@pytest.mark.parametrize("case", WHOLE)
def test_both_ends_open_and_close_without_error(case: str, run: Run) -> None:
    for role, first in (("client", "open"), ("server", "accept")):
        found = run.of("connections", case, role)
        assert [(row["event"], row["error"]) for row in found] == [(first, None), ("close", None)]


@pytest.mark.parametrize("role", ROLES)
def test_reset_by_the_server(role: str, run: Run) -> None:
    row = run.request("reset_by_server", role)
    assert (row["status"], row["outcome"]) == (None, "no_response")
    closed = run.of("connections", "reset_by_server", role)[-1]
    assert (closed["event"], closed["error"]) == ("close", "ECONNRESET" if role == "client" else None)


@pytest.mark.parametrize(
    ("case", "ip", "families"), [("ipv6", "::1", ("ipv6", "ipv6")), ("dual_stack", "127.0.0.1", ("ipv4", "ipv6"))]
)
def test_ipv6(case: str, ip: str, families: tuple[str, str], run: Run) -> None:
    for role, family in zip(ROLES, families, strict=True):
        found = [*run.of("connections", case, role), run.request(case, role)]
        assert {(row["local_ip"], row["remote_ip"]) for row in found} == {(ip, ip)}
        assert {row["family"] for row in found[:-1]} == {family}
    client, server = (run.request(case, role) for role in ROLES)
    assert client["exchange"] == server["exchange"] is not None
    assert client["status"] == server["status"] == 200


@pytest.mark.parametrize("role", ROLES)
def test_client_killed_in_a_request(role: str, run: Run) -> None:
    told, row = run.told["client_killed"], run.request("client_killed", role)
    assert (row["operation"], row["status"], row["outcome"]) == ("POST", None, "no_response")
    assert row["request_bytes"] == told["bytes"]
    assert row["pid"] == told["killed" if role == "client" else "pid"]


@pytest.mark.parametrize("role", ROLES)
def test_server_killed_in_a_response(role: str, run: Run) -> None:
    told, row = run.told["server_killed"], run.request("server_killed", role)
    assert (row["status"], row["outcome"], row["error_type"]) == (200, "unknown", "incomplete")
    assert row["response_bytes"] == told["bytes"]
    assert row["pid"] == told["killed" if role == "server" else "pid"]


@pytest.mark.parametrize("case", ["client_killed", "server_killed"])
def test_killed_process_ends_once(case: str, run: Run) -> None:
    ends = [row for row in run.tables["processes"] if row["pid"] == run.told[case]["killed"]]
    assert [(row["event"], row["signal"]) for row in ends] == [("start", None), ("exit", "SIGKILL")]


def test_slow_reader_makes_a_long_response(run: Run) -> None:
    told = run.told["slow_reader"]
    for role in ROLES:
        row = run.request("slow_reader", role)
        assert (row["status"], row["outcome"], row["response_bytes"]) == (200, "ok", told["bytes"])
    client, server = (run.request("slow_reader", role) for role in ROLES)
    assert 0.8 * told["duration_ns"] < client["duration_ns"] < told["duration_ns"] + 500_000_000
    assert server["end_ns"] <= client["end_ns"]


def test_many_threads(run: Run) -> None:
    told = run.told["many_threads"]
    ends = [run.of("requests", "many_threads", role) for role in ROLES]
    tids = {f"/many_threads/{i}/{j}": tid for i, tid in enumerate(told["tids"]) for j in range(told["requests"])}
    for found in ends:
        assert Counter(row["resource"] for row in found) == dict.fromkeys(tids, 1)
        assert {(row["status"], row["pid"]) for row in found} == {(200, told["pid"])}
        assert len({row["connection"] for row in found}) == len(told["tids"])
    exchanges = [{row["exchange"]: row["resource"] for row in found} for found in ends]
    assert exchanges[0] == exchanges[1]
    assert {row["resource"]: row["tid"] for row in ends[0]} == tids
