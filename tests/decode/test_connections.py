"""Connection, retransmit and data records in, rows of `connections`, `listens` and `retransmits` out."""

import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.batches import LAYOUT, Record, batch, cut, one, rows, whole_rows

from tracehound.decode.connections import Connections
from tracehound.decode.settings import DecodeSettings

S = 1_000_000_000
OPEN, ACCEPT, ERROR, CLOSE, LISTEN, UNLISTEN, SNAPSHOT = range(1, 8)
CLIENT, SERVER = 1, 2
HERE, THERE = bytes([127, 0, 0, 1] + [0] * 12), bytes([10, 0, 0, 9] + [0] * 12)


def event(time_ns: int, what: int, cookie: int, **fields: Any) -> Record:
    ends: dict[str, Any] = {
        "local_address": list(HERE),
        "remote_address": list(THERE),
        "local_port": 40_000,
        "remote_port": 80,
    }
    values = {"pid": 50, "family": 2, "transport": 6, "role": CLIENT, "started_ns": 1, "established_ns": 3} | ends
    return one("connection", time_ns, event=what, cookie=cookie, **(values | fields))


def call(time_ns: int, cookie: int, **fields: Any) -> Record:
    values: dict[str, Any] = {
        "pid": 60,
        "tid": 61,
        "fd": 5,
        "transport": 6,
        "family": 2,
        "local_port": 80,
        "remote_port": 999,
    }
    return one("data", time_ns, cookie=cookie, **(values | fields))


def decoder(protocols: dict[int, tuple[str | None, str | None]] | None = None, wait_ns: int = 0) -> Connections:
    return Connections(LAYOUT, DecodeSettings(close_wait_ns=wait_ns), {} if protocols is None else protocols)


def decode(records: list[Record], watermarks: list[int], end_ns: int | None = None) -> pa.Table:
    connections = decoder()
    tables = [connections.decode(part) for part in cut(records, watermarks)]
    if end_ns is not None:
        tables.append(connections.finish(end_ns))
    found = [table["connections"] for table in tables if "connections" in table]
    return pa.Table.from_batches(found) if found else None


ENDS = {"transport": "tcp", "family": "ipv4", "local_ip": "127.0.0.1", "local_port": 40_000}
ENDS |= {"remote_ip": "10.0.0.9", "remote_port": 80}


def test_client_connection_whole_rows() -> None:
    counters = {"send_calls": 2, "receive_calls": 3, "bytes_sent": 100, "bytes_received": 2_000, "retransmits": 1}
    times = {"first_read_ns": 60, "first_write_ns": 50, "last_read_start_ns": 61}
    records = [
        event(40, OPEN, 7, tid=51, attempt=1, started_ns=30, established_ns=40, state=1),
        call(50, 7, pid=50, tid=52, fd=5),
        call(60, 7, pid=50, tid=53, fd=6),
        event(90, CLOSE, 7, attempt=1, started_ns=30, established_ns=40, ended_ns=85, srtt_us=44, state=7),
    ]
    records[-1].fields.update(counters | times)
    protocols: dict[int, tuple[str | None, str | None]] = {7 << 8 | 1: ("http1", None)}
    tables = decoder(protocols).decode(batch(records))
    common = {"connection": 7 << 8 | 1, "cookie": 7, "role": "client", "fd": 5, "connect_ns": 10, "pid": 50} | ENDS
    common |= {"preexisting": False}
    assert {name: whole_rows(table) for name, table in tables.items()} == {
        "connections": [
            common | {"time_ns": 40, "event": "open", "tid": 51, "state": "ESTABLISHED"},
            common
            | {"time_ns": 85, "event": "close", "state": "CLOSE", "srtt_us": 44, "protocol": "http1"}
            | counters
            | times,
        ]
    }
    assert protocols == {}


COLUMNS = ("event", "time_ns", "pid", "tid", "fd", "preexisting")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param(  # the process that serves it, not the listener's owner
            [event(10, ACCEPT, 7, role=SERVER, pid=50), call(20, 7), event(30, CLOSE, 7, role=SERVER, pid=50)],
            [("accept", 10, 60, 61, 5, False), ("close", 30, 60, None, 5, False)],
            id="accept, its first call in a worker",
        ),
        pytest.param(
            [event(10, ACCEPT, 7, role=SERVER), event(30, CLOSE, 7, tid=9, ended_ns=29)],
            [("accept", 10, 50, None, None, False), ("close", 29, 50, 9, None, False)],
            id="accept, closed without a call",
        ),
        pytest.param(
            [event(10, ACCEPT, 7), call(10 + S + 1, 7), event(10 + 2 * S, CLOSE, 7)],
            [("accept", 10, 50, None, None, False), ("close", 10 + 2 * S, 60, None, 5, False)],
            id="first call after a second",
        ),
        pytest.param(
            [event(10, ACCEPT, 7), call(10 + S, 7), event(11 + S, CLOSE, 7)],
            [("accept", 10, 60, 61, 5, False), ("close", 11 + S, 60, None, 5, False)],
            id="first call after exactly a second",
        ),
        pytest.param(
            [call(20, 7), call(25, 7, fd=9), event(30, CLOSE, 7)],
            [("close", 30, 60, None, 5, True)],
            id="joined by data",
        ),
        pytest.param([event(30, CLOSE, 7)], [("close", 30, 50, None, None, True)], id="joined by its close"),
        pytest.param(
            [event(5, SNAPSHOT, 7), call(20, 7), event(30, CLOSE, 7)],
            [("snapshot", 5, 50, None, None, True), ("close", 30, 60, None, 5, True)],
            id="joined by a snapshot",
        ),
        pytest.param(
            [
                event(10, ERROR, 7, error=111, attempt=1, established_ns=0),
                event(30, OPEN, 7, attempt=2),
                call(31, 7),
                event(40, CLOSE, 7, attempt=2),
            ],
            [("error", 10, 50, None, None, False), ("open", 30, 50, None, 5, False), ("close", 40, 50, None, 5, False)],
            id="refused, then connected",
        ),
        pytest.param(
            [event(10, ERROR, 7, error=111, established_ns=0), event(30, CLOSE, 7, established_ns=0, error=111)],
            [("error", 10, 50, None, None, False)],
            id="the end of a socket that never connected is no close",
        ),
        pytest.param(
            [event(10, OPEN, 7, attempt=1), call(11, 7), event(40, OPEN, 7, attempt=2), event(50, CLOSE, 7, attempt=2)],
            [
                ("open", 10, 50, None, 5, False),
                ("close", 40, 50, None, 5, False),
                ("open", 40, 50, None, None, False),
                ("close", 50, 50, None, None, False),
            ],
            id="connected again without a close",
        ),
        pytest.param(
            [call(9, 7), event(10, OPEN, 7), event(50, CLOSE, 7)],
            [("open", 10, 50, None, None, False), ("close", 50, 50, None, None, False)],
            id="data stamped before the open",
        ),
        pytest.param(
            [event(10, SNAPSHOT, 7, slot=8), event(50, CLOSE, 7)],
            [("snapshot", 10, 50, None, 7, True), ("close", 50, 50, None, None, True)],
            id="there before, its descriptor told by the iterator",
        ),
        pytest.param([event(10, OPEN, 0), event(11, CLOSE, 0), call(12, 0)], [], id="cookie 0 is never a row"),
        pytest.param([call(12, 7, transport=17)], [], id="UDP has no connections yet"),
    ],
)
def test_tracks(records: list[Record], expected: list[tuple[Any, ...]]) -> None:
    times = sorted({record.time_ns for record in records})
    for watermarks in ([], times, times[::2], [at - 1 for at in times], [2 * S, 3 * S]):
        assert rows(decode(records, watermarks), *COLUMNS) == expected


def test_error_row() -> None:
    (row,) = whole_rows(decode([event(10, ERROR, 7, error=111, attempt=2, established_ns=0, state=7)], []))
    assert row == ENDS | {
        "time_ns": 10, "event": "error", "error": "ECONNREFUSED", "connection": 7 << 8 | 2, "cookie": 7, "pid": 50,
        "role": "client", "preexisting": False, "send_calls": 0, "receive_calls": 0, "bytes_sent": 0,
        "bytes_received": 0, "retransmits": 0, "state": "CLOSE",
    }  # fmt: skip


def test_an_accept_waits_a_second_of_record_time() -> None:
    connections = decoder()
    assert connections.decode(batch([event(10, ACCEPT, 7, role=SERVER)], 20)) == {}
    assert connections.decode(batch([], 10 + S - 1)) == {}
    table = connections.decode(batch([], 10 + S))["connections"]
    assert rows(table, *COLUMNS) == [("accept", 10, 50, None, None, False)]
    assert connections.decode(batch([], 10 + 5 * S)) == {}


def test_a_close_waits_for_its_protocol() -> None:
    protocols: dict[int, tuple[str | None, str | None]] = {}
    connections = decoder(protocols, wait_ns=30)
    assert connections.decode(batch([event(10, OPEN, 7), call(11, 7), event(20, CLOSE, 7)], 49)).keys() == {
        "connections"
    }
    protocols[7 << 8] = ("http1", None)  # found in bytes that stood in a queue
    assert rows(connections.decode(batch([], 50))["connections"], "event", "protocol") == [("close", "http1")]
    assert protocols == {}


def test_what_is_open_at_the_end() -> None:
    records = [
        event(10, ACCEPT, 7, role=SERVER),  # waits
        event(11, OPEN, 8), call(12, 8),
        call(13, 9, role=SERVER),  # known from data alone
        event(14, SNAPSHOT, 10, send_calls=4),  # long before the end
        event(15, OPEN, 11), event(16, CLOSE, 11),
    ]  # fmt: skip
    table = decode(records, [13], end_ns=10 * S)
    assert rows(table, "event", "cookie", "time_ns", "pid", "fd", "role", "preexisting", "send_calls", "remote_ip") == [
        ("open", 8, 11, 50, 5, "client", False, None, "10.0.0.9"),
        ("snapshot", 10, 14, 50, None, "client", True, 4, "10.0.0.9"),
        ("open", 11, 15, 50, None, "client", False, None, "10.0.0.9"),
        ("close", 11, 16, 50, None, "client", False, 0, "10.0.0.9"),
        ("accept", 7, 10, 50, None, "server", False, None, "10.0.0.9"),
        ("snapshot", 7, 10 * S, 50, None, "server", False, None, "10.0.0.9"),
        ("snapshot", 8, 10 * S, 50, 5, "client", False, None, "10.0.0.9"),
        ("snapshot", 9, 10 * S, 60, 5, "server", True, None, None),
        ("snapshot", 10, 10 * S, 50, None, "client", True, 4, "10.0.0.9"),
    ]


def test_a_fresh_snapshot_is_not_repeated_at_the_end() -> None:
    table = decode([event(10, OPEN, 8), event(20, SNAPSHOT, 8, send_calls=1)], [], end_ns=30)
    assert rows(table, "event", "send_calls") == [("snapshot", 1), ("open", None)]


def test_listens_and_retransmits() -> None:
    records = [
        event(5, LISTEN, 70, tid=51, backlog=128, local_port=8000, family=10, local_address=[0] * 16),
        event(9, UNLISTEN, 70, local_port=8000, family=10, local_address=[0] * 16, ended_ns=8),
        one("retransmit", 7, pid=50, cookie=3, attempt=1, state=1, sequence=4_000_000_000, size_bytes=1448),
    ]
    listen = {"cookie": 70, "pid": 50, "family": "ipv6", "local_ip": "::", "local_port": 8000, "preexisting": False}
    assert {name: whole_rows(table) for name, table in decoder().decode(batch(records)).items()} == {
        "listens": [
            listen | {"time_ns": 5, "event": "open", "backlog": 128, "tid": 51},
            listen | {"time_ns": 8, "event": "close"},
        ],
        "retransmits": [
            {"time_ns": 7, "pid": 50, "connection": 3 << 8 | 1, "state": "ESTABLISHED", "sequence": 4_000_000_000}
            | {"size_bytes": 1448}
        ],
    }


def test_role_error_reset_idle() -> None:
    """A connection closed locally while idle is no error."""
    (_, row) = whole_rows(decode([event(1, OPEN, 5), event(9, CLOSE, 5, error=0)], []))
    assert "error" not in row
    (_, row) = whole_rows(decode([event(1, OPEN, 5), event(9, CLOSE, 5, error=104, flags=4)], []))
    assert row["error"] == "ECONNRESET"


STEP = st.tuples(
    st.integers(1, 60).map(lambda n: n * S // 8),
    st.sampled_from([OPEN, ACCEPT, CLOSE, SNAPSHOT, ERROR, None, None]),
    st.integers(1, 4),
    st.integers(0, 2),
)


def make(step: tuple[int, int | None, int, int]) -> Record:
    time_ns, what, cookie, attempt = step
    if what is None:
        return call(time_ns, cookie, pid=60 + attempt, fd=attempt)
    established = 0 if what == ERROR else 3
    return event(
        time_ns, what, cookie, attempt=attempt, established_ns=established, role=SERVER if what == ACCEPT else CLIENT
    )


@given(st.lists(STEP, max_size=30), st.lists(st.integers(0, 80).map(lambda n: n * S // 8), max_size=8))
def test_any_records_any_cut(steps: list[tuple[int, int | None, int, int]], watermarks: list[int]) -> None:
    records = [make(step) for step in steps]
    whole = decode(records, [], end_ns=20 * S)
    parts = decode(records, watermarks, end_ns=20 * S)
    assert (whole is None and parts is None) or whole.to_pylist() == parts.to_pylist()
    if whole is None:
        return
    found = Counter(whole.column("event").to_pylist())
    ends = {"close", "snapshot"}
    kept = [
        row
        for row in whole.to_pylist()
        if row["event"] in ends and (row["event"] == "close" or row["time_ns"] == 20 * S)
    ]
    joined = sum(row["preexisting"] for row in kept)
    assert found["open"] + found["accept"] + joined == len(kept)
    assert 0 not in whole.column("cookie").to_pylist()


def test_ten_thousand_connections_are_columns() -> None:
    records = []
    for number in range(1, 10_001):
        at = number * 1_000
        records += [
            event(at, OPEN, number, attempt=1),
            call(at + 10, number),
            event(at + 500, CLOSE, number, attempt=1),
        ]
    batches = cut(records, range(0, 10_000_000, 500_000))
    connections = decoder()
    started = time.process_time()
    tables = [connections.decode(part)["connections"] for part in batches if part.records]
    seconds = time.process_time() - started
    assert sum(len(table) for table in tables) == 20_000
    assert seconds < 2, f"20,000 rows took {seconds:.2f} s"
    assert len(connections._live) == 0


def unix(time_ns: int, cookie: int, **fields: Any) -> Record:
    for name in ("local", "remote"):
        raw = fields.pop(name, b"")
        fields |= {f"{name}_path": raw, f"{name}_size": len(raw)}
    return one("unix", time_ns, cookie=cookie, **fields)


NOWHERE: dict[str, Any] = {"local_address": [0] * 16, "remote_address": [0] * 16, "local_port": 0, "remote_port": 0}


@pytest.mark.parametrize(
    ("raw", "text"), [(b"/run/app.sock\0", "/run/app.sock"), (b"\0bus", "@bus"), (b"/a\xff", "/a\\xff"), (b"", None)]
)
def test_unix_socket_whole_rows(raw: bytes, text: str | None) -> None:
    given: dict[str, Any] = {"family": 1, "started_ns": 0} | NOWHERE
    records = [
        unix(10, 7, remote=raw, peer_pid=77),
        event(10, OPEN, 7, tid=52, **given),
        call(12, 7, pid=50, tid=52, fd=5, family=1),
        event(90, CLOSE, 7, ended_ns=90, bytes_sent=5, send_calls=1, **given),
    ]
    found = whole_rows(decode(records, [50]))
    common = {"connection": 7 << 8, "cookie": 7, "pid": 50, "fd": 5, "transport": "unix", "family": "unix"}
    common |= {"role": "client", "preexisting": False, "peer_pid": 77} | ({"remote_path": text} if text else {})
    counters = {"send_calls": 1, "receive_calls": 0, "bytes_sent": 5, "bytes_received": 0, "retransmits": 0}
    assert found == [
        common | {"time_ns": 10, "event": "open", "tid": 52},
        common | counters | {"time_ns": 90, "event": "close"},
    ]


def test_udp_socket_that_is_not_connected_has_no_remote_address() -> None:
    given: dict[str, Any] = {"transport": 17, "role": SERVER} | NOWHERE | {"local_port": 53}
    records = [event(10, ACCEPT, 7, **given), call(12, 7, transport=17), event(90, CLOSE, 7, **given)]
    names = ("event", "transport", "role", "local_ip", "local_port", "remote_ip", "remote_port")
    assert rows(decode(records, [50]), *names) == [
        (what, "udp", "server", "0.0.0.0", 53, None, None) for what in ("accept", "close")
    ]


def test_a_count_that_no_socket_can_have_is_null() -> None:
    """The kernel side took a server for a client, whose SYN counts as a byte: position -1, which ended the trace."""
    table = decode([event(5, SNAPSHOT, 7, bytes_sent=2**64 - 1, bytes_received=2**63 - 1)], [9])
    assert rows(table, "event", "bytes_sent", "bytes_received") == [("snapshot", None, 2**63 - 1)]


def test_a_listening_unix_socket_keeps_its_path_until_it_is_gone() -> None:
    ends = {"family": 1, "local_port": 0, "remote_port": 0, "role": SERVER}
    connections = decoder()
    first = connections.decode(batch([unix(1, 7, local=b"/run/web\0"), event(2, LISTEN, 7, flags=1, **ends)], 5))
    last = connections.decode(batch([event(8, UNLISTEN, 7, **ends)], 9))
    found = [row for table in (first, last) for row in table["listens"].to_pylist()]
    assert [(row["event"], row["family"], row["local_path"], row["preexisting"]) for row in found] == [
        ("open", "unix", "/run/web", True),
        ("close", "unix", "/run/web", False),
    ]
    assert not connections._unix_ends, "what is known of a socket goes with it"
