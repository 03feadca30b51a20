"""The summary, and rows of any table, as HTML for a notebook: plain tables without style or script."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from tracehound.sinks._report import GROUPS_SHOWN, call_columns, lost_text
from tracehound.sinks._summary import Ending, Summary, by_requests

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN: Final = 20
CELL_CHARACTERS: Final = 80
_ENDING: Final = Ending("", 0)


def rows_html(rows: "pa.Table", title: str) -> str:
    """Return the first rows of a table; columns in which all of them are null are left out."""
    first = rows.slice(0, ROWS_SHOWN)
    names = [name for name in first.schema.names if first[name].null_count < first.num_rows]
    cells = [[_cell(value) for value in first[name].to_pylist()] for name in names]
    more = f", the first {ROWS_SHOWN} of them" if rows.num_rows > ROWS_SHOWN else ""
    return f"<p>{escape(title)}: {rows.num_rows:,} rows{more}</p>" + _table(names, cells, [False] * len(names))


def summary_html(summary: Summary) -> str:
    """Return what a closed `Summary` says: how many processes, requests and losses, and who called whom."""
    lost = lost_text(summary, _ENDING) or "nothing lost"
    parts = [f"<p>{summary.processes:,} processes, {summary.requests:,} requests, {escape(lost)}</p>"]
    for title, calls in (("Calls (client side)", summary.calls), ("Served (clients not traced)", summary.served)):
        groups = by_requests(calls)[:GROUPS_SHOWN]
        if groups:
            columns = call_columns(groups, summary.comms)
            heads = [title, *(column.head for column in columns[1:])]
            cells = [[escape(cell) for cell in column.cells] for column in columns]
            parts.append(_table(heads, cells, [column.right for column in columns]))
    return "".join(parts)


def _cell(value: Any) -> str:
    text = "" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    return escape(text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…")


def _table(heads: Sequence[str], columns: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return a table of columns whose cells are escaped."""
    align = [' style="text-align:right"' if one else ' style="text-align:left"' for one in right]
    head = "".join(f"<th{how}>{escape(name)}</th>" for how, name in zip(align, heads, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{how}>{cell}</td>' for how, cell in zip(align, row, strict=True))}</tr>"
        for row in zip(*columns, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
