"""Streams with holes, unknown protocols, too much to keep, bytes without sense: no wrong pair, and nothing raises."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.records import CLIENT, PREEXISTING, RECEIVE, SERVER, UNKNOWN, UNWATCHED, Recorder, Socket
from tests.decode.test_requests import (
    HTTP1,
    LAYOUT,
    OFF,
    Decoded,
    chunked,
    client,
    decode,
    detect,
    get,
    head,
    post,
    reply,
)  # fmt: skip

from tracehound.decode.parsing import CaptureOrder
from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.protocols import load_protocols
from tracehound.protocols.http1 import WAITING_LIMIT

MS = 1_000_000
FIRST = 210


# ---- holes: request /N has the answer FIRST + N, so a wrong pair shows -----------------------------------------------


def whole(socket: Socket) -> None:
    for number in range(10):
        socket.send(get(f"/{number}"))
        socket.receive(reply(FIRST + number, b"x" * number))


def in_pieces(socket: Socket) -> None:
    for number in range(8):
        request, response = post(f"/{number}", b"b" * 30), reply(FIRST + number, b"x" * 70)
        for start in range(0, len(request), 29):
            socket.send(request[start : start + 29])
        for start in range(0, len(response), 31):
            socket.receive(response[start : start + 31])


def bodies(socket: Socket) -> None:
    for number in range(6):
        request, response = post(f"/{number}", b"b" * 40_000), reply(FIRST + number, b"x" * 40_000)
        socket.send(request[:100])
        socket.send(request[100:])
        socket.receive(response[:100])
        socket.receive(response[100:])


def in_chunks(socket: Socket) -> None:
    for number in range(6):
        request = get(f"/{number}", "Transfer-Encoding: chunked", method="PUT") + chunked(b"abc", b"d" * 90)
        response = head(FIRST + number, "Transfer-Encoding: chunked") + chunked(b"HTTP/1.1 299 No\r\n\r\n", b"x" * 99)
        for start in range(0, len(request), 40):
            socket.send(request[start : start + 40])
        for start in range(0, len(response), 40):
            socket.receive(response[start : start + 40])


def without_bodies(socket: Socket) -> None:
    for number in range(8):
        socket.send(get(f"/{number}", method="HEAD" if number % 2 else "GET"))
        socket.receive(head(FIRST + number, "Content-Length: 100") + b"x" * (0 if number % 2 else 100))


def batches(socket: Socket) -> None:
    """Four requests at once, then their answers."""
    for number in range(0, 24, 4):
        for one in range(number, number + 4):
            socket.send(get(f"/{one}"))
        for one in range(number, number + 4):
            socket.receive(reply(FIRST + one, b"x" * one))


def overlapping(socket: Socket) -> None:
    """Always one request ahead."""
    socket.send(get("/0"))
    for number in range(1, 20):
        socket.send(get(f"/{number}"))
        socket.receive(reply(FIRST - 1 + number, b"x"))


TALKS = (whole, in_pieces, bodies, in_chunks, without_bodies, batches, overlapping)
IN_TURNS = (whole, in_pieces, bodies, in_chunks, without_bodies)


def other_end(talk: Callable[[Socket], None]) -> Callable[[Socket], None]:
    """The same conversation as the server has it."""

    class Turned(Socket):
        def move(self, direction: int, data: bytes | int, **given: Any) -> None:
            super().move(1 - direction, data, **given)

    def talk_turned(socket: Socket) -> None:
        turned = Turned(socket.recorder, socket.cookie, SERVER, verdict=HTTP1).open()
        talk(turned)
        turned.close()

    return talk_turned


def recorded(talk: Callable[[Socket], None], role: int = CLIENT) -> Recorder:
    recorder = Recorder()
    if role == CLIENT:
        socket = client(recorder)
        talk(socket)
        socket.close()
    else:
        other_end(talk)(Socket(recorder, 11, SERVER))
    return recorder


def wrong_pairs(decoded: Decoded) -> list[tuple[Any, ...]]:
    return [
        (row["resource"], row["status"])
        for row in decoded.rows
        if row["status"] is not None and row["resource"] != f"/{row['status'] - FIRST}"
    ]


@pytest.mark.parametrize("role", [CLIENT, SERVER])
@pytest.mark.parametrize("talk", TALKS)
def test_lost_record_gives_no_wrong_pair(talk: Callable[[Socket], None], role: int) -> None:
    for lost in range(1, len(recorded(talk, role).raw)):
        recorder = recorded(talk, role)
        recorder.lose(lost)
        decoded = decode(recorder)
        assert wrong_pairs(decoded) == [], lost


@pytest.mark.parametrize("talk", IN_TURNS)
def test_exact_again_after_a_lost_record(talk: Callable[[Socket], None]) -> None:
    everything = decode(recorded(talk)).rows
    for lost in range(1, len(recorded(talk).raw)):
        recorder = recorded(talk)
        time_ns = recorder.times[lost]
        recorder.lose(lost)
        decoded = decode(recorder)
        ended = [row for row in everything if row["end_ns"] < time_ns]
        later = [row for row in everything if row["start_ns"] > time_ns][1:]
        got = {row["request_position"]: (row["resource"], row["status"]) for row in decoded.rows}
        for row in ended + later:
            assert got.get(row["request_position"]) == (row["resource"], row["status"]), (lost, row["resource"])


@pytest.mark.parametrize("talk", IN_TURNS)
def test_missing_request_lies_in_a_gap(talk: Callable[[Socket], None]) -> None:
    """A request without its answer is marked, or its time is within a loss of its connection."""
    everything = decode(recorded(talk)).rows
    for lost in range(1, len(recorded(talk).raw) - 1):
        recorder = recorded(talk)
        recorder.lose(lost)
        decoded = decode(recorder)
        got = {row["resource"]: row for row in decoded.rows}
        gaps = [(first, last) for _, counter, _, first, last, _, _ in decoded.losses if counter == "gap"]
        for row in everything:
            found = got.get(row["resource"])
            if found is not None and found["status"] == row["status"]:
                continue
            assert gaps, lost
            if found is not None:
                assert found["gap"] and found["outcome"] == "unknown", (lost, row["resource"])
            else:
                assert any(row["start_ns"] <= last and row["end_ns"] >= first for first, last in gaps), lost


@given(data=st.data(), talk=st.sampled_from(TALKS), role=st.sampled_from([CLIENT, SERVER]))
def test_any_losses_give_no_raise_and_are_counted(
    data: st.DataObject, talk: Callable[[Socket], None], role: int
) -> None:
    recorder = recorded(talk, role)
    for _ in range(data.draw(st.integers(1, 4))):
        recorder.lose(data.draw(st.integers(0, len(recorder.raw) - 1)))
    cuts = data.draw(st.lists(st.integers(1, len(recorder.raw)), max_size=4))
    decoded = decode(recorder, cuts)
    if talk in IN_TURNS:
        assert wrong_pairs(decoded) == []


def test_gap_says_how_much_when_and_where() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=10 * MS)
    socket.send(get("/1"), time_ns=20 * MS)
    socket.send(get("/2"), time_ns=30 * MS)
    recorder.lose(2)
    assert decode(recorder).losses == [("stream", "gap", len(get("/1")), 10 * MS, 30 * MS, None, 11 << 8 | 1)]


def test_bytes_that_no_record_brought_show_at_the_close() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=100)
    socket.receive(reply(200), time_ns=200)
    socket.close(time_ns=300)
    recorder.lose(2)
    decoded = decode(recorder)
    assert decoded.losses == [("stream", "gap", len(reply(200)), 1, 300, None, 11 << 8 | 1)]
    assert decoded.brief("outcome", "gap", "end_ns") == [("unknown", True, None)]


def test_close_waits_for_a_record_that_is_stamped_later() -> None:
    recorder = Recorder(time_ns=0)
    socket = client(recorder)
    socket.send(get("/0"), time_ns=100)
    socket.close(time_ns=250, bytes_read=len(reply(200)))
    socket.receive(reply(200), time_ns=300)
    decoded = decode(recorder)
    assert decoded.losses == []
    assert decoded.brief("status", "end_ns") == [(200, 300)]


def test_hole_in_a_body_of_known_length_is_no_gap() -> None:
    recorder = Recorder()
    socket = client(recorder)
    response = reply(200, b"x" * 30_000)
    socket.send(get("/0"))
    for start in range(0, len(response), 1000):
        socket.receive(response[start : start + 1000])
    socket.send(get("/1"))
    socket.receive(reply(201))
    recorder.lose(10)
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "gap") == [("/0", 200, False), ("/1", 201, False)]


def test_uncaptured_bytes_that_matter_are_no_ring_loss() -> None:
    recorder = Recorder()
    socket = client(recorder)
    many = b"".join(get(f"/{number}", "Filler: " + "f" * 1000) for number in range(100))
    socket.send(many)
    socket.receive(b"".join(reply(200) for _ in range(100)))
    decoded = decode(recorder)
    assert [counter for _, counter, *_ in decoded.losses] == ["uncaptured"]
    assert not any(row["gap"] for row in decoded.rows)


# ---- streams that were there before, or whose protocol is not known --------------------------------------------------


@pytest.mark.parametrize("is_told", [True, False])
def test_joined_in_the_middle(is_told: bool) -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, verdict=HTTP1, position=[5000, 7000])
    if is_told:
        socket.lifecycle("SNAPSHOT", flags=LAYOUT.enum("connection_flag")["CONNECTION_PREEXISTING"])
    socket.receive(b"the rest of an answer", flags=PREEXISTING)
    socket.send(get("/1"))
    socket.receive(reply(201))
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "joined_midstream") == [("/1", 201, True)]
    assert (decoded.rows[0]["exchange"] is not None) is is_told
    assert decoded.rows[0]["request_position"] == 5000
    assert decoded.losses == []


@pytest.mark.parametrize("sent_first", [0, 5000])
def test_beginning_was_not_watched_though_its_opening_was(sent_first: int) -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, verdict=HTTP1).open()
    socket.position = [sent_first, 7000]
    for number in range(20):  # never quiet, so nothing but the flag says that no answer is owed
        flags = UNWATCHED if not number else 0
        socket.send(get(f"/{number}"), flags=flags if sent_first else 0)
        socket.receive(reply(FIRST + number), flags=flags)
    decoded = decode(recorder)
    assert decoded.brief("resource", "status", "joined_midstream", "gap") == [
        (f"/{number}", FIRST + number, True, False) for number in range(20)
    ]
    assert decoded.losses == []


def test_turns_are_taken_again_after_requests_was_off() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, verdict=HTTP1).open()
    for number in range(4):
        socket.send(get(f"/{number}"))
        socket.receive(reply(FIRST + number))
    for number in range(4, 8):  # of these only the requests were watched
        socket.send(get(f"/{number}"))
        socket.position[RECEIVE] += len(reply(FIRST + number))
    socket.send(get("/8"))
    socket.receive(reply(FIRST + 8), flags=UNWATCHED)
    for number in range(9, 20):
        socket.send(get(f"/{number}"))
        socket.receive(reply(FIRST + number))
    rows = decode(recorder).brief("resource", "status", "gap")
    assert rows[:4] + rows[9:] == [(f"/{number}", FIRST + number, False) for number in [*range(4), *range(9, 20)]]
    assert rows[4:9] == [(f"/{number}", None, True) for number in range(4, 9)]


def test_unknown_protocol_is_given_up() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, capture=UNKNOWN).open()
    for _ in range(300):
        socket.send(b"\x16\x03\x01" + bytes(400))
    socket.close()
    decoded = decode(recorder)
    assert decoded.rows == [] and decoded.losses == []
    assert decoded.protocols_of == {11 << 8 | 1: (None, "no known protocol in its bytes")}
    assert decoded.orders == [CaptureOrder(11, OFF, 0, 0)]


def test_connection_without_data_has_a_reason() -> None:
    recorder = Recorder()
    client(recorder).close()
    assert decode(recorder).protocols_of == {11 << 8 | 1: (None, "no data")}


def test_protocol_that_cannot_be_parsed_is_dropped() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(get("/0"))
    socket.receive(reply(200))
    socket.send(get("/1"))
    for _ in range(4):
        socket.receive(b"HTTP/1.1 what\r\n\r\n")
    for _ in range(300):
        socket.send(b"\1\2\3\4" * 100)
    decoded = decode(recorder)
    assert decoded.brief("resource", "status")[0] == ("/0", 200)
    ((protocol, why),) = decoded.protocols_of.values()
    assert (protocol, why) == (None, "not http1: it could not be parsed")
    assert decoded.counters() == [("parse", "parse_error", 1)] * 4  # the last after it was detected anew
    assert decoded.orders[-1] == CaptureOrder(11, OFF, 0, 0)


def test_a_close_that_says_more_bytes_than_a_row_can() -> None:
    """A damaged record: found by the soak, decode_wild 80775."""
    recorder = Recorder()
    socket = client(recorder)
    socket.send(get("/0", "Transfer-Encoding: chunked", method="POST"))
    socket.close(bytes_sent=1 << 63, bytes_read=1 << 63)
    decoded = decode(recorder)
    assert decoded.brief("resource", "outcome", "gap") == [("/0", "unknown", True)]


def test_weak_verdict_needs_a_message() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, capture=UNKNOWN, verdict=HTTP1, strength=1).open()
    socket.send(b"\1 what is this?" + bytes(60))
    socket.send(get("/0"))
    socket.receive(reply(200))
    decoded = decode(recorder)
    assert decoded.brief("resource", "status") == [("/0", 200)]
    assert decoded.orders == [CaptureOrder(11, 1, 0, 0)]


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_windows_are_shed_oldest_first() -> None:
    recorder = Recorder()
    for cookie in range(1, 21):
        socket = Socket(recorder, cookie, CLIENT, verdict=HTTP1, local=(bytes(4), 1000 + cookie)).open()
        socket.send(get(f"/{cookie}", "Filler: " + "f" * 9000)[:-2])
    decoded = decode(recorder, windows_bytes=100_000)
    shed = [loss[6] >> 8 for loss in decoded.losses if loss[1] == "window_shed"]
    assert shed == list(range(1, len(shed) + 1)) and 8 <= len(shed) <= 12


def test_waiting_requests_are_limited() -> None:
    recorder = Recorder()
    for cookie in range(1, 41):
        socket = Socket(recorder, cookie, CLIENT, verdict=HTTP1).open()
        socket.send(get(f"/{cookie}"))
    socket = Socket(recorder, 1, CLIENT, verdict=HTTP1, position=[len(get("/1")), 0])
    socket.receive(reply(201))
    decoded = decode(recorder, waiting_requests=10)
    outcomes = [row["outcome"] for row in decoded.rows]
    assert outcomes == ["unknown"] * 30 + ["no_response"] * 10
    assert ("pairing", "waiting_shed", 1) in decoded.counters()


def test_pipeline_without_an_end_is_limited() -> None:
    recorder = Recorder()
    socket = client(recorder)
    for _ in range(20):
        socket.send(get("/") * 100)
    decoded = decode(recorder)
    assert len(decoded.rows) >= WAITING_LIMIT
    assert wrong_pairs(decoded) == []


def test_idle_connection_is_small() -> None:
    import tracemalloc

    layout = LAYOUT
    requests = Requests(layout, load_protocols(), DecodeSettings(), detect)
    recorder = Recorder()
    for cookie in range(1, 501):
        socket = Socket(recorder, cookie, CLIENT, verdict=HTTP1).open()
        socket.send(get(f"/{cookie}", "Filler: " + "f" * 3000))
        socket.receive(reply(200, b"x" * 9000))
    batch = recorder.batch()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    requests.decode(batch)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / 500 < 6144


# ---- whatever comes --------------------------------------------------------------------------------------------------

FRAGMENTS = (
    b"GET / HTTP/1.1\r\n", b"\r\n", b"Content-Length: 5\r\n", b"Content-Length: 99999999999\r\n",
    b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n",
    b"HTTP/1.1 101 Switch\r\n\r\n", b"\0\xff" * 9, b"", b"Upgrade: x\r\nConnection: upgrade\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"x" * 70_000,
)  # fmt: skip


@st.composite
def wild_records(draw: st.DrawFn) -> Recorder:
    """Records that no kernel would write, beside those that one would."""
    recorder = Recorder()
    for _ in range(draw(st.integers(1, 25))):
        cookie = draw(st.integers(0, 3))
        if draw(st.integers(0, 5)) == 0:
            recorder.add(
                "connection", cookie=cookie, event=draw(st.integers(0, 9)), role=draw(st.integers(0, 3)),
                attempt=draw(st.integers(0, 2)), family=draw(st.sampled_from([0, 1, 2, 10])),
                bytes_sent=draw(st.integers(0, 200)), bytes_read=draw(st.integers(0, 1 << 63)),
                flags=draw(st.integers(0, 15)), base_sent=7,
            )  # fmt: skip
            continue
        data = b"".join(draw(st.lists(st.sampled_from(FRAGMENTS), max_size=4))) or draw(st.binary(max_size=40))
        tail = draw(st.integers(0, min(4, len(data))))
        start = draw(st.integers(0, 300))
        recorder.add(
            "data", data, cookie=cookie, position_end=draw(st.integers(start, start + 90_000)),
            call_size=draw(st.integers(0, 90_000)), offset=draw(st.integers(0, 300)), head_size=len(data) - tail,
            tail_size=tail, direction=draw(st.integers(0, 2)), flags=draw(st.sampled_from([0, 1, 2, 4, 64])),
            verdict=draw(st.integers(0, 4)), strength=draw(st.integers(0, 3)), capture_class=draw(st.integers(0, 4)),
            role=draw(st.integers(0, 2)), time_ns=recorder.time_ns + draw(st.integers(0, 40 * MS)),
        )  # fmt: skip
    return recorder


@given(recorder=wild_records(), data=st.data())
def test_nothing_raises_and_cuts_change_nothing(recorder: Recorder, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(recorder.raw)), max_size=4))
    limits: dict[str, Any] = {"windows_bytes": 90_000, "waiting_requests": 3, "response_timeout_ns": 50 * MS}
    one, other = decode(recorder, **limits), decode(recorder, cuts, **limits)
    assert (one.rows, one.order) == (other.rows, other.order)
    assert one.losses == other.losses
    assert (one.orders, one.protocols_of) == (other.orders, other.protocols_of)


@pytest.mark.parametrize(
    "lost", [range(40), range(10, 40), range(11, 40), range(10, 39), range(10, 20), [11], [10, 13, 17, 20]]
)
def test_connection_that_takes_turns_is_exact_after_a_long_loss(lost: Sequence[int]) -> None:
    """Calls a few milliseconds apart, without the second of quiet that would prove that no answer is owed."""
    recorder = Recorder()
    socket = client(recorder)

    def call(path: str) -> None:
        recorder.time_ns += 3_000_000
        socket.send(get(path))
        socket.receive(reply(200))

    for number in range(3):
        call(f"/before/{number}")
    first = len(recorder.raw)
    for number in range(20):
        call(f"/during/{number}")
    for record in reversed(lost):
        recorder.lose(first + record)
    for number in range(100):
        call(f"/after/{number}")
    after = [row for row in decode(recorder).rows if row["resource"].startswith("/after/")]
    assert len(after) == 100
    assert sum(row["status"] is None for row in after) <= 1
