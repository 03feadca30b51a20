"""`--where`: units, which rows pass, and the place of a mistake."""

from collections.abc import Mapping
from typing import Any

import pytest

from tracehound.errors import UsageError
from tracehound.sinks import WhereSink, where_rows
from tracehound.sinks._where import with_units
from tracehound.tables import TABLES, arrow_schema, build

SCHEMAS = {name: arrow_schema(columns) for name, columns in TABLES.items()}
REQUESTS: dict[str, list[Any]] = {
    "time_ns": [1, 2, 3],
    "status": [200, 500, None],
    "duration_ns": [60_000_000, 50_000_001, 10],
    "resource": ["/a", "/5 ms", "/c"],
}


class Kept:
    def __init__(self) -> None:
        self.rows: list[tuple[str, Any]] = []

    def write(self, tables: Mapping[str, Any]) -> None:
        for name, batch in tables.items():
            assert batch.schema == SCHEMAS[name]
            self.rows += [(name, row["time_ns"]) for row in batch.to_pylist()]

    def flush(self) -> None: ...
    def take_losses(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("duration_ns > 50ms and status >= 500", "duration_ns > 50000000 and status >= 500"),
        ("duration_ns > 1.5 s", "duration_ns > 1500000000"),
        ("a < 3us or b < 2 µs or c = 7ns", "a < 3000 or b < 2000 or c = 7"),
        ("response_bytes > 2kB and x < 1MB", "response_bytes > 2000 and x < 1000000"),
        ("resource = '5 ms' and status in (1, 2)", "resource = '5 ms' and status in (1, 2)"),
        ("status between 200 and 299 or status = 1 or x2s", "status between 200 and 299 or status = 1 or x2s"),
    ],
)
def test_units(expression: str, expected: str) -> None:
    assert with_units(expression) == expected


@pytest.mark.parametrize(
    ("expression", "passed"),
    [
        ("duration_ns > 50ms and status >= 500", [("requests", 2)]),
        ("duration_ns >= 60ms", [("requests", 1)]),
        ("status is null", [("requests", 3)]),
        ("resource = '/5 ms' -- a comment", [("requests", 2)]),
        ("time_ns > 2", [("connections", 9), ("requests", 3)]),
        ("event = 'error'", [("connections", 9)]),
    ],
)
def test_rows_that_pass(expression: str, passed: list[tuple[str, int]]) -> None:
    kept = Kept()
    sink = WhereSink(kept, where_rows(expression, SCHEMAS))
    tables = {
        "requests": build(TABLES["requests"], 3, REQUESTS),
        "connections": build(TABLES["connections"], 1, {"time_ns": [9], "event": ["error"]}),
    }
    sink.write(tables)
    sink.write(tables)
    assert sorted(kept.rows) == sorted(passed * 2)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("duration > 50ms", r"--where: .*duration.*\n.*\n?duration > 50000000"),
        ("status >", "--where: .*syntax error"),
        ("duration_ns > 5 minutes", "--where: no unit minutes in '5 minutes'. There are: ns, us"),
        ("1=1) union select * from read_text('/etc/passwd') where (1=1", "--where: .*"),
    ],
)
def test_a_mistake_is_told_with_its_place(expression: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){said}"):
        where_rows(expression, SCHEMAS)
