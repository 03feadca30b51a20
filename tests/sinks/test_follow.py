"""Rows for a Python loop: chosen, in order of time, bounded."""

import threading
import time
from typing import Any

import pytest
from tests.sinks.rows import batch, call

from tracehound.errors import UsageError
from tracehound.sinks import FollowSink
from tracehound.tables import TABLES, arrow_schema

SCHEMAS = {name: arrow_schema(columns) for name, columns in TABLES.items()}


def requests(*times: int, **values: Any) -> dict[str, Any]:
    return {"requests": batch("requests", [call("web", "orders", 80, time_ns=one, **values) for one in times])}


def refused(*times: int) -> dict[str, Any]:
    return {"connections": batch("connections", [{"time_ns": one, "event": "error"} for one in times])}


def times(sink: FollowSink) -> list[tuple[str, int]]:
    return [(row["table"], row["time_ns"]) for row in sink.take(0)]


def test_rows_of_all_tables_come_by_time() -> None:
    sink = FollowSink(SCHEMAS, None, {})
    sink.write(requests(1, 5) | refused(2, 7))
    sink.write(requests(8))
    expected = [("requests", 1), ("connections", 2), ("requests", 5), ("connections", 7), ("requests", 8)]
    assert times(sink) == expected
    assert times(sink) == []


@pytest.mark.parametrize(
    ("table", "equal", "expected"),
    [
        ("requests", {}, [1, 2]),
        ("requests", {"protocol": "redis"}, [2]),
        ("requests", {"protocol": "redis", "status": 200}, []),
        (None, {"event": "error"}, [3]),
        ("processes", {}, []),
    ],
)
def test_only_what_was_asked_for(table: str | None, equal: dict[str, object], expected: list[int]) -> None:
    sink = FollowSink(SCHEMAS, table, equal)
    sink.write(requests(1))
    sink.write(requests(2, protocol="redis", status=None))
    sink.write(refused(3))
    assert [time_ns for _, time_ns in times(sink)] == expected


@pytest.mark.parametrize(
    ("table", "equal", "message"),
    [
        ("request", {}, "no table 'request'. Tables: processes"),
        ("requests", {"proto": "http1"}, "table requests has no column 'proto'"),
        (None, {"proto": "http1"}, "there is no column 'proto'"),
        (None, {"exe": "/bin/sh", "statement": "x"}, "there is no column 'statement'"),
    ],
)
def test_what_there_is_not_is_said_at_once(table: str | None, equal: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FollowSink(SCHEMAS, table, equal)


def test_a_loop_that_is_too_slow_loses_rows_and_says_so() -> None:
    sink = FollowSink(SCHEMAS, None, {}, held_bytes=2 * requests(1)["requests"].nbytes)
    for number in range(1, 6):
        sink.write(requests(number))
    assert [time_ns for _, time_ns in times(sink)] == [1, 2]
    losses = sink.take_losses()
    assert losses is not None and losses.select(["stage", "counter", "count", "last_ns"]).to_pylist() == [
        {"stage": "output", "counter": "follow_full", "count": 3, "last_ns": 5}
    ]
    assert sink.take_losses() is None
    sink.write(requests(9))
    assert [time_ns for _, time_ns in times(sink)] == [9]


def test_who_waits_is_woken_by_rows_and_by_the_end() -> None:
    sink = FollowSink(SCHEMAS, None, {})
    for act, expected in ((lambda: sink.write(requests(1)), 1), (sink.close, 0)):
        later = threading.Timer(0.05, act)
        later.start()
        began = time.monotonic()
        assert len(sink.take(60)) == expected
        assert time.monotonic() - began < 30
        later.join()
    assert sink.is_closed
