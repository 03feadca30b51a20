"""Pieces of tails: sizes and bytes in, texts out."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.batches import batch, one

from tracehound.decode.tails import tail_pieces, to_arguments, to_text


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9))
def test_pieces_never_leave_their_record(records: list[tuple[bytes, int, int]]) -> None:
    made = batch(one("exec", at, tail, exe_size=exe, argv_size=argv) for at, (tail, exe, argv) in enumerate(records))
    exes, argvs = tail_pieces(made.records["exec"], ("exe_size", "argv_size"))
    assert exes.to_pylist() == [tail[:exe] for tail, exe, _ in records]
    assert argvs.to_pylist() == [tail[exe : exe + argv] for tail, exe, argv in records]


@pytest.mark.parametrize(
    ("raw", "text", "arguments"),
    [
        (b"", None, []),
        (b"a\0", "a\0", ["a"]),
        (b"a\0b c\0", "a\0b c\0", ["a", "b c"]),
        (b"a\0cut", "a\0cut", ["a", "cut"]),
        (b"a\0\0", "a\0\0", ["a", ""]),
        (b"\0", "\0", [""]),
        ("é\0".encode(), "é\0", ["é"]),
        (b"\xff\0\xc3", "\\xff\0\\xc3", ["\\xff", "\\xc3"]),
    ],
)
def test_texts(raw: bytes, text: str | None, arguments: list[str]) -> None:
    column = pa.array([raw, b"x"], pa.large_binary())
    assert to_text(column).to_pylist() == [text, "x"]
    assert to_arguments(column).to_pylist() == [arguments, ["x"]]


def test_no_rows() -> None:
    empty = pa.array([], pa.large_binary())
    assert (len(to_text(empty)), len(to_arguments(empty))) == (0, 0)
    assert np.asarray(to_arguments(empty).offsets).tolist() in ([], [0])
