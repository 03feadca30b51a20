"""nat records in; addresses after NAT and one `exchange` at both ends out."""

from socket import AF_INET6, inet_pton
from typing import Any

import numpy as np
import pytest
from tests.decode.records import CLIENT, SERVER, Recorder, Socket
from tests.decode.test_decoder import REQUEST, RESPONSE, cut, decode

from tracehound.decode import nat
from tracehound.decode.nat import Translations

S = 1_000_000_000
VIP, POD, HOST, HIDDEN = (bytes(address) for address in ((10, 96, 0, 1), (10, 0, 0, 9), (10, 0, 0, 1), (10, 0, 0, 2)))


def translate(recorder: Recorder, cookie: int, **fields: Any) -> None:
    values: dict[str, Any] = {
        "original_local_address": HOST, "original_local_port": 40000, "original_remote_address": VIP,
        "original_remote_port": 80, "actual_local_address": HOST, "actual_local_port": 40000,
        "actual_remote_address": POD, "actual_remote_port": 8080, "family": 2,
    }  # fmt: skip
    recorder.add("nat", cookie=cookie, **(values | fields))


def call(recorder: Recorder, hidden: bool, translated: bool = True) -> None:
    """A client calls a service address; the server sees itself and perhaps another client address."""
    seen = (HIDDEN, 50_000) if hidden else (HOST, 40_000)
    client = Socket(recorder, 11, CLIENT, (HOST, 40_000), (VIP, 80), (1000, 2000), 100, 101)
    server = Socket(recorder, 12, SERVER, (POD, 8080), seen, (2000, 1000), 200, 201)
    started_ns = recorder.time_ns
    if translated:
        translate(recorder, 11, actual_local_address=seen[0], actual_local_port=seen[1])
    for end in (client, server):
        end.lifecycle("OPEN" if end is client else "ACCEPT", started_ns=started_ns, established_ns=recorder.time_ns + 5)
    client.send(REQUEST)
    server.receive(REQUEST)
    server.send(RESPONSE)
    client.receive(RESPONSE)
    for end in (client, server):
        end.close(started_ns=started_ns, established_ns=recorder.time_ns - 5 * 1_000_000)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_both_ends_make_the_same_exchange(hidden: bool, seed: int) -> None:
    recorder = Recorder()
    call(recorder, hidden)
    tables = decode(recorder, cut(recorder, seed, 6), recorder.time_ns + S)
    client, server = sorted(tables["requests"], key=lambda row: str(row["role"]))
    assert client["exchange"] == server["exchange"] is not None
    assert (client["remote_ip"], client["remote_port"]) == ("10.96.0.1", 80)
    assert [
        (row["event"], row["remote_ip"], row["remote_port"], row["actual_remote_ip"], row["actual_remote_port"])
        for row in tables["connections"]
        if row["role"] == "client"
    ] == [(event, "10.96.0.1", 80, "10.0.0.9", 8080) for event in ("open", "close")]
    assert {row["actual_remote_ip"] for row in tables["connections"] if row["role"] == "server"} == {None}


def test_without_the_record_the_two_ends_differ() -> None:
    recorder = Recorder()
    call(recorder, hidden=False, translated=False)
    client, server = decode(recorder, cut(recorder, 0, 1), recorder.time_ns + S)["requests"]
    assert client["exchange"] != server["exchange"]


def test_a_connection_takes_only_the_record_of_its_own_syn() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, (HOST, 40_000), (VIP, 80))
    translate(recorder, 11)
    failed_ns = recorder.time_ns
    refused = {"started_ns": failed_ns - 1, "established_ns": 0, "error": 111, "attempt": 1}
    socket.lifecycle("ERROR", **refused)
    socket.lifecycle("OPEN", started_ns=failed_ns + 10, established_ns=recorder.time_ns, attempt=2)
    translate(recorder, 99)  # of nobody
    tables = decode(recorder, cut(recorder, 0, 1), recorder.time_ns + 2 * S)
    assert [(row["event"], row["actual_remote_ip"]) for row in tables["connections"]] == [
        ("error", "10.0.0.9"),
        ("open", None),
        ("snapshot", None),
    ]


def test_ipv6() -> None:
    far = inet_pton(AF_INET6, "fd00::9")
    recorder = Recorder()
    translate(recorder, 11, family=10, actual_remote_address=far, actual_remote_port=8082)
    translations = Translations()
    translations.take(recorder.batch())
    record = {"cookie": 11, "started_ns": 1, "established_ns": recorder.time_ns, "time_ns": recorder.time_ns}
    found = translations.of(record)
    assert found is not None and found.remote == far + (8082).to_bytes(2, "big")
    assert translations.of(record | {"cookie": 12}) is None


def test_what_is_known_is_bounded_and_forgotten_at_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nat, "KEPT", 10)
    recorder = Recorder()
    for cookie in range(1, 30):
        translate(recorder, cookie)
    for _ in range(20):
        translate(recorder, 29)
    translations = Translations()
    translations.take(recorder.batch())
    assert len(translations) == 10 and len(translations._known[29]) == 4
    closes = np.zeros(2, recorder.layout.dtypes["connection"])
    closes["cookie"], closes["time_ns"] = (28, 29), recorder.time_ns - 1
    translations.forget(closes)
    assert len(translations) == 9 and len(translations._known[29]) == 1
