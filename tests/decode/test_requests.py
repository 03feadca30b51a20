"""Records in, whole rows out: keep-alive, pipelines, bodies, ends, timeouts, capture orders, ids of both ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.records import (
    CLIENT,
    COUNT,
    DISPUTED,
    HEAD_TAIL,
    OPAQUE,
    PEEK,
    PREEXISTING,
    RECEIVE,
    SEND,
    SERVER,
    UNKNOWN,
    Recorder,
    Socket,
    both_ends,
)  # fmt: skip

from tracehound.btf import wire_layout
from tracehound.decode.parsing import CaptureOrder
from tracehound.decode.request_rows import exchange_column, split_traceparent
from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.protocols import load_protocols

LAYOUT = wire_layout()
HTTP1 = LAYOUT.enum("l7_protocol")["L7_HTTP1"]
FRAMED, OFF = 1, 4
SECOND = 1_000_000_000
END = 1000 * SECOND
MIB = 1 << 20
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
Row = dict[str, Any]


def detect(head: bytes, _direction: int, _transport: int, _port: int) -> tuple[int, int]:
    """Judge as the real one does, whichever detectors this build has."""
    if head.startswith((b"GET /", b"POST /", b"PUT /", b"HEAD /", b"HTTP/1.")) and len(head) >= 16:
        return HTTP1, 2
    return (HTTP1, 1) if head.startswith(b"HEY") else (0, 0)


@dataclass
class Decoded:
    rows: list[Row]  # by connection and position
    order: list[int]  # the rows' ids as they came
    losses: list[tuple[Any, ...]]
    orders: list[CaptureOrder]
    protocols_of: dict[int, tuple[str | None, str | None]]

    def brief(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.rows]

    def counters(self) -> list[tuple[Any, ...]]:
        return [(stage, counter, count) for stage, counter, count, *_ in self.losses]


def decode(recorder: Recorder, cuts: Sequence[int] = (), **settings: Any) -> Decoded:
    requests = Requests(LAYOUT, load_protocols(), DecodeSettings(**settings), detect)
    results = [requests.decode(batch) for batch in recorder.batches(cuts)]
    results.append(requests.finish(recorder.time_ns + SECOND))
    rows = [row for result in results if result.requests is not None for row in result.requests.to_pylist()]
    order = [row["request"] for row in rows]
    rows.sort(key=lambda row: (row["connection"], row["request_position"]))
    losses = [loss for result in results for loss in result.losses]
    return Decoded(rows, order, losses, requests.orders, requests.protocols_of)


class Turned(Socket):
    """The other end: what a conversation sends is received here."""

    def move(self, direction: int, data: bytes | int, **given: Any) -> None:
        super().move(1 - direction, data, **given)


def client(recorder: Recorder, **given: Any) -> Socket:
    return Socket(recorder, 11, CLIENT, verdict=HTTP1, **given).open()


def get(path: str, *lines: str, method: str = "GET") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: shop", *lines, "")).encode()


def post(path: str, body: bytes) -> bytes:
    return get(path, f"Content-Length: {len(body)}", method="POST") + body


def reply(status: int, body: bytes = b"", *lines: str) -> bytes:
    return head(status, f"Content-Length: {len(body)}", *lines) + body


def head(status: int, *lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status} Text", *lines, "")).encode()


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def test_row_says_all_that_is_known() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    request = get("/a?b=1", "User-Agent: curl", f"traceparent: 00-{TRACE}-{SPAN}-01")
    response = reply(404, b"gone", "Content-Type: text/plain")
    socket.send(request, time_ns=100)
    socket.receive(response[:10], time_ns=250)
    socket.receive(response[10:], time_ns=300)
    (row,) = decode(recorder).rows
    assert row.pop("exchange") is not None
    assert {name: value for name, value in row.items() if value is not None} == {
        "time_ns": 300, "pid": 100, "tid": 101, "preexisting": False, "request": 1, "protocol": "http1",
        "role": "client", "connection": 11 << 8 | 1, "local_ip": "127.0.0.1", "local_port": 40000,
        "remote_ip": "127.0.0.1", "remote_port": 80, "operation": "GET", "resource": "/a?b=1", "status": 404,
        "outcome": "client_error", "error_type": "Not Found", "request_bytes": len(request),
        "response_bytes": len(response), "request_position": 0, "response_position": 0, "start_ns": 100,
        "first_response_ns": 250, "end_ns": 300, "duration_ns": 200, "tls": False, "truncated": False, "gap": False,
        "prepared_unknown": False, "joined_midstream": False, "trace_id": TRACE, "parent_span_id": SPAN,
        "trace_flags": 1, "host": "shop", "user_agent": "curl", "content_type": "text/plain",
    }  # fmt: skip


# ---- shapes of a conversation: (name, what the client end sees, rows as (resource, status, outcome, bytes in and out))


def keep_alive(socket: Socket) -> None:
    for number in range(3):
        socket.send(get(f"/{number}"))
        socket.receive(reply(200 + number, b"x" * number))


def pipeline(socket: Socket) -> None:
    socket.send(get("/0") + post("/1", b"GET / HTTP/1.1\r\n\r\n") + get("/2"))
    socket.receive(reply(200) + reply(201, b"y"))
    socket.receive(reply(202))


def bytewise(socket: Socket) -> None:
    for number in range(2):
        for byte in post(f"/{number}", b"body"):
            socket.send(bytes((byte,)))
        for byte in reply(200, b"hello"):
            socket.receive(bytes((byte,)))


def head_and_body_apart(socket: Socket) -> None:
    request, response = post("/0", b"body"), reply(200, b"hello")
    socket.send(request[:-4])
    socket.send(request[-4:])
    socket.receive(response[:-5])
    socket.receive(response[-5:])


def bodyless(socket: Socket) -> None:
    for number, (method, status) in enumerate([("HEAD", 200), ("GET", 304), ("DELETE", 204), ("GET", 200)]):
        socket.send(get(f"/{number}", method=method))
        socket.receive(head(status, "Content-Length: 70") if number < 3 else reply(200, b"z" * 7))


def interim(socket: Socket) -> None:
    request = post("/0", b"body")
    socket.send(request[:-4])
    socket.receive(head(100))
    socket.send(request[-4:])
    socket.receive(head(103, "Link: <a>") + reply(200))


def chunks(socket: Socket) -> None:
    socket.send(get("/0", "Transfer-Encoding: chunked", method="PUT") + chunked(b"abc", b"d" * 20))
    response = head(200, "Transfer-Encoding: chunked") + chunked(b"HTTP/1.1 500 No\r\n\r\n", b"x" * 100)
    for start in range(0, len(response), 33):
        socket.receive(response[start : start + 33])
    socket.send(get("/1"))
    socket.receive(reply(204))


def peeked(socket: Socket) -> None:
    socket.send(get("/0"))
    socket.receive(reply(200, b"abc")[:9], flags=PEEK)
    socket.receive(reply(200, b"abc"), flags=PEEK)
    socket.receive(reply(200, b"abc"))


def opaque_body(socket: Socket) -> None:
    socket.send(get("/0"))
    response = reply(200, b"f" * 100_000)
    socket.receive(response[:-100_000])
    socket.receive(60_000, flags=OPAQUE)
    socket.receive(40_000, flags=OPAQUE)
    socket.send(get("/1"))
    socket.receive(reply(200))


def disputed(socket: Socket) -> None:
    socket.send(get("/0"), flags=DISPUTED)
    socket.receive(reply(200), flags=DISPUTED)


def long_call(socket: Socket) -> None:
    """Four records of one call, and more that is not captured: a body is not missed."""
    socket.send(post("/0", b"u" * 200_000))
    socket.receive(reply(200, b"d" * 200_000))
    socket.send(get("/1"))
    socket.receive(reply(200))


def counted_body(socket: Socket) -> None:
    response = reply(200, b"d" * 9000)
    socket.send(get("/0"))
    socket.receive(response[:-9000])
    socket.receive(response[-9000:], capture=COUNT)


def early_answer(socket: Socket) -> None:
    socket.send(post("/0", b"b" * 1000)[:500])
    socket.receive(reply(413))


def late_half(socket: Socket) -> None:
    """Two threads on two CPUs: the second half of the response is stamped first."""
    response = reply(200, b"q" * 50)
    now = socket.recorder.time_ns
    socket.send(get("/0"))
    socket.position[RECEIVE] = 20
    socket.receive(response[20:], time_ns=now + 5_000_000)
    socket.position[RECEIVE] = 0
    socket.receive(response[:20], time_ns=now + 5_000_100)
    socket.position[RECEIVE] = len(response)
    socket.send(get("/1"))
    socket.receive(reply(204))


def answer_stamped_first(socket: Socket) -> None:
    now = socket.recorder.time_ns
    socket.send(get("/0"))
    socket.receive(reply(200))
    socket.receive(reply(201), time_ns=now + 9_000_000)
    socket.send(get("/1", method="HEAD"), time_ns=now + 9_900_000)
    socket.send(get("/2"))
    socket.receive(reply(202))


SHAPES: list[tuple[Callable[[Socket], None], list[tuple[str, int | None, str]]]] = [
    (keep_alive, [("/0", 200, "ok"), ("/1", 201, "ok"), ("/2", 202, "ok")]),
    (pipeline, [("/0", 200, "ok"), ("/1", 201, "ok"), ("/2", 202, "ok")]),
    (bytewise, [("/0", 200, "ok"), ("/1", 200, "ok")]),
    (head_and_body_apart, [("/0", 200, "ok")]),
    (bodyless, [("/0", 200, "ok"), ("/1", 304, "ok"), ("/2", 204, "ok"), ("/3", 200, "ok")]),
    (interim, [("/0", 200, "ok")]),
    (chunks, [("/0", 200, "ok"), ("/1", 204, "ok")]),
    (peeked, [("/0", 200, "ok")]),
    (opaque_body, [("/0", 200, "ok"), ("/1", 200, "ok")]),
    (disputed, [("/0", 200, "ok")]),
    (long_call, [("/0", 200, "ok"), ("/1", 200, "ok")]),
    (counted_body, [("/0", 200, "ok")]),
    (early_answer, [("/0", 413, "client_error")]),
    (late_half, [("/0", 200, "ok"), ("/1", 204, "ok")]),
    (answer_stamped_first, [("/0", 200, "ok"), ("/1", 201, "ok"), ("/2", 202, "ok")]),
]


@pytest.mark.parametrize(("talk", "expected"), SHAPES, ids=lambda value: getattr(value, "__name__", ""))
def test_shape_gives_its_rows(talk: Callable[[Socket], None], expected: list[tuple[str, int | None, str]]) -> None:
    recorder = Recorder()
    socket = client(recorder)
    talk(socket)
    socket.close()
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "outcome") == expected
    assert decoded.losses == []
    assert not any(row["gap"] or row["truncated"] or row["joined_midstream"] for row in decoded.rows)
    assert all(row["end_ns"] >= row["start_ns"] for row in decoded.rows)
    assert decoded.protocols_of == {11 << 8 | 1: ("http1", None)}


@pytest.mark.parametrize("talk", [talk for talk, _ in SHAPES], ids=lambda talk: talk.__name__)
@given(data=st.data())
def test_rows_do_not_depend_on_batch_cuts(talk: Callable[[Socket], None], data: st.DataObject) -> None:
    recorder = Recorder()
    talk(client(recorder))
    lost = data.draw(st.none() | st.integers(1, len(recorder.raw) - 1))
    if lost is not None:
        recorder.lose(lost)
    cuts = data.draw(st.lists(st.integers(1, len(recorder.raw)), max_size=6))
    whole, cut = decode(recorder), decode(recorder, cuts)
    assert (cut.rows, cut.order) == (whole.rows, whole.order)
    assert cut.losses == whole.losses
    assert cut.orders == whole.orders


def test_chunked_body_of_one_long_call_ends_in_its_tail() -> None:
    recorder = Recorder()
    socket = client(recorder)
    response = head(200, "Transfer-Encoding: chunked") + chunked(*[b"d" * 30_000] * 10)
    socket.send(get("/0"))
    socket.receive(response)
    socket.send(get("/1"))
    socket.receive(reply(204))
    socket.close()
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "truncated") == [("/0", 200, True), ("/1", 204, False)]
    assert decoded.rows[0]["response_bytes"] == len(response)
    assert decoded.losses == []


def test_long_call_whose_tail_could_not_be_read_is_no_hole() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(post("/0", b"u" * 200_000))
    record = np.frombuffer(recorder.raw[-1], LAYOUT.dtypes["data"], 1).copy()
    assert record[["head_size", "tail_size"]].tolist() == [(0, 256)]
    record["tail_size"], record["size"] = 0, record.itemsize
    recorder.raw[-1] = record.tobytes()
    socket.receive(reply(200))
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "gap") == [("/0", 200, False)]
    assert decoded.losses == []


def test_request_that_is_answered_before_its_body_has_the_size_that_it_declared() -> None:
    recorder = Recorder()
    socket = client(recorder)
    request = post("/0", b"b" * 1000)
    socket.send(request[:-600])
    socket.receive(reply(201))
    socket.send(request[-600:])
    (row,) = decode(recorder).rows
    assert (row["status"], row["request_bytes"]) == (201, len(request))


@pytest.mark.parametrize(("syscall", "word"), [(426, "io_uring"), (40, "sendfile")])
def test_connection_of_which_nothing_could_be_read_says_why(syscall: int, word: str) -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT).open()
    socket.send(300, flags=OPAQUE, syscall=syscall)
    socket.receive(9000, flags=OPAQUE, syscall=syscall)
    socket.close()
    decoded = decode(recorder)
    (why,) = decoded.protocols_of.values()
    assert (decoded.rows, decoded.losses, why[0]) == ([], [], None)
    assert word in (why[1] or "")


@pytest.mark.parametrize("client_known", [True, False])
def test_exchange_over_a_unix_socket_is_the_same_at_both_ends(client_known: bool) -> None:
    recorder = Recorder()
    nowhere: dict[str, Any] = {"local": (b"", 0), "remote": (b"", 0), "base": (0, 0), "verdict": HTTP1}
    for cookie, role, peer in ((11, CLIENT, 0), (12, SERVER, 11 if client_known else 0)):
        recorder.add("unix", cookie=cookie, peer_cookie=peer)
        socket = Socket(recorder, cookie, role, attempt=0, **nowhere)
        socket.lifecycle("OPEN" if role == CLIENT else "ACCEPT", family=1)
        socket.move(SEND if role == CLIENT else RECEIVE, get("/0"))
        socket.move(RECEIVE if role == CLIENT else SEND, reply(200))
    asked, served = decode(recorder).rows
    assert (asked["role"], served["role"], asked["remote_ip"], asked["remote_port"]) == ("client", "server", None, None)
    assert asked["exchange"] is not None
    assert served["exchange"] == (asked["exchange"] if client_known else None)


def test_a_role_that_there_is_not_is_none_on_a_unix_socket() -> None:
    recorder = Recorder()
    recorder.add("unix", cookie=11, peer_cookie=12)
    socket = Socket(recorder, 11, 7, attempt=0, local=(b"", 0), remote=(b"", 0), base=(0, 0), verdict=HTTP1)
    socket.lifecycle("OPEN", family=1)
    socket.send(get("/0"))
    socket.receive(reply(200))
    assert decode(recorder).brief("role", "exchange", "resource") == [(None, None, "/0")]


def test_times_are_those_of_the_calls_with_the_bytes() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    request, response = post("/0", b"body"), reply(200, b"x" * 50)
    for time_ns, piece in zip((100, 200, 300), (request[:3], request[3:40], request[40:]), strict=True):
        socket.tid = time_ns
        socket.send(piece, time_ns=time_ns)
    socket.receive(response[:1], time_ns=400)
    socket.receive(response[1:-1], time_ns=500)
    socket.receive(response[-1:], time_ns=600)
    assert decode(recorder).brief("start_ns", "first_response_ns", "end_ns", "tid") == [(100, 400, 600, 100)]


def test_request_in_the_same_call_as_the_one_before() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    both = get("/0") + get("/1")
    socket.send(both[: len(get("/0")) + 5], time_ns=100)
    socket.send(both[len(get("/0")) + 5 :], time_ns=200)
    socket.receive(reply(200) + reply(201)[:30], time_ns=300)
    socket.receive(reply(201)[30:], time_ns=400)
    decoded = decode(recorder)
    assert decoded.brief("start_ns", "first_response_ns", "end_ns") == [(100, 300, 300), (100, 300, 400)]


def test_both_ends_make_the_same_exchange() -> None:
    recorder = Recorder()
    one, other = both_ends(recorder, verdict=HTTP1)
    for number in range(3):
        one.send(get(f"/{number}"))
        other.receive(get(f"/{number}"))
        other.send(reply(200))
        one.receive(reply(200))
    rows = decode(recorder).rows
    assert [row["role"] for row in rows] == ["client"] * 3 + ["server"] * 3
    ids = [row["exchange"] for row in rows]
    assert ids[:3] == ids[3:] and len(set(ids)) == 3 and all(len(one) == 16 for one in ids)


def test_exchange_is_null_where_it_cannot_be_known() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, 0, verdict=HTTP1, flags=PREEXISTING, position=[500, 700])
    socket.send(get("/0"))
    socket.receive(reply(200))
    (row,) = decode(recorder).rows
    assert (row["exchange"], row["role"], row["joined_midstream"]) == (None, None, True)
    assert exchange_column([None, bytes(8)], np.arange(2), np.array([7, 8]), np.ones(2, np.bool_)).to_pylist() == [
        None,
        bytes(15) + b"\x08",
    ]


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_body_until_the_close_ends_with_its_last_byte() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=100)
    socket.receive(head(200), time_ns=200)
    socket.receive(b"some of it", time_ns=300)
    socket.receive(b"the rest", time_ns=400)
    socket.close(time_ns=1000)
    (row,) = decode(recorder).rows
    assert (row["end_ns"], row["outcome"], row["response_bytes"]) == (400, "ok", len(head(200)) + 18)


@pytest.mark.parametrize("is_closed", [True, False])
def test_request_without_an_answer_ends_with_its_connection(is_closed: bool) -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=100)
    socket.receive(reply(200)[:-6], time_ns=150)
    if is_closed:
        socket.close(time_ns=5000)
    (row,) = decode(recorder).rows
    assert (row["outcome"], row["status"], row["start_ns"]) == ("no_response", None, 100)
    assert row["end_ns"] == (5000 if is_closed else recorder.time_ns + SECOND)
    assert row["duration_ns"] == row["end_ns"] - 100


def test_answer_that_breaks_off_is_incomplete() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=100)
    socket.receive(reply(200, b"x" * 1000)[:-300], time_ns=200)
    socket.close(time_ns=5000)
    (row,) = decode(recorder).rows
    assert (row["outcome"], row["status"], row["error_type"], row["end_ns"]) == ("unknown", 200, "incomplete", 200)
    assert row["response_bytes"] == len(reply(200, b"x" * 1000)) - 300


def test_timeout_and_an_answer_after_it() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/slow"), time_ns=SECOND)
    recorder.add("fact_tick", time_ns=30 * SECOND)
    socket.receive(reply(200), time_ns=40 * SECOND)
    socket.send(get("/next"), time_ns=41 * SECOND)
    socket.receive(reply(201), time_ns=42 * SECOND)
    for cuts in ((), (2,), (2, 3), (3, 4, 5)):
        decoded = decode(recorder, cuts, response_timeout_ns=10 * SECOND)
        assert decoded.brief("resource", "status", "outcome", "end_ns", "time_ns") == [
            ("/slow", None, "no_response", 11 * SECOND, 11 * SECOND),
            ("/next", 201, "ok", 42 * SECOND, 42 * SECOND),
        ]
        assert decoded.counters() == [("pairing", "late_response", 1)]


def test_answer_that_began_in_time_is_no_timeout() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=SECOND)
    socket.receive(reply(200)[:10], time_ns=2 * SECOND)
    socket.receive(reply(200)[10:], time_ns=50 * SECOND)
    decoded = decode(recorder, (2, 3), response_timeout_ns=10 * SECOND)
    assert decoded.brief("status", "outcome", "end_ns") == [(200, "ok", 50 * SECOND)]


def idle_timeout(socket: Socket) -> None:
    socket.send(get("/0"))
    socket.receive(reply(200))
    socket.receive(reply(408, b"you were silent", "Connection: close"))


def notice_before_a_request(socket: Socket) -> None:
    socket.receive(reply(408))
    socket.send(get("/0"))
    socket.receive(reply(200))


def half_a_head(socket: Socket) -> None:
    socket.send(get("/0"))
    socket.receive(reply(200))
    socket.send(get("/1")[:-2])
    socket.receive(reply(400, b"what?"))


def nothing_but_a_refusal(socket: Socket) -> None:
    socket.receive(reply(503, b"too many connections"))


def switch_without_a_request(socket: Socket) -> None:
    socket.send(get("/0"))
    socket.receive(reply(200))
    socket.receive(head(101, "Upgrade: spdy"))


NOTICES = (idle_timeout, notice_before_a_request, half_a_head, nothing_but_a_refusal, switch_without_a_request)


@pytest.mark.parametrize("role", [CLIENT, SERVER])
@pytest.mark.parametrize("talk", NOTICES)
def test_answer_to_nothing_is_no_row_and_no_loss(talk: Callable[[Socket], None], role: int) -> None:
    recorder = Recorder()
    socket = client(recorder) if role == CLIENT else Turned(recorder, 11, SERVER, verdict=HTTP1).open()
    talk(socket)
    socket.close()
    for cuts in ((), (2,), (3, 4)):
        decoded = decode(recorder, cuts)
        assert decoded.brief("resource", "status", "gap") == [("/0", 200, False)][: talk is not nothing_but_a_refusal]
        assert decoded.losses == []


def test_answer_without_a_request_is_counted_if_its_request_may_have_been_missed() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, verdict=HTTP1, flags=PREEXISTING, position=[100, 200])
    socket.send(get("/0"))
    socket.receive(reply(200))
    recorder.time_ns += 2 * SECOND
    socket.send(get("/1"))
    socket.receive(reply(201) + reply(408))
    socket.close()
    decoded = decode(recorder)
    assert decoded.brief("resource", "status") == [("/0", 200), ("/1", 201)]
    assert decoded.counters() == [("pairing", "unmatched_response", 1)]


def test_upgrade_ends_the_protocol() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(get("/0", "Connection: Upgrade", "Upgrade: spdy"))
    socket.receive(head(101, "Connection: Upgrade", "Upgrade: spdy"))
    for _ in range(300):
        socket.send(b"\x80\x03\0\1\0\0\0\0hello")
    socket.close()
    decoded = decode(recorder)
    assert decoded.brief("status", "outcome") == [(101, "ok")]
    assert decoded.losses == []
    ((protocol, why),) = decoded.protocols_of.values()
    assert protocol is None and why is not None and "http1" in why
    assert decoded.orders[-1] == CaptureOrder(11, OFF, 0, 0)


def test_websocket_is_one_row_until_its_close() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(get("/chat", "Connection: Upgrade", "Upgrade: websocket"))
    socket.receive(head(101, "Connection: Upgrade", "Upgrade: websocket"))
    for _ in range(300):
        socket.send(b"\x81\x85\0\0\0\0hello")
    socket.receive(b"\x81\x05world" * 7)
    socket.close()
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "messages_sent", "messages_received") == [("/chat", 101, 300, 7)]
    assert decoded.rows[0]["end_ns"] > decoded.rows[0]["first_response_ns"]
    assert decoded.losses == []
    assert list(decoded.protocols_of.values()) == [("http1", None)]


def test_upgrade_that_is_refused_goes_on() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(get("/0", "Connection: Upgrade", "Upgrade: h2c") + get("/1"))
    socket.receive(reply(200) + reply(201))
    assert decode(recorder).brief("resource", "status") == [("/0", 200), ("/1", 201)]


# ---- what the kernel is told -----------------------------------------------------------------------------------------


def test_long_body_is_skipped_up_to_its_last_byte() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    size = 200 * MIB
    start = head(200, f"Content-Length: {size}")
    socket.send(get("/0"), time_ns=100)
    socket.receive(start, time_ns=200)
    decoded = decode(recorder)
    last = len(start) + size
    assert decoded.orders == [CaptureOrder(11, FRAMED, 0, last - 1)]

    socket.skip_until[RECEIVE] = last - 1
    for number in range(size // (64 << 10)):
        socket.receive(64 << 10, time_ns=300 + number)
    assert len(recorder.raw) == 4  # the last call only
    socket.send(get("/1"))
    socket.receive(reply(204))
    socket.close()
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "response_bytes")[0] == ("/0", 200, last)
    assert decoded.rows[0]["end_ns"] == 300 + size // (64 << 10) - 1
    assert decoded.brief("resource", "status")[1] == ("/1", 204)
    assert decoded.losses == [] and not decoded.rows[0]["truncated"]


def test_skipped_body_that_breaks_off_is_no_loss() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    start = head(200, f"Content-Length: {MIB}")
    socket.send(get("/0"), time_ns=100)
    socket.receive(start, time_ns=200)
    socket.skip_until[RECEIVE] = len(start) + MIB - 1
    socket.receive(5000)
    socket.close(time_ns=900)
    decoded = decode(recorder)
    assert decoded.brief("outcome", "error_type", "response_bytes") == [("unknown", "incomplete", len(start) + 5000)]
    assert decoded.losses == []


def test_long_chunked_body_asks_for_heads_and_tails_then_for_all() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(get("/0"))
    response = head(200, "Transfer-Encoding: chunked") + chunked(*[b"d" * 30_000] * 10)
    for start in range(0, len(response), 8000):
        socket.receive(response[start : start + 8000], capture=HEAD_TAIL if start > 80_000 else FRAMED)
    socket.send(get("/1"))
    socket.receive(reply(204))
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "response_bytes")[0] == ("/0", 200, len(response))
    assert decoded.brief("resource", "status")[1] == ("/1", 204)
    assert [order.capture_class for order in decoded.orders] == [HEAD_TAIL, FRAMED]


def test_verdict_of_ours_asks_for_all_bytes() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, capture=UNKNOWN).open()
    bytewise(socket)
    decoded = decode(recorder)
    assert decoded.brief("resource", "status") == [("/0", 200), ("/1", 200)]
    assert decoded.orders == [CaptureOrder(11, FRAMED, 0, 0)]


def test_orders_of_closed_connections_are_told_to_be_forgotten() -> None:
    """Once the close is decoded, not when its record comes: an order for its last bytes comes out in between."""
    recorder = Recorder(time_ns=0)
    for cookie in (11, 12, 13):
        socket = Socket(recorder, cookie, CLIENT, verdict=HTTP1).open()
        socket.send(get("/0"))
        socket.receive(head(200, f"Content-Length: {MIB if cookie < 13 else 0}"))
        if cookie > 11:
            socket.close()
    requests = Requests(LAYOUT, load_protocols(), DecodeSettings(), detect)
    for batch in recorder.batches():
        requests.decode(batch)
    assert {order.cookie for order in requests.orders} == {11, 12}
    requests.finish(recorder.time_ns + SECOND)
    assert requests.ended == [12]


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"01-{TRACE}-{SPAN}-01-more", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"01-{TRACE}-{SPAN}-01more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE[:-1]}-{SPAN}-01", False),
        (f"00-{'g' * 32}-{SPAN}-01", False),
        (f"0 -{TRACE}-{SPAN}-01", False),
        ("", False),
    ],
)
def test_traceparent(text: str, is_valid: bool) -> None:
    assert split_traceparent(text.encode()) == ((TRACE, SPAN, 1) if is_valid else (None, None, None))


def test_connections_of_one_socket_have_ids_of_their_own() -> None:
    recorder = Recorder()
    for attempt in (1, 2):
        socket = Socket(recorder, 11, CLIENT, verdict=HTTP1, attempt=attempt).open()
        socket.send(get(f"/{attempt}"))
        socket.receive(reply(200))
        if attempt == 1:
            socket.lifecycle("CLOSE")
    assert decode(recorder).brief("connection", "resource") == [(11 << 8 | 1, "/1"), (11 << 8 | 2, "/2")]


def test_server_end_reads_requests() -> None:
    recorder = Recorder(time_ns=0)
    socket = Socket(recorder, 12, SERVER, verdict=HTTP1).open()
    socket.move(RECEIVE, get("/0"), time_ns=100)
    socket.move(SEND, reply(500), time_ns=200)
    decoded = decode(recorder)
    assert decoded.brief("role", "outcome", "start_ns", "first_response_ns") == [("server", "server_error", 100, 200)]


def test_role_that_is_not_known_is_decided_by_the_bytes() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 12, 0, verdict=HTTP1)
    socket.receive(get("/0"))
    socket.send(reply(200))
    assert decode(recorder).brief("role", "resource", "status") == [(None, "/0", 200)]


def test_a_head_size_beyond_the_record_takes_no_bytes_of_the_next_one() -> None:
    recorder = Recorder()
    socket = client(recorder)
    fields = LAYOUT.dtypes["data"].fields
    assert fields
    kind, at = fields["head_size"][:2]
    for number in range(3):
        socket.send(get(f"/{number}"))
        socket.receive(reply(200))
    raw = recorder.raw[3]
    recorder.raw[3] = raw[:at] + (60_000).to_bytes(kind.itemsize, "little") + raw[at + kind.itemsize :]
    whole, cut = decode(recorder), decode(recorder, range(1, len(recorder.raw)))
    assert (whole.rows, whole.losses) == (cut.rows, cut.losses)
    assert whole.brief("resource") == [("/0",), ("/1",), ("/2",)]


@pytest.mark.parametrize("cookie", [0, 1 << 55, (1 << 64) - 1])
def test_what_cannot_be_a_cookie_is_left_out(cookie: int) -> None:
    recorder = Recorder()
    for number in (cookie, 12):
        socket = Socket(recorder, number, CLIENT, verdict=HTTP1).open()
        socket.send(get(f"/{number}"))
        socket.receive(reply(200))
        socket.close()
    assert decode(recorder).brief("resource") == [("/12",)]


def test_requests_under_way_are_told_and_go_on() -> None:
    recorder = Recorder(time_ns=0)
    one, other = client(recorder), Socket(recorder, 12, CLIENT, verdict=HTTP1).open()
    one.send(get("/0"), time_ns=100)
    one.receive(reply(200), time_ns=150)
    one.send(get("/1"), time_ns=200)
    other.send(get("/2"), time_ns=300)
    other.receive(head(200, "Content-Length: 50") + b"x", time_ns=400)
    requests = Requests(LAYOUT, load_protocols(), DecodeSettings(), detect)
    done = [requests.decode(batch).requests for batch in recorder.batches()]
    for _ in range(2):
        rows = requests.open_requests(1000)
        assert rows is not None
        told = [(row["resource"], row["status"], row["start_ns"], row["end_ns"]) for row in rows.to_pylist()]
        assert told == [("/1", None, 200, None), ("/2", 200, 300, None)]
    assert [row["resource"] for rows in done if rows is not None for row in rows.to_pylist()] == ["/0"]
    last = requests.finish(2000).requests
    assert last is not None and sorted(last["resource"].to_pylist()) == ["/1", "/2"]
    assert requests.open_requests(3000) is None
