"""The summary: what it says of a run, word for word, and what it keeps in mind."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.sinks.rows import ONE_END, batch, call, shop

from tracehound.sinks import _calls
from tracehound.sinks._calls import GROUPS, BothSides, Group
from tracehound.sinks._text import width_of
from tracehound.sinks.console import Ending, Summary, render

GOLDEN = Path(__file__).parent / "golden"
ENDING = Ending("python shop.py", 4_210_000_000, "exit 0", 40_113, "last")


def summary_of(*tables: dict[str, object]) -> Summary:
    summary = Summary()
    for rows in tables:
        summary.write(rows)
    summary.close()
    return summary


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_run_word_for_word(width: int) -> None:
    text = render(summary_of(shop()), ENDING, width=width)
    assert text == (GOLDEN / f"summary_{width}.txt").read_text()


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 81, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_none_ends_in_space(width: int) -> None:
    summary = summary_of(
        shop(),
        {"losses": batch("losses", [{"counter": "ring_full", "count": 12}, {"counter": "gap", "count": 5000}])},
        {"requests": batch("requests", [call("日本語のサービス" * 8, "x" * 90, 80, outcome="no_response")])},
        {"probes": batch("probes", [{"program": "p", "attached": False, "reason": "y" * 99, "lost_by_it": "z" * 99}])},
    )
    for line in render(summary, ENDING, width=width).splitlines():
        assert width_of(line) <= width, line
        assert line == line.rstrip()


def test_color_changes_nothing_but_color() -> None:
    import re

    summary = summary_of(shop(), {"losses": batch("losses", [{"counter": "ring_full", "count": 12}])})
    colored = render(summary, ENDING, width=100, color=True)
    assert "\x1b[31m" in colored
    stripped = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[\d+m", "", colored).split("\n"))
    assert stripped == render(summary, ENDING, width=100)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([], "nothing lost"),
        ([("ring_full", 0)], "nothing lost"),
        ([("ring_full", 5), ("ring_full", 7)], "lost 12 of 40,113 events (ring_full); try --ring-mib"),
        ([("gap", 4100)], "lost 4.1 kB of streams (gap)"),
        ([("fault", 1), ("gap", 10)], "lost 1 of 40,113 events (fault), 10 B of streams (gap)"),
        ([("recording_full", 3)], "lost 3 of 40,113 events (recording_full); try --record DIR"),
    ],
)
def test_nothing_lost_is_a_promise(losses: list[tuple[str, int]], said: str) -> None:
    rows = [{"counter": counter, "count": count} for counter, count in losses]
    summary = summary_of({"losses": batch("losses", rows)} if rows else {})
    first = render(summary, ENDING, width=200).splitlines()[0]
    assert first == f" tracehound  ·  python shop.py  ·  4.21 s  ·  exit 0  ·  0 processes  ·  {said}"


def test_a_run_without_anything() -> None:
    assert render(summary_of(), Ending("true", 3_000_000, "exit 0"), width=80) == (
        " tracehound  ·  true  ·  3.0 ms  ·  exit 0  ·  0 processes  ·  nothing lost\n"
    )


def test_what_could_not_be_traced_and_notes_are_a_line_each() -> None:
    probe = {"program": "on_send", "attached": False, "reason": "EINVAL", "lost_by_it": "requests that are sent"}
    fine = {"program": "on_fork", "attached": True}
    text = render(
        summary_of({"probes": batch("probes", [probe, fine])}), Ending("x", 1, notes=("still running: 7 (nginx)",))
    )
    assert text.splitlines()[2:] == [
        " not traced: requests that are sent (on_send: EINVAL)",
        " still running: 7 (nginx)",
    ]


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["/a"], "1 opened for writing in /"),
        (["/tmp/x", "/tmp/y"], "2 opened for writing in /tmp"),
        (["/srv/shop/a/x", "/srv/shop/b/y"], "2 opened for writing in /srv/shop"),
        (["/tmp/x", "/tmp/y", "/var/log/z"], "3 opened for writing: 2 in /tmp, 1 in /var/log"),
        ([f"/d{i}/x" for i in range(5)] * 2, "10 opened for writing: 2 in /d0, 2 in /d1, 2 in /d2, 4 elsewhere"),
        (["/proc/self/oom_score_adj", "/dev/pts/0"], None),
        ([None], None),
    ],
)
def test_where_files_were_opened_for_writing(paths: list[str | None], said: str | None) -> None:
    rows = [{"fd": 3, "flags": ["O_RDWR"], "resolved_path": path} for path in paths]
    text = render(summary_of({"files": batch("files", rows)}), Ending("x", 1), width=100)
    assert text.splitlines()[2:] == ([] if said is None else [f" Files  {said}"])


def test_directories_are_bounded() -> None:
    rows = [{"fd": 3, "flags": ["O_RDWR"], "resolved_path": f"/d{i}/x"} for i in range(1500)]
    summary = summary_of({"files": batch("files", rows)})
    assert len(summary.written) == 1001
    assert "1,500 opened for writing: 1 in /d0, 1 in /d1, 1 in /d2, 1,497 elsewhere" in render(summary, Ending("x", 1))


def test_where_it_was_kept() -> None:
    def last(kept: str | None, width: int) -> list[str]:
        return render(summary_of(), Ending("x", 1, kept=kept), width=width).splitlines()[2:]

    query = '"from requests order by duration_ns desc limit 10"'
    assert last(None, 80) == []
    assert last("last", 80) == [" kept as `last`", f" try:  tracehound query last {query}"]
    assert last("my shop", 120) == [f" kept in my shop   try:  tracehound query 'my shop' {query}"]
    assert last("d" * 40, 80) == [f" kept in {'d' * 40}"]


def test_names_cannot_drive_the_terminal() -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e\n"
    row = call(evil, evil, 1, resource=evil, route=None, outcome="server_error", error_message=evil, error_type=evil)
    text = render(
        summary_of({"requests": batch("requests", [row])}), Ending(evil, 1, evil, 0, evil, (evil,)), width=150
    )
    assert all(c.isprintable() or c == "\n" for c in text)
    assert len(text.splitlines()) == 13


def test_json_lines() -> None:
    objects = [json.loads(line) for line in summary_of(shop()).json_lines(ENDING).splitlines()]
    head = objects[0]
    assert (head["table"], head["command"], head["outcome"], head["kept"]) == (
        "summary",
        "python shop.py",
        "exit 0",
        "last",
    )
    assert (head["processes"], head["requests"], head["failed"], head["lost"]) == (9, 1010, 3, 0)
    assert (head["exit_codes"], head["signals"]) == ({"3": 1}, {"SIGKILL": 1})
    calls = [item for item in objects if item["table"] == "calls"]
    assert [(c["name"], c["peer"], c["port"], c["requests"], c["errors"]) for c in calls] == [
        ("orders", "redis", 6379, 600, 0),
        ("web", "orders", 8001, 200, 2),
        ("orders", "203.0.113.9", 443, 1, 0),
        ("orders", "postgres", 5432, 1, 1),
    ]
    assert (calls[1]["sent_bytes"], calls[1]["received_bytes"]) == (200 * 190, 200 * 6000)
    [served] = [item for item in objects if item["table"] == "served"]
    assert (served["name"], served["port"], served["requests"], served["sent_bytes"]) == ("orders", 8001, 7, 42_000)
    assert {item["table"] for item in objects} == {"summary", "calls", "served", "slowest", "errors"}


def test_a_call_is_told_once_in_whatever_order_its_ends_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "CHUNK_ROWS", 7)
    rows = [{"exchange": i.to_bytes(8, "big") + bytes(8)} for i in range(1, 101)]
    both = [call("web", "orders", 80, **row) for row in rows]
    both += [call("orders", None, 9, role="server", local_port=80, **row) for row in rows]
    both += [call("orders", None, 9, role="server", local_port=80, exchange=None)]
    both += [call("x", None, 9, role=None)]
    random.Random(1).shuffle(both)
    sides = BothSides()
    for row in both:
        sides.add(batch("requests", [row]))
    sides.finish()
    assert sum(group.requests for group in sides.calls.groups.values()) == 101
    assert sum(group.requests for group in sides.served.groups.values()) == 1


def test_rows_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "CHUNK_ROWS", 10)
    monkeypatch.setattr(_calls, "HELD_ROWS", 50)
    monkeypatch.setattr(_calls, "KNOWN_CONNECTIONS", 20)
    sides = BothSides()
    for i in range(300):
        exchange = (i + 1).to_bytes(8, "big") + bytes(8)
        sides.add(batch("requests", [call("orders", None, 9, role="server", local_port=80, exchange=exchange)]))
        sides.add(batch("requests", [call("web", "orders", 80, exchange=exchange)]))
        assert sides._held_rows <= 60 and len(sides._client_connections) <= 30
    sides.finish()
    assert sum(group.requests for group in sides.calls.groups.values()) == 300


def test_groups_and_errors_are_bounded() -> None:
    many = [call(f"s{i}", None, i, status=500 + i, outcome="server_error") for i in range(GROUPS + 500)]
    summary = summary_of({"requests": batch("requests", many)})
    assert len(summary.calls.groups) == GROUPS + 1 and len(summary.errors) == GROUPS + 1
    assert sum(group.requests for group in summary.calls.groups.values()) == GROUPS + 500
    assert "… and 981 more" in render(summary, ENDING)


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_are_within_two_percent(seed: int) -> None:
    durations = np.random.default_rng(seed).lognormal(14, 2, 20_000).astype(np.int64)
    rows = batch("requests", [call("web", "orders", 1)] * len(durations))
    index = rows.schema.get_field_index("duration_ns")
    import pyarrow as pa

    rows = rows.set_column(index, rows.schema.field(index), pa.array(durations))
    [group] = summary_of({"requests": rows}).calls.groups.values()
    for share in (0.5, 0.95, 0.99):
        found = group.quantile(share)
        assert found is not None
        assert abs(found / np.quantile(durations, share, method="inverted_cdf") - 1) < 0.02


def test_requests_without_a_duration_count_but_have_no_quantile() -> None:
    rows = [call("web", "orders", 1, duration_ns=None, outcome="no_response", status=None)]
    [group] = summary_of({"requests": batch("requests", rows)}).calls.groups.values()
    assert (group.requests, group.errors, group.quantile(0.5)) == (1, 1, None)
    assert Group().quantile(0.99) is None


def test_the_slowest_are_the_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "CHUNK_ROWS", 10)
    durations = list(range(1, 101))
    random.Random(2).shuffle(durations)
    rows = [call("web", "orders", 1, duration_ns=d * 1_000_000, exchange=ONE_END * 2) for d in durations]
    summary = summary_of(*({"requests": batch("requests", rows[i : i + 3])} for i in range(0, 100, 3)))
    assert sorted(slow.duration_ns // 1_000_000 for slow in summary.calls.slowest) == [96, 97, 98, 99, 100]


def test_what_nobody_asked_for_is_no_call() -> None:
    pushed = {"operation": "message", "protocol": "redis", "duration_ns": 0, "exchange": None, "response_bytes": None}
    sides = BothSides()
    sides.add(batch("requests", [call("shop", "redis", 6379), call("shop", "redis", 6379, **pushed)]))
    sides.add(batch("requests", [call("redis", None, 0, role="server", local_port=6379, **pushed)]))
    sides.finish()
    assert [group.requests for group in sides.calls.groups.values()] == [1]
    assert not sides.served.groups


def test_a_name_of_an_address_stands_beside_it() -> None:
    named = {"peer_service_inferred": True, "remote_ip": "203.0.113.9"}
    refused = {"event": "error", "service": "web", "remote_ip": "::1", "remote_port": 9, "error": "ETIMEDOUT"}
    requests = [call("web", "api.example", 443, **named)] * 2
    requests += [
        call("web", "cdn.example", 443, **(named | {"remote_ip": ip})) for ip in ("203.0.113.1", "203.0.113.2")
    ]
    summary = summary_of(
        {"requests": batch("requests", requests)},
        {"connections": batch("connections", [refused | {"remote_name": "db.example"}])},
    )
    text = render(summary, ENDING, width=140)
    assert "→ api.example 203.0.113.9:443  " in text
    assert "→ cdn.example :443  " in text  # of several addresses none
    assert "web → db.example [::1]:9" in text
    assert "→ api.example :443  " in render(summary, ENDING, width=80)
