"""The stream buffer: pieces in any order and of any kind in, the stream's bytes at their positions out."""

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import WAITING_PIECES, WINDOW_BYTES, StreamBuffer
from tracehound.protocols._protocol import CAPTURE_FRAMED

Piece = tuple[int, int, int]  # position, captured, size
STREAM = bytes(at * 7 % 251 for at in range(400))
SEEDED_STREAMS = 20_000


def filled(*pieces: tuple[int, bytes, int], begin: int = 0) -> StreamBuffer:
    buffer = StreamBuffer(begin)
    for position, piece, size in pieces:
        buffer.append(position, piece, size)
        buffer.settle()
    return buffer


def window(buffer: StreamBuffer) -> tuple[int, bytes, bool]:
    """What a parser sees: position, bytes, whether a hole follows."""
    return buffer.position, buffer.data[buffer.cursor :], buffer.cut


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        ([], (0, b"", False)),
        ([(0, b"abc", 3)], (0, b"abc", False)),
        ([(0, b"abc", 3), (3, b"de", 2)], (0, b"abcde", False)),
        ([(0, b"abc", 9)], (0, b"abc", True)),
        ([(0, b"abc", 9), (9, b"de", 2)], (0, b"abc", True)),
        ([(0, b"", 9)], (0, b"", True)),
        ([(3, b"de", 2)], (0, b"", False)),
        ([(3, b"de", 2), (0, b"abc", 3)], (0, b"abcde", False)),
        ([(5, b"fg", 2), (3, b"de", 2), (0, b"abc", 3)], (0, b"abcdefg", False)),
        ([(0, b"abc", 3), (0, b"abc", 3)], (0, b"abc", False)),
        ([(0, b"ab", 2), (0, b"abcd", 4)], (0, b"abcd", False)),
        ([(0, b"abcd", 4), (1, b"bc", 2)], (0, b"abcd", False)),
        ([(0, b"ab", 9), (0, b"abcdefghi", 9)], (0, b"abcdefghi", False)),
        ([(0, b"ab", 9), (4, b"ef", 2), (2, b"cd", 2)], (0, b"abcdef", True)),
    ],
)
def test_window(pieces: list[tuple[int, bytes, int]], seen: tuple[int, bytes, bool]) -> None:
    buffer = filled(*pieces)
    assert window(buffer) == seen
    assert buffer.end == max((position + size for position, _, size in pieces), default=0)
    assert (buffer.shed, buffer.lost, buffer.closed, buffer.capture) == (0, False, False, CAPTURE_FRAMED)


@pytest.mark.parametrize(
    ("skip", "pieces", "seen"),
    [
        (2, [(0, b"abcd", 4)], (2, b"cd", False)),
        (4, [(0, b"abcd", 4)], (4, b"", False)),
        (6, [(0, b"abcd", 4)], (6, b"", False)),
        (6, [(0, b"abcd", 4), (4, b"efgh", 4)], (6, b"gh", False)),
        (6, [(0, b"abcd", 4), (4, b"e", 4)], (6, b"", True)),
        (6, [(0, b"abcd", 4), (4, b"", 4), (8, b"ij", 2)], (6, b"", True)),
        (8, [(0, b"abcd", 4), (4, b"", 4), (8, b"ij", 2)], (8, b"ij", False)),
        (9, [(0, b"abcd", 4), (8, b"ij", 2)], (9, b"j", False)),
        (5, [(0, b"abcd", 4), (8, b"ij", 2)], (5, b"", False)),
        (100, [(0, b"abcd", 4), (4, b"", 90), (94, b"x" * 10, 10)], (100, b"x" * 4, False)),
    ],
)
def test_skip_goes_over_bytes_here_to_come_or_never_captured(
    skip: int, pieces: list[tuple[int, bytes, int]], seen: tuple[int, bytes, bool]
) -> None:
    buffer = StreamBuffer()
    buffer.append(*pieces[0])
    buffer.skip(skip)
    for piece in pieces[1:]:
        buffer.append(*piece)
    buffer.settle()
    assert window(buffer) == seen


def test_jump_goes_behind_holes() -> None:
    buffer = filled((0, b"abc", 5), (5, b"de", 4), (9, b"fg", 2))
    assert [buffer.jump(), window(buffer)] == [True, (5, b"de", True)]
    assert [buffer.jump(), window(buffer)] == [True, (9, b"fg", False)]
    assert [buffer.jump(), window(buffer)] == [False, (11, b"", False)]
    buffer.append(11, b"hi", 2)
    assert window(buffer) == (11, b"hi", False)


def test_leap_goes_behind_the_hole_and_no_farther() -> None:
    buffer = filled((0, b"abc", 5), (5, b"de", 2))
    buffer.leap()
    assert [buffer.settle(), window(buffer)] == [True, (5, b"de", False)]
    buffer = filled((0, b"abc", 5))
    buffer.leap()
    assert [buffer.settle(), window(buffer)] == [False, (5, b"", False)]
    buffer.leap()
    assert window(buffer) == (5, b"", False)


def test_lost_bytes_are_told_from_those_not_captured() -> None:
    buffer = filled((0, b"abc", 5), (7, b"de", 2))
    assert (buffer.cut, buffer.lost, buffer.is_waiting()) == (True, False, True)
    buffer.declare_lost()
    assert (buffer.cut, buffer.lost) == (True, True)
    assert [buffer.jump(), buffer.lost, window(buffer)] == [True, False, (7, b"de", False)]
    buffer = filled((0, b"abc", 3), (7, b"de", 2))
    assert (buffer.cut, buffer.is_waiting()) == (False, True)
    buffer.declare_lost()
    assert (buffer.cut, buffer.lost) == (True, True)
    buffer.append(3, b"defg", 4)
    buffer.settle()
    assert (buffer.cut, buffer.lost, window(buffer)) == (False, False, (0, b"abcdefgde", False))


def test_half_message_that_grows_too_long_becomes_a_hole() -> None:
    buffer = filled((0, b"-" + b"a" * WINDOW_BYTES, WINDOW_BYTES + 1))
    buffer.cursor = 1
    buffer.append(WINDOW_BYTES + 1, b"next", 4)
    assert (buffer.settle(), buffer.shed, window(buffer)) == (False, WINDOW_BYTES, (1, b"", True))
    assert [buffer.jump(), window(buffer)] == [True, (WINDOW_BYTES + 1, b"next", False)]
    buffer = filled((0, b"a", 1), (3, b"c" * (WINDOW_BYTES - 3), WINDOW_BYTES - 3), (1, b"bb", 2))
    assert (buffer.shed, window(buffer)[0], buffer.cut) == (0, 0, False)
    buffer = filled((0, b"a", 1), (3, b"c" * WINDOW_BYTES, WINDOW_BYTES), (1, b"bb", 2))
    assert (buffer.shed, window(buffer)) == (3, (0, b"", True))
    assert [buffer.jump(), window(buffer)] == [True, (3, b"c" * WINDOW_BYTES, False)]


def test_pieces_beyond_a_hole_are_bounded() -> None:
    buffer = StreamBuffer()
    for at in range(WAITING_PIECES + 3):
        buffer.append(10 + at * 2, b"x", 1)
    assert (buffer.shed, buffer.held_bytes()) == (3, WAITING_PIECES)
    assert (buffer.cut, buffer.lost) == (True, True)
    assert buffer.jump() and buffer.position == 16


def test_parser_reads() -> None:
    buffer = filled((0, b"key: value\r\nrest", 16))
    assert (buffer.peek(3), buffer.find(b": "), buffer.find(b"?")) == (b"key", 3, -1)
    assert (buffer.take_until(b"\r\n", 20), buffer.position) == (b"key: value", 12)
    assert (buffer.take(5), buffer.take(4), buffer.take(1)) == (None, b"rest", None)
    buffer.skip(100)
    assert (buffer.peek(3), buffer.find(b"r"), buffer.take(1), buffer.take_until(b"x", 1)) == (b"", -1, None, None)


@pytest.mark.parametrize("data", [b"longer than four", b"12345|", b"12345"])
def test_mark_that_does_not_come_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        filled((0, data, len(data))).take_until(b"|", 4)


def test_idle_buffer_is_small() -> None:
    buffer = StreamBuffer()
    buffer.append(0, b"a" * 16384, 16384)
    buffer.skip(16384)
    buffer.settle()
    size = sys.getsizeof(buffer) + sys.getsizeof(buffer.data) + sys.getsizeof(buffer._pieces)
    assert size < 400
    assert buffer.held_bytes() == 0


def read_all(pieces: list[Piece], reads: random.Random, is_final: bool) -> dict[int, int]:
    """Feed pieces of `STREAM`, read now and then; return every byte that was seen by its position."""
    buffer = StreamBuffer()
    seen: dict[int, int] = {}
    for position, captured, size in pieces:
        buffer.append(position, STREAM[position : position + captured], size)
        while buffer.cursor < len(buffer.data) or buffer.settle():
            size = reads.randint(1, 40)
            taken = buffer.peek(size)
            seen.update(enumerate(taken, buffer.position))
            buffer.skip(size if reads.random() < 0.3 else len(taken))
            if reads.random() < 0.3:
                break
        assert buffer.held_bytes() <= WINDOW_BYTES + WAITING_PIECES * 16384
    while is_final:
        seen.update(enumerate(buffer.data[buffer.cursor :], buffer.position))
        if not buffer.settle() and not buffer.jump():
            break
    return seen


@st.composite
def pieces_of_stream(draw: st.DrawFn) -> list[Piece]:
    """Pieces anywhere, in any order, captured in part, more than once."""
    pieces = []
    for _ in range(draw(st.integers(1, 30))):
        position = draw(st.integers(0, len(STREAM) - 1))
        size = draw(st.integers(0, min(80, len(STREAM) - position)))
        pieces.append((position, draw(st.integers(0, size)), size))
    return pieces


@settings(max_examples=20_000)
@given(pieces_of_stream(), st.integers(0, 1 << 32))
def test_bytes_seen_are_the_streams(pieces: list[Piece], seed: int) -> None:
    seen = read_all(pieces, random.Random(seed), True)
    assert all(STREAM[position] == byte for position, byte in seen.items())
    there = {at for position, captured, _ in pieces for at in range(position, position + captured)}
    assert seen.keys() <= there


def test_whole_stream_is_seen_however_it_is_cut_and_shuffled() -> None:
    """Pieces that lap over and come out of order by a little: all bytes are read, none twice with another value."""
    for seed in range(SEEDED_STREAMS):
        rolls = random.Random(seed)
        pieces, position = [], 0
        while position < len(STREAM):
            size = min(rolls.choice((1, 3, 20, 120)), len(STREAM) - position)
            start = max(position - rolls.choice((0, 0, 0, 7)), 0)
            pieces.append((start, position + size - start, position + size - start))
            position += size
        pieces.sort(key=lambda piece: piece[0] + rolls.choice((0, 0, 60)))
        buffer, got = StreamBuffer(), []
        for at, captured, size in pieces:
            buffer.append(at, STREAM[at : at + captured], size)
            while buffer.cursor < len(buffer.data) or buffer.settle():
                got.append(buffer.take(min(rolls.randint(1, 90), len(buffer.data) - buffer.cursor)) or b"")
        assert b"".join(got) == STREAM, seed
