"""What a notebook shows."""

from html.parser import HTMLParser

import pyarrow as pa
from tests.sinks.rows import shop

from tracehound.sinks._html import ROWS_SHOWN, rows_html, summary_html
from tracehound.sinks.console import Summary


class Cells(HTMLParser):
    """The cells of all tables, row by row; a tag that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_summary_is_the_calls_of_the_text() -> None:
    summary = Summary()
    summary.write(shop())
    summary.close()
    text = summary_html(summary)
    rows = Cells(text).rows
    assert "9 processes" in text and "nothing lost" in text
    assert rows[0] == ["Calls (client side)", "", "", "requests", "errors", "p50", "p95", "p99", "bytes out/in"]
    assert [row[0] for row in rows].count("orders (python)") >= 2
    assert ["Served (clients not traced)"] in [row[:1] for row in rows]


def test_rows_are_escaped_and_cut_and_columns_without_values_left_out() -> None:
    rows = pa.table({"a": ["<script>", "x" * 200] * 20, "b": [None] * 40, "c": [b"\x01\xff"] * 40})
    text = rows_html(rows, "calls <&>")
    cells = Cells(text).rows
    assert cells[0] == ["a", "c"] and cells[1] == ["<script>", "01ff"] and cells[2][0] == "x" * 79 + "…"
    assert len(cells) == 1 + ROWS_SHOWN
    assert "<script" not in text and "calls &lt;&amp;&gt;: 40 rows, the first 20 of them" in text


def test_an_empty_table_is_said_to_be() -> None:
    assert "losses: 0 rows" in rows_html(pa.table({"a": pa.array([], pa.string())}), "losses")
