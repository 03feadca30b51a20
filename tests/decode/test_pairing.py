"""Pairing by id, messages that nothing answers and that answer nothing: with a protocol of one line a message.

A request: `ID OPERATION\\n`, ID `-`: never answered. A response: `ID WORD\\n`, ID `!`: answers nothing.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.decode.records import CLIENT, Recorder, Socket
from tests.decode.test_requests import LAYOUT, SECOND

from tracehound.decode.pairing import WAITING_OF_ONE
from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import (
    BY_ID,
    CLIENT_ERROR,
    NO_RESPONSE,
    OK,
    PUSH,
    REQUEST,
    Protocol,
    Request,
    Response,
)  # fmt: skip

AMBIGUOUS = LAYOUT.enum("l7_protocol")["L7_AMBIGUOUS"]


def parse(buffer: StreamBuffer, direction: int, _state: None) -> Request | Response | None:
    start = buffer.base + buffer.cursor
    line = buffer.take_until(b"\n", 100)
    if line is None:
        return None
    key, space, word = line.partition(b" ")
    if not space:
        raise ProtocolError("no space")
    end = buffer.base + buffer.cursor
    if direction == REQUEST:
        return Request(
            start, end, word.decode(), key=int(key) if key != b"-" else None, flags=NO_RESPONSE * (key == b"-")
        )
    if key == b"!":
        return Request(start, end, "message", word.decode(), flags=PUSH)
    return Response(start, end, None, OK if word == b"ok" else CLIENT_ERROR, key=int(key))


def begins(buffer: StreamBuffer, _direction: int) -> bool:
    return buffer.peek(1) in (b"-", b"!", *(b"%d" % digit for digit in range(10)))


LINES = Protocol("lines", lambda: None, parse, lambda state: None, begins, pairing=BY_ID)


def decode(recorder: Recorder, **settings: Any) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    requests = Requests(LAYOUT, (LINES,), DecodeSettings(**settings), lambda *_: (AMBIGUOUS, 1))
    results = [requests.decode(batch) for batch in recorder.batches()]
    results.append(requests.finish(recorder.time_ns + SECOND))
    rows = [row for one in results if one.requests is not None for row in one.requests.to_pylist()]
    losses = [(counter, count) for one in results for _, counter, count, *_ in one.losses]
    return sorted(rows, key=lambda row: row["request"]), losses


def socket_of(recorder: Recorder) -> Socket:
    return Socket(recorder, 11, CLIENT, verdict=AMBIGUOUS, strength=1).open()


def test_answers_find_their_requests_in_any_order() -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    socket.send(b"1 get\n2 put\n3 get\n")
    socket.receive(b"3 ok\n")
    socket.receive(b"1 bad\n2 ok\n")
    rows, losses = decode(recorder)
    assert [(row["stream_id"], row["operation"], row["outcome"]) for row in rows] == [
        (1, "get", "client_error"), (2, "put", "ok"), (3, "get", "ok"),
    ]  # fmt: skip
    assert losses == []


def test_message_that_is_never_answered_is_a_row_at_once() -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    socket.send(b"- note\n1 get\n")
    socket.receive(b"1 ok\n")
    rows, losses = decode(recorder)
    assert [(row["operation"], row["outcome"], row["response_bytes"]) for row in rows] == [
        ("note", "ok", None), ("get", "ok", 5),
    ]  # fmt: skip
    assert rows[0]["end_ns"] == rows[0]["start_ns"]
    assert losses == []


def test_message_that_answers_nothing_is_a_row_of_its_own() -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    socket.send(b"1 get\n")
    socket.receive(b"! news\n1 ok\n")
    rows, losses = decode(recorder)
    assert [(row["operation"], row["resource"], row["exchange"] is None) for row in rows] == [
        ("get", None, False), ("message", "news", True),
    ]  # fmt: skip
    assert rows[1]["request_bytes"] == 7
    assert losses == []


def test_id_used_again_before_its_answer() -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    socket.send(b"1 get\n1 put\n")
    socket.receive(b"1 ok\n")
    rows, _ = decode(recorder)
    assert [(row["operation"], row["outcome"]) for row in rows] == [("get", "unknown"), ("put", "ok")]


def test_late_answer_by_id() -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    socket.send(b"1 get\n")
    socket.receive(b"! news\n", time_ns=recorder.time_ns + 30 * SECOND)
    socket.receive(b"1 ok\n", time_ns=recorder.time_ns + SECOND)
    rows, losses = decode(recorder, response_timeout_ns=5 * SECOND)
    assert [(row["operation"], row["outcome"]) for row in rows] == [("get", "no_response"), ("message", "ok")]
    assert losses == [("late_response", 1)]


def test_too_many_ids_wait() -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    for number in range(WAITING_OF_ONE + 5):
        socket.send(b"%d get\n" % number)
    socket.receive(b"0 ok\n%d ok\n" % (WAITING_OF_ONE + 4))
    rows, losses = decode(recorder)
    assert [row["outcome"] for row in rows] == ["unknown"] * 5 + ["no_response"] * (WAITING_OF_ONE - 1) + ["ok"]
    assert losses == [("waiting_shed", 1)] * 5 + [("unmatched_response", 1)]


@given(data=st.data())
def test_any_lost_record_gives_no_wrong_pair(data: st.DataObject) -> None:
    recorder = Recorder()
    socket = socket_of(recorder)
    waiting: list[int] = []
    for number in range(12):
        socket.send(b"%d %d\n" % (number, number))
        waiting.append(number)
        for _ in range(data.draw(st.integers(0, len(waiting)))):
            one = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            socket.receive(b"%d %s\n" % (one, b"ok" if one % 2 else b"bad"))
    recorder.lose(data.draw(st.integers(1, len(recorder.raw) - 1)))
    for row in decode(recorder)[0]:
        expected = "ok" if row["stream_id"] % 2 else "client_error"
        assert row["outcome"] in (expected, "unknown", "no_response")
        assert row["operation"] == str(row["stream_id"])
