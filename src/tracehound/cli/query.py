"""Ask a recording in SQL, or a tape, or a packet capture.

RECORDING is a folder that `run --record` made, or `last`, the newest that was kept without a name; or a tape (`run
--tape`) or a packet capture (pcap, pcapng), which is replayed first.
SQL is one SELECT for DuckDB over the tables by name; `-` reads it from standard input. A recording
that is still being written can be asked too: it shows all rows older than 1 s.

examples:
  tracehound query last "from requests order by duration_ns desc limit 10"
  tracehound query last "select resource, count(*), quantile_cont(duration_ns, 0.95) from requests group by all"
  tracehound query shop/ "select exe, argv from processes where event = 'exec'" --format json
  tracehound query last "show tables"
  tracehound query shop.tape "from losses"
  tracehound query last - < slow.sql
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from tracehound.cli._command import Command
from tracehound.cli._options import add_format

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST_CELL: Final = 60  # of a table on a terminal
_LEAST_CELL: Final = 12
_BATCH_ROWS: Final = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("recording", metavar="RECORDING", help="a folder, `last`, a tape, or a packet capture")
    parser.add_argument("sql", metavar="SQL", help="one SELECT, or `-` for standard input")
    add_format(parser, "table", "csv", "json")


def run(options: argparse.Namespace) -> int:
    """Run the query and print what it gives."""
    from tracehound.recording import Recording, resolve

    query = sys.stdin.read() if options.sql == "-" else options.sql
    if options.recording != "last" and Path(options.recording).is_file():
        from tracehound.opened import open_kept

        kept = open_kept(options.recording)
        for note in kept.notes:
            print(f"tracehound: {note}", file=sys.stderr)
        recording = kept.recording
    else:
        recording = Recording(resolve(options.recording))
    rows = recording.sql(query)
    for path, reason in recording.damaged.items():
        print(f"tracehound: left out {path}, which is damaged: {reason}", file=sys.stderr)
    _WRITERS[options.format](rows, sys.stdout)
    return 0


def write_table(rows: "pa.Table", stream: TextIO) -> None:
    """Write rows aligned under their names; on a terminal no line is wider than it, and what is left out is said."""
    from tracehound.sinks.console import columns_of, cut

    columns = _text_columns(rows)
    right = [_is_number(field.type) for field in rows.schema]
    shown = list(range(len(columns)))
    if stream.isatty():
        shown = _narrow(columns, columns_of(stream))
    widths = {index: max(map(_width, columns[index])) for index in shown}
    for row in range(rows.num_rows + 1):
        cells = [_pad(columns[index][row], widths[index], right[index]) for index in shown]
        stream.write("  ".join(cells).rstrip() + "\n")
    if len(shown) < len(columns):
        hidden = len(columns) - len(shown)
        hint = f"({hidden} more columns: empty, or no room. Name those you want, or use --format json)"
        stream.write(cut(hint, columns_of(stream)) + "\n")


def write_csv(rows: "pa.Table", stream: TextIO) -> None:
    """Write rows as RFC 4180 with a header; bytes are hex, nulls empty."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows.column_names)
    for cells in _tuples(rows):
        writer.writerow([_text(cell) for cell in cells])


def write_json(rows: "pa.Table", stream: TextIO) -> None:
    """Write one JSON object per row."""
    names = rows.column_names
    for cells in _tuples(_finite(rows)):
        stream.write(json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False, default=_text) + "\n")


_WRITERS: Final[dict[str, Callable[["pa.Table", TextIO], None]]] = {
    "table": write_table,
    "csv": write_csv,
    "json": write_json,
}


def _tuples(rows: "pa.Table") -> Iterator[tuple[Any, ...]]:
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: "pa.Array") -> list[Any]:
    """Return the values as Python ones, times of day as text (Python's own have no nanoseconds)."""
    import pyarrow as pa

    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values


def _finite(rows: "pa.Table") -> "pa.Table":
    """Return the rows with null for what JSON has no number for: NaN and the infinities."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, column in enumerate(rows.columns):
        if pa.types.is_floating(column.type):
            finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
            rows = rows.set_column(index, rows.schema.field(index), finite)
    return rows


def _text(value: Any) -> str:
    """Return a value as text: bytes as hex, nulls empty, lists and structs as JSON."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, ensure_ascii=False, default=_text)
    return str(value)


def _text_columns(rows: "pa.Table") -> list[list[str]]:
    from tracehound.sinks.console import printable

    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        values = [value for chunk in column.chunks for value in _values(chunk)]
        columns.append([printable(_text(value)) for value in (name, *values)])
    return columns


def _narrow(columns: list[list[str]], width: int) -> list[int]:
    """Cut long cells in place and return which columns fit; empty ones are the first to go, then the last."""
    from tracehound.sinks.console import cut

    shown = list(range(len(columns)))
    widths = [max(map(_width, column)) for column in columns]
    if _total(widths) <= width:
        return shown
    shown = [index for index in shown if any(columns[index][1:])] or shown[:1]
    limit = _LONGEST_CELL
    while limit > _LEAST_CELL and _total(min(widths[index], limit) for index in shown) > width:
        limit -= 1
    while len(shown) > 1 and _total(min(widths[index], limit) for index in shown) > width:
        shown.pop()
    for index in shown:
        columns[index] = [cut(cell, min(limit, width)) for cell in columns[index]]
    return shown


def _total(widths: Iterable[int]) -> int:
    return sum(width + 2 for width in widths) - 2


def _width(text: str) -> int:
    from tracehound.sinks.console import width_of

    return width_of(text)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _is_number(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


COMMAND: Final = Command("query", "ask a recording, a tape or a packet capture in SQL", __doc__, add_arguments, run)
