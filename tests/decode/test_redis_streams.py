"""Redis through the whole of decode: pipelines, pushes while requests wait, waits without timeout, gaps."""

from typing import Any

from tests.decode.records import CLIENT, PREEXISTING, SERVER, Recorder, Socket

from tracehound import native
from tracehound.btf import wire_layout
from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.protocols import load_protocols

LAYOUT = wire_layout()
REDIS = LAYOUT.enum("l7_protocol")["L7_REDIS"]
SECOND = 1_000_000_000
Row = dict[str, Any]


def command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


def decode(recorder: Recorder, **settings: Any) -> tuple[list[Row], list[tuple[Any, ...]], Requests]:
    requests = Requests(LAYOUT, load_protocols(), DecodeSettings(**settings), native.detect)
    results = [requests.decode(batch) for batch in recorder.batches(range(0, len(recorder.raw), 7))]
    results.append(requests.finish(recorder.time_ns + SECOND))
    rows = [row for result in results if result.requests is not None for row in result.requests.to_pylist()]
    rows.sort(key=lambda row: (row["operation"] == "message", row["request_position"]))
    return rows, [loss[1:3] for result in results for loss in result.losses], requests


def client(recorder: Recorder, **given: Any) -> Socket:
    return Socket(recorder, 11, CLIENT, verdict=REDIS, **given).open()


def brief(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_a_pipeline_of_thousands() -> None:
    recorder = Recorder()
    socket = client(recorder)
    for first in range(0, 20_000, 1000):
        socket.send(b"".join(command("GET", f"k:{number}") for number in range(first, first + 1000)))
    for first in range(0, 20_000, 1000):
        socket.receive(b"".join(b"$%d\r\n%d\r\n" % (len(str(number)), number) for number in range(first, first + 1000)))
    rows, losses, _ = decode(recorder)
    assert losses == []
    assert brief(rows, "resource", "response_bytes", "outcome") == [
        (f"k:{number}", 2 * len(str(number)) - len(str(number)) + len(str(len(str(number)))) + 5, "ok")
        for number in range(20_000)
    ]


def test_pushes_come_while_requests_wait() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(command("HELLO", "3"))
    socket.receive(b"%1\r\n+proto\r\n:3\r\n")
    socket.send(command("GET", "a"))
    socket.receive(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n")
    socket.send(command("GET", "b"))
    socket.receive(b"$1\r\n1\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n$2\r\n22\r\n")
    socket.receive(b">3\r\n$7\r\nmessage\r\n$1\r\nd\r\n$1\r\nx\r\n")
    rows, losses, _ = decode(recorder)
    assert losses == []
    assert brief(rows, "operation", "resource", "outcome", "response_bytes") == [
        ("HELLO", None, "ok", 16), ("GET", "a", "ok", 7), ("GET", "b", "ok", 8),
        ("message", "a", "ok", None), ("message", "c", "ok", None), ("message", "d", "ok", None),
    ]  # fmt: skip
    assert {row["exchange"] for row in rows if row["operation"] == "message"} == {None}


def test_what_asks_to_wait_has_no_timeout() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(command("GET", "a"))
    socket.receive(b"$-1\r\n")
    socket.send(command("BLPOP", "q", "0"))
    socket.receive(b"*2\r\n$1\r\nq\r\n$1\r\nv\r\n", time_ns=recorder.time_ns + 900 * SECOND)
    socket.send(command("GET", "late"))
    socket.receive(b"$-1\r\n", time_ns=recorder.time_ns + 400 * SECOND)
    rows, losses, _ = decode(recorder)
    assert brief(rows, "operation", "outcome") == [("GET", "ok"), ("BLPOP", "ok"), ("GET", "no_response")]
    assert rows[1]["duration_ns"] == 900 * SECOND
    assert losses == [("late_response", 1)]


def test_a_replica_is_given_up_with_the_reason() -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.send(command("PSYNC", "?", "-1"))
    socket.receive(b"+FULLRESYNC %s 14\r\n" % (b"a" * 40))
    socket.receive(b"$500\r\nREDIS0011\xfa" + bytes(490))
    socket.receive(command("SELECT", "0") + command("SET", "k", "v"))
    rows, losses, requests = decode(recorder)
    assert brief(rows, "operation", "outcome") == [("PSYNC", "ok")]
    assert losses == []
    assert requests.protocols_of == {11 << 8 | 1: ("redis", "the replication stream behind PSYNC is not read")}
    assert requests.orders[-1].capture_class == LAYOUT.enum("capture_class")["CAPTURE_OFF"]


def test_inline_commands_are_known_by_their_reply() -> None:
    recorder = Recorder()
    socket = Socket(recorder, 11, SERVER, capture=0).open()
    socket.receive(b"PING\r\n")
    socket.send(b"+PONG\r\n")
    socket.receive(b"get cart:17\r\n")
    socket.send(b"$-1\r\n")
    rows, losses, _ = decode(recorder)
    assert losses == []
    assert brief(rows, "operation", "resource", "rows") == [("PING", None, None), ("GET", "cart:17", 0)]


def test_what_only_looks_like_redis_has_no_rows() -> None:
    talks = (  # NATS in verbose mode, POP3, memcached, SMTP
        (
            b'INFO {"a":"x"}\r\n',
            b'CONNECT {"verbose":true}\r\n',
            b"+OK\r\n",
            b"PING\r\n",
            b"PONG\r\n",
            b"PUB a 2\r\nhi\r\n",
            b"+OK\r\n",
        ),
        (
            b"+OK ready\r\n",
            b"USER bob\r\n",
            b"+OK\r\n",
            b"PASS hunter2\r\n",
            b"-ERR no\r\n",
            b"QUIT\r\n",
            b"+OK bye\r\n",
        ),
        (b"", b"get a\r\n", b"END\r\n", b"set a 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"220 ready\r\n", b"EHLO a\r\n", b"250 ok\r\n", b"QUIT\r\n", b"221 bye\r\n"),
    )
    for talk in talks:
        recorder = Recorder()
        socket = Socket(recorder, 11, CLIENT, capture=0).open()
        for number, data in enumerate(talk):
            if data:
                (socket.send if number % 2 else socket.receive)(data)
        rows, _, _ = decode(recorder)
        assert rows == []


def test_answers_passed_over_after_a_gap_are_nobody_elses() -> None:
    """Of a pipeline a piece of the replies is lost: no row has another's answer, and later ones are right again."""
    for lost in range(2, 10):
        recorder = Recorder()
        socket = client(recorder)
        for _ in range(4):
            socket.send(b"".join(command("GET", f"k:{number}") for number in range(10, 26)))
            replies = b"".join(b"$%d\r\n%s\r\n" % (number, b"x" * number) for number in range(10, 26))
            for at in range(0, len(replies), 100):
                socket.receive(replies[at : at + 100])
        recorder.time_ns += 3 * SECOND
        socket.send(command("GET", "k:50"))
        socket.receive(b"$50\r\n" + b"x" * 50 + b"\r\n")
        recorder.lose(lost)
        rows, losses, _ = decode(recorder)
        sizes = [(row["resource"], row["response_bytes"]) for row in rows if row["response_bytes"] is not None]
        assert all(size == int(key[2:]) + 7 for key, size in sizes)
        assert ("k:50", 57) in sizes
        assert any(counter == "gap" for counter, _ in losses)


def test_a_long_reply_in_one_call_ends_at_the_next_command() -> None:
    """Of a call beyond 64 KiB only its ends are captured: where the reply ends is told by who takes turns."""
    values = b"".join(b"$%d\r\n%s\r\n" % (at % 50, b"v" * (at % 50)) for at in range(4_000))
    recorder = Recorder()
    socket = Socket(recorder, 11, SERVER, verdict=REDIS).open()
    for number in range(3):
        socket.receive(command("LRANGE", f"l:{number}", "0", "-1"))
        socket.send(b"*4000\r\n" + values[:90_000])
        socket.send(values[90_000:])
    socket.receive(command("GET", "k"))
    socket.send(b"$-1\r\n")
    rows, losses, _ = decode(recorder)
    assert losses == []
    assert brief(rows, "resource", "outcome", "rows", "response_bytes", "truncated") == [
        *((f"l:{number}", "ok", 4000, len(values) + 7, True) for number in range(3)), ("k", "ok", 0, 5, False),
    ]  # fmt: skip


def test_a_long_reply_of_a_pipeline_is_a_gap() -> None:
    values = b"".join(b"$%d\r\n%s\r\n" % (at % 50, b"v" * (at % 50)) for at in range(4_000))
    recorder = Recorder()
    socket = Socket(recorder, 11, SERVER, verdict=REDIS).open()
    socket.receive(command("LRANGE", "l", "0", "-1") + command("GET", "k"))
    socket.send(b"*4000\r\n" + values + b"$-1\r\n")
    rows, losses, _ = decode(recorder)
    assert brief(rows, "resource", "outcome", "truncated") == [("l", "unknown", True), ("k", "unknown", True)]
    assert [counter for counter, _ in losses] == ["uncaptured"]


def test_joined_in_the_middle_of_a_value_that_looks_like_replies() -> None:
    rest = (b"+OK\r\n:1\r\n$3\r\nabc\r\n" * 1_000)[:-3] + b"c\r\n\r\n"
    for cut in (1, 5, 9, 18, 100):
        recorder = Recorder()
        socket = Socket(recorder, 11, SERVER, verdict=REDIS, capture=0, flags=PREEXISTING, position=[500_000, 90_000])
        for at in range(0, len(rest), 180 * cut):
            socket.send(rest[at : at + 180 * cut])
        for number in range(4):
            socket.capture = 1
            socket.receive(command("GET", f"k:{number}"), time_ns=recorder.time_ns + 2 * SECOND)
            socket.send(b"$%d\r\n%s\r\n" % (number, b"x" * number))
        rows, _, _ = decode(recorder)
        assert brief(rows, "resource", "response_bytes", "rows") == [
            (f"k:{number}", 6 + number, 1) for number in range(4)
        ]
