"""The terminal: rows as they end, one line each, and a status line that is erased at the end.

The summary that follows them is `_summary.py` and `_report.py`; all three are handed out here.
"""

import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from tracehound.errors import SinkError
from tracehound.recording import loss_counter
from tracehound.sinks._calls import address, named_address, result, what
from tracehound.sinks._report import render
from tracehound.sinks._sink import SinkKind, Source, lost_rows
from tracehound.sinks._summary import Ending, Summary
from tracehound.sinks._text import RED, cut, duration, paint, printable, size, wants_color, width_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SINK", "Ending", "LiveRows", "StatusLine", "Summary",
    "address", "columns_of", "cut", "duration", "printable", "render", "size", "wants_color", "width_of",
]  # fmt: skip

FILE_WIDTH: Final = 120
_RESULT: Final = 5  # cells for the status
_REQUEST_COLUMNS: Final = (
    "time_ns", "wall_time", "pid", "comm", "service", "role", "peer_service", "remote_ip", "remote_port", "operation",
    "resource", "statement", "status", "outcome", "error_type", "duration_ns",
    "response_bytes", "local_ip", "peer_service_inferred",
)  # fmt: skip
_ERROR_COLUMNS: Final = (
    "time_ns",
    "wall_time",
    "pid",
    "comm",
    "service",
    "remote_name",
    "remote_ip",
    "remote_port",
    "error",
    "local_ip",
)


class LiveRows:
    """Requests and failed connections as lines, aligned, in the order in which they end; a `Sink`.

    Of a stream that cannot be written any more nothing is lost (whoever watched has gone); of a file (`is_kept`) lines
    are.
    """

    def __init__(self, stream: TextIO, *, width: int = FILE_WIDTH, color: bool = False, is_kept: bool = False) -> None:
        self._stream = stream
        self._is_kept = is_kept
        self._lost: Counter[str] = Counter()
        self._trouble = ""  # the counter of all that comes after it
        self._unflushed = 0
        self._last_ns: int | None = None
        self._color = color
        # time 12, then who, what, result, duration 7, bytes 7; one space before all, gaps of two
        room = max(width - 12 - _RESULT - 7 - 7 - 11, 16)
        self._who = max(room * 45 // 100, 8)
        self._what = room - self._who
        self._is_open = True

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Show rows of `requests`, and of `connections` that failed."""
        import pyarrow.compute as pc

        shown: list[tuple[int, str]] = []
        if (connections := tables.get("connections")) is not None:
            failed = connections.filter(pc.equal(connections["event"], "error"))
            shown += [(row["time_ns"], self._error(row)) for row in _rows(failed, _ERROR_COLUMNS)]
        if (requests := tables.get("requests")) is not None:
            shown += [(row["time_ns"], self._request(row)) for row in _rows(requests, _REQUEST_COLUMNS)]
        if shown:
            shown.sort(key=lambda item: item[0])
            self._last_ns = shown[-1][0]
            self._print("".join(line + "\n" for _, line in shown), len(shown))

    def _request(self, row: dict[str, Any]) -> str:
        failed = row["outcome"] not in ("ok", "unknown", None)
        words = [result(row), duration(row["duration_ns"]), size(row["response_bytes"])]
        if len(words[0]) > _RESULT and (words[1] or words[2]):
            words[0] = cut(printable(row["error_type"] or "error"), _RESULT)
        return self._line(row, "←" if row["role"] == "server" else "→", what(row, is_group=False), words, failed)

    def _error(self, row: dict[str, Any]) -> str:
        named = {"peer_service": row["remote_name"], "peer_service_inferred": True}
        return self._line(row | named, "→", "connect", [row["error"] or "?", "", ""], True)

    def _line(self, row: dict[str, Any], arrow: str, text: str, words: list[str], failed: bool) -> str:
        name = f"{row['service'] or row['comm'] or '?'}[{row['pid']}]"
        if row["pid"] is None:  # of a capture: no process is known
            name = row["local_ip"] or "?"
        peer = f"{row['peer_service']} :{row['remote_port']}" if row["peer_service"] else _address(row)
        if arrow == "←":
            peer = row["peer_service"] or row["remote_ip"] or "?"
        elif row["peer_service_inferred"]:
            both = named_address(row["peer_service"], row["remote_ip"], row["remote_port"])
            peer = both if width_of(f"{name} → {both}") <= self._who else peer
        who = _column(f"{name} {arrow} {peer}", self._who)
        outcome = paint(f"{words[0]:<{_RESULT}}", RED if failed and self._color else "")
        return f" {_time(row)}  {who}  {_column(text, self._what)}  {outcome}  {words[1]:>7}  {words[2]:>7}".rstrip()

    def _print(self, text: str, count: int) -> None:
        self._unflushed += count
        if self._is_open:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as error:
                self._fail(error)
        else:
            self._count_lost()

    def flush(self) -> None:
        """Show what was written."""
        if self._is_open:
            try:
                self._stream.flush()
                self._unflushed = 0
            except (OSError, ValueError) as error:
                self._fail(error)

    def _fail(self, error: OSError | ValueError) -> None:
        """Write no more; the trace goes on."""
        self._is_open = False
        self._trouble = loss_counter(error) if isinstance(error, OSError) else "output_closed"
        self._count_lost()

    def _count_lost(self) -> None:
        if self._is_kept:
            self._lost[self._trouble] += self._unflushed
        self._unflushed = 0

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return lines that a file did not take."""
        lost, self._lost = self._lost, Counter()
        return lost_rows(lost, self._last_ns)

    def close(self) -> None:
        """Flush; the stream is its owner's, but for a file that `SINK` opened."""
        self.flush()
        if self._stream not in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            self._is_open = False
            with suppress(OSError, ValueError):
                self._stream.close()


class StatusLine:
    """One line at the bottom of a terminal while a trace runs; nothing at all if `stream` is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"

    def show(
        self, *, elapsed_ns: int, events: int, requests: int, requests_per_second: float, errors: int, lost: int
    ) -> None:
        """Replace the line."""
        if not self._is_terminal:
            return
        text = f" {duration(elapsed_ns)}  {events:,} events  {requests:,} requests ({requests_per_second:,.0f}/s)"
        text += f"  {errors:,} errors  {f'lost {lost:,}' if lost else 'nothing lost'}"
        self._write("\r\x1b[K" + cut(text, columns_of(self._stream) - 1))
        self._is_shown = True

    def erase(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_terminal = False


def columns_of(stream: TextIO, default: int = 80) -> int:
    """Return the width of the terminal behind a stream, `default` if there is none; COLUMNS wins."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or default
    except (OSError, ValueError):
        return default


def _rows(batch: "pa.RecordBatch", columns: tuple[str, ...]) -> list[dict[str, Any]]:
    import pyarrow as pa

    rows = batch.select(list(columns))
    moment = rows["wall_time"].cast(pa.int64())
    found: list[dict[str, Any]] = rows.set_column(columns.index("wall_time"), "wall_time", moment).to_pylist()
    return found


def _time(row: dict[str, Any]) -> str:
    if row["wall_time"] is None:
        return f"{(row['time_ns'] or 0) / 1e9:12.3f}"
    moment = datetime.fromtimestamp(row["wall_time"] // 1_000_000_000)
    return f"{moment:%H:%M:%S}.{row['wall_time'] // 1_000_000 % 1000:03}"


def _address(row: dict[str, Any]) -> str:
    return address(row["remote_ip"] or "?", row["remote_port"])


def _column(text: str, width: int) -> str:
    text = cut(printable(text), width)
    return text + " " * (width - width_of(text))


def _open(path: str, source: Source) -> LiveRows:
    del source  # lines need no schema
    if path == "-":
        return LiveRows(sys.stdout, width=columns_of(sys.stdout, FILE_WIDTH), color=wants_color(sys.stdout))
    try:
        return LiveRows(open(path, "w", encoding="utf-8", errors="replace"), is_kept=True)
    except OSError as error:
        raise SinkError(f"cannot write {path}: {error.strerror}") from error


SINK: Final = SinkKind("console", "one aligned line per request or failed connection, to a file or `-`", _open)
