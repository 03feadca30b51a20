"""`tracehound query`: its three formats, its errors, a terminal."""

import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.recording.rows import FACTS, SCHEMAS, requests

from tracehound.cli import main
from tracehound.cli.query import write_csv, write_json, write_table
from tracehound.recording import RecordingWriter, new_state_recording


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with RecordingWriter(tmp_path / "shop", SCHEMAS, FACTS) as recording:
        values = {"exchange": [b"\x01\xff" * 8, None], "status": [200, None], "tls": [True, None]}
        recording.append("requests", requests(0, 2, **values))
    return tmp_path / "shop"


QUERY = "select request, resource, status, exchange, tls, [1, 2] as l from requests order by request"


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        (
            "table",
            "request  resource   status  exchange                          tls   l\n"
            "      0  /orders/0     200  01ff01ff01ff01ff01ff01ff01ff01ff  true  [1, 2]\n"
            "      1  /orders/1                                                  [1, 2]\n",
        ),
        (
            "csv",
            "request,resource,status,exchange,tls,l\n"
            '0,/orders/0,200,01ff01ff01ff01ff01ff01ff01ff01ff,true,"[1, 2]"\n'
            '1,/orders/1,,,,"[1, 2]"\n',
        ),
        (
            "json",
            '{"request": 0, "resource": "/orders/0", "status": 200, "exchange": "01ff01ff01ff01ff01ff01ff01ff01ff", '
            '"tls": true, "l": [1, 2]}\n'
            '{"request": 1, "resource": "/orders/1", "status": null, "exchange": null, "tls": null, "l": [1, 2]}\n',
        ),
    ],
)
def test_formats(shop: Path, format_: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(shop), QUERY, "--format", format_]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (text, "")


def test_sql_from_standard_input(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("select count(*) as n\nfrom requests;\n"))
    assert main(["query", str(shop), "-"]) == 0
    assert capsys.readouterr().out == "n\n2\n"


def test_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert main(["query", "last", "select 1"]) == 2
    assert "Make one: tracehound run" in capsys.readouterr().err
    with RecordingWriter(new_state_recording().directory, SCHEMAS, FACTS) as recording:
        recording.append("requests", requests(0, 3))
        recording.flush()
        assert main(["query", "last", "select count(*) as n from requests"]) == 0, "while it is written"
    assert capsys.readouterr().out == "n\n3\n"


def test_a_mistake_in_sql_shows_its_place(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(shop), "select request\nfrm requests"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("tracehound: ") and "syntax error" in lines[0]
    assert lines[-2].startswith("LINE 2: frm") and lines[-1].strip(" ^") == ""


def test_a_damaged_file_is_said(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "requests" / "1.parquet").write_bytes(b"PAR1")
    assert main(["query", str(shop), "select count(*) as n from requests"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "n\n0\n"
    assert captured.err.startswith(f"tracehound: left out {shop / 'requests' / '1.parquet'}, which is damaged")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HINT = "(1 more columns: empty, or no room. Name…"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, [f"a  {'name':<40}  empty  c", f"1  {'x' * 40}         2"]),
        (41, [f"a  {'name':<35}  c", f"1  {'x' * 34}…  2", HINT]),
        (15, ["a  name", f"1  {'x' * 11}…", "(2 more column…"]),
    ],
)
def test_a_table_fits_its_terminal(width: int, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    empty = pa.array([None], pa.string())
    write_table(pa.table({"a": [1], "name": ["x" * 40], "empty": empty, "c": [2]}), stream)
    assert stream.getvalue().splitlines() == lines


def test_a_terminal_gets_nothing_that_it_would_obey() -> None:
    stream = Terminal()
    write_table(pa.table({"a\x1b": ["\x1b[2J\n"]}), stream)
    assert stream.getvalue() == "a\\x1b\n\\x1b[2J\\n\n"


def test_values_of_all_kinds() -> None:
    from datetime import timedelta
    from decimal import Decimal

    rows = pa.table(
        {
            "t": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC")),
            "d": pa.array([Decimal("1.50")]),
            "f": pa.array([float("nan")]),
            "i": pa.array([1.5]),
            "s": pa.array([{"a": b"\xff", "b": [None]}]),
            "x": pa.array([timedelta(seconds=1)]),
        }
    )
    stream = io.StringIO()
    write_json(rows, stream)
    found = json.loads(stream.getvalue())
    assert found == {
        "t": "2023-11-14 22:13:20.123456789Z", "d": "1.50", "f": None, "i": 1.5, "s": {"a": "ff", "b": [None]},
        "x": found["x"],
    }  # fmt: skip
    stream = io.StringIO()
    write_csv(rows.select(["t", "d", "f", "s"]), stream)
    assert stream.getvalue() == 't,d,f,s\n2023-11-14 22:13:20.123456789Z,1.50,nan,"{""a"": ""ff"", ""b"": [null]}"\n'


def test_no_rows() -> None:
    for write, text in ((write_table, "a  b\n"), (write_csv, "a,b\n"), (write_json, "")):
        stream = io.StringIO()
        write(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), stream)
        assert stream.getvalue() == text
