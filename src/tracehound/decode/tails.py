"""Texts in the tails of records: several pieces one after another, their sizes in the fixed part.

A piece is cut at its record's end, so wrong sizes give short texts, never another record's bytes. Bytes that are no
UTF-8 are shown as `\\xNN`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from tracehound.batch import Records


def tail_pieces(records: "Records", sizes: Sequence[str]) -> list[pa.Array]:
    """Return a large_binary array for each member of `sizes`, in the order in which the pieces lie in the tail."""
    offsets = np.asarray(records.offsets, np.int64)
    ends = [offsets[:-1]]
    for name in sizes:
        ends.append(np.minimum(ends[-1] + records.fixed[name].astype(np.int64), offsets[1:]))
    data = pa.py_buffer(records.tails)
    return [slices(data, start, end) for start, end in pairwise(ends)]


def slices(data: pa.Buffer, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> pa.Array:
    """Return the bytes from `start` to `end` of each row; the rows' slices ascend and do not overlap."""
    bounds = np.empty(2 * len(start) + 1, np.int64)
    bounds[:-1:2], bounds[1::2] = start, end
    bounds[-1] = end[-1] if len(end) else 0
    every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(start), [None, pa.py_buffer(bounds), data])
    return every.take(pa.array(np.arange(len(start), dtype=np.int64) * 2))


def to_text(binary: pa.Array) -> pa.Array:
    """Return bytes as a string array; empty ones are null."""
    try:
        texts = binary.cast(pa.string())
    except pa.ArrowInvalid:
        encoded = binary.dictionary_encode()
        words = [
            None if word is None else word.decode(errors="backslashreplace") for word in encoded.dictionary.to_pylist()
        ]
        texts = pa.array(words, pa.string()).take(encoded.indices)
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, pa.string()), texts)


def to_arguments(binary: pa.Array) -> pa.Array:
    """Return bytes of arguments, each with its NUL (the last one's may be cut off), as an array of list<string>."""
    joined: Any = to_text(binary)
    trimmed = pc.replace_substring_regex(joined, pattern="\\x00\\z", replacement="")
    split = pc.split_pattern(trimmed, pattern="\0").cast(pa.list_(pa.string()))
    return pc.if_else(pc.is_null(joined), pa.scalar([], pa.list_(pa.string())), split)
