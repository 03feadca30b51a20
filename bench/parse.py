"""What parsing costs per request row: both messages from captured pieces (append, parse, pair), without table or times.

    python -m bench.parse [ROUNDS]

HTTP: `typical` is a browser-like GET with traceparent and a response of 9 fields with 1 KiB of 3 KiB captured;
`cookies` adds a cookie, which no memo may keep; `small` has 3 fields and 12 bytes of body; `chunked` three chunks;
`new` 8 fields that differ in every message. Redis: `redis` is GET with a short value, `redis x16` SET sixteen in a
piece, `redis mget` ten keys and values. PostgreSQL: `pg_ext` is Bind, Describe, Execute, Sync and an answer of 10 rows
(19 wire messages), `pg_simple` a query without literals and one row, `pg_literal` one whose literals differ each time,
so that its text is cleaned each time.

`plain` is what taking the same pieces apart costs, one at a time, making nothing of them: heads into a dict, Redis at
line ends, PostgreSQL from message to message; the ratio is to that. Least of the rounds, garbage collection off.
"""

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tracehound.protocols import Protocol, http1, postgresql, redis
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import REQUEST, RESPONSE, Request, Response

ROWS = 4000
TRACE = b"traceparent: 00-%032x-%016x-01\r\n"
BROWSER = (
    b"Host: shop.example.org\r\nConnection: keep-alive\r\nAccept: application/json, text/plain, */*\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    b"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate\r\nReferer: http://shop.example.org/\r\n"
    b"Sec-Fetch-Mode: cors\r\nSec-Fetch-Site: same-origin\r\n"
)
SERVER = (
    b"Server: nginx/1.22.1\r\nContent-Type: application/json\r\nConnection: keep-alive\r\nVary: Accept-Encoding\r\n"
    b"Cache-Control: no-store\r\nX-Frame-Options: DENY\r\nX-Content-Type-Options: nosniff\r\n"
)
Exchange = tuple[bytes, bytes, int]  # request, what is captured of the response, its size


def typical(at: int) -> Exchange:
    request = b"GET /api/items/%d?page=2 HTTP/1.1\r\n%s%s\r\n" % (at, BROWSER, TRACE % (at, at))
    head = b"HTTP/1.1 200 OK\r\nDate: Tue, 01 Dec 2026 08:%02d:%02d GMT\r\n%sContent-Length: %d\r\n\r\n"
    head %= at // 60 % 60, at % 60, SERVER, 3000 + at % 100
    return request, head + b"x" * 1024, len(head) + 3000 + at % 100


def cookies(at: int) -> Exchange:
    request, response, size = typical(at)
    return request[:-2] + b"Cookie: session=%064x\r\n\r\n" % at, response, size


def small(at: int) -> Exchange:
    response = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nhello world\n"
    return b"GET /%d HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\nAccept: */*\r\n\r\n" % at, response, len(response)


def chunked(at: int) -> Exchange:
    response = b"HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % (
        SERVER,
        b"10\r\n0123456789abcdef\r\n" * 3,
    )
    return typical(at)[0], response, len(response)


def new(at: int) -> Exchange:
    request, response, size = typical(at)
    fresh = b"".join(b"X-%d: %d-%d\r\n" % (field, at, field) for field in range(8))
    return request.replace(BROWSER[-60:], fresh), response, size


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def redis_get(at: int) -> Exchange:
    response = b"$12\r\nhello world\n\r\n"
    return command(b"GET", b"cart:%d" % at), response, len(response)


def redis_pipeline(at: int) -> Exchange:
    request = b"".join(command(b"SET", b"cart:%d" % (at * 16 + one), b"hello world\n") for one in range(16))
    return request, b"+OK\r\n" * 16, 5 * 16


def redis_mget(at: int) -> Exchange:
    response = b"*10\r\n" + b"$12\r\nhello world\n\r\n" * 10
    return command(b"MGET", *(b"cart:%d" % (at + one) for one in range(10))), response, len(response)


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


COLUMNS = message(b"T", b"\0\2" + b"name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0" * 2)
ROW = message(b"D", b"\0\2\0\0\0\x041234\0\0\0\x10abcdefghijklmnop")
READY = message(b"Z", b"I")
PREPARED = message(b"P", b"s1\0select id, name from orders where customer = $1 limit 10\0\0\0") + message(b"S")


def pg_ext(at: int) -> Exchange:
    request = message(b"B", b"\0s1\0\0\0\0\1\0\0\0\x08%08d\0\0" % at) + message(b"D", b"P\0")
    request += message(b"E", b"\0\0\0\0\0") + message(b"S")
    response = message(b"2") + COLUMNS + ROW * 10 + message(b"C", b"SELECT 10\0") + READY
    return request, response, len(response)


def pg_simple(_: int) -> Exchange:
    response = COLUMNS + ROW + message(b"C", b"SELECT 1\0") + READY
    return message(b"Q", b"select id, name from orders order by id\0"), response, len(response)


def pg_literal(at: int) -> Exchange:
    _, response, size = pg_simple(at)
    return message(b"Q", b"UPDATE accounts SET balance = balance + %d WHERE id = %d\0" % (at, at + 1)), response, size


def split_heads(piece: bytes) -> None:
    """Split a head of HTTP into a dict."""
    head, _, _ = piece.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        fields[name.lower().decode()] = value.strip().decode("latin-1")
    assert len(lines[0].split(b" ", 2)) == 3


def split_lines(piece: bytes) -> None:
    """Split a piece of Redis at its line ends."""
    assert [word.decode() for word in piece.split(b"\r\n")]


def step(piece: bytes) -> None:
    """Go from message to message of PostgreSQL."""
    at, size = 0, len(piece)
    while at < size:
        at += 1 + int.from_bytes(piece[at + 1 : at + 5], "big")
    assert at == size


class Case(NamedTuple):
    """What is parsed: `make` gives an exchange of that many rows; `plain` takes a piece apart."""

    protocol: Protocol
    make: Callable[[int], Exchange]
    plain: Callable[[bytes], None]
    rows: int = 1

    def exchanges(self) -> list[Exchange]:
        """Return exchanges of `ROWS` rows in all."""
        return [self.make(at) for at in range(ROWS // self.rows)]


CASES = {
    "typical": Case(http1.PROTOCOL, typical, split_heads),
    "cookies": Case(http1.PROTOCOL, cookies, split_heads),
    "small": Case(http1.PROTOCOL, small, split_heads),
    "chunked": Case(http1.PROTOCOL, chunked, split_heads),
    "new": Case(http1.PROTOCOL, new, split_heads),
    "redis": Case(redis.PROTOCOL, redis_get, split_lines),
    "redis x16": Case(redis.PROTOCOL, redis_pipeline, split_lines, 16),
    "redis mget": Case(redis.PROTOCOL, redis_mget, split_lines),
    "pg_ext": Case(postgresql.PROTOCOL, pg_ext, step),
    "pg_simple": Case(postgresql.PROTOCOL, pg_simple, step),
    "pg_literal": Case(postgresql.PROTOCOL, pg_literal, step),
}


def prepare(protocol: Protocol, state: object) -> None:
    """Let the statement be known that `pg_ext` executes."""
    for direction, data in ((REQUEST, PREPARED), (RESPONSE, message(b"1") + READY)):
        buffer = StreamBuffer()
        buffer.append(0, data, len(data))
        while buffer.cursor < len(buffer.data) and protocol.parse(buffer, direction, state):
            pass


def parse(protocol: Protocol, exchanges: Iterable[Exchange]) -> int:
    """Parse and pair all; return the number of rows."""
    buffers, state, run = (StreamBuffer(), StreamBuffer()), protocol.new_state(), protocol.parse
    if protocol is postgresql.PROTOCOL:
        prepare(protocol, state)
    waiting: deque[Request | Response] = deque()
    rows: list[tuple[Request | Response, Request | Response]] = []
    positions = [0, 0]
    for request, response, size in exchanges:
        for direction, piece, passed in ((REQUEST, request, len(request)), (RESPONSE, response, size)):
            buffer = buffers[direction]
            buffer.append(positions[direction], piece, passed)
            positions[direction] += passed
            while buffer.cursor < len(buffer.data) or buffer.settle():
                found = run(buffer, direction, state)
                if found is None:
                    break
                if direction == REQUEST:
                    waiting.append(found)
                else:
                    rows.append((waiting.popleft(), found))
    return len(rows)


def least_ns(work: Callable[[], int], rounds: int) -> float:
    """Return ns per row, the least of the rounds; `work` returns how many rows it made."""
    times = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        rows = work()
        times.append((time.thread_time_ns() - began) / rows)
        assert rows == ROWS
    return min(times)


def take_apart(case: Case, exchanges: Iterable[Exchange]) -> int:
    """Take all pieces apart; return the number of rows they hold."""
    count = 0
    for request, response, _ in exchanges:
        case.plain(request)
        case.plain(response)
        count += case.rows
    return count


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    gc.disable()
    print(f"least of {rounds} rounds of {ROWS} rows on one connection, ns per row (two messages)")
    print(f"{'':12}{'parse':>8}{'plain':>8}{'ratio':>8}")
    for name, case in CASES.items():
        exchanges = case.exchanges()
        parsed = least_ns(lambda case=case, all=exchanges: parse(case.protocol, all), rounds)  # type: ignore[misc]
        plain = least_ns(lambda case=case, all=exchanges: take_apart(case, all), rounds)  # type: ignore[misc]
        print(f"{name:12}{parsed:8.0f}{plain:8.0f}{parsed / plain:8.2f}")


if __name__ == "__main__":
    main()
