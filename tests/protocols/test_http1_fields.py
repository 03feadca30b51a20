"""Field lines: what is read of them, and that no secret stays in a memo."""

import pytest

from tracehound.protocols import _http1_fields as fields
from tracehound.protocols._http1_fields import (
    ABSENT,
    BAD,
    BLOCK_LIMIT,
    CHUNKED,
    IDENTITY,
    MEMO_LINES,
    OTHER,
    Head,
    LastBlock,
)


def read(block: bytes) -> Head:
    head = Head()
    fields.note_block(head, block)
    return head


@pytest.mark.parametrize(
    ("block", "length", "coding"),
    [
        (b"", ABSENT, IDENTITY),
        (b"Content-Length: 5\r\n", 5, IDENTITY),
        (b"content-length:5", 5, IDENTITY),
        (b"Content-Length : 5\r\n", 5, IDENTITY),
        (b"Content-Length: 5, 5\r\nContent-Length: 5\r\n", 5, IDENTITY),
        (b"Content-Length: 5, 6\r\n", BAD, IDENTITY),
        (b"Content-Length: 5\r\nContent-Length: 6\r\nContent-Length: 5\r\n", BAD, IDENTITY),
        (b"Content-Length: -5\r\n", BAD, IDENTITY),
        (b"Content-Length: +5\r\n", BAD, IDENTITY),
        (b"Content-Length: 0x5\r\n", BAD, IDENTITY),
        (b"Content-Length: \xb2\r\n", BAD, IDENTITY),
        (b"Content-Length:\r\n", BAD, IDENTITY),
        (b"Content-Length: 9999999999999999999999\r\n", BAD, IDENTITY),
        (b"Content-Length: 99999999999999\r\n", BAD, IDENTITY),
        (b"Transfer-Encoding: chunked\r\n", ABSENT, CHUNKED),
        (b"Transfer-Encoding: gzip ,\tCHUNKED \r\n", ABSENT, CHUNKED),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", ABSENT, CHUNKED),
        (b"Transfer-Encoding: chunked, gzip\r\n", ABSENT, OTHER),
        (b"Transfer-Encoding: identity\r\n", ABSENT, IDENTITY),
        (b"Transfer-Encoding:\r\n\tchunked\r\n", ABSENT, CHUNKED),
        (b"A: b\nTransfer-Encoding: chunked\nContent-Length: 1\n", 1, CHUNKED),
    ],
)
def test_framing(block: bytes, length: int, coding: int) -> None:
    for _ in range(2):  # from the line, then from the memo
        head = read(block)
        assert (head.length, head.coding) == (length, coding)


SECRETS = (
    b"Cookie: geheim=1",
    b"SET-COOKIE: geheim=1; Path=/",
    b"Authorization: Basic geheim",
    b"proxy-authorization: geheim",
    b"X-Api-Key: geheim",
    b"X-Amz-Security-Token: geheim",
    b"X-Auth: geheim",
    b"X-Session-Id: geheim",
    b"Cookie : geheim",
    b"Cookie:\r\n geheim",
    b"Cookie: a\n\tgeheim",
)


@pytest.mark.parametrize("line", SECRETS)
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_no_secret_is_remembered(line: bytes, end: bytes) -> None:
    last = LastBlock()
    block = b"Host: h" + end + line + end + b"User-Agent: a" + end
    for _ in range(2):
        assert last.read(block).request_extras == ("h", "a")
        kept = [*fields._dull, *fields._known, *fields._names, last.block or b""]
        assert not [text for text in kept if b"geheim" in text]


@pytest.mark.parametrize("line", [b" geheim: a", b"\tgeheim", b"geheim", b": geheim"])
def test_line_that_continues_nothing_is_not_remembered(line: bytes) -> None:
    assert LastBlock().read(line + b"\r\nHost: h\r\n").request_extras == ("h", None)
    assert not [text for text in (*fields._dull, *fields._known, *fields._names) if b"geheim" in text]


def test_same_block_is_read_once() -> None:
    last = LastBlock()
    block = b"Host: h\r\nAccept: */*\r\n"
    assert last.read(block) is last.read(b"Host: h\r\n" + b"Accept: */*\r\n")
    assert last.read(b"Host: other\r\n").host == "other"
    last.read(b"Host: h\r\nX: %s\r\n" % (b"x" * BLOCK_LIMIT))
    assert last.block is None


@pytest.mark.parametrize(
    ("block", "rest", "trace"),
    [
        (b"A: b\r\ntraceparent: 00-1\r\nC: d\r\n", b"A: b\r\nC: d\r\n", b"00-1"),
        (b"Traceparent:00-1\r\n", b"", b"00-1"),
        (b"A: b\ntraceparent: 00-1 \n", b"A: b\n", b"00-1"),
        (b"A: traceparent: 00-1\r\n", b"A: traceparent: 00-1\r\n", None),
        (b"x-traceparent: 00-1\r\n", b"x-traceparent: 00-1\r\n", None),
        (b"raceparent: 00-1\r\n", b"raceparent: 00-1\r\n", None),
        (b"TRACEPARENT: 00-1\r\n", b"TRACEPARENT: 00-1\r\n", None),
    ],
)
def test_traceparent_is_cut_out(block: bytes, rest: bytes, trace: bytes | None) -> None:
    assert fields.cut_traceparent(block) == (rest, trace)


def test_memo_is_bounded() -> None:
    for at in range(3 * MEMO_LINES):
        read(b"ETag: %d\r\nHost: h%d\r\n" % (at, at))
        assert len(fields._dull) + len(fields._known) <= MEMO_LINES + 1
    for at in range(3 * fields.MEMO_NAMES):
        read(b"X-%d: a\r\n%s: b\r\n" % (at, b"n" * 100))
        assert len(fields._names) <= fields.MEMO_NAMES
    read(b"X: %s\r\n" % (b"long" * 100))
    assert all(len(line) <= fields.MEMO_LINE_LIMIT for line in (*fields._dull, *fields._known))
