"""Messages of DNS in, names of addresses out; records of sockets in, rows of `fact_name` out."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.records import CLIENT, PEEK, RECEIVE, Recorder, Socket
from tests.dns import (
    AAAA,
    ANY,
    ASKED,
    CNAME,
    HTTPS,
    NAME_ERROR,
    RESPONSE,
    TRUNCATED,
    TXT,
    A,
    Answer,
    pointer,
    query,
    raw,
    response,
    wire,
)  # fmt: skip

from tracehound.batch import Batch
from tracehound.decode import names
from tracehound.decode.names import MESSAGE_BYTES, Message, Names, render

ONE: tuple[Answer, ...] = ((ASKED, A, raw("192.0.2.1")),)
SIX: tuple[Answer, ...] = ((ASKED, AAAA, raw("2001:db8::1")),)
FIRST = 12 + len(wire("a.test")) + 4  # where the first answer to a question for a.test begins
ALIASES: tuple[Answer, ...] = (
    (ASKED, CNAME, wire("b.test")),
    (pointer(FIRST + 12), CNAME, b"\x01c" + pointer(14)),
    (wire("C.Test"), A, raw("192.0.2.3")),
)
LONGEST = ".".join(["x" * 63] * 3 + ["y" * 61])
LOOP: tuple[Answer, ...] = ((ASKED, CNAME, wire("b.test")), (wire("b.test"), CNAME, ASKED))


def chain(length: int) -> list[Answer]:
    """Return aliases one after another, the last of them with an address; in an order that is none."""
    found = [(wire(f"n{at}.test") if at else ASKED, CNAME, wire(f"n{at + 1}.test")) for at in range(length)]
    return [(wire(f"n{length}.test"), A, raw("192.0.2.9")), *reversed(found)]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (response("a.test", ONE), ["a.test 192.0.2.1"]),
        (response("A.Test", ONE), ["a.test 192.0.2.1"]),
        (response("a.test", SIX, AAAA), ["a.test 2001:db8::1"]),
        (response("a.test", [(ASKED, AAAA, raw("::ffff:192.0.2.1"))], AAAA), ["a.test 192.0.2.1"]),
        (response("a.test", ONE + SIX, ANY), ["a.test 192.0.2.1", "a.test 2001:db8::1"]),
        (response("a.test", ONE * 3 + SIX), ["a.test 192.0.2.1"] * 3),  # not of the type that was asked for
        (response("a.test", [(ASKED, TXT, b"\x03abc"), *ONE]), ["a.test 192.0.2.1"]),
        (response("a.test", ALIASES), ["a.test 192.0.2.3"]),
        (response("n0.test", chain(16)), ["n0.test 192.0.2.9"]),
        (response("n0.test", chain(17)), []),
        (response("a.test", LOOP), []),
        (response("a.test", (*LOOP, *ONE)), ["a.test 192.0.2.1"]),
        (response("a.test", ONE, flags=RESPONSE | TRUNCATED), ["a.test 192.0.2.1"]),
        (response("a.test", ONE, behind=b"\0\0\x29\x10\0 and what breaks every format"), ["a.test 192.0.2.1"]),
        (response(LONGEST, ONE), [f"{LONGEST} 192.0.2.1"]),
        (response("a.test", ONE * 128), ["a.test 192.0.2.1"] * 128),
        # names nothing
        (response("a.test", [(wire("other.test"), A, raw("192.0.2.1"))]), []),
        (response("a.test", [(wire("b.a.test"), A, raw("192.0.2.1")), (pointer(14), A, raw("192.0.2.2"))]), []),
        (response("a.test", [(ASKED, A, raw("0.0.0.0"))]), []),
        (response("a.test", SIX), []),
        (response("a.test", ONE, HTTPS), []),
        (response("", ONE), []),
        (response("a.test", []), []),
        (response("a.test", ONE, flags=RESPONSE | NAME_ERROR), []),
        (response("a.test", ONE, flags=RESPONSE | 0x0800), []),  # another opcode
        (response("a.test", ONE, flags=0), []),  # no response
        (query("a.test"), []),
        # breaks the format: names nothing at all
        (response("a.test", ONE * 129), []),
        (response("a.test", ONE)[:-1], []),
        (response("a.test", [*ONE, (ASKED, A, b"\1\2\3")]), []),
        (response("a.test", [*ONE, (ASKED, TXT, b"")])[:-1], []),
        (response("a.test", [*ONE, (pointer(FIRST + 16), A, raw("192.0.2.1"))]), []),  # to itself
        (response("a.test", [*ONE, (pointer(500), A, raw("192.0.2.1"))]), []),
        (response("a.test", [*ONE, (pointer(4), A, raw("192.0.2.1"))]), []),  # into the header
        (response("a.test", [*ONE, (b"\x40" + b"x" * 64 + b"\0", A, raw("192.0.2.1"))]), []),
        (response("a.test", [(ASKED, CNAME, wire("b.test") + b"\0"), *ONE]), []),  # ends before its data does
        (response(LONGEST + "y", ONE), []),
        (response("a.test", [*ONE, (b"\x01a" * 20000, A, b"")]), []),
        (response("a.test", ONE)[:4] + b"\0\2" + response("a.test", ONE)[6:], []),  # two questions
        (b"", []),
        (b"\xff" * 4096, []),
    ],
)  # fmt: skip
def test_message(message: bytes, expected: list[str]) -> None:
    assert [" ".join(one) for one in Message(message).answers] == expected


def test_pointers_may_lead_to_pointers_but_not_to_many() -> None:
    for count, found in ((31, 1), (32, 0)):
        place = FIRST + 10 + 2
        data = b"".join(pointer(12 if not at else place + 2 * (at - 1)) for at in range(count))
        answers: list[Answer] = [(ASKED, TXT, data), (pointer(place + 2 * (count - 1)), A, raw("192.0.2.1"))]
        assert len(Message(response("a.test", answers)).answers) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"\x01a\x04test", "a.test"),
        (b"\x03a.b\x01\\", r"a\.b.\\"),
        (b"\x04\0\x1b[m\x02\xff ", r"\000\027[m.\255\032"),
        (b"\x05_http\x04xn-x", "_http.xn-x"),
        (b"", ""),
    ],
)
def test_names_are_shown_with_escapes(name: bytes, text: str) -> None:
    assert render(name) == text


WHOLE = response("a.test", [*ALIASES, *ONE, (ASKED, TXT, b"\x03abc")], ANY)
PARTS = st.one_of(
    st.binary(max_size=40), st.sampled_from([*(pointer(at) for at in range(80)), b"\0", b"\x3f", wire("a.test")])
)


@given(parts=st.lists(PARTS, max_size=40), counts=st.tuples(st.integers(0, 2), st.integers(0, 300)))
def test_anything_behind_a_header_raises_nothing_and_names_little(parts: list[bytes], counts: tuple[int, int]) -> None:
    message = Message(struct.pack(">HHHHHH", 1, RESPONSE, *counts, 0, 0) + b"".join(parts))
    assert len(message.answers) <= counts[1]
    assert all(len(one.name) <= 4 * 255 and one.name.isascii() and one.name.isprintable() for one in message.answers)


@given(flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=5), cut=st.integers(0))
def test_a_damaged_answer_raises_nothing(flips: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(WHOLE)
    for at, value in flips:
        data[at] = value
    message = Message(bytes(data[: len(data) - cut % len(data)]))
    assert len(message.needed()) == len(message._data)
    assert Message(message.needed()).answers == message.answers


def test_what_is_needed_of_a_message() -> None:
    secret = [(ASKED, TXT, b"\x06secret"), *ALIASES]
    message = Message(response("a.test", secret[1:] + secret[:1], behind=wire("behind.test")))
    kept = message.needed()
    assert Message(kept).answers == message.answers and len(message.answers) == 1
    assert b"secret" not in kept and b"behind" not in kept
    assert set(Message(response("a.test", ONE, HTTPS)).needed()) == {ord("x")}
    pointed = [(ASKED, TXT, wire("a.test") + b"secret"), (pointer(FIRST + 12), A, raw("192.0.2.1"))]
    message = Message(response("a.test", pointed))  # an owner that lies in other data
    assert len(message.answers) == 1 and Message(message.needed()).answers == message.answers
    assert b"secret" not in message.needed()


# ---- records


def socket(recorder: Recorder, cookie: int = 5, port: int = 53, **given: Any) -> Socket:
    return Socket(recorder, cookie, CLIENT, remote=(bytes((127, 0, 0, 1)), port), capture=0, **given)


def found(recorder: Recorder, cuts: Sequence[int] = (), decoder: Names | None = None) -> list[tuple[int, str, str]]:
    decoder = decoder or Names(recorder.layout)
    tables = [decoder.decode(batch) for batch in recorder.batches(cuts)]
    return [
        (row["pid"], row["name"], row["address"]) for table in tables if table is not None for row in table.to_pylist()
    ]


UDP = {"transport": 17}
NAMES = 512  # DATA_NAMES


@pytest.mark.parametrize(
    ("given_", "fields", "expected"),
    [
        ({}, UDP, 1),
        ({"port": 54}, UDP, 0),
        ({"port": 0}, UDP, 0),
        ({"port": 0, "flags": NAMES}, UDP, 1),
        ({"flags": PEEK}, UDP, 0),
        ({}, UDP | {"family": 1}, 0),
        ({}, UDP | {"call_size": 4096}, 0),  # it was longer than what was captured
    ],
)
def test_datagrams(given_: dict[str, Any], fields: dict[str, Any], expected: int) -> None:
    recorder = Recorder()
    one = socket(recorder, **given_)
    message = response("a.test", ONE)
    size = fields.get("call_size", len(message))
    recorder.add(
        "data", message, cookie=5, pid=100, position_end=size, head_size=len(message), direction=RECEIVE,
        remote_port=one.remote[1], flags=one.flags,
        **({"family": 2, "call_size": size} | fields),
    )  # fmt: skip
    assert found(recorder) == [(100, "a.test", "192.0.2.1")] * expected


def framed(*messages: bytes) -> bytes:
    return b"".join(len(one).to_bytes(2) + one for one in messages)


STREAM = framed(response("a.test", ONE), query("b.test"), response("c.test", SIX, AAAA), b"", response("d.test", ONE))
TOLD = [(100, "a.test", "192.0.2.1"), (100, "c.test", "2001:db8::1"), (100, "d.test", "192.0.2.1")]


@given(calls=st.lists(st.integers(1, 60), max_size=20), cuts=st.lists(st.integers(0, 30), max_size=5))
def test_messages_over_tcp_however_they_are_read(calls: list[int], cuts: list[int]) -> None:
    recorder = Recorder()
    one = socket(recorder).open()
    left = STREAM
    for size in calls:
        if left:
            one.receive(left[:size])
            left = left[size:]
    if left:
        one.receive(left)
    one.close()
    decoder = Names(recorder.layout)
    assert found(recorder, cuts, decoder) == TOLD
    assert not decoder._streams


@pytest.mark.parametrize("lost", range(1, 20))
def test_a_hole_within_a_message_costs_that_message(lost: int) -> None:
    recorder = Recorder()
    one = socket(recorder)
    first = len(framed(response("a.test", ONE)))
    one.receive(STREAM[:10])
    one.position[RECEIVE] += lost
    one.receive(STREAM[10 + lost :])
    assert found(recorder) == TOLD[1:]
    recorder = Recorder()
    one = socket(recorder)
    one.receive(STREAM[: first - 5])
    one.position[RECEIVE] += 5 + lost  # over its end
    one.receive(STREAM[first + lost :])
    assert found(recorder) == []


def test_a_stream_whose_beginning_is_not_known_names_nothing() -> None:
    recorder = Recorder()
    one = socket(recorder, position=[0, 7])
    one.receive(STREAM)
    assert found(recorder) == []


def test_long_messages_over_tcp_are_passed_over() -> None:
    recorder = Recorder()
    one = socket(recorder)
    long = response("long.test", ONE, behind=bytes(MESSAGE_BYTES))
    for data in (framed(long), framed(long)[:5000], framed(long)[5000:], STREAM):
        one.receive(data, capture=1)
    assert found(recorder) == TOLD
    long = response("head.test", ONE, behind=bytes(9000))
    one.receive(framed(long))  # 4 KiB of it are captured
    one.receive(STREAM)
    assert found(recorder) == [*TOLD, *TOLD]


def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "STREAMS", 4)
    recorder = Recorder()
    for cookie in range(1, 20):
        socket(recorder, cookie).receive(STREAM[:20])
    decoder = Names(recorder.layout)
    assert found(recorder, (), decoder) == []
    assert list(decoder._streams) == [16, 17, 18, 19]


def test_a_batch_without_data_has_no_names() -> None:
    assert Names(Recorder().layout).decode(Batch({})) is None


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from([STREAM, STREAM[:40], STREAM[2:], WHOLE, b"\xff\xff", b"\0", b""]),
            st.integers(0, 300), st.integers(0, 1 << 17), st.integers(0, 1 << 17), st.sampled_from([6, 17]),
            st.integers(0, 99),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_records_that_no_kernel_writes_raise_nothing(calls: list[tuple[bytes, int, int, int, int, int]]) -> None:
    recorder = Recorder()
    for data, end, size, head, transport, offset in calls:
        recorder.add(
            "data", data, cookie=5, position_end=end, call_size=size, head_size=head, offset=offset, direction=RECEIVE,
            family=2, transport=transport, remote_port=53, tail_size=offset,
        )  # fmt: skip
    found(recorder)
