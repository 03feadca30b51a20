"""Where HTTP/1 messages end when not all is captured: holes in bodies, heads that are too long, lost records."""

import time

import pytest
from tests.protocols.checker import Driver, found

from tracehound.protocols._http1_framing import FOLLOW_LIMIT, HEAD_LIMIT, LONG_HEAD_LIMIT
from tracehound.protocols._protocol import CAPTURE_FRAMED, CAPTURE_HEAD_TAIL, REQUEST, RESPONSE, TRUNCATED, UNTIL_CLOSE
from tracehound.protocols.http1 import PROTOCOL

GET = b"GET /%d HTTP/1.1\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UPLOAD = b"POST /0 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD, TAIL = 4096, 256


def call(driver: Driver, direction: int, data: bytes) -> None:
    """Let one call pass as the kernel captures it in class `head_tail`."""
    if len(data) <= HEAD + TAIL:
        driver.feed(direction, data)
    else:
        driver.feed(direction, data[:HEAD], len(data) - TAIL)
        driver.feed(direction, data[-TAIL:])


def chunk(size: int, fill: bytes = b"x") -> bytes:
    return b"%x\r\n%s\r\n" % (size, fill * size)


def ends(driver: Driver, direction: int) -> list[tuple[int, int, int]]:
    """Position, end and flags of a direction's messages."""
    return [(message.position, message.end, message.flags) for message in driver.messages[direction]]


def test_long_chunked_body_is_followed_by_heads_and_tails() -> None:
    """Chunk sizes stand at the heads of calls: the end is exact, and the class goes back."""
    driver = Driver(PROTOCOL)
    buffer = driver.buffers[RESPONSE]
    driver.feed(REQUEST, GET % 1)
    driver.feed(RESPONSE, CHUNKED)
    call(driver, RESPONSE, chunk(FOLLOW_LIMIT - 100))
    assert buffer.capture == CAPTURE_FRAMED
    for size in (200, 9000, 70000):
        call(driver, RESPONSE, chunk(size))
        assert buffer.capture == CAPTURE_HEAD_TAIL
    call(driver, RESPONSE, b"0\r\n\r\n")
    end = buffer.end
    assert (ends(driver, RESPONSE), buffer.capture) == ([(0, end, 0)], CAPTURE_FRAMED)
    driver.feed(REQUEST, GET % 2)
    driver.feed(RESPONSE, EMPTY)
    assert ends(driver, RESPONSE)[1:] == [(end, end + len(EMPTY), 0)]
    assert (driver.errors, driver.gaps) == (0, 0)


LAST = (b"0\r\n\r\n", b"0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", b"000;a=b\r\n\r\n")


@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("split", [0, 1, 2, 3, -1])
def test_end_of_chunked_body_behind_a_hole_is_found_at_the_end_of_a_call(
    direction: int, last: bytes, split: int
) -> None:
    """Chunks begin within the calls: where the next one begins is not seen. The last chunk may be in two calls."""
    driver = Driver(PROTOCOL)
    buffer = driver.buffers[direction]
    if direction == RESPONSE:
        driver.feed(REQUEST, GET % 1)
    driver.feed(direction, CHUNKED if direction else UPLOAD)
    call(driver, direction, chunk(5000) + chunk(70000) + b"fff0\r\n" + b"y" * 1000)
    call(driver, direction, b"y" * 20000)
    call(driver, direction, b"y" * (0xFFF0 - 21000) + b"\r\n" + chunk(3) + last[: split or None])
    if split:
        assert ends(driver, direction) == [(0, UNTIL_CLOSE, TRUNCATED)]
        call(driver, direction, last[split:])
    end = buffer.end
    assert (ends(driver, direction), buffer.capture) == ([(0, end, TRUNCATED)], CAPTURE_FRAMED)
    if direction == REQUEST:
        driver.feed(RESPONSE, EMPTY)
    driver.feed(REQUEST, GET % 2)
    driver.feed(RESPONSE, EMPTY)
    begin = driver.buffers[direction].end - len(EMPTY if direction else GET % 2)
    assert ends(driver, direction)[1:] == [(begin, driver.buffers[direction].end, 0)]
    assert (driver.errors, driver.gaps) == (0, 0)


def test_end_that_was_not_seen_is_a_gap_at_the_next_request() -> None:
    """The last chunk and the next response in one call, in its hole: never a later end taken for this one."""
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, GET % 1)
    driver.feed(RESPONSE, CHUNKED)
    call(driver, RESPONSE, chunk(5000) + chunk(5000) + b"0\r\n\r\n" + b"HTTP/1.1 408 Timeout\r\n\r\n" + b"z" * TAIL)
    assert ends(driver, RESPONSE) == [(0, UNTIL_CLOSE, TRUNCATED)]
    driver.feed(REQUEST, GET % 2)
    begin = driver.buffers[RESPONSE].end
    driver.feed(RESPONSE, CHUNKED + b"0\r\n\r\n")
    assert driver.gaps == 1
    driver.feed(REQUEST, GET % 3)
    driver.feed(RESPONSE, EMPTY)
    last = driver.messages[RESPONSE][-1]
    assert last.position > begin and last.end == driver.buffers[RESPONSE].end


def test_end_of_upload_that_was_not_seen_is_a_gap_at_the_next_request() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, UPLOAD)
    call(driver, REQUEST, chunk(5000) + chunk(5000) + b"0\r\n\r\n" + bytes(TAIL - 1) + b"\n")
    driver.feed(RESPONSE, EMPTY)
    driver.feed(REQUEST, GET % 2)
    assert (driver.gaps, driver.errors, ends(driver, REQUEST)) == (1, 1, [(0, UNTIL_CLOSE, TRUNCATED)])
    driver.feed(REQUEST, GET % 3)
    driver.feed(RESPONSE, EMPTY)
    assert [request["resource"] for request in found(driver)[REQUEST]] == ["/0", "/3"]
    assert driver.buffers[REQUEST].capture == CAPTURE_FRAMED


@pytest.mark.parametrize("fill", [b"\r\n0", b"0\r\n", b"\nGET / HTTP/1.0 ", b"\r\n0\r\na\r\n"])
def test_body_behind_a_hole_takes_bounded_time(fill: bytes) -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, UPLOAD)
    driver.feed(REQUEST, b"fffff\r\n", 0x10000F)
    driver.feed(REQUEST, b"", 100)
    began = time.thread_time()
    for _ in range(100):
        driver.feed(REQUEST, (fill * (16384 // len(fill))))
    assert time.thread_time() - began < 1.0  # measured: 0.01
    assert (driver.gaps, driver.buffers[REQUEST].held_bytes() <= TAIL) == (0, True)


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_lost_records_and_pipelines_are_never_bridged(is_pipelined: bool) -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, GET % 1 * (2 if is_pipelined else 1))
    driver.feed(RESPONSE, CHUNKED + chunk(10) + b"100\r\n")
    if is_pipelined:
        driver.feed(RESPONSE, b"", 0x200)
    else:
        driver.lose(RESPONSE, 0x200, b"z" * 10 + b"\r\n0\r\n\r\n")
    assert (driver.gaps, ends(driver, RESPONSE)) == (1, [(0, UNTIL_CLOSE, 0)])


def test_body_until_close_goes_on_behind_every_hole() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, GET % 1)
    driver.feed(RESPONSE, b"HTTP/1.0 200 OK\r\n\r\n")
    call(driver, RESPONSE, b"x" * FOLLOW_LIMIT)
    assert driver.buffers[RESPONSE].capture == CAPTURE_FRAMED
    driver.feed(RESPONSE, b"", 10)
    assert driver.buffers[RESPONSE].capture == CAPTURE_HEAD_TAIL
    driver.lose(RESPONSE, 1000, EMPTY)
    assert (ends(driver, RESPONSE), driver.gaps) == ([(0, UNTIL_CLOSE, 0)], 0)


def test_body_of_known_length_needs_no_byte_of_it() -> None:
    driver = Driver(PROTOCOL)
    size = 200 << 20
    driver.feed(REQUEST, GET % 1)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    driver.feed(RESPONSE, head)
    assert ends(driver, RESPONSE) == [(0, len(head) + size, 0)]
    for _ in range(200):
        driver.feed(RESPONSE, b"", 1 << 20)
    driver.feed(REQUEST, GET % 2)
    driver.feed(RESPONSE, EMPTY)
    assert ends(driver, RESPONSE)[1:] == [(len(head) + size, len(head) + size + len(EMPTY), 0)]
    assert (driver.gaps, driver.buffers[RESPONSE].held_bytes()) == (0, 0)


def wide(first: bytes, size: int, *fields: bytes) -> bytes:
    """A head of `size` bytes with `fields` at its end."""
    rest = b"".join(b"%s\r\n" % field for field in fields) + b"\r\n"
    lines = b"".join(b"Filler-%05d: %s\r\n" % (at, b"f" * 80) for at in range((size - 100) // 97))
    short = size - len(first) - 2 - len(lines) - len(rest)
    return b"%s\r\n%sLast: %s\r\n%s" % (first, lines, b"l" * (short - 8), rest)


@pytest.mark.parametrize("piece", [1, 1000, 16384, 1 << 30])
@pytest.mark.parametrize("size", [16384, HEAD_LIMIT - 1, HEAD_LIMIT, HEAD_LIMIT + 1, 65536, 200_000])
def test_head_of_any_size_is_a_row_and_its_framing_is_read(size: int, piece: int) -> None:
    if piece == 1 and size > 30000:
        size = 30000
    request = wide(b"POST /w HTTP/1.1", size, b"Host: h", b"Content-Length: 7") + b"{a body"
    response = (
        wide(b"HTTP/1.1 200 OK", size, b"Content-Type: t", b"Transfer-Encoding: chunked") + b"2\r\nab\r\n0\r\n\r\n"
    )
    driver = Driver(PROTOCOL)
    for direction, data in ((REQUEST, request), (RESPONSE, response), (REQUEST, GET % 2), (RESPONSE, EMPTY)):
        for at in range(0, len(data), min(piece, 32768)):
            driver.feed(direction, data[at : at + min(piece, 32768)])
    is_whole = size <= HEAD_LIMIT
    flags = 0 if is_whole else TRUNCATED
    assert ends(driver, REQUEST) == [
        (0, len(request), flags),
        (len(request), len(request) + len(GET % 2), 0),
    ]
    assert ends(driver, RESPONSE)[0] == (0, len(response), flags)
    is_kept = size <= HEAD_LIMIT + 1  # the last lines lie before the limit
    assert driver.messages[REQUEST][0].extras == (("h", None) if is_kept else (None, None))
    assert driver.messages[RESPONSE][0].extras == (("t", None, None) if is_kept else (None, None, None))
    assert (driver.errors, driver.gaps) == (0, 0)


def test_head_longer_than_what_is_captured_of_a_call_keeps_its_answer() -> None:
    data = wide(b"GET /w HTTP/1.1", 70_000, b"Host: h")
    driver = Driver(PROTOCOL)
    for at in range(0, 65536, 16384):
        driver.feed(REQUEST, data[at : at + 16384], 16384 if at < 49152 else len(data) - 49152)
    driver.feed(RESPONSE, EMPTY)
    driver.feed(REQUEST, GET % 2)
    driver.feed(RESPONSE, EMPTY)
    assert ends(driver, REQUEST) == [(0, len(data), TRUNCATED), (len(data), len(data) + len(GET % 2), 0)]
    assert [status["status"] for status in found(driver)[RESPONSE]] == [200, 200]
    assert (driver.errors, driver.gaps) == (0, 0)


def test_target_too_long_is_cut() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" + GET % 2)
    first, second = driver.messages[REQUEST]
    assert (first.position, first.end, first.flags) == (0, 40039, TRUNCATED)
    assert found(driver)[REQUEST][0]["resource"] == "/" + "a" * (HEAD_LIMIT - 5)
    assert (second.position, second.flags, driver.errors) == (40039, 0, 0)


def test_endless_head_is_refused() -> None:
    driver = Driver(PROTOCOL)
    driver.feed(REQUEST, GET[:-2] % 1)
    for _ in range(LONG_HEAD_LIMIT // 10000 + 2):
        driver.feed(REQUEST, b"X: %s\r\n" % (b"y" * 9995))
    assert (driver.errors, len(driver.messages[REQUEST])) == (1, 1)
    assert driver.buffers[REQUEST].held_bytes() < 70_000


def test_response_to_a_request_that_was_lost_has_no_end_that_is_guessed() -> None:
    """It may answer a HEAD: its length says nothing."""
    driver = Driver(PROTOCOL)
    driver.feed(RESPONSE, b"HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n")
    driver.feed(REQUEST, GET % 2)
    driver.feed(RESPONSE, EMPTY)
    assert ends(driver, RESPONSE) == [(0, 39, 0), (39, 39 + len(EMPTY), 0)]
    assert (driver.errors, driver.gaps) == (0, 0)
    driver = Driver(PROTOCOL)
    driver.feed(RESPONSE, b"HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n")
    for piece in (b"H", b"TTP is", b" what I read", b" about\r\n"):
        driver.feed(RESPONSE, piece)
    driver.feed(REQUEST, GET % 2)
    driver.feed(RESPONSE, EMPTY[:9])
    driver.feed(RESPONSE, EMPTY[9:])
    assert ends(driver, RESPONSE)[1:] == [(66, 66 + len(EMPTY), 0)]
