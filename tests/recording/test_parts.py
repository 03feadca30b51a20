"""Which files of a table count, and Arrow streams that end anywhere."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracehound.recording.parts import batch_message, choose, list_parts, read_stream, schema_message, whole_batches

SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("name", pa.string()),
        ("exchange", pa.binary(16)),
        ("argv", pa.list_(pa.string())),
        ("tls", pa.bool_()),
        ("wall_time", pa.timestamp("ns", "UTC")),
    ]
)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROW = st.fixed_dictionaries(
    {
        "time_ns": st.none() | INT64,
        "name": st.none() | st.text(max_size=6),
        "exchange": st.none() | st.binary(min_size=16, max_size=16),
        "argv": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "tls": st.none() | st.booleans(),
        "wall_time": st.none() | INT64,
    }
)
BATCHES = st.lists(st.lists(ROW, max_size=5), min_size=1, max_size=3)
SEED = st.integers(0, 1 << 32)
CASES = 25  # of hypothesis; each is tried in CUTS and in FLIPS ways
CUTS = 2000
FLIPS = 2000


def batch_of(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[column.name] for row in rows], column.type) for column in SCHEMA], schema=SCHEMA
    )


def stream_of(batches: list[pa.RecordBatch]) -> tuple[bytes, list[int]]:
    """Return an Arrow stream and where each of its batches ends."""
    stream = bytes(schema_message(SCHEMA))
    ends = []
    for batch in batches:
        stream += batch_message(batch)
        ends.append(len(stream))
    return stream, ends


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], []),
        (["1.parquet", "2.arrows"], ["1.parquet", "2.arrows"]),
        (["10.parquet", "9.parquet"], ["9.parquet", "10.parquet"]),
        (["1.arrows", "1.parquet"], ["1.parquet"]),
        (["1.parquet", "2.parquet", "1-2.parquet", "3.parquet"], ["1-2.parquet", "3.parquet"]),
        (["2.parquet", "3.parquet", "2-3.parquet", "1.parquet"], ["1.parquet", "2-3.parquet"]),
        (["3.arrows", "1-3.parquet", "4.arrows"], ["1-3.parquet", "4.arrows"]),
        ([".1.parquet.tmp", "notes.txt", "1.parquet.bak", "x.parquet", "1.PARQUET"], []),
    ],
)
def test_the_files_that_count(names: list[str], chosen: list[str]) -> None:
    assert [part.name for part in choose(names)] == chosen


def test_a_folder_that_is_not_there_has_no_parts(tmp_path: Path) -> None:
    assert list_parts(tmp_path / "requests") == []
    (tmp_path / "1.arrows").touch()
    assert [part.name for part in list_parts(tmp_path)] == ["1.arrows"]


@settings(max_examples=CASES)
@given(BATCHES, SEED)
def test_a_stream_cut_at_any_byte_gives_the_whole_batches_before_it(
    rows: list[list[dict[str, object]]], seed: int
) -> None:
    batches = [batch_of(some) for some in rows]
    stream, ends = stream_of(batches)
    random_ = random.Random(seed)
    for _ in range(CUTS):
        cut = random_.randrange(len(stream) + 1)
        whole = sum(end <= cut for end in ends)
        assert whole_batches(stream[:cut], SCHEMA) == batches[:whole]
    for cut in {0, 1, len(stream) - 1, len(stream), *ends, *(end - 1 for end in ends)}:
        assert len(whole_batches(stream[:cut], SCHEMA)) == sum(end <= cut for end in ends)


@settings(max_examples=CASES)
@given(BATCHES, SEED)
def test_damaged_bytes_never_raise_and_what_is_read_can_be_used(rows: list[list[dict[str, object]]], seed: int) -> None:
    stream, _ = stream_of([batch_of(some) for some in rows])
    random_ = random.Random(seed)
    for _ in range(FLIPS):
        damaged = bytearray(stream)
        for _ in range(random_.randint(1, 4)):
            damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        for batch in whole_batches(bytes(damaged), SCHEMA):
            assert batch.schema.equals(SCHEMA)
            batch.validate(full=True)


def test_pages_that_a_power_loss_left_zero_are_cut_off(tmp_path: Path) -> None:
    batches = [batch_of([dict.fromkeys(SCHEMA.names)])] * 2
    stream, ends = stream_of(batches)
    path = tmp_path / "1.arrows"
    path.write_bytes(stream[: ends[0]] + bytes(4096))
    assert read_stream(path, SCHEMA) == batches[:1]


def test_rows_of_another_schema_are_not_taken_for_ours() -> None:
    stream, _ = stream_of([batch_of([])])
    assert whole_batches(stream, pa.schema([("time_ns", pa.int64())])) == []


def test_a_stream_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_stream(tmp_path / "1.arrows", SCHEMA)
