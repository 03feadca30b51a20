"""`doctor --pid`: what the rows of a short trace say of each connection."""

from typing import Any

import pytest

from tracehound.cli._watch import Carried, Watched, summed, watch

CONNECTION: dict[str, Any] = {
    "pid": 7, "ns_pid": 1, "time_ns": 1, "event": "snapshot", "connection": 5, "fd": 3, "preexisting": True,
    "bytes_sent": 100, "bytes_received": 50, "protocol": None, "why": None,
}  # fmt: skip
REQUEST = {"connection": 5, "joined_midstream": True, "truncated": False, "gap": False}
PROBE = {"program": "on_x", "attached": False, "reason": "no such point", "lost_by_it": "no close rows"}


def test_rows_are_summed_by_the_descriptor_of_the_start() -> None:
    tables = {
        "connections": [
            CONNECTION,
            CONNECTION | {"time_ns": 9, "fd": None, "bytes_sent": 130, "bytes_received": 70, "protocol": "http1"},
            CONNECTION | {"connection": 6, "fd": 4, "why": "no known protocol in its bytes", "bytes_sent": None},
            CONNECTION | {"connection": 8, "preexisting": False, "fd": 9},
            CONNECTION | {"connection": 9, "pid": 70, "ns_pid": 70, "fd": 11},  # of a child
        ],
        "requests": [REQUEST, REQUEST | {"joined_midstream": False, "gap": True}],
        "losses": [{"counter": "ring_full", "count": 4, "connection": 5}],
        "probes": [PROBE, PROBE | {"attached": True}],
    }
    found = summed(tables, 7, 1.0)
    assert found.connections == {
        3: Carried("http1", None, 30, 20, requests=2, joined_midstream=1, gap=1, lost=4),
        4: Carried(None, "no known protocol in its bytes"),
    }
    assert (found.new_connections, found.requests, found.losses) == (1, 2, {"ring_full": 4})
    assert found.not_traced == ["no close rows (on_x: no such point)"]
    assert found.text_of(3) == (
        "http1, 30 B out, 20 B in, 2 requests, 1 joined mid-stream, 1 beside a gap, 4 records lost"
    )
    assert found.text_of(4) == "no protocol: no known protocol in its bytes"
    assert found.text_of(99) == ""
    assert found.lines() == [
        "   traced    1 s: 2 requests, 1 new connections, lost ring_full 4",
        "   missing   no close rows (on_x: no such point)",
    ]


@pytest.mark.parametrize(
    ("carried", "text"),
    [
        (Carried(), "quiet"),
        (Carried(bytes_sent=3), "no protocol: not enough bytes yet, 3 B out, 0 B in"),
        (Carried("http1"), "http1, 0 B out, 0 B in"),
    ],
)
def test_what_a_connection_carried(carried: Carried, text: str) -> None:
    assert Watched(1.0, {3: carried}).text_of(3) == text


def test_what_cannot_be_traced_is_said() -> None:
    found = watch(1 << 22, 0.1)
    assert found.failure is not None and found.lines() == [f"   traced    not: {found.failure}"]
