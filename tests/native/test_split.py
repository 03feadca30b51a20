"""Splitting raw records: right for whole ones, within bounds for any bytes."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.rings import HEADER, KINDS, guarded_pages, record

from tracehound.batch import Batch, split
from tracehound.btf import wire_layout

LAYOUT = wire_layout()
NAMES = LAYOUT.kinds


def split_slowly(raw: bytes) -> tuple[dict[str, list[tuple[bytes, bytes]]], int]:
    """Return (fixed part, tail) of each record by kind, and how many were left out: the same by other means."""
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    damaged = at = 0
    while at < len(raw):
        size, kind = HEADER.unpack_from(raw, at)[3:5] if len(raw) - at >= HEADER.size else (0, 0)
        if not HEADER.size <= size <= len(raw) - at:
            return found, damaged + 1
        name = NAMES.get(kind)
        fixed = LAYOUT.dtypes[name].itemsize if name else 0
        tailed = name is not None and LAYOUT.btf.has_tail(f"{name}_record")
        if name is None or size < fixed or (size > fixed and not tailed):
            damaged += 1
        else:
            found.setdefault(name, []).append((raw[at : at + fixed], raw[at + fixed : at + size]))
        at += size + -size % 8
    return found, damaged


def pairs(batch: Batch) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return (fixed part, tail) of each record by kind."""
    return {
        name: [(one.fixed[i].tobytes(), one.tails[one.offsets[i] : one.offsets[i + 1]]) for i in range(len(one.fixed))]
        for name, one in batch.records.items()
    }


def test_sorts_records_by_kind_with_their_tails() -> None:
    raw = b"".join(
        [
            record("data", 1, b"abc", ring_seq=0),
            record("fork", 2, ring_seq=5),
            record("data", 3, b"", ring_seq=1),
            record("fact_tick", 4),
            record("data", 5, b"0123456789", cpu=1, ring_seq=2),
        ]
    )
    batch = split(raw, LAYOUT)
    data, fork = batch.records["data"], batch.records["fork"]
    assert list(batch.records) == ["fork", "data", "fact_tick"]
    assert data.fixed.dtype == LAYOUT.dtypes["data"]
    assert data.fixed["time_ns"].tolist() == [1, 3, 5]
    assert data.fixed["ring_seq"].tolist() == [0, 1, 2]
    assert data.fixed["cpu"].tolist() == [0, 0, 1]
    assert data.offsets.tolist() == [0, 3, 3, 13]
    assert data.tails == b"abc0123456789"
    assert (fork.fixed["time_ns"].tolist(), fork.offsets.tolist(), fork.tails) == ([2], [0, 0], b"")
    assert batch.damaged == 0
    assert batch.rows_before_tick is not None
    assert batch.rows_before_tick[:, list(NAMES.values()).index("data")].tolist() == [2]


WHOLE = record("data", 1, b"abc")


@pytest.mark.parametrize(
    ("raw", "records", "damaged"),
    [
        (b"", 0, 0),
        (WHOLE, 1, 0),
        (WHOLE[:-1], 1, 0),  # the last record's padding may lack
        (WHOLE + b"\0" * 8, 1, 1),
        (WHOLE + WHOLE[:40], 1, 1),
        (WHOLE[:31], 0, 1),
        (record("data", size=31) + WHOLE, 0, 1),  # what follows cannot be found
        (record("data", size=1 << 20) + WHOLE, 0, 1),
        (record("data", size=0xFFFFFFFF) + WHOLE, 0, 1),
        (record("data", size=0) + WHOLE, 0, 1),
        (record(0x2FF) + WHOLE, 1, 1),  # unknown kind: skipped by its size
        (record(0) + record(0xFFFF) + WHOLE, 1, 2),
        (record(KINDS["data"]) + WHOLE, 1, 1),  # shorter than the kind's fixed part
        (record("fact_tick", tail=b"12345678") + WHOLE, 1, 1),  # a tail where none can be
    ],
)
def test_damage_is_counted_and_what_can_be_read_is_read(raw: bytes, records: int, damaged: int) -> None:
    batch = split(raw, LAYOUT)
    assert (sum(len(one) for one in batch.records.values()), batch.damaged) == (records, damaged)


GUARDED = guarded_pages(1)
PIECE = st.one_of(
    st.builds(
        lambda kind, tail, cut: record(kind, tail=tail)[: None if cut is None else cut],
        st.sampled_from(["data", "exec", "fork", "fact_tick", 0, 0x2FF, 0x301]),
        st.binary(max_size=40),
        st.one_of(st.none(), st.integers(0, 100)),
    ),
    st.builds(
        lambda size, kind: struct.pack("<QIIIHHQ", 0, 0, 0, size, kind, 0, 0),
        st.one_of(st.integers(0, 300), st.integers(0, (1 << 32) - 1)),
        st.sampled_from([*KINDS.values(), 0, 0xFFFF]),
    ),
    st.binary(max_size=64),
)


@settings(max_examples=15_000)
@given(pieces=st.lists(PIECE, max_size=12))
def test_any_bytes_are_split_within_bounds(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    guarded = GUARDED[len(GUARDED) - len(raw) :]
    guarded[:] = np.frombuffer(raw, np.uint8)
    found, damaged = split_slowly(raw)
    batch = split(guarded, LAYOUT)
    assert pairs(batch) == found
    assert batch.damaged == damaged
