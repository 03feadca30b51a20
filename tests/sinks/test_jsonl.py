"""JSON lines: the same as a plain encoder gives, and outputs that are full or gone."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.rows import batch, shop

from tracehound.errors import SinkError
from tracehound.recording import Facts
from tracehound.sinks import Source, kind
from tracehound.sinks._encode import json_lines
from tracehound.tables import TABLES, arrow_schema

SOURCE = Source({name: arrow_schema(columns) for name, columns in TABLES.items()}, Facts("box", "4f1c", "0.1.0"))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()), ("cookie", pa.uint64()), ("pid", pa.int32()), ("comm", pa.string()),
        ("tls", pa.bool_()), ("exchange", pa.binary(16)), ("bytes", pa.binary()), ("argv", pa.list_(pa.string())),
    ]
)  # fmt: skip
VALUES = {
    "time_ns": INT64, "cookie": st.integers(0, (1 << 64) - 1), "pid": st.integers(0, 99), "comm": st.text(),
    "tls": st.booleans(), "exchange": st.binary(min_size=16, max_size=16), "bytes": st.binary(),
    "argv": st.lists(st.text()),
}  # fmt: skip
ROW = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in row.items() if value is not None}
    return {"table": table} | {n: value.hex() if isinstance(value, bytes) else value for n, value in values.items()}


@given(st.lists(ROW, min_size=1, max_size=8), st.integers(0, 7), st.integers(0, 8))
def test_each_row_is_what_a_plain_encoder_gives(rows: list[dict[str, Any]], start: int, length: int) -> None:
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    found = json_lines("requests", whole.slice(start, length))
    assert [json.loads(line) for line in found.split(b"\n")[:-1]] == [
        plain("requests", row) for row in rows[start : start + length]
    ]


def test_a_line_word_for_word() -> None:
    row = {"time_ns": 7, "wall_time": 1_700_000_000_123_456_789, "comm": 'a"\n\x1bé', "preexisting": True}
    row |= {"exchange": b"\xff" * 16}
    assert json_lines("requests", batch("requests", [row])).decode() == (
        '{"table":"requests","time_ns":7,"wall_time":"2023-11-14T22:13:20.123456789Z","comm":"a\\"\\n\\u001bé",'
        f'"preexisting":true,"exchange":"{"ff" * 16}"}}\n'
    )
    assert json_lines("requests", batch("requests", [])) == b""


def test_all_tables_go_to_the_file(tmp_path: Path) -> None:
    sink = kind("jsonl").open(str(tmp_path / "rows"), SOURCE)
    tables = shop()
    sink.write(tables | {"fact_process": tables["processes"]})
    sink.flush()
    found = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert {name: sum(row["table"] == name for row in found) for name in tables} == {
        name: rows.num_rows for name, rows in tables.items()
    }
    assert len(found) == sum(rows.num_rows for rows in tables.values())
    assert sink.take_losses() is None
    sink.close()
    sink.close()


def test_an_output_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"cannot write .*/no/rows: No such file"):
        kind("jsonl").open(str(tmp_path / "no" / "rows"), SOURCE)


def lost_with(path: str) -> list[tuple[str, str, int]]:
    sink = kind("jsonl").open(path, SOURCE)
    sink.write(shop())
    sink.write(shop())
    losses = sink.take_losses()
    assert losses is not None and sink.take_losses() is None
    sink.close()
    return [(row["stage"], row["counter"], row["count"]) for row in losses.to_pylist()]


def test_a_full_disk_is_counted() -> None:
    assert lost_with("/dev/full") == [("output", "disk_full", 2 * 1042)]


def test_a_reader_that_went_away_is_counted() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert lost_with(f"/dev/fd/{writing}") == [("output", "output_closed", 2 * 1042)]
    os.close(writing)
