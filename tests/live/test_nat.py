"""Addresses after NAT, and one `exchange` at both ends, in a network namespace of the test."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import TRACEHOUND, Row, RunCli

from tracehound.recording import Recording

SERVICE, SERVICE6 = "10.96.0.1", "fd00:96::1"
SOURCE = "127.0.0.9"
# A service address that leads elsewhere; one whose client is hidden, too; one of IPv6.
RULES = f"""
table ip nat {{
	chain output {{ type nat hook output priority -100;
		ip daddr {SERVICE} tcp dport 80 dnat to 127.0.0.1:8080
		ip daddr {SERVICE} tcp dport 81 dnat to 127.0.0.1:8081
	}}
	chain postrouting {{ type nat hook postrouting priority 100;
		ip daddr 127.0.0.1 tcp dport 8081 snat to {SOURCE}
	}}
}}
table ip6 nat {{
	chain output {{ type nat hook output priority -100;
		ip6 daddr {SERVICE6} tcp dport 80 dnat to [::1]:8082
	}}
}}
"""
SETUP = f"""
ip link set lo up && ip addr add {SERVICE}/32 dev lo && ip addr add {SERVICE6}/128 dev lo nodad || exit 99
if [ -n "$0" ]; then nft -f "$0" || exit 98; fi
exec "$@"
"""
LISTEN = ("127.0.0.1", 8080, "127.0.0.1", 8081, "::1", 8082)
CONNECT = (SERVICE, 80, SERVICE, 81, SERVICE6, 80, "127.0.0.1", 8080)


@pytest.fixture
def run_in_namespace(
    run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> Callable[..., Recording]:
    """Return a function that runs a target of `nat_http` under trace in a new network namespace with these rules."""
    missing = [name for name in ("unshare", "ip", "nft") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")

    def run(rules: str, connect: tuple[object, ...], *options: str) -> Recording:
        file = tmp_path / "rules"
        file.write_text(rules)
        folder = tmp_path / "record"
        prefix = ["unshare", "--net", "sh", "-c", SETUP, str(file) if rules else "", *TRACEHOUND]
        command = python_target("nat_http", *LISTEN, "--", *connect)
        finished = run_cli("run", *options, "--record", folder, "--", *command, prefix=prefix)
        assert finished.code == 0, finished.err
        assert "nothing lost" in finished.err
        return Recording(folder)

    return run


def sides(recording: Recording, table: str, **wanted: object) -> tuple[list[Row], list[Row]]:
    """Return the clients' and the servers' rows whose columns have these values."""
    found = [row for row in recording.table(table).to_pylist() if all(row[k] == v for k, v in wanted.items())]
    found.sort(key=lambda row: row["time_ns"])
    return [row for row in found if row["role"] == "client"], [row for row in found if row["role"] == "server"]


def test_addresses_after_nat_and_equal_exchange(run_in_namespace: Callable[..., Recording]) -> None:
    recording = run_in_namespace(RULES, CONNECT)
    clients, servers = sides(recording, "connections", event="open"), sides(recording, "connections", event="accept")
    expected: dict[tuple[Any, ...], tuple[Any, ...]] = {
        (SERVICE, 80): ("127.0.0.1", 8080),
        (SERVICE, 81): ("127.0.0.1", 8081),
        (SERVICE6, 80): ("::1", 8082),
        ("127.0.0.1", 8080): (None, None),
    }
    actual = {
        (row["remote_ip"], row["remote_port"]): (row["actual_remote_ip"], row["actual_remote_port"])
        for row in clients[0]
    }
    assert actual == expected
    assert Counter((row["local_ip"], row["local_port"]) for row in servers[1]) == {
        ("127.0.0.1", 8080): 2,
        ("127.0.0.1", 8081): 1,
        ("::1", 8082): 1,
    }
    assert SOURCE in {row["remote_ip"] for row in servers[1]}
    closes, _ = sides(recording, "connections", event="close")
    assert {(row["connection"], row["actual_remote_ip"]) for row in closes} == {
        (row["connection"], row["actual_remote_ip"]) for row in clients[0]
    }

    asked, answered = sides(recording, "requests", protocol="http1")
    assert len(asked) == len(answered) == 12
    assert {row["exchange"]: row["resource"] for row in asked} == {row["exchange"]: row["resource"] for row in answered}
    assert len({row["exchange"] for row in asked}) == 12 and None not in {row["exchange"] for row in asked}
    assert {row["peer_service"] for row in asked} == {"nat_http"}


@pytest.mark.parametrize(
    ("rules", "options", "attached"),
    [(RULES, (), True), (RULES, ("--no-nat",), False), ("", (), False), ("", ("--nat",), True)],
)
def test_it_is_attached_where_there_is_nat(
    rules: str, options: tuple[str, ...], attached: bool, run_in_namespace: Callable[..., Recording]
) -> None:
    recording = run_in_namespace(rules, ("127.0.0.1", 8080), *options)
    programs = {row["program"]: row["attached"] for row in recording.table("probes").to_pylist()}
    assert programs.get("on_transmit", False) is attached
    (row,), _ = sides(recording, "connections", event="open")
    assert (row["remote_port"], row["actual_remote_ip"], row["actual_remote_port"]) == (8080, None, None)
