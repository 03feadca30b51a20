"""HTTP/1: literal bytes in, whole messages out, in the five ways; detection; what is refused."""

from collections.abc import Callable

import pytest
from tests.protocols.checker import Driver, Step, Vector, cases

from tracehound.btf import wire_layout
from tracehound.native import detect
from tracehound.protocols import Protocol
from tracehound.protocols._protocol import (
    CLIENT_ERROR,
    INTERIM,
    OK,
    REQUEST,
    RESPONSE,
    SERVER_ERROR,
    SWITCH,
    UNTIL_CLOSE,
    Request,
    Response,
)
from tracehound.protocols.http1 import PROTOCOL

TCP, UDP = 6, 17
NO_FIELDS = (None, None)
NO_TYPE = (None, None, None)
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LATER = (b"GET /later HTT", b"HTTP/1.1 20")


def ask(data: bytes, *messages: Request) -> Step:
    return Step(REQUEST, data, messages)


def answer(data: bytes, *messages: Response) -> Step:
    return Step(RESPONSE, data, messages)


def get(target: str, end: int, position: int = 0) -> Request:
    return Request(position, end, "GET", target, extras=("a", None))


GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"  # 28 bytes
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"  # 38 bytes
NEXT = (ask(GET % 9, get("/9", 28)), answer(EMPTY, Response(0, 38, 200, OK, extras=NO_TYPE)))

VECTORS = (
    Vector(
        "plain",
        (
            ask(
                b"GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n",
                Request(0, 75, "GET", "/a?b=c", extras=("example.org", "curl/8")),
            ),
            answer(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
                Response(0, 69, 200, OK, extras=("text/plain", None, None)),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "http/1.0 until close",
        (
            ask(b"GET / HTTP/1.0\r\n\r\n", Request(0, 18, "GET", "/", extras=NO_FIELDS)),
            answer(
                b"HTTP/1.0 404 Not here\r\nServer: x\r\n\r\nall that comes",
                Response(0, UNTIL_CLOSE, 404, CLIENT_ERROR, error_type="Not Found", extras=NO_TYPE),
            ),
            answer(b"HTTP/1.1 200 OK is text, too"),
        ),
        (b"", b"and more"),
    ),
    Vector(
        "traceparent, odd spelling, cookies, an unknown method and status",
        (
            ask(
                b"REPORT /x HTTP/1.1\r\nhOsT:  h \t\r\ncookie: a=b\r\nTraceparent: %s\r\n\r\n" % TRACE,
                Request(0, 117, "REPORT", "/x", trace=TRACE, extras=("h", None)),
            ),
            answer(
                b"HTTP/1.1 599 \r\nSet-Cookie: a\r\nCONTENT-LENGTH: 2\r\n\r\n{}",
                Response(0, 53, 599, SERVER_ERROR, error_type="599", extras=NO_TYPE),
            ),
            ask(
                b"GET / HTTP/1.1\r\ntraceparent:%s\r\nHost: h\r\n\r\n" % TRACE,
                Request(0, 96, "GET", "/", trace=TRACE, extras=("h", None)),
            ),
            answer(b"HTTP/1.1 204\r\n\r\n", Response(0, 16, 204, OK, extras=NO_TYPE)),
            ask(
                b"m~1 / HTTP/1.1\r\nTRACEPARENT: %s\r\n\r\n" % TRACE,
                Request(0, 88, "m~1", "/", trace=TRACE, extras=NO_FIELDS),
            ),
        ),
        LATER,
    ),
    Vector(
        "chunked both ways, with extensions and trailers",
        (
            ask(
                b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
                b"5;a=b\r\nhello\r\n00A\r\nGET / HTTP\r\n0;last\r\nX: 1\r\nY: 2\r\n\r\n",
                Request(0, 122, "POST", "/c", extras=("a", None)),
            ),
            answer(
                b"HTTP/1.1 201 Created\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"
                b"2\r\n\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n",
                Response(0, 80, 201, OK, extras=NO_TYPE),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "HEAD, 304 and 204 have no body",
        (
            ask(b"HEAD /h HTTP/1.1\r\n\r\n", Request(0, 20, "HEAD", "/h", extras=NO_FIELDS)),
            answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", Response(0, 41, 200, OK, extras=NO_TYPE)),
            ask(GET % 1, get("/1", 28)),
            answer(
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n", Response(0, 49, 304, OK, extras=NO_TYPE)
            ),
            ask(GET % 2, get("/2", 28)),
            answer(
                b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
                Response(0, 55, 204, OK, extras=NO_TYPE),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "interim responses, and a body that waits for one",
        (
            ask(
                b"PUT /p HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
                Request(0, 73, "PUT", "/p", extras=("a", None)),
            ),
            answer(b"HTTP/1.1 100 Continue\r\n\r\n", Response(0, 25, 100, OK, flags=INTERIM, extras=NO_TYPE)),
            ask(b"body"),
            answer(
                b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + EMPTY,
                Response(0, 40, 103, OK, flags=INTERIM, extras=NO_TYPE),
                Response(40, 78, 200, OK, extras=NO_TYPE),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "an answer before the request has ended",
        (
            ask(
                b"POST /big HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
                Request(0, 71, "POST", "/big", extras=NO_FIELDS),
            ),
            answer(
                b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n",
                Response(0, 53, 413, CLIENT_ERROR, error_type="Request Entity Too Large", extras=NO_TYPE),
            ),
            ask(b"2\r\nef\r\n0\r\n\r\n"),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "pipelined",
        (
            ask(
                GET % 1 + b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + GET % 3,
                get("/1", 28),
                Request(28, 79, "POST", "/2", extras=("a", None)),
                get("/3", 107, 79),
            ),
            answer(
                EMPTY + EMPTY + EMPTY.replace(b"200", b"500"),
                Response(0, 38, 200, OK, extras=NO_TYPE),
                Response(38, 76, 200, OK, extras=NO_TYPE),
                Response(76, 114, 500, SERVER_ERROR, error_type="Internal Server Error", extras=NO_TYPE),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "targets: absolute with a password, asterisk, with spaces; bytes beyond ASCII",
        (
            ask(
                b"GET http://u:geheim@h:80/p HTTP/1.1\r\n\r\n",
                Request(0, 39, "GET", "http://?@h:80/p", extras=NO_FIELDS),
            ),
            answer(EMPTY, Response(0, 38, 200, OK, extras=NO_TYPE)),
            ask(b"OPTIONS * HTTP/1.1\r\n\r\n", Request(0, 22, "OPTIONS", "*", extras=NO_FIELDS)),
            answer(EMPTY, Response(0, 38, 200, OK, extras=NO_TYPE)),
            ask(b"PROPFIND /a b/@\xe9 HTTP/1.1\r\n\r\n", Request(0, 29, "PROPFIND", "/a b/@é", extras=NO_FIELDS)),
            answer(EMPTY, Response(0, 38, 200, OK, extras=NO_TYPE)),
        ),
        LATER,
    ),
    Vector(
        "careless line ends",
        (
            ask(
                b"GET /1 HTTP/1.1\nHost: a\nContent-Length: 2\n\n{}\r\n\nGET /2 HTTP/1.0\n\n",
                Request(0, 45, "GET", "/1", extras=("a", None)),
                Request(48, 65, "GET", "/2", extras=NO_FIELDS),
            ),
            answer(
                b"HTTP/1.1 200 OK\nContent-Type: t\n\r\n", Response(0, UNTIL_CLOSE, 200, OK, extras=("t", None, None))
            ),
        ),
        (b"", b"rest\n\n"),
    ),
    Vector(
        "folded lines",
        (
            ask(
                b"POST /1 HTTP/1.1\r\nTransfer-Encoding:\r\n chunked\r\nUser-Agent: a\r\n\tb\r\n\r\n0\r\n\r\n",
                Request(0, 74, "POST", "/1", extras=(None, "a b")),
            ),
            answer(EMPTY, Response(0, 38, 200, OK, extras=NO_TYPE)),
        ),
        LATER,
    ),
    Vector(
        "lengths: equal ones, and with a transfer coding",
        (
            ask(
                b"POST /1 HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2, 2\r\n\r\n{}",
                Request(0, 63, "POST", "/1", extras=NO_FIELDS),
            ),
            answer(
                b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                Response(0, 73, 200, OK, extras=NO_TYPE),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "lengths that differ: until close",
        (
            ask(GET % 1, get("/1", 28)),
            answer(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
                Response(0, UNTIL_CLOSE, 200, OK, extras=NO_TYPE),
            ),
        ),
        (b"", b"more"),
    ),
    Vector(
        "server-sent events",
        (
            ask(GET % 1, get("/1", 28)),
            answer(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n",
                Response(0, UNTIL_CLOSE, 200, OK, extras=("text/event-stream", 0, 2)),
            ),
            answer(b": alive\n\nid: 7\r\ndata: 2\r\n\r\n"),
        ),
        (b"", b": alive\n\ndata: begun"),
    ),
    Vector(
        "event stream in chunks",
        (
            ask(GET % 1, get("/1", 28)),
            answer(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream;x\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"9\r\ndata: 1\n\n\r\n6\r\ndata: \r\n3\r\n2\n\n\r\n0\r\n\r\n",
                Response(0, 120, 200, OK, extras=("text/event-stream;x", 0, 2)),
            ),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "upgrade refused",
        (
            ask(
                b"GET /1 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
                Request(0, 54, "GET", "/1", extras=NO_FIELDS),
            ),
            ask(GET % 2, get("/2", 28)),
            answer(EMPTY + EMPTY, Response(0, 38, 200, OK, extras=NO_TYPE), Response(38, 76, 200, OK, extras=NO_TYPE)),
            *NEXT,
        ),
        LATER,
    ),
    Vector(
        "upgrade",
        (
            ask(
                b"GET /1 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                Request(0, 60, "GET", "/1", extras=NO_FIELDS),
            ),
            answer(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
                Response(0, UNTIL_CLOSE, 101, OK, extras=(None, 3, 2)),
            ),
            ask(b"\x81\x85\0\0\0\0hello\x89\x80\0\0\0\0\x82\xfe\0\x7e\0\0\0\0" + b"x" * 126),
            answer(b"\x01\x03one\x8a\0\x80\x03two\x82\x7f\0\0\0\0\0\0\0\x05world"),
            ask(b"\x81\x80\0\0\0\0"),
        ),
        (b"\x89\x80\0\0\0\0", b"\x8a\0"),
    ),
    Vector(
        "upgrade to what is not known",
        (
            ask(
                b"GET /1 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: spdy\r\n\r\n",
                Request(0, 55, "GET", "/1", extras=NO_FIELDS),
            ),
            answer(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: spdy\r\n\r\n",
                Response(0, 51, 101, OK, flags=SWITCH, extras=NO_TYPE),
            ),
            ask(b"\x80\x03\0\1"),
        ),
        (b"\x80", b"\x80"),
    ),
    Vector(
        "tunnel",
        (
            ask(
                b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
                Request(0, 39, "CONNECT", "h:443", extras=("h:443", None)),
            ),
            answer(
                b"HTTP/1.1 200 Connection established\r\nContent-Length: 9\r\n\r\n",
                Response(0, 58, 200, OK, flags=SWITCH, extras=NO_TYPE),
            ),
        ),
        (b"\x16\x03\x01", b"\x16\x03\x03"),
    ),
)


@pytest.mark.parametrize(
    ("vector", "way"), cases(VECTORS), ids=lambda one: getattr(one, "name", "") or getattr(one, "__name__", "")
)
def test_vector(vector: Vector, way: Callable[[Protocol, Vector], None]) -> None:
    way(PROTOCOL, vector)


@pytest.mark.parametrize(
    ("direction", "data"),
    [
        (REQUEST, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (REQUEST, b"GET /only\r\n\r\n"),
        (REQUEST, b"get key\r\n"),
        (REQUEST, b"\x16\x03\x01\x02\x00"),
        (REQUEST, b"a" * 33),
        (REQUEST, b"G(T / HTTP/1.1\r\n\r\n"),
        (REQUEST, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\n"),
        (REQUEST, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n"),
        (REQUEST, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n"),
        (REQUEST, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"),
        (REQUEST, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 9000),
        (RESPONSE, b"HTTP/2 200 OK\r\n\r\n"),
        (RESPONSE, b"HTTP/1.1 2x0 OK\r\n\r\n"),
        (RESPONSE, b"HTTP/1.1 099 No\r\n\r\n"),
        (RESPONSE, b"+OK\r\n"),
    ],
)
def test_refuses(direction: int, data: bytes) -> None:
    driver = Driver(PROTOCOL)
    driver.feed(direction, data)
    assert driver.errors == 1
    assert len(driver.messages[direction]) == data.startswith(b"POST")


@pytest.mark.parametrize(
    ("head", "transport", "match"),
    [
        *(
            (b"%s /a/path HTTP/1.1\r\n" % method, TCP, "MATCH_STRONG")
            for method in (
                b"GET",
                b"PUT",
                b"POST",
                b"HEAD",
                b"PATCH",
                b"TRACE",
                b"DELETE",
                b"OPTIONS",
                b"COPY",
                b"MOVE",
                b"LOCK",
                b"MKCOL",
                b"UNLOCK",
                b"REPORT",
                b"SEARCH",
                b"PROPFIND",
                b"PROPPATCH",
            )
        ),
        (b"GET / HTTP/1.0\r\n\r\n", TCP, "MATCH_STRONG"),
        (b"OPTIONS * HTTP/1.1\r\n", TCP, "MATCH_STRONG"),
        (b"CONNECT [::1]:443 HTTP/1.1\r\n", TCP, "MATCH_STRONG"),
        (b"CONNECT host:443 HTTP/1.1\r\n", TCP, "MATCH_STRONG"),
        (b"POST http://h/ HTTP/1.1\r\n", TCP, "MATCH_STRONG"),
        (b"PROPPATCH HTTPS://h/", TCP, "MATCH_STRONG"),
        (b"HTTP/1.1 200 OK\r\n", TCP, "MATCH_STRONG"),
        (b"HTTP/1.", TCP, "MATCH_STRONG"),
        (b"HTTP/1", TCP, "MATCH_WEAK"),
        (b"H", TCP, "MATCH_WEAK"),
        (b"G", TCP, "MATCH_WEAK"),
        (b"GET", TCP, "MATCH_WEAK"),
        (b"GET ", TCP, "MATCH_WEAK"),
        (b"GET /", TCP, "MATCH_WEAK"),
        (b"PURGE /cache/entry HTTP/1.1\r\n", TCP, "MATCH_WEAK"),
        (b"VERSION-CONTROL /a HTTP/1.1\r\n", TCP, "MATCH_WEAK"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", TCP, "MATCH_NO"),
        (b"HTTP/2.0 200 OK\r\n", TCP, "MATCH_NO"),
        (b"HTTP/1.x 200 OK\r\n", TCP, "MATCH_NO"),
        (b"KEYS *\r\n and more than that", TCP, "MATCH_NO"),
        (b'CONNECT {"verbose":false}\r\n', TCP, "MATCH_NO"),
        (b"MAIL FROM:<a@b.c>\r\n", TCP, "MATCH_NO"),
        (b"GET key-of-16-bytes\r\n", TCP, "MATCH_NO"),
        (b"get /a/path HTTP/1.1\r\n", TCP, "MATCH_NO"),
        (b"GE /a/path HTTP/1.1\r\n", TCP, "MATCH_NO"),
        (b"A" * 20 + b" /", TCP, "MATCH_WEAK"),
        (b"A" * 21 + b" /", TCP, "MATCH_NO"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", TCP, "MATCH_NO"),
        (b"NOTIFY /ssdp HTTP/1.1\r\n", UDP, "MATCH_NO"),
    ],
)
@pytest.mark.parametrize("direction", [0, 1])
def test_detects(head: bytes, transport: int, match: str, direction: int) -> None:
    layout = wire_layout()
    verdict = "L7_NONE" if match == "MATCH_NO" else "L7_HTTP1"
    assert detect(head, direction, transport, 80) == (
        layout.enum("l7_protocol")[verdict],
        layout.enum("l7_match")[match],
    )
