"""Redis: literal bytes in, whole messages out, in the five ways; detection; what is refused."""

from collections.abc import Callable

import pytest
from tests.protocols.checker import Driver, Step, Vector, cases, check_bytes, check_whole
from tests.protocols.redis_secrets import make_templates, plant
from tests.protocols.secret_cases import check_no_leak

from tracehound.btf import wire_layout
from tracehound.native import detect
from tracehound.protocols import Protocol
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import (
    CLIENT_ERROR,
    INTERIM,
    NO_RESPONSE,
    OK,
    PATIENT,
    PUSH,
    REQUEST,
    RESPONSE,
    SERVER_ERROR,
    NotFollowed,
    Request,
    Response,
)
from tracehound.protocols.redis import PROTOCOL

TCP, UDP = 6, 17
LATER = (b"*2\r\n$3\r\nGET\r\n$5\r\nlat", b"$5\r")


def command(*arguments: str | bytes) -> bytes:
    """Return a command as clients send it."""
    words = [word.encode() if isinstance(word, str) else word for word in arguments]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def ask(*requests: tuple[bytes, Request], data: bytes = b"") -> Step:
    """Return a step of whole requests, one behind another."""
    at, said = 0, []
    for raw, request in requests:
        request.position, request.end = at, at + len(raw)
        at += len(raw)
        said.append(request)
    return Step(REQUEST, b"".join(raw for raw, _ in requests) + data, tuple(said))


def answer(*replies: tuple[bytes, Response | Request], data: bytes = b"") -> Step:
    at, said = 0, []
    for raw, reply in replies:
        reply.position, reply.end = at, at + len(raw)
        at += len(raw)
        said.append(reply)
    return Step(RESPONSE, b"".join(raw for raw, _ in replies) + data, tuple(said))


def asked(
    raw: bytes,
    operation: str,
    resource: str | None = None,
    statement: str | None = None,
    *,
    statement_id: str | None = None,
    flags: int = 0,
) -> tuple[bytes, Request]:
    statement = operation if statement is None else statement
    return raw, Request(0, 0, operation, resource, statement=statement, statement_id=statement_id, flags=flags)


def said(
    raw: bytes, rows: int | None = None, database: str | None = None, user: str | None = None, *, flags: int = 0
) -> tuple[bytes, Response]:
    return raw, Response(0, 0, None, OK, flags=flags, extras=(rows, database, user))


def failed(
    raw: bytes, error_type: str, message: str | None, outcome: str = CLIENT_ERROR, rows: int | None = None
) -> tuple[bytes, Response]:
    return raw, Response(
        0, 0, None, outcome, error_type=error_type, error_message=message, extras=(rows, None, None)
    )  # fmt: skip


def pushed(raw: bytes, resource: str | None, statement: str | None) -> tuple[bytes, Request]:
    return raw, Request(0, 0, "message", resource, statement=statement, flags=PUSH)


GET = asked(command("GET", "cart:17"), "GET", "cart:17", "GET cart:17")
SET = asked(command("SET", "cart:17", "secret"), "SET", "cart:17", "SET cart:17 ?")
PING = asked(command("PING"), "PING")
DONE = b"+OK\r\n"
SHA = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


def fresh(*messages: tuple[bytes, Request]) -> tuple[tuple[bytes, Request], ...]:
    """Return messages of their own for a step: positions are written into them."""
    return tuple(
        (raw, Request(0, 0, one.operation, one.resource, statement=one.statement, flags=one.flags))
        for raw, one in messages
    )


def turn(request: tuple[bytes, Request], *replies: tuple[bytes, Response | Request]) -> tuple[Step, Step]:
    return ask(*fresh(request) if request in (GET, SET, PING) else (request,)), answer(*replies)


NEXT = turn(GET, said(b"$2\r\n{}\r\n", 1))

VECTORS = (
    Vector("get and set", (*turn(SET, said(DONE)), *turn(GET, said(b"$6\r\nsecret\r\n", 1)), *NEXT), LATER),
    Vector(
        "a miss, in both versions",
        (*turn(GET, said(b"$-1\r\n", 0)), *turn(GET, said(b"_\r\n", 0)), *turn(GET, said(b"*-1\r\n", 0)), *NEXT),
        LATER,
    ),
    Vector(
        "names in any case, keys with spaces, quotes, other bytes",
        (
            *turn(asked(command("gEt", "a b"), "GET", "a b", 'GET "a b"'), said(b"$0\r\n\r\n", 1)),
            *turn(asked(command("get", 'a"b\\'), "GET", 'a"b\\', 'GET "a\\"b\\\\"'), said(b"$2\r\n\r\n\r\n", 1)),
            *turn(
                asked(command("get", b"\xff\x00\n"), "GET", "\\\\xff\\x00\\n", "GET \\\\xff\\x00\\n"),
                said(b"$-1\r\n", 0),
            ),
            *turn(
                asked(command("get", "schl\u00fcssel"), "GET", "schl\u00fcssel", "GET schl\u00fcssel"),
                said(b"$-1\r\n", 0),
            ),
            *turn(asked(command("get", ""), "GET", "", 'GET ""'), said(b"$-1\r\n", 0)),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "a key that is too long to be shown whole",
        (
            *turn(asked(command("GET", "user:" + "k" * 300), "GET", "user:...", "GET user:..."), said(b"$-1\r\n", 0)),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "pipelined, one of them wrong",
        (
            ask(
                *fresh(SET, GET, PING),
                asked(command("LPUSH", "cart:17", "v", "w"), "LPUSH", "cart:17", "LPUSH cart:17 ? ?"),
            ),
            answer(
                said(DONE),
                said(b"$6\r\nsecret\r\n", 1),
                said(b"+PONG\r\n"),
                failed(
                    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
                    "WRONGTYPE",
                    "Operation against a key holding the wrong kind of value",
                ),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "many keys, pairs, keys with their number, keys of streams",
        (
            *turn(
                asked(command("MGET", "a", "b", "c"), "MGET", "a", "MGET a b c"),
                said(b"*3\r\n$1\r\n1\r\n$-1\r\n$0\r\n\r\n", 3),
            ),
            *turn(asked(command("MSET", "a", "1", "b", "2"), "MSET", "a", "MSET a ? b ?"), said(DONE)),
            *turn(asked(command("BITOP", "AND", "d", "a", "b"), "BITOP", "d", "BITOP ? d a b"), said(b":3\r\n")),
            *turn(
                asked(
                    command("ZUNIONSTORE", "d", "2", "a", "b", "WEIGHTS", "1", "2"),
                    "ZUNIONSTORE",
                    "d",
                    "ZUNIONSTORE d ? a b ? ? ?",
                ),
                said(b":0\r\n"),
            ),
            *turn(
                asked(
                    command("XREAD", "BLOCK", "0", "STREAMS", "s", "t", "$", "0"),
                    "XREAD",
                    "s",
                    "XREAD ? ? ? s t ? ?",
                    flags=PATIENT,
                ),
                said(b"*-1\r\n", 0),
            ),
            *turn(
                asked(command("BLPOP", "q", "r", "0"), "BLPOP", "q", "BLPOP q r ?", flags=PATIENT),
                said(b"*2\r\n$1\r\nq\r\n$1\r\nv\r\n", 2),
            ),
            *turn(
                asked(command("OBJECT", "encoding", "k"), "OBJECT ENCODING", "k", "OBJECT ENCODING k"),
                said(b"$3\r\nint\r\n", 1),
            ),
            *turn(asked(command("HSET", "h", *"abcdefgh"), "HSET", "h", "HSET h ? ? ? ? ..."), said(b":4\r\n")),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "more keys than are shown",
        (
            *turn(
                asked(
                    command("DEL", *(f"k{at}" for at in range(40))),
                    "DEL",
                    "k0",
                    "DEL " + " ".join(f"k{at}" for at in range(24)) + " ...",
                ),
                said(b":40\r\n"),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "scripts: never their text",
        (
            *turn(
                asked(command("EVAL", "return redis.call('get', KEYS[1])", "1", "k", "v"), "EVAL", "k", "EVAL ? ? k ?"),
                said(b"$-1\r\n", 0),
            ),
            *turn(
                asked(command("EVALSHA", SHA, "0"), "EVALSHA", None, "EVALSHA ? ?", statement_id=SHA),
                failed(
                    b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
                    "NOSCRIPT",
                    "No matching script. Please use EVAL.",
                ),
            ),
            *turn(
                asked(command("FCALL", "add_item", "1", "k"), "FCALL", "k", "FCALL ? ? k", statement_id="add_item"),
                said(b":1\r\n"),
            ),
            *turn(
                asked(command("SCRIPT", "LOAD", "return 1"), "SCRIPT LOAD", None, "SCRIPT LOAD ?"),
                said(b"$40\r\n%s\r\n" % SHA.encode(), 1),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "passwords",
        (
            *turn(
                asked(command("AUTH", "hunter2"), "AUTH", None, "AUTH ?"),
                failed(
                    b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
                    "WRONGPASS",
                    "invalid username-password pair or user is disabled.",
                ),
            ),
            *turn(asked(command("AUTH", "hunter2"), "AUTH", None, "AUTH ?"), said(DONE, None, None, "default")),
            *turn(asked(command("AUTH", "shop", "hunter2"), "AUTH", None, "AUTH ? ?"), said(DONE, None, None, "shop")),
            *turn(
                asked(command("HELLO", "3", "AUTH", "web", "hunter2"), "HELLO", None, "HELLO ? ? ? ?"),
                said(b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n+proto\r\n:3\r\n", 2, None, "web"),
            ),
            *turn(
                asked(command("CONFIG", "SET", "requirepass", "hunter2"), "CONFIG SET", None, "CONFIG SET ? ?"),
                said(DONE, None, None, "web"),
            ),
            *turn(
                asked(command("ACL", "SETUSER", "bob", ">hunter2"), "ACL SETUSER", None, "ACL SETUSER ? ?"),
                said(DONE, None, None, "web"),
            ),
            *turn(
                asked(
                    command("MIGRATE", "h", "6379", "k", "0", "9", "AUTH", "hunter2"),
                    "MIGRATE",
                    "k",
                    "MIGRATE ? ? k ? ? ? ?",
                ),
                said(b"+NOKEY\r\n", None, None, "web"),
            ),
            *turn(asked(command("RESET"), "RESET"), said(b"+RESET\r\n", None, "0", None)),
        ),
        LATER,
    ),
    Vector(
        "databases",
        (
            *turn(asked(command("SELECT", "2"), "SELECT", None, "SELECT ?"), said(DONE, None, "2")),
            *turn(GET, said(b"$-1\r\n", 0, "2")),
            *turn(
                asked(command("SELECT", "99"), "SELECT", None, "SELECT ?"),
                (
                    b"-ERR DB index is out of range\r\n",
                    Response(
                        0,
                        0,
                        None,
                        CLIENT_ERROR,
                        error_type="ERR",
                        error_message="DB index is out of range",
                        extras=(None, "2", None),
                    ),
                ),
            ),
            *turn(GET, said(b"$1\r\nx\r\n", 1, "2")),
        ),
        LATER,
    ),
    Vector(
        "a transaction: each command, and EXEC with an error in it",
        (
            *turn(asked(command("MULTI"), "MULTI"), said(DONE)),
            *turn(SET, said(b"+QUEUED\r\n")),
            *turn(asked(command("SELECT", "3"), "SELECT", None, "SELECT ?"), said(b"+QUEUED\r\n")),
            *turn(
                asked(command("EXEC"), "EXEC"),
                (
                    b"*2\r\n+OK\r\n-ERR value is not an integer or out of range\r\n",
                    Response(
                        0,
                        0,
                        None,
                        CLIENT_ERROR,
                        error_type="ERR",
                        error_message="value is not an integer or out of range",
                        extras=(2, "3", None),
                    ),
                ),
            ),
            *turn(GET, said(b"$1\r\nx\r\n", 1, "3")),
        ),
        LATER,
    ),
    Vector(
        "transactions that are not done",
        (
            *turn(asked(command("MULTI"), "MULTI"), said(DONE)),
            *turn(
                asked(command("NOPE", "hunter2"), "?", None, "? ?"),
                failed(
                    b"-ERR unknown command 'NOPE', with args beginning with: 'hunter2' \r\n", "ERR", "unknown command ?"
                ),
            ),
            *turn(
                asked(command("EXEC"), "EXEC"),
                failed(
                    b"-EXECABORT Transaction discarded because of previous errors.\r\n",
                    "EXECABORT",
                    "Transaction discarded because of previous errors.",
                ),
            ),
            *turn(asked(command("WATCH", "k"), "WATCH", "k", "WATCH k"), said(DONE)),
            *turn(asked(command("MULTI"), "MULTI"), said(DONE)),
            *turn(asked(command("EXEC"), "EXEC"), said(b"*-1\r\n", 0)),
            *turn(asked(command("MULTI"), "MULTI"), said(DONE)),
            *turn(asked(command("DISCARD"), "DISCARD"), said(DONE)),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "RESP3: every type",
        (
            *turn(GET, said(b"%2\r\n+a\r\n:1\r\n+b\r\n~2\r\n#t\r\n#f\r\n", 2)),
            *turn(GET, said(b",3.25\r\n")),
            *turn(GET, said(b",-inf\r\n")),
            *turn(GET, said(b"(3492890328409238509324850943850943825024385\r\n")),
            *turn(GET, said(b"=15\r\ntxt:Some string\r\n", 1)),
            *turn(GET, failed(b"!21\r\nSYNTAX invalid syntax\r\n", "SYNTAX", "invalid syntax")),
            *turn(GET, said(b"~3\r\n+a\r\n_\r\n*2\r\n:1\r\n$-1\r\n", 3)),
            *turn(
                GET,
                said(
                    b"|1\r\n+key-popularity\r\n%2\r\n$1\r\na\r\n,0.19\r\n$1\r\nb\r\n,0.0\r\n*2\r\n:1\r\n|1\r\n+ttl\r\n:3600\r\n:2\r\n",
                    2,
                ),
            ),
            *turn(GET, said(b"|1\r\n+a\r\n|0\r\n:1\r\n+OK\r\n")),
            *turn(GET, said(b"#t\r\n")),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "RESP3: streamed strings and aggregates",
        (
            *turn(GET, said(b"$?\r\n;4\r\nHell\r\n;5\r\no wor\r\n;0\r\n", 1)),
            *turn(GET, said(b"*?\r\n:1\r\n*2\r\n:2\r\n:3\r\n~?\r\n.\r\n%?\r\n+a\r\n$?\r\n;1\r\nx\r\n;0\r\n.\r\n.\r\n")),
            *turn(GET, said(b"*2\r\n*?\r\n.\r\n:1\r\n", 2)),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "deep and empty aggregates",
        (*turn(GET, said(b"*1\r\n" * 400 + b"*0\r\n", 1)), *turn(GET, said(b"*3\r\n*0\r\n%0\r\n~0\r\n", 3)), *NEXT),
        LATER,
    ),
    Vector(
        "values across lines",
        (
            *turn(asked(command("SET", "k", b"\r\n$3\r\n\r\n*1\r\n"), "SET", "k", "SET k ?"), said(DONE)),
            *turn(GET, said(b"$12\r\n\r\n+OK\r\n-ERR \r\n", 1)),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "inline commands",
        (
            *turn(PING, said(b"+PONG\r\n")),
            *turn(asked(b"get cart:17\r\n", "GET", "cart:17", "GET cart:17"), said(b"$-1\r\n", 0)),
            *turn(asked(b"set \"a b\" 'x y'\n", "SET", "a b", 'SET "a b" ?'), said(DONE)),
            Step(
                REQUEST,
                b"\r\n\r\nconfig get *\r\n*0\r\n" + command("PING"),
                (
                    Request(4, 18, "CONFIG GET", None, statement="CONFIG GET ?"),
                    Request(22, 36, "PING", None, statement="PING"),
                ),
            ),
            answer(said(b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", 2), said(b"+PONG\r\n")),
            *turn(asked(b"EVAL 'return 1' 1 k v\r\n", "EVAL", "k", "EVAL ? ? k ?"), said(b":1\r\n")),
        ),
        LATER,
    ),
    Vector(
        "channels in RESP2",
        (
            ask(asked(command("SUBSCRIBE", "a", "b"), "SUBSCRIBE", "a", "SUBSCRIBE a b")),
            answer(
                said(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", flags=INTERIM),
                said(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"),
                pushed(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$6\r\nsecret\r\n", "a", "message a ?"),
            ),
            ask(asked(command("PSUBSCRIBE", "*"), "PSUBSCRIBE", "*", "PSUBSCRIBE *"), *fresh(PING)),
            answer(
                pushed(b"*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n", "b", "message b ?"),
                said(b"*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:3\r\n"),
                pushed(b"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$6\r\nsecret\r\n", "c", "pmessage * c ?"),
                said(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", 2),
            ),
            ask(asked(command("UNSUBSCRIBE"), "UNSUBSCRIBE")),
            answer(
                said(b"*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n", flags=INTERIM),
                said(b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n"),
            ),
            ask(asked(command("PUNSUBSCRIBE"), "PUNSUBSCRIBE"), asked(command("UNSUBSCRIBE"), "UNSUBSCRIBE")),
            answer(
                said(b"*3\r\n$12\r\npunsubscribe\r\n$1\r\n*\r\n:0\r\n"),
                said(b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "pushes in RESP3 among replies",
        (
            *turn(
                asked(command("HELLO", "3"), "HELLO", None, "HELLO ?"),
                said(b"%1\r\n+proto\r\n:3\r\n", 1),
            ),
            ask(asked(command("SUBSCRIBE", "a"), "SUBSCRIBE", "a", "SUBSCRIBE a"), *fresh(GET)),
            answer(
                said(b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
                pushed(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$6\r\nsecret\r\n", "a", "message a ?"),
                said(b"$1\r\nx\r\n", 1),
                pushed(
                    b">2\r\n$10\r\ninvalidate\r\n*2\r\n$7\r\ncart:17\r\n$1\r\nk\r\n", "cart:17", "invalidate cart:17"
                ),
                pushed(b">2\r\n$10\r\ninvalidate\r\n_\r\n", None, 'invalidate ""'),
                pushed(b">2\r\n$8\r\nsomenews\r\n$1\r\nx\r\n", None, None),
            ),
            ask(asked(command("SSUBSCRIBE", "s"), "SSUBSCRIBE", "s", "SSUBSCRIBE s")),
            answer(
                said(b">3\r\n$10\r\nssubscribe\r\n$1\r\ns\r\n:1\r\n"),
                pushed(b">3\r\n$8\r\nsmessage\r\n$1\r\ns\r\n$1\r\nx\r\n", "s", "smessage s ?"),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "a subscription that is refused",
        (
            *turn(
                asked(command("SUBSCRIBE", "a", "b"), "SUBSCRIBE", "a", "SUBSCRIBE a b"),
                failed(
                    b"-NOPERM this user has no permissions to access one of the channels used as arguments\r\n",
                    "NOPERM",
                    "this user has no permissions to access one of the channels used as arguments",
                ),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "MONITOR",
        (
            *turn(asked(command("MONITOR"), "MONITOR"), said(DONE)),
            answer(
                pushed(b'+1339518083.107412 [0 127.0.0.1:60866] "set" "k" "secret"\r\n', None, None),
                pushed(b'+1339518087.877697 [0 lua] "dbsize"\r\n', None, None),
            ),
            *turn(asked(command("QUIT"), "QUIT"), said(DONE)),
        ),
        (b"", b'+1339518083.107412 [0 127.0.0.1:60866] "se'),
    ),
    Vector(
        "CLIENT REPLY",
        (
            ask(
                asked(command("CLIENT", "REPLY", "OFF"), "CLIENT REPLY", None, "CLIENT REPLY ?", flags=NO_RESPONSE),
                asked(SET[0], "SET", "cart:17", "SET cart:17 ?", flags=NO_RESPONSE),
                asked(command("CLIENT", "REPLY", "ON"), "CLIENT REPLY", None, "CLIENT REPLY ?"),
                *fresh(GET),
                asked(command("CLIENT", "REPLY", "SKIP"), "CLIENT REPLY", None, "CLIENT REPLY ?", flags=NO_RESPONSE),
                asked(command("INCR", "n"), "INCR", "n", "INCR n", flags=NO_RESPONSE),
                *fresh(PING),
            ),
            answer(said(DONE), said(b"$1\r\nx\r\n", 1), said(b"+PONG\r\n")),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "errors of a cluster and of a server that cannot",
        (
            *turn(GET, failed(b"-MOVED 3999 127.0.0.1:6381\r\n", "MOVED", "3999 127.0.0.1:6381")),
            *turn(GET, failed(b"-ASK 3999 [::1]:6381\r\n", "ASK", "3999 [::1]:6381")),
            *turn(
                GET,
                failed(
                    b"-LOADING Redis is loading the dataset in memory\r\n",
                    "LOADING",
                    "Redis is loading the dataset in memory",
                    SERVER_ERROR,
                ),
            ),
            *turn(
                GET,
                failed(b"-ERR max number of clients reached\r\n", "ERR", "max number of clients reached", SERVER_ERROR),
            ),
            *turn(
                asked(command("GET"), "GET"),
                failed(
                    b"-ERR wrong number of arguments for 'get' command\r\n",
                    "ERR",
                    "wrong number of arguments for 'get' command",
                ),
            ),
            *turn(
                asked(command("EVAL", "x", "0"), "EVAL", None, "EVAL ? ?"),
                failed(b"-hunter2 is what I say\r\n", "ERR", "? is what ?"),
            ),
            *turn(
                asked(command("NOPE"), "?"),
                failed(b"-ERR unknown command 'hunter2', with args beginning with: \r\n", "ERR", "unknown command ?"),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "modules",
        (
            *turn(
                asked(command("JSON.GET", "doc:1", "$"), "JSON.GET", "doc:1", "JSON.GET doc:1 ?"),
                said(b"$2\r\n[]\r\n", 1),
            ),
            *turn(asked(command("MINE.DO", "secret"), "MINE.DO", None, "MINE.DO ?"), said(b":1\r\n")),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "a replica",
        (
            *turn(PING, said(b"+PONG\r\n")),
            *turn(asked(command("REPLCONF", "capa", "eof"), "REPLCONF", None, "REPLCONF ? ?"), said(DONE)),
            ask(asked(command("PSYNC", "?", "-1"), "PSYNC", None, "PSYNC ? ?")),
            answer(said(b"+FULLRESYNC 8de1787ba490483314a4d30f1c628bc5025eb761 2443\r\n")),
        ),
        (b"", b""),
    ),
)


@pytest.mark.parametrize(
    ("vector", "way"), cases(VECTORS), ids=lambda one: getattr(one, "name", "") or getattr(one, "__name__", "")
)
def test_vector(vector: Vector, way: Callable[[Protocol, Vector], None]) -> None:
    way(PROTOCOL, vector)


def test_a_list_that_looks_like_a_message_is_a_reply() -> None:
    vector = Vector(
        "a list that looks like a message",
        (
            *turn(
                asked(command("LRANGE", "l", "0", "-1"), "LRANGE", "l", "LRANGE l ? ?"),
                said(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n", 3),
            ),
            *NEXT,
        ),
        LATER,
    )
    check_whole(PROTOCOL, vector)
    check_bytes(PROTOCOL, vector)


def test_what_follows_psync_is_not_read() -> None:
    buffer, state = StreamBuffer(), PROTOCOL.new_state()
    for direction, data in ((REQUEST, command("PSYNC", "?", "-1")), (RESPONSE, b"+FULLRESYNC %s 1\r\n" % (b"a" * 40))):
        buffer = StreamBuffer()
        buffer.append(0, data, len(data))
        assert PROTOCOL.parse(buffer, direction, state) is not None
    buffer.append(len(data), b"$88\r\nREDIS0010", 15)
    with pytest.raises(NotFollowed, match="replication"):
        PROTOCOL.parse(buffer, RESPONSE, state)


def test_a_value_is_not_captured_to_be_passed_over() -> None:
    """Of 200 MB each way only the first bytes are there; the ends are told at once, thousands follow in one piece."""
    driver, size = Driver(PROTOCOL), 200 << 20
    head = b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n" % size
    driver.feed(REQUEST, head + b"x" * 100, len(head) + size + 2)
    driver.feed(REQUEST, command("GET", "big") * 5_000)
    requests = driver.messages[REQUEST]
    assert (requests[0].end, len(requests), requests[-1].end) == (len(head) + size + 2, 5_001, driver.buffers[0].end)
    driver.feed(RESPONSE, DONE + b"$%d\r\nx" % size, 5 + 12 + size + 2)
    driver.feed(RESPONSE, b"$1\r\nx\r\n" * 4_999)
    assert len(driver.messages[RESPONSE]) == 5_001
    assert (driver.errors, driver.gaps) == (0, 0)


def test_depth_and_size_have_caps() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, PING[0])
    driver.feed(RESPONSE, b"*1\r\n" * 100_000 + b":1\r\n")
    assert [message.end for message in driver.messages[RESPONSE]] == [400_004]
    for reply in (b"*?\r\n" * 40, b"*9999999999\r\n:1\r\n", b"$536870913\r\n", b"*4294967296\r\n*4294967296\r\n"):
        driver = Driver(PROTOCOL)
        driver.feed(REQUEST, PING[0])
        driver.feed(RESPONSE, reply)
        assert (driver.errors, driver.messages[RESPONSE]) == (1, []), reply


def test_a_line_longer_than_the_window() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, command("MONITOR"))
    line = b'+1339518083.107412 [0 127.0.0.1:60866] "set" "k" "' + b"x" * 200_000 + b'"\r\n'
    for at in range(0, len(line), 16384):
        driver.feed(RESPONSE, (DONE if not at else b"") + line[at : at + 16384])
    assert [message.end for message in driver.messages[RESPONSE]] == [5, 5 + len(line)]
    assert (driver.errors, driver.gaps) == (0, 0)


@pytest.mark.parametrize(
    ("direction", "data"),
    [
        (REQUEST, b"hunter2\r\n"),
        (REQUEST, b"\x16\x03\x01\x02\x00"),
        (REQUEST, b"*a\r\n"),
        (REQUEST, b"*1\r\n:1\r\n"),
        (REQUEST, b"*2\r\n$3\r\nGET\r\n$x\r\n"),
        (REQUEST, b"*2\r\n$3\r\nGET\r\n$536870913\r\n"),
        (REQUEST, b"*1048577\r\n$3\r\nDEL\r\n"),
        (REQUEST, b"*2\r\n$3\r\nGET\r\n$" + b"1" * 20),
        (REQUEST, b"PING" * 20_000),
        (RESPONSE, b"HTTP/1.1 200 OK\r\n"),
        (RESPONSE, b":x\r\n"),
        (RESPONSE, b"#x\r\n"),
        (RESPONSE, b"$x\r\n"),
        (RESPONSE, b"$-2\r\n"),
        (RESPONSE, b"*-2\r\n"),
        (RESPONSE, b"$" + b"1" * 40),
        (RESPONSE, b".\r\n"),
        (RESPONSE, b"$?\r\n:1\r\n"),
        (RESPONSE, b"INFO {}\r\n"),
    ],
)
def test_refuses(direction: int, data: bytes) -> None:
    driver = Driver(PROTOCOL)
    if direction == RESPONSE:
        driver.feed(REQUEST, PING[0])
    driver.feed(direction, data)
    assert (driver.errors, driver.messages[direction]) == (1, [])


@pytest.mark.parametrize(
    ("direction", "data", "begins"),
    [
        (REQUEST, command("SET", "k", "v"), True),
        (REQUEST, command("ping"), True),
        (REQUEST, command("JSON.GET", "k"), True),
        (REQUEST, command("message", "k"), False),
        (REQUEST, b"*3\r\n$4\r\nSET\r\n", False),
        (REQUEST, b"*3\r\n$3\r\nSET\r\n:1\r\n", False),
        (REQUEST, b"PING\r\n", False),
        (REQUEST, b"$3\r\nSET\r\n", False),
        (RESPONSE, b"+OK\r\n", True),
        (RESPONSE, b"+OK POP3 ready\r\n", False),
        (RESPONSE, b"$5\r\nhello\r\n", True),
        (RESPONSE, b"$5\r\nhello, world\r\n", False),
        (RESPONSE, b"$5\r\nhello\r\nworld\r\n", False),
        (RESPONSE, b"$500\r\nhello", True),
        (RESPONSE, b"*2\r\n$1\r\na\r\n+any\r\n", True),
        (RESPONSE, b"*2\r\nhello\r\n", False),
        (RESPONSE, b"-ERR no\r\n", True),
        (RESPONSE, b"-5 degrees\r\n", False),
        (RESPONSE, b":12\r\n:13\r\n", True),
        (RESPONSE, b": event\r\n", False),
        (RESPONSE, b"hello", False),
    ],
)
def test_begins_only_where_a_message_does(direction: int, data: bytes, begins: bool) -> None:
    buffer = StreamBuffer()
    buffer.append(0, data, len(data))
    assert PROTOCOL.resync(buffer, direction) is begins


@pytest.mark.parametrize(
    ("head", "transport", "match"),
    [
        (command("SET", "k", "v"), TCP, "MATCH_STRONG"),
        (command("PING"), TCP, "MATCH_STRONG"),
        (b"*1048576\r\n$123456789\r\nab", TCP, "MATCH_STRONG"),
        (b"*", TCP, "MATCH_WEAK"),
        (b"*1\r", TCP, "MATCH_WEAK"),
        (b"*1\r\n$4", TCP, "MATCH_WEAK"),
        (b"*1\r\n$4\r\nP", TCP, "MATCH_WEAK"),
        (b"*2\r\n$1\r\n17\r\n", TCP, "MATCH_WEAK"),
        (b"*2\r\n:1\r\n:2\r\n", TCP, "MATCH_WEAK"),
        (b">3\r\n$7\r\nmessage\r\n", TCP, "MATCH_WEAK"),
        (b"%7\r\n$6\r\nserver\r\n", TCP, "MATCH_WEAK"),
        (b"$5\r\nhello\r\n", TCP, "MATCH_WEAK"),
        (b":1\r\n", TCP, "MATCH_WEAK"),
        (b"_\r\n", TCP, "MATCH_WEAK"),
        (b"#t\r\n", TCP, "MATCH_WEAK"),
        (b"+PONG\r\n", TCP, "MATCH_WEAK"),
        (b"-NOAUTH Authentication required.\r\n", TCP, "MATCH_WEAK"),
        (b"+OK\r\n", TCP, "MATCH_NO"),
        (b"-ERR 'Unknown Protocol Operation'\r\n", TCP, "MATCH_NO"),
        (b"*a\r\n", TCP, "MATCH_NO"),
        (b"*12345678\r\n$3\r\nSET", TCP, "MATCH_NO"),
        (b"$1\n", TCP, "MATCH_NO"),
        (b"PING\r\n", TCP, "MATCH_NO"),
        (b"*1\r\n{}", TCP, "MATCH_NO"),
        (bytes(32), TCP, "MATCH_NO"),
        (command("SET", "k", "v"), UDP, "MATCH_NO"),
    ],
)
@pytest.mark.parametrize("direction", [0, 1])
def test_detects(head: bytes, transport: int, match: str, direction: int) -> None:
    layout = wire_layout()
    verdict = "L7_NONE" if match == "MATCH_NO" else "L7_REDIS"
    assert detect(head, direction, transport, 80) == (
        layout.enum("l7_protocol")[verdict],
        layout.enum("l7_match")[match],
    )


def test_no_planted_secret_is_in_a_row() -> None:
    check_no_leak(PROTOCOL, make_templates(), plant)
