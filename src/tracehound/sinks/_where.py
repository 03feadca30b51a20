"""`--where`: an SQL expression over the columns of a row, with units, that decides which rows an output gets.

Numbers may have a unit: ns, us, ms, s (to nanoseconds), B, kB, MB, GB (to bytes, by thousands). A table that lacks a
column of the expression has no rows that pass. Source: DuckDB, locked as for queries of recordings.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import QueryError, UsageError
from tracehound.recording.sql import locked_connection, query_on

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.sinks._sink import Sink

UNITS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9,
}  # fmt: skip
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(?<![\w.])(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\b")
_KEYWORDS: Final = frozenset({"and", "or", "is", "in", "like", "between", "not", "then", "else", "end", "when"})
_BEFORE: Final = "select * from found where ("


def with_units(expression: str) -> str:
    """Return the expression with numbers instead of quantities; raises UsageError for a unit that there is not."""

    def number(match: re.Match[str]) -> str:
        if match[2] is None or match[2].lower() in _KEYWORDS:
            return match[0]
        if match[2] not in UNITS:
            raise UsageError(f"--where: no unit {match[2]} in {match[0]!r}. There are: {', '.join(UNITS)}")
        scaled = float(match[1]) * UNITS[match[2]]
        return str(int(scaled)) if scaled == int(scaled) else repr(scaled)

    return _TOKEN.sub(number, expression)


class Where:
    """Which rows pass, by table."""

    def __init__(self, expression: str, schemas: "Mapping[str, pa.Schema]") -> None:
        """Check the expression on every table; raises UsageError, with the place, if it holds for none."""
        self._query = f"{_BEFORE}{with_units(expression)}\n)"
        self._tables = set[str]()
        self._connection = locked_connection({})
        refused: dict[str, str] = {}
        for name, schema in schemas.items():
            try:
                self._run(schema.empty_table())
                self._tables.add(name)
            except QueryError as error:
                refused[name] = str(error)
        if not self._tables:
            raise UsageError(f"--where: {_placed(refused['requests'])}")

    def filter(self, tables: "Mapping[str, pa.RecordBatch]") -> "dict[str, pa.RecordBatch]":
        """Return the rows that pass, of the tables that have any."""
        import pyarrow as pa

        passed: dict[str, Any] = {}
        for name in tables.keys() & self._tables:
            found = self._run(pa.Table.from_batches([tables[name]]))
            if found.num_rows:
                passed[name] = found.cast(tables[name].schema).combine_chunks().to_batches()[0]
        return passed

    def _run(self, rows: "pa.Table") -> "pa.Table":
        self._connection.register("found", rows)
        return query_on(self._connection, self._query)


def _placed(message: str) -> str:
    """Return DuckDB's message with the place in the user's own text."""
    lines = message.splitlines()
    for at, line in enumerate(lines[:-1]):
        start = f"LINE 1: {_BEFORE}"
        if line.startswith(start):
            lines[at], lines[at + 1] = line.removeprefix(start), lines[at + 1][len(start) :]
    return "\n".join(lines)


def where_rows(expression: str, schemas: "Mapping[str, pa.Schema]") -> Where:
    """Return which rows pass; raises UsageError."""
    return Where(expression, schemas)


class WhereSink:
    """A sink that gets only the rows that pass."""

    def __init__(self, sink: "Sink", where: Where) -> None:
        self._sink = sink
        self._where = where

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Hand on the rows that pass."""
        passed = self._where.filter(tables)
        if passed:
            self._sink.write(passed)

    def flush(self) -> None:
        """Flush the sink behind."""
        self._sink.flush()

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return what the sink behind lost."""
        return self._sink.take_losses()

    def close(self) -> None:
        """Close the sink behind."""
        self._sink.close()
