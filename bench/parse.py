"""What parsing costs per request row: both messages from captured pieces (append, parse, pair), without table or times.

    python -m bench.parse [ROUNDS]

`typical` is a browser-like GET with traceparent and a response of 9 fields with 1 KiB of 3 KiB captured; `cookies`
adds a cookie, which no memo may keep; `small` has 3 fields and 12 bytes of body; `chunked` three chunks; `new` 8 fields
that differ in every message.

PostgreSQL: `pg_ext` is Bind, Describe, Execute, Sync and an answer of 10 rows (19 wire messages), `pg_simple` a query
without literals and one row, `pg_literal` one whose literals differ each time, so that its text is cleaned each time;
their `plain` is stepping from message to message.

For HTTP `plain` is what splitting the same heads into a dict costs, one piece at a time: the ratio is to that. Least
of the rounds, garbage collection off.
"""

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

from tracehound.protocols import Protocol, http1, postgresql
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


HTTP = {"typical": typical, "cookies": cookies, "small": small, "chunked": chunked, "new": new}
POSTGRESQL = {"pg_ext": pg_ext, "pg_simple": pg_simple, "pg_literal": pg_literal}


def parse(exchanges: list[Exchange], protocol: Protocol = http1.PROTOCOL) -> Iterator[int]:
    """Parse and pair all; yields the number of rows."""
    buffers, state, run = (StreamBuffer(), StreamBuffer()), protocol.new_state(), protocol.parse
    if protocol is postgresql.PROTOCOL:
        prepare(state)
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
    yield len(rows)


def prepare(state: object) -> None:
    """Let the statement be known that `pg_ext` executes."""
    for direction, data in ((REQUEST, PREPARED), (RESPONSE, message(b"1") + READY)):
        buffer = StreamBuffer()
        buffer.append(0, data, len(data))
        while buffer.cursor < len(buffer.data) and postgresql.PROTOCOL.parse(buffer, direction, state):
            pass


def parse_postgresql(exchanges: list[Exchange]) -> Iterator[int]:
    return parse(exchanges, postgresql.PROTOCOL)


def step(exchanges: list[Exchange]) -> Iterator[int]:
    """Go from message to message of PostgreSQL and make nothing of it."""
    rows = 0
    for request, response, _ in exchanges:
        for piece in (request, response):
            at, size = 0, len(piece)
            while at < size:
                at += 1 + int.from_bytes(piece[at + 1 : at + 5], "big")
            rows += at == size
    yield rows // 2


def plain(exchanges: list[Exchange]) -> Iterator[int]:
    """Split every head into a dict and make nothing of it."""
    rows = 0
    for request, response, _ in exchanges:
        for piece in (request, response):
            head, _, _ = piece.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            fields = {}
            for line in lines[1:]:
                name, _, value = line.partition(b":")
                fields[name.lower().decode()] = value.strip().decode("latin-1")
            rows += len(lines[0].split(b" ", 2)) == 3
    yield rows // 2


def least_ns(way: Callable[[list[Exchange]], Iterator[int]], exchanges: list[Exchange], rounds: int) -> float:
    """Return ns per row, the least of the rounds."""
    times = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        rows = next(way(exchanges))
        times.append((time.thread_time_ns() - began) / rows)
        assert rows == len(exchanges)
    return min(times)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    gc.disable()
    print(f"least of {rounds} rounds of {ROWS} rows on one connection, ns per row (two messages)")
    print(f"{'':10}{'parse':>8}{'plain':>8}{'ratio':>8}")
    for cases, way, other in ((HTTP, parse, plain), (POSTGRESQL, parse_postgresql, step)):
        for name, make in cases.items():
            exchanges = [make(at) for at in range(ROWS)]
            parsed, split = least_ns(way, exchanges, rounds), least_ns(other, exchanges, rounds)
            print(f"{name:10}{parsed:8.0f}{split:8.0f}{parsed / split:8.2f}")


if __name__ == "__main__":
    main()
