"""Text for people: units that scale, columns that align and never wrap, colour only where it is wanted.

Names come from traced programs, so nothing of them reaches a terminal that is not printable.
"""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

BOLD: Final = "1"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
DIM: Final = "2"

_GAP: Final = 2
_LEAST_WIDTH: Final = 8  # a column is not cut below this


def duration(value_ns: float | None) -> str:
    """Return a duration as `61 µs`, `3.1 ms`, `4.2 s`, `2m05s`; empty for None."""
    if value_ns is None:
        return ""
    for unit, size in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        scaled = value_ns / size
        if round(scaled, 1) < 1000:
            decimals = (unit == "ms" and round(scaled, 1) < 100) or (unit == "µs" and round(scaled, 1) < 10)
            return f"{scaled:.1f} {unit}" if decimals else f"{scaled:.0f} {unit}"
    seconds = value_ns / 1e9
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    return f"{int(seconds) // 60}m{int(seconds) % 60:02}s"


def size(count: int | None) -> str:
    """Return bytes as `43 B`, `1.1 kB`, `2.0 MB`; empty for None."""
    if count is None:
        return ""
    short = short_size(count)
    return f"{short} B" if short.isdecimal() else f"{short[:-1]} {short[-1]}B"


def short_size(count: int) -> str:
    """Return bytes as `43`, `38k`, `1.2M`."""
    if count < 1000:
        return str(count)
    scaled = float(count)
    for unit in "kMGTP":
        scaled /= 1000
        if scaled < 999.5 or unit == "P":
            break
    return f"{scaled:.1f}{unit}" if round(scaled, 1) < 10 else f"{scaled:.0f}{unit}"


def printable(text: str) -> str:
    r"""Return the text with each character that a terminal might obey written as `\x1b` or `\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width_of(text: str) -> int:
    """Return how many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` cells, an ellipsis at its end if it is longer."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[: len(text) - max(1, (width_of(text) - width) // 2)]
    return text + "…" if width > 0 else ""


def paint(text: str, style: str) -> str:
    """Return the text in a style of ECMA-48; unchanged without one."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text.strip() else text


def wants_color(stream: TextIO) -> bool:
    """Tell whether colour is wanted: a terminal, and no NO_COLOR (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


@dataclass(slots=True)
class Column:
    """A column of text, aligned right if `right`; `rank` 0 stays, of the others the highest goes first.

    One that `can_shrink` is cut when nothing else helps, but down to `enough`, if given, before any other column goes.
    """

    head: str
    cells: Sequence[str]
    right: bool = False
    rank: int = 0
    styles: Sequence[str] | None = None
    can_shrink: bool = False
    enough: int = 0

    @property
    def width(self) -> int:
        """The widest of its cells and its head."""
        return max(map(width_of, (self.head, *self.cells)), default=0)


def fit(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit into `width`, cut where they must be; the least useful are left out."""
    kept = [column for column in columns if any(column.cells) or column.head]
    room = width - 1
    widths = _shrunk([(c.width, c.enough or c.width) for c in kept], room)
    while _total(widths) > room and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
        widths = _shrunk([(c.width, c.enough or c.width) for c in kept], room)
    if _total(widths) > room:
        widths = _shrunk([(c.width, _LEAST_WIDTH if c.can_shrink else c.width) for c in kept], room)
    for column, narrow in zip(kept, widths, strict=True):
        if narrow < column.width:
            column.cells = [cut(cell, narrow) for cell in column.cells]
    return kept


def _shrunk(widths_and_floors: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Return widths that fit into `room`, the widest made narrower first, none below its floor."""
    widths = [width for width, _ in widths_and_floors]
    floors = [floor for _, floor in widths_and_floors]
    while _total(widths) > room:
        above = [index for index, width in enumerate(widths) if width > floors[index]]
        if not above:
            break
        widths[max(above, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * max(0, len(widths) - 1)


def lines(columns: Sequence[Column], *, color: bool, heads: bool = True) -> Iterable[str]:
    """Give the columns as lines, one space before each."""
    widths = [column.width for column in columns]
    if heads:
        yield _line([_pad(c.head, width, c.right) for c, width in zip(columns, widths, strict=True)])
    for index in range(len(columns[0].cells) if columns else 0):
        cells = []
        for column, width in zip(columns, widths, strict=True):
            cell = _pad(column.cells[index], width, column.right)
            cells.append(paint(cell, column.styles[index]) if color and column.styles else cell)
        yield _line(cells)


def _line(cells: Sequence[str]) -> str:
    return (" " + (" " * _GAP).join(cells)).rstrip()


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space
