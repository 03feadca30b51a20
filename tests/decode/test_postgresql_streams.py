"""PostgreSQL through the engine: no wrong pair after any lost record, and what its parser asks of the engine.

Statement N selects from tN and returns 100 + N rows, or fails if N is divisible by 3; so a wrong pair shows.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.decode.records import CLIENT, PREEXISTING, Recorder, Socket
from tests.decode.test_requests import LAYOUT, OFF, Decoded, decode
from tests.protocols.test_postgresql import (
    BEGIN_BOB,
    BOUND,
    COLUMNS,
    DESCRIBE,
    IDLE,
    NO_DATA,
    PARSED,
    ROW,
    SYNC,
    WELCOME,
    bind,
    done,
    error,
    execute,
    m,
    parse,
    query,
    startup,
)

from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.protocols import load_protocols

POSTGRESQL = LAYOUT.enum("l7_protocol")["L7_POSTGRESQL"]
COOKIE = 11


def ask(number: int) -> bytes:
    return parse(b"select a from t%d" % number) + bind() + DESCRIBE + execute()


def result(number: int) -> bytes:
    if number % 3 == 0:
        return error(b"22012", b"division by zero")
    return COLUMNS + ROW + done(b"SELECT %d" % (100 + number))


def simple(socket: Socket) -> None:
    for number in range(12):
        socket.send(query(b"select a from t%d" % number))
        socket.receive(result(number) + IDLE)


def extended(socket: Socket) -> None:
    for number in range(12):
        socket.send(ask(number) + SYNC)
        socket.receive(PARSED + BOUND + result(number) + IDLE)


def prepared(socket: Socket) -> None:
    for number in range(6):
        socket.send(parse(b"select a from t%d" % number, b"s%d" % number) + SYNC)
        socket.receive(PARSED + IDLE)
        socket.send(bind(b"s%d" % number) + execute() + SYNC)
        socket.receive(BOUND + result(number) + IDLE)
        socket.send(m(b"C", b"Ss%d\0" % number) + SYNC)
        socket.receive(m(b"3") + IDLE)


def in_pieces(socket: Socket) -> None:
    for number in range(8):
        for stream, data in ((socket.send, ask(number) + SYNC), (socket.receive, result(number) + IDLE)):
            for at in range(0, len(data), 17):
                stream(data[at : at + 17])


def several_statements(socket: Socket) -> None:
    for number in range(0, 12, 2):
        socket.send(query(b"select a from t%d; select a from t%d" % (number + 1, number + 2)))
        answers = result(number + 1)
        if (number + 1) % 3:
            answers += result(number + 2)
        socket.receive(answers + IDLE)


def batches(socket: Socket) -> None:
    """Four Executes before one Sync; after an error the rest of the four is skipped."""
    for number in range(1, 25, 4):
        socket.send(b"".join(ask(one) for one in range(number, number + 4)) + SYNC)
        for one in range(number, number + 4):
            socket.receive(PARSED + BOUND + result(one))
            if one % 3 == 0:
                break
        socket.receive(IDLE)


def overlapping(socket: Socket) -> None:
    """Always one Sync ahead."""
    socket.send(ask(0) + SYNC)
    for number in range(1, 16):
        socket.send(ask(number) + SYNC)
        socket.receive(PARSED + BOUND + result(number - 1) + IDLE)


TALKS = (simple, extended, prepared, in_pieces, several_statements, batches, overlapping)
IN_TURNS = (simple, extended)  # several statements in one message count as a pipeline: exact after a quiet second


def recorded(talk: Callable[[Socket], None], with_startup: bool = True) -> Recorder:
    recorder = Recorder()
    socket = Socket(recorder, COOKIE, CLIENT, verdict=POSTGRESQL).open()
    if with_startup:
        socket.send(BEGIN_BOB)
        socket.receive(WELCOME)
    talk(socket)
    socket.close()
    return recorder


def wrong_pairs(decoded: Decoded) -> list[dict[str, Any]]:
    wrong = []
    for row in decoded.rows:
        if row["operation"] != "SELECT" or row["statement"] is None or row["outcome"] in ("unknown", "no_response"):
            continue
        number = int(row["resource"][1:])
        said = (row["error_type"], row["rows"])
        if said != (("22012", None) if number % 3 == 0 else (None, 100 + number)):
            wrong.append(row)
    return wrong


@pytest.mark.parametrize("talk", TALKS)
def test_every_statement_has_its_answer(talk: Callable[[Socket], None]) -> None:
    decoded = decode(recorded(talk))
    assert wrong_pairs(decoded) == [] and decoded.losses == []
    assert all(row["outcome"] in ("ok", "client_error") or row["error_type"] == "skipped" for row in decoded.rows[:-1])
    assert all(row["stream_id"] is None and not row["gap"] for row in decoded.rows)
    exchanges = [row["exchange"] for row in decoded.rows]
    assert len(set(exchanges)) == len(exchanges)


@pytest.mark.parametrize("talk", TALKS)
def test_lost_record_gives_no_wrong_pair(talk: Callable[[Socket], None]) -> None:
    for lost in range(1, len(recorded(talk).raw)):
        recorder = recorded(talk)
        recorder.lose(lost)
        assert wrong_pairs(decode(recorder)) == [], lost


@pytest.mark.parametrize("talk", IN_TURNS)
def test_exact_again_after_a_lost_record(talk: Callable[[Socket], None]) -> None:
    everything = decode(recorded(talk)).rows
    for lost in range(1, len(recorded(talk).raw)):
        recorder = recorded(talk)
        time_ns = recorder.times[lost]
        recorder.lose(lost)
        got = {row["request_position"]: row for row in decode(recorder).rows}
        later = [row for row in everything if row["start_ns"] > time_ns][2:]
        for row in [row for row in everything if row["end_ns"] < time_ns] + later:
            found = got.get(row["request_position"])
            assert found is not None, (lost, row)
            names = ("statement", "outcome", "error_type", "rows")
            assert [found[name] for name in names] == [row[name] for name in names], lost


@pytest.mark.parametrize("cut", [3, 7, 20])
def test_other_batches_give_the_same_rows(cut: int) -> None:
    whole = decode(recorded(batches))
    assert decode(recorded(batches), cuts=range(1, 200, cut)).rows == whole.rows


def test_joined_in_mid_session_a_statement_is_not_known() -> None:
    recorder = Recorder()
    socket = Socket(recorder, COOKIE, CLIENT, verdict=POSTGRESQL, flags=PREEXISTING, position=[5000, 7000])
    socket.send(bind(b"s1") + execute() + SYNC)
    socket.receive(BOUND + done(b"SELECT 3") + IDLE)
    socket.send(ask(4) + SYNC)
    socket.receive(PARSED + BOUND + result(4) + IDLE)
    decoded = decode(recorder)
    names = ("operation", "statement", "statement_id", "rows", "prepared_unknown", "joined_midstream", "db_user")
    assert decoded.brief(*names) == [
        ("EXECUTE", None, "s1", 3, True, True, None),
        ("SELECT", "select a from t4", None, 104, False, True, None),
    ]


def test_skipped_statements_and_copies_say_so() -> None:
    recorder = Recorder()
    socket = Socket(recorder, COOKIE, CLIENT, verdict=POSTGRESQL).open()
    socket.send(ask(3) + ask(4) + SYNC)
    socket.receive(PARSED + BOUND + result(3) + IDLE)
    socket.send(query(b"copy t from stdin"))
    socket.receive(m(b"G", b"\0\0\0"))
    socket.send(m(b"d", b"x" * 995) * 3 + m(b"c"))
    socket.receive(done(b"COPY 3") + IDLE)
    socket.receive(m(b"A", b"\0\0\0\1news\0hidden\0"))
    decoded = decode(recorder)
    names = ("operation", "outcome", "error_type", "rows", "copied_bytes")
    assert sorted(decoded.brief(*names), key=str) == [
        ("COPY", "ok", None, 3, 2985),
        ("SELECT", "client_error", "22012", None, None),
        ("SELECT", "unknown", "skipped", None, None),
        ("message", "ok", None, None, None),
    ]
    copy = next(row for row in decoded.rows if row["operation"] == "COPY")
    assert copy["request_bytes"] == len(query(b"copy t from stdin")) + 3000 + 5
    assert decoded.losses == []


def test_a_replication_stream_stops_with_the_reason() -> None:
    recorder = Recorder()
    socket = Socket(recorder, COOKIE, CLIENT, verdict=POSTGRESQL).open()
    socket.send(startup(b"user", b"bob", b"replication", b"true"))
    socket.receive(WELCOME)
    socket.send(query(b"START_REPLICATION 0/16B3748"))
    socket.receive(m(b"W", b"\0\0\0") + m(b"d", b"w" * 50))
    for _ in range(10):
        socket.receive(m(b"d", b"w" * 500))
        socket.send(m(b"d", b"r" * 34))
    decoded = decode(recorder)
    assert decoded.brief("operation", "outcome") == [("STARTUP", "ok"), ("START_REPLICATION", "ok")]
    why = "a replication stream, which is not read"
    assert decoded.protocols_of == {COOKIE << 8 | 1: ("postgresql", why)}
    assert [order.capture_class for order in decoded.orders][-1] == OFF


def test_a_row_of_megabytes_is_not_captured() -> None:
    recorder = Recorder()
    socket = Socket(recorder, COOKIE, CLIENT, verdict=POSTGRESQL).open()
    socket.send(query(b"select a from t1"))
    value = b"\0\1" + (3_000_000).to_bytes(4, "big") + bytes(3_000_000)
    socket.receive(COLUMNS + m(b"D", value)[:8000])
    rest = m(b"D", value)[8000:]
    for at in range(0, len(rest), 8000):
        socket.receive(rest[at : at + 8000])
    socket.receive(done(b"SELECT 101") + IDLE)
    decoded = decode(recorder)
    assert decoded.brief("outcome", "rows", "truncated") == [("ok", 101, False)]
    end = len(COLUMNS) + len(value) + 5
    assert [order.skip_until_received for order in decoded.orders] == [end - 1]


def test_no_times_are_kept_of_what_belongs_to_no_message() -> None:
    """The Sync behind each Execute, and parameters said unasked, leave nothing behind."""
    recorder = Recorder()
    socket = Socket(recorder, COOKIE, CLIENT, verdict=POSTGRESQL).open()
    requests = Requests(LAYOUT, load_protocols(), DecodeSettings())
    for number in range(300):
        socket.send(ask(number) + SYNC)
        socket.receive(PARSED + BOUND + NO_DATA + done(b"SELECT 1") + IDLE)
        socket.receive(m(b"S", b"application_name\0x\0"))
    for batch in recorder.batches():
        requests.decode(batch)
    (connection,) = requests._streams.connections.values()
    assert connection.streams is not None
    assert [len(stream.stops) for stream in connection.streams] == [0, 0]
    assert [stream.is_inside_message() for stream in connection.streams] == [False, False]
