"""What parsing costs per request row: both messages from captured pieces (append, parse, pair), without table or times.

    python -m bench.parse [ROUNDS]

`typical` is a browser-like GET with traceparent and a response of 9 fields with 1 KiB of 3 KiB captured; `cookies`
adds a cookie, which no memo may keep; `small` has 3 fields and 12 bytes of body; `chunked` three chunks; `new` 8 fields
that differ in every message. `plain` is what splitting the same heads into a dict costs, one piece at a time: the ratio
is to that. `redis` is GET with a short value, `redis x16` SET sixteen in a piece, `redis mget` ten keys and values;
there `plain` splits at line ends. Least of the rounds, garbage collection off.
"""

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

from tracehound.protocols import Protocol, http1, redis
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


# name -> (protocol, exchange, rows in it)
CASES: dict[str, tuple[Protocol, Callable[[int], Exchange], int]] = {
    "typical": (http1.PROTOCOL, typical, 1),
    "cookies": (http1.PROTOCOL, cookies, 1),
    "small": (http1.PROTOCOL, small, 1),
    "chunked": (http1.PROTOCOL, chunked, 1),
    "new": (http1.PROTOCOL, new, 1),
    "redis": (redis.PROTOCOL, redis_get, 1),
    "redis x16": (redis.PROTOCOL, redis_pipeline, 16),
    "redis mget": (redis.PROTOCOL, redis_mget, 1),
}


def parse(protocol: Protocol, exchanges: list[Exchange]) -> Iterator[int]:
    """Parse and pair all; yields the number of rows."""
    buffers, state, run = (StreamBuffer(), StreamBuffer()), protocol.new_state(), protocol.parse
    waiting: deque[Request | Response] = deque()
    rows: list[tuple[Request | Response, Request | Response]] = []
    positions = [0, 0]
    for request, response, size in exchanges:
        for direction, piece, passed in ((REQUEST, request, len(request)), (RESPONSE, response, size)):
            buffer = buffers[direction]
            buffer.append(positions[direction], piece, passed)
            positions[direction] += passed
            while buffer.cursor < len(buffer.data) or buffer.settle():
                message = run(buffer, direction, state)
                if message is None:
                    break
                if direction == REQUEST:
                    waiting.append(message)
                else:
                    rows.append((waiting.popleft(), message))
    yield len(rows)


def plain(protocol: Protocol, exchanges: list[Exchange]) -> Iterator[int]:
    """Split every head into a dict, or every piece at its line ends, and make nothing of it."""
    rows = 0
    if protocol.name == "redis":
        for request, response, _ in exchanges:
            texts = [word.decode() for word in request.split(b"\r\n")]
            rows += sum(text[:1] == "*" for text in texts)
            assert response.split(b"\r\n")
        yield rows
        return
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


def least_ns(
    way: Callable[[Protocol, list[Exchange]], Iterator[int]],
    protocol: Protocol,
    exchanges: list[Exchange],
    rounds: int,
    expected: int,
) -> float:
    """Return ns per row, the least of the rounds."""
    times = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        rows = next(way(protocol, exchanges))
        times.append((time.thread_time_ns() - began) / rows)
        assert rows == expected
    return min(times)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    gc.disable()
    print(f"least of {rounds} rounds of {ROWS} rows on one connection, ns per row (two messages)")
    print(f"{'':12}{'parse':>8}{'plain':>8}{'ratio':>8}")
    for name, (protocol, make, rows) in CASES.items():
        exchanges = [make(at) for at in range(ROWS // rows)]
        expected = len(exchanges) * rows
        parsed = least_ns(parse, protocol, exchanges, rounds, expected)
        split = least_ns(plain, protocol, exchanges, rounds, expected)
        print(f"{name:12}{parsed:8.0f}{split:8.0f}{parsed / split:8.2f}")


if __name__ == "__main__":
    main()
