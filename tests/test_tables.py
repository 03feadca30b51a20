"""The schemas of the tables and `tables.build`: types, nulls, casts, and what is refused."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from tracehound.tables import FRAME, TABLES, TYPES, Column, arrow_schema, build, requests_columns

COLUMNS = (
    Column("time_ns", "int64", ""),
    Column("pid", "int32", ""),
    Column("cookie", "uint64", ""),
    Column("comm", "string", ""),
    Column("preexisting", "bool", ""),
    Column("wall_time", "timestamp", ""),
    Column("exchange", "exchange", ""),
    Column("argv", "strings", ""),
    Column("bytes", "binary", ""),
    Column("args", "arguments", ""),
    Column("registers", "registers", ""),
    Column("frames", "frames", ""),
)
SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("pid", pa.int32()),
        ("cookie", pa.uint64()),
        ("comm", pa.string()),
        ("preexisting", pa.bool_()),
        ("wall_time", pa.timestamp("ns", "UTC")),
        ("exchange", pa.binary(16)),
        ("argv", pa.list_(pa.string())),
        ("bytes", pa.binary()),
        ("args", pa.list_(pa.struct([(name, pa.string()) for name in ("name", "type", "value")]))),
        ("registers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.int64())]))),
        ("frames", pa.list_(pa.struct(FRAME))),
    ]
)


def test_columns_become_the_arrow_types_of_the_contract() -> None:
    assert arrow_schema(COLUMNS) == SCHEMA
    assert {column.type for column in COLUMNS} == set(TYPES)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_schema_and_says_what_its_columns_hold(table: str) -> None:
    columns = TABLES[table]
    schema = arrow_schema(columns)
    assert len(set(schema.names)) == len(schema.names)
    if table != "stacks":  # a stack is no event: the calls that had it have a time
        assert schema.names[:2] == ["time_ns", "wall_time"]
    assert [column.name for column in columns if not column.doc] == []


@pytest.mark.parametrize("table", TABLES)
def test_units_are_in_the_names_and_every_time_is_a_signed_64_bit_number(table: str) -> None:
    for column in TABLES[table]:
        if column.name.endswith(("_ns", "_us", "_bytes", "_position")):
            assert column.type == "int64", column.name
        if column.name in ("pid", "tid", "ns_pid", "ppid") or column.name.endswith("_port"):
            assert column.type == "int32", column.name


def test_build_takes_sequences_numpy_and_arrow_and_fills_in_nulls() -> None:
    batch = build(
        COLUMNS,
        2,
        {
            "time_ns": np.array([1, 2], "u8"),
            "pid": [7, None],
            "cookie": np.array([1, 2**64 - 1], "u8"),
            "comm": pa.array(["sh", None]).dictionary_encode(),
            "preexisting": np.array([True, False]),
            "exchange": [b"0123456789abcdef", None],
            "argv": [["sh", "-c"], []],
        },
    )
    assert batch.schema == SCHEMA
    assert batch.to_pydict() == {
        "time_ns": [1, 2],
        "pid": [7, None],
        "cookie": [1, 2**64 - 1],
        "comm": ["sh", None],
        "preexisting": [True, False],
        "wall_time": [None, None],
        "exchange": [b"0123456789abcdef", None],
        "argv": [["sh", "-c"], []],
        "bytes": [None, None],
        "args": [None, None],
        "registers": [None, None],
        "frames": [None, None],
    }


def test_build_takes_a_numpy_mask() -> None:
    masked = np.ma.masked_array(np.array([5, 6], "i4"), mask=[False, True])
    assert build(COLUMNS, 2, {"pid": masked})["pid"].to_pylist() == [5, None]


def test_build_makes_an_empty_batch_with_every_column() -> None:
    batch = build(COLUMNS, 0, {"time_ns": np.array([], "i8"), "comm": []})
    assert batch.schema == SCHEMA and batch.num_rows == 0


@pytest.mark.parametrize(
    ("rows", "values", "error"),
    [
        (1, {"tiem_ns": [1]}, "no such columns: tiem_ns"),
        (2, {"time_ns": [1, 2], "pid": [1]}, "length"),
        (1, {"pid": [2**31]}, "not in range|too large|bounds"),
        (1, {"pid": pa.array([2**31])}, "not in range|too large|bounds"),
        (1, {"exchange": [b"short"]}, "16"),
    ],
)
def test_build_refuses_what_does_not_fit(rows: int, values: dict[str, object], error: str) -> None:
    with pytest.raises((ValueError, OverflowError), match=error):
        build(COLUMNS, rows, values)


def test_columns_of_protocols_are_added_once_and_must_agree() -> None:
    host = Column("http_host", "string", "")
    columns = requests_columns([host, Column("http_version", "string", ""), host])
    assert columns[: len(TABLES["requests"])] == TABLES["requests"]
    assert [column.name for column in columns[len(TABLES["requests"]) :]] == ["http_host", "http_version"]
    with pytest.raises(ValueError, match="http_host is string and int64"):
        requests_columns([host, Column("http_host", "int64", "")])
    with pytest.raises(ValueError, match="status is int32 and string"):
        requests_columns([Column("status", "string", "")])


def test_importing_the_schemas_does_not_load_pyarrow() -> None:
    code = "import sys, tracehound.tables; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
