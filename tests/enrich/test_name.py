"""Answers of DNS in, names of connections and of requests' peers out."""

from typing import Any

import pyarrow as pa
import pytest
from tests.enrich.rows import column, table

from tracehound.enrich import name
from tracehound.enrich.name import SeenNames

IP = "192.0.2.1"


def told(*rows: tuple[int, int, str, str]) -> dict[str, pa.RecordBatch]:
    columns = zip(*rows, strict=True)
    return {
        "fact_name": pa.RecordBatch.from_pydict(dict(zip(("time_ns", "pid", "name", "address"), columns, strict=True)))
    }


def asked(connection: int, start_ns: int, pid: int | None = 7, **given: Any) -> dict[str, Any]:
    row = {"connection": connection, "start_ns": start_ns, "time_ns": start_ns + 1, "pid": pid, "role": "client"}
    return row | {"remote_ip": IP} | given


def opened(connection: int, time_ns: int, pid: int | None = 7, **given: Any) -> dict[str, Any]:
    row = {"event": "open", "connection": connection, "time_ns": time_ns, "pid": pid, "role": "client"}
    return row | {"remote_ip": IP} | given


def peers(tables: dict[str, pa.RecordBatch]) -> list[Any]:
    found = column(tables, "requests", "peer_service", "peer_service_inferred")
    assert all(inferred is (None if service is None else True) for service, inferred in found)
    return [service for service, _ in found]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (asked(1, 20), "mine.test"),
        (asked(1, 20, role=None, pid=None), "theirs.test"),  # of a capture
        (asked(1, 20, pid=9), "theirs.test"),
        (asked(1, 11, pid=9), "mine.test"),  # another process was told so far
        (asked(1, 9), None),
        (asked(1, 20, role="server"), None),
        (asked(1, 20, remote_ip="192.0.2.9"), None),
        (asked(1, 20, remote_ip=None), None),
    ],
)
def test_who_was_told_what(row: dict[str, Any], expected: str | None) -> None:
    facts = told((10, 7, "mine.test", IP), (15, 8, "theirs.test", IP))
    assert peers(SeenNames().add(facts | {"requests": table("requests", row)})) == [expected]


def test_a_service_that_is_known_is_not_replaced() -> None:
    rows = table("requests", asked(1, 20, peer_service="api", peer_service_inferred=False), asked(2, 20))
    found = SeenNames().add(told((10, 7, "a.test", IP)) | {"requests": rows})
    assert column(found, "requests", "peer_service", "peer_service_inferred") == [("api", False), ("a.test", True)]


def test_a_connection_keeps_the_name_that_it_began_with() -> None:
    names = SeenNames()
    facts = told((10, 7, "first.test", IP), (20, 7, "second.test", IP))
    connections = [
        opened(1, 15),
        opened(2, 25),
        opened(3, 5),
        opened(1, 40, event="close"),
        opened(3, 40, event="close"),
    ]
    requests = [asked(1, 16), asked(2, 26), asked(3, 6), asked(1, 30), asked(3, 30), asked(3, 31)]
    found = names.add(
        facts | {"connections": table("connections", *connections), "requests": table("requests", *requests)}
    )
    assert column(found, "connections", "remote_name") == [
        "first.test", "second.test", None, "first.test", "second.test",
    ]  # fmt: skip
    assert peers(found) == ["first.test", "second.test", None, "first.test", "second.test", "second.test"]


def test_the_rows_do_not_depend_on_how_they_are_cut() -> None:
    """Many names of one address, one after another."""
    steps = [(told((10 * n, 7, f"n{n}.test", IP)), opened(n, 10 * n + 1), asked(n, 10 * n + 2)) for n in range(100)]
    together = {
        "fact_name": pa.Table.from_batches([facts["fact_name"] for facts, _, _ in steps])
        .combine_chunks()
        .to_batches()[0],
        "connections": table("connections", *(row for _, row, _ in steps)),
        "requests": table("requests", *(row for _, _, row in steps)),
    }
    wanted = [f"n{n}.test" for n in range(100)]
    found = SeenNames().add(together)
    assert peers(found) == column(found, "connections", "remote_name") == wanted
    names, apart = SeenNames(), list[Any]()
    for facts, connection, request in steps:
        one = names.add(facts | {"connections": table("connections", connection)})
        apart += peers(names.add({"requests": table("requests", request)}))
        assert column(one, "connections", "remote_name") == apart[-1:]
    assert apart == wanted


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name, "KEYS_KEPT", 32)
    monkeypatch.setattr(name, "CONNECTIONS_KEPT", 4)
    names = SeenNames()
    for n in range(100):
        names.add(told((10 * n, 7, f"n{n}.test", IP), (10 * n, 7, "other.test", f"192.0.2.{n}")))
        names.add({"connections": table("connections", opened(n, 10 * n))})
    assert len(names._names) <= 32 and len(names._of_connection) <= 4
    assert len(names._names._held[f"7 {IP}"]) == name.NAMES_KEPT
    rows = [asked(200, 995), asked(201, 995, remote_ip="192.0.2.99"), asked(202, 995, remote_ip="192.0.2.5")]
    assert peers(names.add({"requests": table("requests", *rows)})) == ["n99.test", "other.test", None]
