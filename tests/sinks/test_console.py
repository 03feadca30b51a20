"""Rows as lines, and the status line."""

import io
import os
from pathlib import Path

import pytest
from tests.sinks.rows import batch, call, shop
from tests.sinks.test_jsonl import SOURCE

from tracehound.errors import SinkError
from tracehound.sinks import kind
from tracehound.sinks._text import width_of
from tracehound.sinks.console import LiveRows, StatusLine, columns_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "80")
    time.tzset()


def test_rows_are_aligned_and_in_order() -> None:
    stream = io.StringIO()
    rows = LiveRows(stream, width=100)
    requests = [
        call("web", "orders", 8001, time_ns=3, duration_ns=3_200_000, response_bytes=1100),
        call("web", "redis", 6379, time_ns=1, protocol="redis", operation="GET", resource="cart:17", route=None,
             status=None, duration_ns=64_000, response_bytes=43),
        call("orders", None, 40001, time_ns=4, role="server", remote_ip="::1", outcome="no_response", status=None,
             duration_ns=None, response_bytes=None),
        call("worker", None, 443, time_ns=5, remote_ip="::1", wall_time=None, statement="SELECT " + "x, " * 40),
    ]  # fmt: skip
    refused = {
        "event": "error",
        "service": "worker",
        "pid": 7,
        "time_ns": 2,
        "remote_ip": "127.0.0.1",
        "remote_port": 5672,
    }
    opened = {"event": "open", "time_ns": 2}
    connections = batch("connections", [refused | {"error": "ECONNREFUSED"}, opened])
    rows.write({"requests": batch("requests", requests), "connections": connections})
    assert stream.getvalue().splitlines() == [
        " 22:13:20.204  web[42] → redis :6379       GET cart:17                       ok       64 µs     43 B",
        "        0.000  worker[7] → 127.0.0.1:5672  connect                           ECONNREFUSED",
        " 22:13:20.204  web[42] → orders :8001      GET /orders/17                    200     3.2 ms   1.1 kB",
        " 22:13:20.204  orders[42] ← ::1            GET /orders/17                    no_response",
        "        0.000  worker[42] → [::1]:443      SELECT x, x, x, x, x, x, x, x, …  200     2.0 ms   6.0 kB",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_of_requests_are_no_wider_than_the_terminal(width: int) -> None:
    stream = io.StringIO()
    LiveRows(stream, width=width).write({"requests": shop()["requests"]})
    assert max(width_of(line) for line in stream.getvalue().splitlines()) <= width


def test_a_failure_is_red_where_colour_is_wanted() -> None:
    stream = io.StringIO()
    rows = LiveRows(stream, color=True)
    rows.write(
        {"requests": batch("requests", [call("a", "b", 1, status=500, outcome="server_error"), call("a", "b", 1)])}
    )
    bad, good = stream.getvalue().splitlines()
    assert "\x1b[31m500  \x1b[0m" in bad and "\x1b" not in good


def test_a_watcher_that_went_away_does_not_end_the_trace() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as stream:
        rows = LiveRows(stream)
        for _ in range(3):
            rows.write(shop())
            rows.flush()
        rows.close()
        with pytest.raises(OSError):
            os.write(writing, b"x")
            stream.flush()


def test_lines_that_a_full_disk_refuses_are_counted() -> None:
    sink = kind("console").open("/dev/full", SOURCE)
    sink.write(shop())
    sink.flush()
    sink.write(shop())
    losses = sink.take_losses()
    sink.close()
    assert losses is not None and sink.take_losses() is None
    assert losses.select(["stage", "counter", "count"]).to_pylist() == [
        {"stage": "output", "counter": "disk_full", "count": 2 * (1010 + 3)}
    ]


def test_lines_go_to_a_file(tmp_path: Path) -> None:
    sink = kind("console").open(str(tmp_path / "lines"), SOURCE)
    sink.write(shop())
    sink.close()
    sink.close()
    assert len((tmp_path / "lines").read_text().splitlines()) == 1010 + 3
    with pytest.raises(SinkError, match="cannot write"):
        kind("console").open(str(tmp_path / "no" / "lines"), SOURCE)


def test_the_status_line_is_one_line_and_is_erased() -> None:
    stream = Terminal()
    line = StatusLine(stream)
    line.erase()
    assert stream.getvalue() == ""
    line.show(elapsed_ns=4_210_000_000, events=40_113, requests=812, requests_per_second=203.4, errors=3, lost=0)
    assert stream.getvalue() == ("\r\x1b[K 4.21 s  40,113 events  812 requests (203/s)  3 errors  nothing lost")
    line.show(elapsed_ns=1, events=10**12, requests=10**12, requests_per_second=1e9, errors=10**9, lost=10**9)
    line.erase()
    *shown, erased = stream.getvalue().split("\r\x1b[K")[1:]
    assert erased == "" and all(width_of(text) < 80 for text in shown) and shown[1].endswith("…")


def test_there_is_no_status_line_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    line = StatusLine(stream)
    line.show(elapsed_ns=1, events=1, requests=1, requests_per_second=1, errors=0, lost=0)
    line.erase()
    assert stream.getvalue() == ""


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert columns_of(io.StringIO()) == 80
    monkeypatch.setenv("COLUMNS", "123")
    assert columns_of(io.StringIO()) == 123
    monkeypatch.setenv("COLUMNS", "wide")
    assert columns_of(io.StringIO(), 99) == 99


def test_a_name_of_an_address_stands_beside_it_where_there_is_room() -> None:
    named = {"peer_service_inferred": True, "remote_ip": "203.0.113.9"}
    refused = {"event": "error", "service": "web", "pid": 42, "time_ns": 2, "remote_ip": "::1", "remote_port": 9}
    tables = {
        "requests": batch("requests", [call("web", "api.example", 443, time_ns=3, **named)]),
        "connections": batch("connections", [refused | {"error": "ETIMEDOUT", "remote_name": "db.example"}]),
    }
    for width, shown in (
        (140, ("web[42] → db.example [::1]:9  ", "web[42] → api.example 203.0.113.9:443  ")),
        (120, ("web[42] → db.example [::1]:9  ", "web[42] → api.example :443  ")),
        (96, ("web[42] → db.example :9  ", "web[42] → api.example :…  ")),
    ):
        stream = io.StringIO()
        LiveRows(stream, width=width).write(tables)
        for line, text in zip(stream.getvalue().splitlines(), shown, strict=True):
            assert text in line
