"""PostgreSQL: literal bytes in, whole messages out, in the five ways; detection; refusals; no secret in a row."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.protocols.checker import Driver, Step, Vector, cases, check_bytes, check_trailing, check_whole

from tracehound.btf import wire_layout
from tracehound.enrich.redact import Redactor
from tracehound.native import detect
from tracehound.protocols import Protocol
from tracehound.protocols._postgresql_errors import RAISED, clean_message, outcome_of, read_error
from tracehound.protocols._protocol import (
    CLIENT_ERROR,
    INTERIM,
    NO_RESPONSE,
    OK,
    PREPARED_UNKNOWN,
    PUSH,
    REQUEST,
    RESPONSE,
    SERVER_ERROR,
    SWITCH,
    TRUNCATED,
    UNKNOWN,
    NotFollowed,
    Request,
    Response,
)
from tracehound.protocols.postgresql import PROTOCOL
from tracehound.tables import build, requests_columns

TCP, UDP = 6, 17
NOBODY = (None, None, None)
BOB = ("bob", "shop", "app")
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def m(kind: bytes, body: bytes = b"") -> bytes:
    """One message: its kind, its length, its body."""
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def startup(*texts: bytes, version: bytes = b"\0\3\0\0") -> bytes:
    body = version + b"".join(text + b"\0" for text in texts) + b"\0"
    return (len(body) + 4).to_bytes(4, "big") + body


def query(text: bytes) -> bytes:
    return m(b"Q", text + b"\0")


def bind(statement: bytes = b"", portal: bytes = b"", parameter: bytes = b"x") -> bytes:
    return m(b"B", portal + b"\0" + statement + b"\0\0\0\0\1" + len(parameter).to_bytes(4, "big") + parameter + b"\0\0")


def parse(text: bytes, name: bytes = b"") -> bytes:
    return m(b"P", name + b"\0" + text + b"\0\0\0")


def execute(portal: bytes = b"", limit: int = 0) -> bytes:
    return m(b"E", portal + b"\0" + limit.to_bytes(4, "big"))


def done(tag: bytes) -> bytes:
    return m(b"C", tag + b"\0")


def error(code: bytes, message: bytes, severity: bytes = b"ERROR") -> bytes:
    detail = b"Key (email)=(bob@example.org) already exists."
    return m(b"E", b"S%s\0V%s\0C%s\0M%s\0D%s\0Fx.c\0\0" % (severity, severity, code, message, detail))


DESCRIBE, SYNC, FLUSH = m(b"D", b"P\0"), m(b"S"), m(b"H")
PARSED, BOUND, CLOSED, NO_DATA, SUSPENDED, EMPTY = m(b"1"), m(b"2"), m(b"3"), m(b"n"), m(b"s"), m(b"I")
COLUMNS = m(b"T", b"\0\1id\0\0\0\0\0\0\0\0\0\0\x17\0\4\xff\xff\xff\xff\0\0")
ROW = m(b"D", b"\0\1\0\0\0\x041234")
IDLE, IN_TRANSACTION, IN_FAILED = m(b"Z", b"I"), m(b"Z", b"T"), m(b"Z", b"E")
BEGIN_BOB = startup(b"user", b"bob", b"database", b"shop", b"application_name", b"app")
WELCOME = (
    m(b"R", b"\0\0\0\0") + m(b"S", b"server_version\x0017\0") + m(b"S", b"standard_conforming_strings\0on\0")
    + m(b"K", b"\0\0\1\0secr") + IDLE
)  # fmt: skip


def ask(*parts: tuple[bytes, Callable[[int, int], Request] | None]) -> Step:
    """Bytes of the client, each part with what makes its request from its place and end."""
    return make_step(REQUEST, parts)


def answer(*parts: tuple[bytes, Callable[[int, int], Request | Response] | None]) -> Step:
    return make_step(RESPONSE, parts)


def make_step(direction: int, parts: tuple[tuple[bytes, Callable[[int, int], Any] | None], ...]) -> Step:
    at, messages = 0, []
    for data, make in parts:
        if make is not None:
            messages.append(make(at, at + len(data)))
        at += len(data)
    return Step(direction, b"".join(data for data, _ in parts), tuple(messages))


def sends(operation: str, resource: str | None = None, statement: str | None = None, **said: Any) -> Any:
    said.setdefault("extras", NOBODY)
    return lambda at, end: Request(at, end, operation, resource, statement=statement, **said)


def gives(rows: int | None = None, copied: int | None = None, outcome: str = OK, **said: Any) -> Any:
    return lambda at, end: Response(at, end, None, outcome, extras=(rows, copied), **said)


def fails(code: str, message: str | None, outcome: str = CLIENT_ERROR) -> Any:
    return gives(outcome=outcome, error_type=code, error_message=message)


def skipped(at: int, _: int) -> Response:
    return Response(at, at, None, UNKNOWN, error_type="skipped", extras=(None, None))


SELECT_T = sends("SELECT", "t", "select a from t where b = $1")
T = b"select a from t where b = $1"
ASK_T = parse(T) + bind() + DESCRIBE + execute()
FOUND_T = PARSED + BOUND + COLUMNS + ROW + ROW + done(b"SELECT 2")
LATER = (b"Q\0\0\0\x20select", b"T\0\0")
DUPLICATE = 'duplicate key value violates unique constraint "t_pkey"'

VECTORS = (
    Vector(
        "simple queries, of several statements too",
        (
            ask((query(b"SELECT a FROM t WHERE b='x' -- why\n"), sends("SELECT", "t", "SELECT a FROM t WHERE b=?"))),
            answer((COLUMNS + ROW + done(b"SELECT 1"), gives(1)), (IDLE, None)),
            ask(
                (m(b"Q", b"BEGIN;\0")[:1] + (54).to_bytes(4, "big") + b"BEGIN;", sends("BEGIN", None, "BEGIN")),
                (b" INSERT INTO t VALUES (1, 'b');", sends("INSERT", "t", "INSERT INTO t VALUES (?, ?)")),
                (b" SELECT 'c;'\0", sends("SELECT", None, "SELECT ?")),
            ),
            answer(
                (done(b"BEGIN"), gives()), (done(b"INSERT 0 1"), gives(1)),
                (COLUMNS + ROW + done(b"SELECT 1"), gives(1)), (IN_TRANSACTION, None),
            ),
            ask((query(b""), sends("EMPTY"))),
            answer((EMPTY, gives()), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "a simple query of which one statement fails",
        (
            ask(
                (b"Q" + (37).to_bytes(4, "big") + b"update t set a=1;", sends("UPDATE", "t", "update t set a=?")),
                (b"select 1/0;", sends("SELECT", None, "select ?/?")),
                (b"end;\0", sends("END", None, "end")),
            ),
            answer(
                (done(b"UPDATE 7"), gives(7)),
                (error(b"22012", b"division by zero"), fails("22012", "division by zero")),
                (b"", skipped), (IDLE, None),
            ),
            ask((query(b"select 2"), sends("SELECT", None, "select ?"))),
            answer((COLUMNS + ROW + done(b"SELECT 1"), gives(1)), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "extended, unnamed",
        (
            ask((ASK_T, SELECT_T), (SYNC, None)),
            answer((FOUND_T, gives(2)), (IDLE, None)),
            ask((ASK_T, SELECT_T), (SYNC, None), (ASK_T, SELECT_T), (SYNC, None)),
            answer((FOUND_T, gives(2)), (IDLE, None), (FOUND_T, gives(2)), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "prepared once, executed with and without Describe, closed; not known then",
        (
            ask((parse(T, b"s1") + m(b"D", b"Ss1\0"), sends("PREPARE", "t", T.decode(), statement_id="s1")),
                (SYNC, None)),
            answer((PARSED + m(b"t", b"\0\1\0\0\0\x17") + COLUMNS, gives()), (IDLE, None)),
            ask((bind(b"s1") + execute(), sends("SELECT", "t", T.decode(), statement_id="s1")), (SYNC, None)),
            answer((BOUND + ROW + done(b"SELECT 1"), gives(1)), (IDLE, None)),
            ask((m(b"C", b"Ss1\0") + SYNC, None)),
            answer((CLOSED + IDLE, None)),
            ask(
                (bind(b"s0") + execute(), sends("EXECUTE", statement_id="s0", flags=PREPARED_UNKNOWN)), (SYNC, None),
            ),
            answer(
                (error(b"26000", b'prepared statement "s0" does not exist'),
                 fails("26000", 'prepared statement "s0" does not exist')),
                (IDLE, None),
            ),
        ),
        LATER,
    ),
    Vector(
        "a pipeline that breaks off: what follows is skipped up to the Sync, then goes on",
        (
            ask(
                (ASK_T, SELECT_T),
                (parse(b"insert into t values ($1)") + bind() + execute(),
                 sends("INSERT", "t", "insert into t values ($1)")),
                (ASK_T, SELECT_T), (ASK_T, SELECT_T), (SYNC, None), (ASK_T, SELECT_T), (SYNC, None),
            ),
            answer(
                (FOUND_T, gives(2)), (PARSED + BOUND + error(b"23505", DUPLICATE.encode()), fails("23505", DUPLICATE)),
                (b"", skipped), (b"", skipped), (IDLE, None), (FOUND_T, gives(2)), (IDLE, None),
            ),
        ),
        LATER,
    ),
    Vector(
        "a portal that is suspended and goes on; two portals",
        (
            ask(
                (parse(T) + bind(portal=b"c1") + execute(b"c1", 2), SELECT_T), (FLUSH, None),
            ),
            answer((PARSED + BOUND + ROW + ROW + SUSPENDED, gives(2))),
            ask((bind(b"zz", b"c2") + execute(b"c2"), sends("EXECUTE", statement_id="zz", flags=PREPARED_UNKNOWN)),
                (execute(b"c1", 2), SELECT_T), (SYNC, None)),
            answer((BOUND + done(b"UPDATE 3"), gives(3)), (ROW + done(b"SELECT 1"), gives(1)), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "Parse and Describe, Flush, then Bind and Execute (postgres.js)",
        (
            ask((parse(T, b"n") + m(b"D", b"Sn\0"), sends("PREPARE", "t", T.decode(), statement_id="n")),
                (FLUSH, None)),
            answer((PARSED + m(b"t", b"\0\0") + COLUMNS, gives())),
            ask((bind(b"n") + execute(), sends("SELECT", "t", T.decode(), statement_id="n")), (SYNC, None)),
            answer((BOUND + done(b"SELECT 0"), gives(0)), (IDLE, None)),
            ask((parse(b"selec", b"q"), sends("PREPARE", statement_id="q")), (SYNC, None)),
            answer((error(b"42601", b'syntax error at or near "selec"'), fails("42601", 'syntax error at or near "?"')),
                   (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "COPY to the client",
        (
            ask((query(b"copy (select 1) to stdout"), sends("COPY", None, "copy (select ?) to stdout"))),
            answer((m(b"H", b"\0\0\1\0\0") + m(b"d", b"1\n") + m(b"d", b"2\n") + m(b"c") + done(b"COPY 2"),
                    gives(2, 4)), (IDLE, None)),
            ask((query(b"select 2"), sends("SELECT", None, "select ?"))),
            answer((COLUMNS + ROW + done(b"SELECT 1"), gives(1)), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "notices and notifications among answers, a function call, a password later",
        (
            ask((query(b"listen c"), sends("LISTEN", "c", "listen c"))),
            answer((m(b"N", b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0"), None), (done(b"LISTEN"), gives()), (IDLE, None)),
            answer((m(b"A", b"\0\0\1\0c\0secret\0"), sends("message", "c", flags=PUSH))),
            ask((m(b"F", b"\0\0\1\0\0\0\0\0\0\0"), sends("FUNCTION", "256"))),
            answer((m(b"V", b"\0\0\0\1x"), gives()), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "a traceparent by sqlcommenter, in a simple query and in a Parse",
        (
            ask((query(b"select 1 /*traceparent='%s'*/" % TRACE), sends("SELECT", None, "select ?", trace=TRACE))),
            answer((COLUMNS + ROW + done(b"SELECT 1"), gives(1)), (IDLE, None)),
            ask((parse(T + b" /*a='b',traceparent='%s'*/" % TRACE) + bind() + execute(),
                 sends("SELECT", "t", T.decode(), trace=TRACE)), (SYNC, None)),
            answer((PARSED + BOUND + done(b"SELECT 0"), gives(0)), (IDLE, None)),
        ),
        LATER,
    ),
    Vector(
        "startup with SASL",
        (
            ask((BEGIN_BOB, sends("STARTUP", extras=BOB))),
            answer((m(b"R", b"\0\0\0\nSCRAM-SHA-256\0\0"),
                    lambda at, end: Response(at, end + 25 + len(WELCOME), None, OK, extras=(None, None)))),
            ask((m(b"p", b"SCRAM-SHA-256\0\0\0\0\x04n,,n"), None)),
            answer((m(b"R", b"\0\0\0\x0br=12"), None)),
            ask((m(b"p", b"c=biws"), None)),
            answer((m(b"R", b"\0\0\0\x0cv=1") + WELCOME, None)),
        ),
        (b"Q\0\0\0\x20select", b"C\0\0"),
    ),
    Vector(
        "a connection that is refused",
        (
            ask((BEGIN_BOB, sends("STARTUP", extras=BOB))),
            answer((error(b"53300", b"sorry, too many clients already", b"FATAL"),
                    fails("53300", "sorry, too many clients already", SERVER_ERROR))),
        ),
    ),
    Vector(
        "cancel, with a key of protocol 3.2 too",
        (
            ask((b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\1\0secr", sends("CANCEL", flags=NO_RESPONSE))),
            ask((b"\0\0\0\x14\x04\xd2\x16\x2e\0\0\1\0secrsecr", sends("CANCEL", flags=NO_RESPONSE))),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("vector", "way"), cases(VECTORS), ids=lambda one: getattr(one, "name", None) or one.__name__)
def test_vector(vector: Vector, way: Callable[[Protocol, Vector], None]) -> None:
    way(PROTOCOL, vector)


COPY_IN = Vector(
    "COPY from the client: its request ends with the data",
    (
        ask((query(b"COPY t FROM STDIN"),
             lambda at, end: Request(at, end + 28, "COPY", "t", statement="COPY t FROM STDIN", extras=NOBODY))),
        answer((m(b"G", b"\0\0\1\0\0"), lambda at, end: Response(at, end + 12, None, OK, extras=(2, 13)))),
        ask((m(b"d", b"1\tsecret\n") + m(b"d", b"2\tx\n") + m(b"c"), None)),
        answer((done(b"COPY 2"), None), (IDLE, None)),
    ),
    LATER,
)  # fmt: skip
COMMIT_FAILS = Vector(
    "an error that a commit finds at the Sync",
    (
        ask((ASK_T, SELECT_T), (SYNC, None)),
        answer(
            (FOUND_T + error(b"40001", b"could not serialize access"),
             fails("40001", "could not serialize access", SERVER_ERROR)),
            (IDLE, None),
        ),
        ask((query(b"commit"), sends("COMMIT", None, "commit"))),
        answer((done(b"COMMIT"), gives()), (IDLE, None)),
    ),
    LATER,
)  # fmt: skip
OFFER_DECLINED = Vector(
    "SSLRequest and GSSENCRequest declined, then startup with a database by default",
    (
        ask((b"\0\0\0\x08\x04\xd2\x16\x30",
             lambda at, end: Request(at, 16 + 34, "STARTUP", extras=("bob", "bob", None)))),
        answer((b"N", gives(flags=INTERIM))),
        ask((b"\0\0\0\x08\x04\xd2\x16\x2f", None)),
        answer((b"N", gives(flags=INTERIM))),
        ask((startup(b"user", b"bob", b"_pq_.feature", b"on", version=b"\0\3\0\2"), None)),
        answer((m(b"v", b"\0\3\0\0\0\0\0\0") + WELCOME, gives())),
        ask((query(b"select 1"), sends("SELECT", None, "select ?", extras=("bob", "bob", None)))),
        answer((COLUMNS + done(b"SELECT 0"), gives(0)), (IDLE, None)),
    ),
    LATER,
)  # fmt: skip


@pytest.mark.parametrize("vector", [COPY_IN, COMMIT_FAILS, OFFER_DECLINED], ids=lambda vector: vector.name)
@pytest.mark.parametrize("way", [check_whole, check_bytes, check_trailing])
def test_vector_with_a_beginning(vector: Vector, way: Callable[[Protocol, Vector], None]) -> None:
    """What can only be understood from its beginning on."""
    way(PROTOCOL, vector)


def test_accepted_encryption_ends_what_is_read() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, b"\0\0\0\x08\x04\xd2\x16\x2f")
    driver.feed(RESPONSE, b"S")
    (request,), (response,) = driver.messages
    assert (request.operation, request.position, request.end) == ("STARTUP", 0, 8)  # type: ignore[union-attr]
    assert response.flags == SWITCH and driver.is_switched


def test_a_replication_stream_stops_with_the_reason() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, startup(b"user", b"bob", b"replication", b"true"))
    driver.feed(RESPONSE, WELCOME)
    driver.feed(REQUEST, query(b"START_REPLICATION 0/16B3748 TIMELINE 1"))
    driver.feed(RESPONSE, m(b"W", b"\0\0\0"))
    startup_request, request = driver.messages[REQUEST]
    assert startup_request.extras == ("bob", None, None)
    assert (request.operation, driver.messages[RESPONSE][1].outcome) == ("START_REPLICATION", OK)  # type: ignore[union-attr]
    with pytest.raises(NotFollowed, match="a replication stream, which is not read"):
        PROTOCOL.parse(driver.buffers[RESPONSE], RESPONSE, driver.state)


def test_a_statement_of_a_megabyte_is_read_in_its_first_part() -> None:
    driver = Driver(PROTOCOL)
    text = b"insert into t values ('" + b"secret" * 200_000 + b"'); select 1"
    message = query(text)
    for at in range(0, len(message), 16384):
        driver.feed(REQUEST, message[at : at + 16384])
    driver.feed(RESPONSE, done(b"INSERT 0 1") + done(b"SELECT 1") + IDLE)
    (request,), (response,) = driver.messages
    assert (request.statement, request.end, request.flags) == ("insert into t values (?", len(message), TRUNCATED)  # type: ignore[union-attr]
    assert response.extras == (1, None)
    assert (driver.errors, driver.gaps, driver.state.queue) == (0, 0, [])


@pytest.mark.parametrize("last", [done(b"SELECT 400000"), error(b"57014", b"canceling statement due to user request")])
def test_a_result_with_uncaptured_calls_ends_where_its_end_is_seen(last: bytes) -> None:
    """A call beyond 64 KiB is captured up to there and in its last 256 bytes: heads of rows are missing."""
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, query(b"select * from t"))
    driver.feed(RESPONSE, COLUMNS + ROW * 100)
    for _ in range(20):
        driver.feed(RESPONSE, ROW * 10 + ROW[:5], 200_001)
        driver.feed(RESPONSE, ROW[:7] + ROW * 5)
    driver.feed(RESPONSE, ROW[:7] + ROW * 5 + last + IDLE)
    (response,) = driver.messages[RESPONSE]
    assert response.flags == TRUNCATED and response.position == 0 and response.end == driver.buffers[1].end - 6
    assert (driver.errors, driver.gaps, driver.state.queue) == (0, 0, [])
    driver.feed(REQUEST, query(b"select 2"))
    driver.feed(RESPONSE, done(b"SELECT 1") + IDLE)
    assert [one.flags for one in driver.messages[RESPONSE]] == [TRUNCATED, 0]


def test_a_hole_in_one_of_several_results_is_a_gap() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, query(b"select * from t; select 2"))
    driver.feed(RESPONSE, COLUMNS + ROW * 100, 200_000)
    driver.feed(RESPONSE, ROW * 5 + done(b"SELECT 1") + done(b"SELECT 1") + IDLE)
    assert driver.gaps == 1 and driver.state.queue == []


def test_copy_with_uncaptured_calls_ends_where_its_end_is_seen() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, query(b"copy t from stdin"))
    driver.feed(RESPONSE, m(b"G", b"\0\0\0"))
    driver.feed(REQUEST, m(b"d", b"x" * 50) * 3 + b"d\0\0", 100_000)
    driver.feed(REQUEST, m(b"d", b"x" * 50) * 3 + m(b"c"))
    driver.feed(RESPONSE, done(b"COPY 9") + IDLE)
    driver.feed(REQUEST, query(b"select 2"))
    (copy, select), (answer,) = driver.messages
    assert copy.flags == TRUNCATED and copy.end == select.position and answer.extras[0] == 9
    assert (driver.errors, driver.gaps) == (0, 0)


def test_standard_conforming_strings_off_is_followed() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(RESPONSE, m(b"S", b"standard_conforming_strings\0off\0"))
    driver.feed(REQUEST, query(b"select 'it\\'s secret' from t"))
    assert driver.messages[REQUEST][0].statement == "select ? from t"  # type: ignore[union-attr]


def test_a_new_text_for_the_unnamed_statement_lost_in_a_gap_is_not_guessed() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, ASK_T + SYNC)
    driver.feed(RESPONSE, FOUND_T + IDLE)
    driver.lose(REQUEST, 60, bind() + execute() + SYNC)
    assert driver.messages[REQUEST][1].flags == PREPARED_UNKNOWN


def test_statements_of_one_connection_are_bounded() -> None:
    driver = Driver(PROTOCOL)
    for number in range(3000):
        driver.feed(REQUEST, parse(b"select 1", b"s%d" % number) + bind(b"s%d" % number, b"p%d" % number) + SYNC)
        driver.feed(RESPONSE, PARSED + BOUND + IDLE)
    assert len(driver.state.statements) == len(driver.state.portals) == 1024
    driver.feed(REQUEST, bind(b"s0") + execute() + bind(b"s2999") + execute())
    assert [one.flags for one in driver.messages[REQUEST][-2:]] == [PREPARED_UNKNOWN, 0]


@pytest.mark.parametrize(
    ("text", "names"),
    [(b"deallocate s1", {b"s2"}), (b"DEALLOCATE ALL", set()), (b"discard all", set()), (b"select 1", {b"s1", b"s2"})],
)
def test_deallocated_statements_are_forgotten(text: bytes, names: set[bytes]) -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, parse(b"select 1", b"s1") + parse(b"select 2", b"s2") + SYNC + query(text))
    assert driver.state.statements.keys() == names


REFUSED = {
    "a kind that no client sends": (REQUEST, m(b"Z", b"I")),
    "a kind that no server sends": (RESPONSE, m(b"Q", b"select 1\0")),
    "too short": (REQUEST, b"Q\0\0\0\3"),
    "too long": (REQUEST, b"Q\x7f\xff\xff\xff"),
    "a query that does not end": (REQUEST, m(b"Q", b"select 1")),
    "a Sync with a body": (REQUEST, m(b"S", b"x")),
    "a portal's name that does not end": (REQUEST, m(b"E", b"abcdefgh")),
    "a startup message of protocol 2": (REQUEST, (296).to_bytes(4, "big") + b"\0\2\0\0" + bytes(288)),
    "a startup message that is too long": (REQUEST, b"\0\1\0\0\0\3\0\0"),
    "a tag that is none": (RESPONSE, m(b"C", b"x" * 300)),
    "a ReadyForQuery that is too long": (RESPONSE, m(b"Z", b"II")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    driver = Driver(PROTOCOL)
    driver.feed(*REFUSED[name])
    assert driver.errors == 1


# ---- where messages begin


@pytest.mark.parametrize(
    ("direction", "data", "begins"),
    [
        (REQUEST, query(b"select 1"), True),
        (REQUEST, query(b"select " + b"x" * 20_000)[:16384], True),
        (REQUEST, query(b"sel\1ct 1"), False),
        (REQUEST, ASK_T + SYNC, True),
        (REQUEST, (ASK_T + SYNC)[5:], False),
        (REQUEST, bind(parameter=b"y" * 30_000)[:16384], False),
        (REQUEST, ASK_T + bind(parameter=b"y" * 30_000)[:9000], True),
        (REQUEST, SYNC, True),
        (REQUEST, BEGIN_BOB, True),
        (REQUEST, bytes(16), False),
        (REQUEST, b"GET / HTTP/1.1\r\n\r\n", False),
        (REQUEST, b"*1\r\n$4\r\nPING\r\n", False),
        (REQUEST, FOUND_T + IDLE, False),
        (RESPONSE, FOUND_T + IDLE, True),
        (RESPONSE, (FOUND_T + IDLE)[3:], False),
        (RESPONSE, ROW * 3 + ROW[:7], False),
        (RESPONSE, ROW * 5 + ROW[:7], True),
        (RESPONSE, ROW[:9], False),
        (RESPONSE, m(b"D", b"\0\1\0\0\0\5abcd"), False),
        (RESPONSE, error(b"23505", b"no"), True),
        (RESPONSE, IDLE, True),
        (RESPONSE, b"N", False),
        (RESPONSE, ASK_T + SYNC, False),
        (RESPONSE, b"HTTP/1.1 200 OK\r\n\r\n", False),
        (RESPONSE, b"+OK\r\n", False),
    ],
)
def test_where_messages_begin(direction: int, data: bytes, begins: bool) -> None:
    driver = Driver(PROTOCOL)
    driver.buffers[direction].append(0, data, len(data))
    assert PROTOCOL.resync(driver.buffers[direction], direction) is begins


NO, WEAK, STRONG = 0, 1, 2


@pytest.mark.parametrize(
    ("data", "strength"),
    [
        (BEGIN_BOB, STRONG),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", STRONG),
        (b"\0\0\0\x08\x04\xd2\x16\x30", STRONG),
        (b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\1abcd", STRONG),
        (b"\0\0\0\x09\x04\xd2\x16\x2f", NO),
        (b"\0\0\0\x29\0\2\0\0user", NO),
        (b"\0\0\0\x29\0\3\0\0\0", NO),
        (b"\0\0\0\x29", WEAK),
        (query(b"select 1"), WEAK),
        (ASK_T, WEAK),
        (FOUND_T, WEAK),
        (IDLE, WEAK),
        (b"Z\0\0\0\5x", NO),
        (b"Q\0", WEAK),
        (b"Q", NO),
        (b"Q\0\0\0\3", NO),
        (SYNC + b"\0" * 8, NO),
        (b"1\0\0\0\5abc", NO),
        (b"GET / HTTP/1.1", NO),
        (b"\x16\x03\x01\x02\0", NO),
        (b"*1\r\n$4\r\nPING\r\n", NO),
        (bytes(40), NO),
    ],
)
def test_detection(data: bytes, strength: int) -> None:
    names = wire_layout().enum("l7_protocol")
    verdict, found = detect(data[:32], 0, TCP, 5432)
    is_ours = verdict in (names["L7_POSTGRESQL"], names["L7_AMBIGUOUS"])
    assert (found if is_ours else NO) == strength
    if strength == STRONG:
        assert verdict == names["L7_POSTGRESQL"]
    assert detect(data[:32], 0, UDP, 5432)[0] != names["L7_POSTGRESQL"]


# ---- errors


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("00000", OK), ("01000", OK), ("02000", OK), ("22012", CLIENT_ERROR), ("23505", CLIENT_ERROR),
        ("28P01", CLIENT_ERROR), ("42601", CLIENT_ERROR), ("55P03", CLIENT_ERROR), ("P0001", CLIENT_ERROR),
        ("08006", SERVER_ERROR), ("40P01", SERVER_ERROR), ("53300", SERVER_ERROR), ("57014", SERVER_ERROR),
        ("57P01", SERVER_ERROR), ("58030", SERVER_ERROR), ("XX000", SERVER_ERROR),
    ],
)  # fmt: skip
def test_outcome_of_a_class(code: str, outcome: str) -> None:
    assert outcome_of(code) == outcome


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        (DUPLICATE, DUPLICATE),
        ('null value in column "a" of relation "b" violates not-null constraint',
         'null value in column "a" of relation "b" violates not-null constraint'),
        ('invalid input syntax for type integer: "se"cr"et"', 'invalid input syntax for type integer: "?"'),
        ('value "9999999999" is out of range for type integer', 'value "?" is out of range for type integer'),
        ('syntax error at or near "\'secret\'"', 'syntax error at or near "?"'),
        ("value too long for type character varying(10)", "value too long for type character varying(?)"),
        ('invalid byte sequence for encoding "UTF8": 0xff', 'invalid byte sequence for encoding "UTF8": ?'),
        ('Relation »secret« existiert nicht', "Relation ? existiert nicht"),
        ('column "a" has value "x" not "y"', 'column "a" has value "?"'),
        ("a 'quoted' word and 'one' more", "a ? more"),
        ("no quote at all", "no quote at all"),
        ('an "open one', 'an "?"'),
    ],
)  # fmt: skip
def test_messages_of_errors_lose_their_values(message: str, cleaned: str) -> None:
    assert clean_message(message) == cleaned


def test_an_error_of_the_application_has_no_text() -> None:
    assert read_error(b"SERROR\0VERROR\0CP0001\0Muser bob@example.org is broke\0\0") == ("P0001", RAISED, False)
    assert read_error(b"SERREUR\0VFATAL\0C57P01\0Mgone\0\0") == ("57P01", "gone", True)
    assert read_error(b"SERROR\0C57'DR\0Mx\0\0") == ("XX000", "x", False)
    assert read_error(b"") == ("XX000", None, False)


# ---- secrets


def plant(rolls: random.Random) -> tuple[list[tuple[int, bytes]], str]:
    """Return the traffic of one connection with one secret in it, in one of the places where values stand."""
    kind = rolls.choice(("word", "number", "mail", "token", "quoted"))
    digits = "".join(rolls.choice("123456789") for _ in range(12))
    secret = {
        "word": "zq" + "".join(rolls.choice("abcdefghkmnp") for _ in range(10)), "number": digits,
        "mail": f"zq{digits}@example.org", "token": f"ghp_{digits}{digits}", "quoted": f"zq''{digits}\\",
    }[kind]  # fmt: skip
    value = secret.encode()
    literal = rolls.choice(
        (b"'%s'", b"$$%s$$", b"$x$%s$x$", b"N'%s'", b"/* %s */ 'a'", b"-- %s\n 'a'", b"'a'/*/**/%s*/", b"'%s")
    )
    if kind == "number" and rolls.random() < 0.5:
        literal = rolls.choice((b"%s", b"-%s", b"1.%s", b"%se5", b"(%s)", b"0x%s", b"%s::bigint"))
    if literal[:1] in b"'N" and kind == "quoted":
        value = value[:-1]
        secret = secret[:-1]
    text = rolls.choice(
        (
            b"select * from t where a = %s", b"insert into t values (1, %s), (2, 'x')", b"SET app.key = %s",
            b"create user u password %s", b"select f(%s); select %s", b"with q as (select %s) select * from q",
            b"notify c, %s", b"do %s", b"copy t from %s", b"selec %s", b"%s", b"update t set a=%s where b=%s",
        )
    ).replace(b"%s", literal.replace(b"%s", value))  # fmt: skip
    failed = error(
        rolls.choice((b"22P02", b"23505", b"42601", b"P0001", b"22001")),
        rolls.choice(
            (b'invalid input syntax for type integer: "%s"', b"syntax error at or near \"'%s'\"", b"user '%s' is gone",
             b'value "%s" is out of range for type "x"', b'column "a" is not "%s"')
        ) % value,
    )  # fmt: skip
    password = [(REQUEST, BEGIN_BOB), (RESPONSE, m(b"R", b"\0\0\0\3")), (REQUEST, m(b"p", value + b"\0"))]
    place = rolls.randrange(6)
    if place == 0:
        steps = [(REQUEST, query(text)), (RESPONSE, done(b"SELECT 1") + IDLE)]
    elif place == 1:
        steps = [(REQUEST, parse(text, b"s") + bind(b"s") + execute() + SYNC), (RESPONSE, done(b"SELECT 1") + IDLE)]
    elif place == 2:
        steps = [(REQUEST, ASK_T[:-10] + SYNC), (REQUEST, bind(parameter=value) + execute() + SYNC)]
        steps += [(RESPONSE, COLUMNS + m(b"D", b"\0\1" + len(value).to_bytes(4, "big") + value) + done(b"SELECT 1"))]
    elif place == 3:
        steps = [(REQUEST, query(text)), (RESPONSE, failed + IDLE)]
    elif place == 4:
        steps = [*password, (RESPONSE, WELCOME), (REQUEST, query(text))]
    else:
        notified = m(b"A", b"\0\0\0\1c\0" + value + b"\0") + m(b"N", b"SNOTICE\0C00000\0M" + value + b"\0\0")
        steps = [(REQUEST, query(b"copy t from stdin")), (RESPONSE, m(b"G", b"\0\0\0")), (REQUEST, m(b"d", value))]
        steps += [(REQUEST, m(b"f", value + b"\0")), (RESPONSE, notified + failed + IDLE)]
    return steps, secret


def test_no_planted_secret_is_in_a_row() -> None:
    """1,000 generated cases: what `requests` says after `redact` has none of the values that passed."""
    redactor = Redactor((PROTOCOL,))
    columns = requests_columns((*PROTOCOL.request_extras, *PROTOCOL.response_extras))
    said = 0
    for seed in range(1000):
        steps, secret = plant(random.Random(seed))
        driver = Driver(PROTOCOL)
        for direction, data in steps:
            driver.feed(direction, data)
        rows: list[dict[str, Any]] = []
        for message in (*driver.messages[0], *driver.messages[1]):
            if isinstance(message, Request):
                rows.append({
                    "operation": message.operation, "resource": message.resource, "statement": message.statement,
                    "statement_id": message.statement_id,
                    **dict(zip([c.name for c in PROTOCOL.request_extras], message.extras, strict=True)),
                })  # fmt: skip
            else:
                rows.append({"error_type": message.error_type, "error_message": message.error_message})
        values = {
            name: [row.get(name) for row in rows] for name in {key for row in rows for key in row}
        } | {"protocol": ["postgresql"] * len(rows)}  # fmt: skip
        table = redactor.add({"requests": build(columns, len(rows), values)})["requests"].to_pylist()
        text = repr([[value for value in row.values() if value is not None] for row in table])
        assert secret not in text and secret.strip("\\").replace("''", "'") not in text, f"seed {seed}: {text}"
        said += len(table)
    assert said > 1500
