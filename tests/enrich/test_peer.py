"""Ends of connections and listeners in, peer_service out."""

from typing import Any

import pytest
from tests.enrich.rows import column, table

from tracehound.enrich import Containers, peer
from tracehound.enrich.peer import Peers


def ends(local: str, remote: str) -> dict[str, Any]:
    (local_ip, local_port), (remote_ip, remote_port) = local.rsplit(":", 1), remote.rsplit(":", 1)
    return {
        "local_ip": local_ip,
        "local_port": int(local_port),
        "remote_ip": remote_ip,
        "remote_port": int(remote_port),
    }


def listen(time_ns: int, ip: str, port: int, service: str | None) -> dict[str, Any]:
    return {"event": "open", "time_ns": time_ns, "local_ip": ip, "local_port": port, "service": service}


LISTENS = table(
    "listens", listen(5, "0.0.0.0", 80, "nginx"), listen(5, "10.0.0.1", 81, "api"), listen(5, "::", 82, None)
)
CONNECTIONS = table(
    "connections",
    {"event": "open", "time_ns": 10, "service": "web", **ends("127.0.0.1:4000", "127.0.0.1:80")},
    {"event": "accept", "time_ns": 10, "service": "worker", **ends("127.0.0.1:80", "127.0.0.1:4000")},
    {"event": "open", "time_ns": 10, "service": "web", **ends("10.0.0.1:4000", "203.0.113.9:80")},
    {"event": "close", "time_ns": 10, "service": "closed", **ends("10.0.0.1:9", "10.0.0.1:8")},
)


@pytest.mark.parametrize(
    ("role", "local", "remote", "time_ns", "service"),
    [
        ("client", "127.0.0.1:4000", "127.0.0.1:80", 20, "worker"),
        ("server", "127.0.0.1:80", "127.0.0.1:4000", 20, "web"),
        (None, "127.0.0.1:80", "127.0.0.1:4000", 20, "web"),
        ("client", "127.0.0.1:4000", "127.0.0.1:80", 9, "nginx"),  # before the accept: the listener
        ("client", "127.0.0.1:4000", "127.0.0.1:80", 4, None),  # before the listener
        ("client", "127.0.0.1:4001", "127.0.0.1:80", 20, "nginx"),
        ("client", "10.0.0.1:4001", "10.0.0.1:80", 20, "nginx"),
        ("client", "127.0.0.1:4001", "10.0.0.1:80", 20, "nginx"),  # an own address: a connection had it
        ("client", "10.0.0.1:4000", "203.0.113.9:80", 20, None),  # all addresses are not those of others
        ("client", "10.0.0.2:4000", "10.0.0.1:81", 20, "api"),
        ("client", "127.0.0.1:4001", "127.0.0.1:82", 20, None),
        ("server", "10.0.0.1:5", "127.0.0.1:80", 20, None),  # a client is never found by a listener
        ("client", "10.0.0.1:8", "10.0.0.1:9", 20, None),
    ],
)
def test_peer(role: str | None, local: str, remote: str, time_ns: int, service: str | None) -> None:
    requests = table("requests", {"connection": 1, "role": role, "time_ns": time_ns, **ends(local, remote)})
    found = Peers().add({"listens": LISTENS, "connections": CONNECTIONS, "requests": requests})
    expected = (service, None if service is None else False)
    assert column(found, "requests", "peer_service", "peer_service_inferred") == [expected]


def test_many_requests_of_few_connections_keep_their_places() -> None:
    peers = Peers()
    peers.add({"listens": LISTENS, "connections": CONNECTIONS})
    one = {"connection": 1, "role": "client", "time_ns": 20, **ends("127.0.0.1:4000", "127.0.0.1:80")}
    two = {"connection": 2, "role": "server", "time_ns": 20, **ends("127.0.0.1:80", "127.0.0.1:4000")}
    rows = table("requests", *([one, two, two] * 1_000))
    assert column(peers.add({"requests": rows}), "requests", "peer_service") == ["worker", "web", "web"] * 1_000


def test_a_reused_address_names_the_newer_end() -> None:
    rows = [
        {"event": "open", "time_ns": at, "service": service, **ends("127.0.0.1:4000", "127.0.0.1:80")}
        for at, service in ((10, "first"), (20, "second"))
    ]
    requests = [
        {"connection": at, "role": "server", "time_ns": at, **ends("127.0.0.1:80", "127.0.0.1:4000")} for at in (15, 25)
    ]
    found = Peers().add({"connections": table("connections", *rows), "requests": table("requests", *requests)})
    assert column(found, "requests", "peer_service") == ["first", "second"]


def test_a_service_behind_nat_is_named_by_its_actual_address() -> None:
    peers = Peers()
    actual = {"actual_remote_ip": "10.0.0.9", "actual_remote_port": 8080, "connection": 7, "event": "open"}
    client = {"time_ns": 10, "service": None, **ends("10.0.0.1:4000", "10.96.0.1:80"), **actual}
    server = {"event": "accept", "time_ns": 10, "service": "api", **ends("10.0.0.9:8080", "10.0.0.1:4000")}
    hidden = {**client, "connection": 8, "actual_remote_ip": "10.0.0.1", "actual_remote_port": 81}
    tables = {"listens": LISTENS, "connections": table("connections", client, server, hidden)}
    row = {"time_ns": 20, "role": "client", **ends("10.0.0.1:4000", "10.96.0.1:80")}
    rows = [{**row, "connection": 7}, {**row, "connection": 8}, {**row, "connection": 9}]
    found = peers.add(tables | {"requests": table("requests", *rows)})
    assert column(found, "requests", "peer_service") == ["api", "api", None]


def test_ends_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those longest without a new row are forgotten; an address used again and again keeps its newest names."""
    monkeypatch.setattr(peer, "ENDS_KEPT", 32)
    peers = Peers()
    for number in range(100):
        again = {"event": "accept", "service": f"s{number}", **ends("10.0.0.1:80", "10.0.0.9:1")}
        once = {"event": "accept", "service": f"once{number}", **ends("10.0.0.1:80", f"10.0.0.2:{1000 + number}")}
        rows = [{"time_ns": 10 * number, **again}, {"time_ns": 10 * number, **once}]
        peers.add({"connections": table("connections", *rows)})
    assert len(peers._ends) <= 32

    def found(remote: str, time_ns: int) -> Any:
        asked = {"connection": 1, "role": "client", "time_ns": time_ns, **ends(remote, "10.0.0.1:80")}
        return column(peers.add({"requests": table("requests", asked)}), "requests", "peer_service")[0]

    assert [found("10.0.0.9:1", time_ns) for time_ns in (990, 985, 961, 959)] == ["s99", "s98", "s96", None]
    assert [found(f"10.0.0.2:{1000 + number}", 995) for number in (99, 80, 10)] == ["once99", "once80", None]


def test_rows_of_one_address_may_come_late() -> None:
    peers = Peers()
    for time_ns in (30, 10, 20):
        row = {"event": "accept", "service": f"at{time_ns}", "time_ns": time_ns, **ends("10.0.0.1:80", "10.0.0.9:1")}
        peers.add({"connections": table("connections", row)})
    asked = [
        {"connection": time_ns, "role": "client", "time_ns": time_ns, **ends("10.0.0.9:1", "10.0.0.1:80")}
        for time_ns in (9, 10, 29, 31)
    ]
    found = peers.add({"requests": table("requests", *asked)})
    assert column(found, "requests", "peer_service") == [None, "at10", "at20", "at30"]


CONTAINER = "0123456789abcdef" * 4


@pytest.mark.parametrize("is_fact", [False, True])
def test_an_end_without_a_service_is_named_by_its_container(is_fact: bool) -> None:
    path = f"/system.slice/docker-{CONTAINER}.scope"
    known = {
        "fact_process": table("fact_process", {"time_ns": 5, "pid": 8, "cgroup": path}, {"time_ns": 5, "pid": 9}),
    }
    if not is_fact:
        event = {"event": "start", "time_ns": 5, "pid": 8, "cgroup_id": 77}
        facts = table("fact_cgroup", {"time_ns": 4, "id": 77, "path": path})
        known = Containers().add({"processes": table("processes", event), "fact_cgroup": facts})
    listens = table(
        "listens",
        listen(6, "10.0.0.1", 80, None) | {"pid": 8},
        listen(6, "10.0.0.1", 81, None) | {"pid": 9},
        listen(6, "10.0.0.1", 82, "api") | {"pid": 8},
        listen(7, "10.0.0.1", 82, None) | {"pid": 8},
    )
    connections = table(
        "connections",
        {"event": "open", "time_ns": 10, "pid": 8, "service": None, **ends("10.0.0.9:4000", "10.0.0.1:82")},
    )
    rows = [
        {"connection": port, "role": "client", "time_ns": 20, **ends("10.0.0.2:4000", f"10.0.0.1:{port}")}
        for port in (80, 81, 82)
    ]
    rows.append({"connection": 4, "role": "server", "time_ns": 20, **ends("10.0.0.1:82", "10.0.0.9:4000")})
    tables = {"listens": listens, "connections": connections, "requests": table("requests", *rows)}
    found = Peers().add(known | tables)
    expected = [(CONTAINER[:12], False), (None, None), ("api", False), (CONTAINER[:12], False)]
    assert column(found, "requests", "peer_service", "peer_service_inferred") == expected


def test_requests_of_one_connection_are_each_named_by_their_own_time() -> None:
    """However they are cut: the accepting process is known later than the listener."""
    accept = {"event": "accept", "time_ns": 20, "service": "worker", **ends("127.0.0.1:80", "127.0.0.1:4000")}
    rows = [
        {"connection": 1, "role": "client", "time_ns": at, **ends("127.0.0.1:4000", "127.0.0.1:80")}
        for at in (10, 19, 20, 30)
    ]
    other = {"connection": 2, "role": "client", "time_ns": 15, **ends("127.0.0.1:4001", "127.0.0.1:80")}
    tables = {"listens": LISTENS, "connections": table("connections", accept)}
    found = Peers().add(tables | {"requests": table("requests", *rows[:2], other, *rows[2:])})
    assert column(found, "requests", "peer_service") == ["nginx", "nginx", "nginx", "worker", "worker"]
