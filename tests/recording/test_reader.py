"""Reading a recording: tables, SQL, what SQL may not do, damage."""

import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.recording.rows import FACTS, SCHEMAS, listens, requests

from tracehound.errors import QueryError, RecordingError, TargetError
from tracehound.recording import Recording, RecordingWriter, writer


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Return a recording of three requests in Parquet, two not yet in it, and one listen."""
    directory = tmp_path / "shop"
    recording = RecordingWriter(directory, SCHEMAS, FACTS)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "PART_SECONDS", -1.0)
        recording.append(
            "requests", requests(0, 3, exchange=[b"\x01" * 16] * 3, wall_time=[1_700_000_000_123_456_789] * 3)
        )
        recording.flush()
    recording._wait()
    recording.append("requests", requests(3, 2))
    recording.append("listens", listens(0, 1))
    recording.flush()
    return Recording(directory)


def test_all_tables_are_there_and_typed_also_when_empty(recording: Recording) -> None:
    assert recording.tables == tuple(SCHEMAS)
    for name, schema in SCHEMAS.items():
        assert recording.schema(name).equals(schema)
        assert recording.table(name).schema.equals(schema)
        assert recording.sql(f"select * from {name}").num_columns == len(schema)
    assert recording.table("requests")["request"].to_pylist() == [0, 1, 2, 3, 4]
    assert recording.table("files").num_rows == 0


def test_an_unknown_table_is_told_with_those_there_are(recording: Recording) -> None:
    with pytest.raises(TargetError, match=r"no table request\. Tables: processes, connections"):
        recording.table("request")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) as n, sum(request) as s from requests", [{"n": 5, "s": 10}]),
        ("select request from requests where resource = '/orders/4'", [{"request": 4}]),
        ("select max(request) - min(request) as span from requests", [{"span": 4}]),
        ("select hex(exchange) as e from requests where request = 0", [{"e": "01" * 16}]),
        ("select wall_time::varchar as w from requests where request = 0", [{"w": "2023-11-14 22:13:20.123456789+00"}]),
        ("select count(*) as n from requests r join listens l on l.time_ns = r.time_ns", [{"n": 1}]),
        ("with r as (from requests) select count(*) as n from r limit 1", [{"n": 5}]),
        ("select event from listens", [{"event": "open"}]),
        ("select count(*) as n from files", [{"n": 0}]),
        ("select time_ns - 1 as before from requests where request = 0;", [{"before": -1}]),
    ],
)
def test_sql(recording: Recording, query: str, rows: list[dict[str, object]]) -> None:
    assert recording.sql(query).to_pylist() == rows


def test_what_there_is_can_be_asked_for(recording: Recording) -> None:
    assert set(recording.sql("show tables")["name"].to_pylist()) == set(SCHEMAS)
    assert recording.sql("describe requests")["column_name"].to_pylist() == SCHEMAS["requests"].names
    assert recording.sql("explain select * from requests").num_rows >= 1
    assert recording.sql("pivot listens on event using count(*)").num_rows >= 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selec 1", r'syntax error at or near "selec"\nLINE 1: selec 1\n        \^'),
        (
            "select\n  durations\nfrom requests",
            r'"durations" not found.*\n.*duration_ns.*\nLINE 2:   durations\n          \^',
        ),
        ("select * from request", r'request does not exist!\nDid you mean "requests"\?\nLINE 1: .*\n +\^'),
        ("select ('x' || request)::int from requests", "Could not convert string"),
        ("", "one SQL statement is needed, 0 were given"),
        ("select 1; select 2", "one SQL statement is needed, 2 were given"),
    ],
)
def test_a_mistake_in_sql_shows_its_place(recording: Recording, query: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        recording.sql(query)


secret = [{"a": 1}]  # a Python variable that SQL must not see


@pytest.mark.parametrize(
    "query",
    [
        "copy requests to '{folder}/out.csv'",
        "copy requests to '{folder}/shop/requests/9.parquet'",
        "copy (select 1) to '{folder}/out.parquet' (format parquet)",
        "attach '{folder}/other.db'",
        "attach ':memory:' as other",
        "export database '{folder}/all'",
        "import database '{folder}/all'",
        "create table mine as select 1",
        "create view mine as select 1",
        "insert into requests select * from requests",
        "delete from requests",
        "drop view requests",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "reset temp_directory",
        "pragma enable_profiling",
        "create persistent secret s (type http)",
        "call force_checkpoint()",
        "prepare p as select 1",
        "explain analyze copy requests to '{folder}/out.csv'",
        "select * from read_csv('{folder}/private.csv')",
        "select * from '{folder}/private.csv'",
        "select * from read_text('{folder}/private.csv')",
        "select * from read_blob('/proc/self/environ')",
        "select * from glob('{folder}/*')",
        "select * from read_parquet('{folder}/shop/requests/1.parquet')",
        "select * from read_json('{folder}/private.csv')",
        "select * from query('copy requests to ''{folder}/out.csv''')",
        "select * from 'https://127.0.0.1:9/x.csv'",
        "select * from secret",
        "select getenv('HOME')",
    ],
)
def test_sql_reads_the_tables_and_nothing_else(recording: Recording, tmp_path: Path, query: str) -> None:
    (tmp_path / "private.csv").write_text("a,b\n1,2\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(QueryError):
        recording.sql(query.format(folder=tmp_path))
    assert sorted(tmp_path.rglob("*")) == before
    assert recording.sql("select count(*) as n from requests").to_pylist() == [{"n": 5}]


def test_a_query_writes_no_file_for_what_does_not_fit_in_memory(recording: Recording) -> None:
    assert recording.sql("select value from duckdb_settings() where name = 'temp_directory'").to_pylist() == [
        {"value": ""}
    ]


def test_a_damaged_file_is_left_out_and_named(recording: Recording) -> None:
    path = recording.directory / "requests" / "1.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    fresh = Recording(recording.directory)
    assert fresh.table("requests")["request"].to_pylist() == [3, 4]
    assert fresh.sql("select count(*) as n from requests").to_pylist() == [{"n": 2}]
    assert list(fresh.damaged) == [path]


def test_a_folder_that_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot read .*manifest\.json: No such file"):
        Recording(tmp_path)


def test_a_query_begun_before_files_were_joined_is_run_again(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracehound.recording import sql

    real, calls = sql.run_query, []

    def run_query(query: str, sources: dict[str, object]) -> pa.Table:
        calls.append(query)
        if len(calls) == 1:  # as the writer does at its end: the wider file first, then the small one goes
            folder = recording.directory / "requests"
            os.link(folder / "1.parquet", folder / "1-1.parquet")
            (folder / "1.parquet").unlink()
            (folder / "1-1.parquet").rename(folder / "1.parquet.gone")
            (folder / "1.parquet.gone").rename(folder / "0-1.parquet")
        return real(query, sources)

    monkeypatch.setattr(sql, "run_query", run_query)
    assert recording.sql("select sum(request) as s from requests").to_pylist() == [{"s": 10}]
    assert len(calls) == 2


def test_rows_written_by_another_thread_are_seen(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as writing:
        stop = threading.Event()

        def write() -> None:
            first = 0
            while not stop.is_set():
                writing.append("requests", requests(first, 5))
                writing.flush()
                first += 5

        thread = threading.Thread(target=write)
        thread.start()
        reading = Recording(tmp_path)
        seen = []
        end = time.monotonic() + 1
        while time.monotonic() < end:
            [row] = reading.sql("select count(*) as n, count(distinct request) as d from requests").to_pylist()
            assert row["n"] == row["d"]
            seen.append(row["n"])
        stop.set()
        thread.join()
    assert seen == sorted(seen) and seen[-1] > seen[0]
