"""What `call` does besides points, targets and rows: filters, limits, counting in the kernel, and how that is told."""

import argparse
import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.kernel.call_points import Group, PointCounts
    from tracehound.kernel.plans import PointOptions
    from tracehound.kernel.points import Point

BAR: Final = 40
TOLD: Final = 5  # lines about points without return
NEGATIVE: Final = 65  # CALL_SLOT_NEGATIVE of bpf/include/call_point.h

Counted = Sequence[tuple["Point", "PointCounts"]]
Groups = Sequence[tuple["Point", "Group"]]


def add_point_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which hits become rows, or are counted."""
    hits = parser.add_argument_group("hits", "asked in the kernel; what is left out is counted")
    hits.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="EXPR",
        help="only calls with such an argument: 'path ^= /etc', 'fd != 2', 'arg1 > 4096'; [POINT:]NAME OP VALUE, OP is "
        "== != ^= !^= (begins with) < > <= >=; repeatable",
    )
    hits.add_argument(
        "--caller", action="append", default=[], metavar="LIB", help="only calls from this file; repeatable"
    )
    hits.add_argument("--rate", type=int, default=0, metavar="N", help="at most N rows a second of each point")
    hits.add_argument(
        "--ceiling",
        type=int,
        default=0,
        metavar="N",
        help="let go of a point that is reached more than N times a second",
    )
    hits.add_argument(
        "--count",
        nargs="?",
        const="",
        metavar="BY",
        help="count calls in the kernel, by comm, pid, tid, return or names of arguments; no rows",
    )
    hits.add_argument(
        "--histogram", metavar="EXPR", help="the same with a histogram: of duration, return or an argument's name"
    )
    control = parser.add_argument_group("a call that runs", "its points come and go; --filter goes with --add")
    control.add_argument("--add", action="append", default=[], metavar="POINT", help="add a point; repeatable")
    control.add_argument("--remove", action="append", default=[], metavar="POINT", help="remove one; repeatable")
    control.add_argument("--of", type=int, metavar="PID", help="of this tracehound, if several run")
    hits.add_argument("--by", metavar="BY", help="what --count and --histogram tell apart")


def take_back_point(options: argparse.Namespace) -> None:
    """Give a point that stands behind a plain --count, or a bare --, back to the points."""
    if options.count and (":" in options.count or options.count == "--"):
        options.points.insert(0, options.count)
        options.count = ""


def point_options(options: argparse.Namespace, find_file: Callable[[str], str]) -> "PointOptions":
    """Return what is asked of all points; `find_file`: the file that LIB names. Raises UsageError, TargetError."""
    from tracehound.kernel.filters import parse_filter
    from tracehound.kernel.plans import PointOptions

    for name in ("rate", "ceiling"):
        if not 0 <= getattr(options, name) < 1 << 32:
            raise UsageError(f"--{name} must be a number of hits a second, not {getattr(options, name)}")
    given = [each for each in (options.count, options.by) if each]
    if len(given) == 2:
        raise UsageError("--count BY and --by say the same: name one")
    if options.by and options.count is None and options.histogram is None:
        raise UsageError("--by is for --count and --histogram")
    is_quiet = options.count is not None or options.histogram is not None
    if is_quiet and options.rate:
        raise UsageError("--rate is for rows: what is counted in the kernel makes none")
    callers = [os.stat(find_file(each)) for each in options.caller]
    return PointOptions(
        tuple(parse_filter(each) for each in options.filter),
        tuple((each.st_ino, each.st_size) for each in callers),
        tuple(each.strip() for each in ",".join(given).split(",") if each.strip()) if is_quiet else None,
        options.histogram,
        options.rate,
        options.ceiling,
    )


def told_at_start(options: argparse.Namespace) -> list[str]:
    """Return a line for each thing that leaves out hits: nothing is left out silently."""
    lines = [f"filter: {each}" for each in options.filter]
    if options.caller:
        lines.append(f"filter: called from {' or '.join(options.caller)}")
    if options.rate:
        lines.append(f"limit: {options.rate} rows a second of each point")
    if options.ceiling:
        lines.append(f"limit: a point that is reached more than {options.ceiling} times a second is let go")
    if options.no_redact:
        lines.append("secrets are kept: arguments are shown and kept as they are")
    return lines


def told_of_points(points: Iterable["Point"]) -> list[str]:
    """Return a line for each function whose end is not seen, and why; of many for the first ones."""
    found = [entry_only(each) for each in points if entry_only(each)]
    more = [f"and {len(found) - TOLD} more points are entry only"] if len(found) > TOLD else []
    return found[:TOLD] + more


def entry_only(point: "Point") -> str:
    """Return the name of a function whose end is not seen, and why; nothing of other points."""
    return f"{point.name}: entry only, {point.why_no_return}" if point.is_function and point.why_no_return else ""


def told_at_end(counted: Counted, off: Iterable["Point"]) -> list[str]:
    """Return lines about hits that have no row, besides the losses."""
    total = [sum(of_it[at] for _, of_it in counted) for at in range(4)]
    lines = []
    if total[2]:
        lines.append(f"filtered: {total[2]} of {total[0]} hits")
    if total[3]:
        lines.append(f"above the limit: {total[3]} of {total[0]} hits")
    return lines + [f"let go, above --ceiling: {each.name}" for each in off]


def asked_of_running(options: argparse.Namespace) -> list[str]:
    """Do what --add and --remove say; return lines about it. Raises UsageError, TargetError."""
    from tracehound.cli._call_control import ask_running

    if options.points or options.pid:
        raise UsageError("--add and --remove are for a call that runs: no other points or targets beside them")
    questions = [{"do": "added", "point": each, "filters": options.filter} for each in options.add]
    return ask_running([*questions, *({"do": "removed", "point": each} for each in options.remove)], options.of)


# ---- what was counted in the kernel ----------------------------------------------------------------------------------


def group_rows(counted: Counted, groups: Groups) -> list[dict[str, Any]]:
    """Return a row for each key of each point: point, by, count, and of a histogram total and slots."""
    rows: list[dict[str, Any]] = []
    for point, of_it in counted:
        if not point.plan.operations:
            rows.append({"point": point.name, "by": {}, "count": of_it.hits})
    for (point, key), found in groupby(sorted(groups, key=_order), lambda each: (each[0], each[1].key)):
        listed = [group for _, group in found]
        is_histogram = any(operation.kind == "MEASURE" for operation in point.plan.operations)
        row: dict[str, Any] = {"point": point.name, "by": _key(point, key), "count": sum(each.count for each in listed)}
        if is_histogram:
            row["total"] = _signed(sum(each.total for each in listed))
            row["slots"] = [
                {"from": low, "to": high, "count": each.count}
                for each in sorted(listed, key=lambda each: (each.slot != NEGATIVE, each.slot))
                for low, high in [_bounds(each.slot)]
            ]
        rows.append(row)
    return sorted(rows, key=lambda row: (row["point"], -row["count"], str(row["by"])))


def _order(each: tuple["Point", "Group"]) -> tuple[int, bytes]:
    return each[1].point, each[1].key


def _signed(total: int) -> int:
    total &= (1 << 64) - 1
    return total - (1 << 64) if total >> 63 else total


def _bounds(slot: int) -> tuple[int | None, int | None]:
    """Return the least and the greatest number with so many bits."""
    if slot == NEGATIVE:
        return None, -1
    return (1 << slot - 1, (1 << slot) - 1) if slot else (0, 0)


def _key(point: "Point", raw: bytes) -> dict[str, Any]:
    """Return what was counted by, by its names."""
    import numpy as np

    from tracehound.call_types import NUMBERS

    found: dict[str, Any] = {}
    for key in point.plan.keys:
        size = key["size"] or len(raw)
        part, raw = raw[:size], raw[size:]
        if key["type"] in NUMBERS:
            dtype = np.dtype("<" + NUMBERS[key["type"]])
            number = np.frombuffer(part[: dtype.itemsize], dtype)[0].item()
            found[key["name"]] = f"{number:#x}" if key["hex"] else number
        elif key["type"] == "buf":
            found[key["name"]] = part.hex()
        else:
            found[key["name"]] = part.split(b"\0")[0].decode(errors="backslashreplace")
    return found


def clean_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without secrets in what was counted by."""
    from tracehound.enrich import clean_argument

    def clean(name: str, value: Any) -> Any:
        return clean_argument(name, value) if isinstance(value, str) else value

    return [row | {"by": {name: clean(name, value) for name, value in row["by"].items()}} for row in rows]


def groups_text(rows: Sequence[dict[str, Any]], form: str, histogram: str | None) -> str:
    """Return the rows as a table, or as lines of JSON."""
    if form == "json":
        return "".join(json.dumps({"table": "counts", **row}, separators=(",", ":")) + "\n" for row in rows)
    return _histograms(rows, histogram) if histogram else _table(rows)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    from tracehound.sinks.console import printable

    names = list(dict.fromkeys(name for row in rows for name in row["by"]))
    head = f"{'count':>12}  point" + "".join(f"  {name}" for name in names)
    lines = [
        f"{row['count']:>12}  {row['point']}" + "".join(f"  {row['by'].get(name, '')}" for name in names)
        for row in rows
    ]
    return "".join(printable(line) + "\n" for line in (head, *lines))


def _histograms(rows: Sequence[dict[str, Any]], histogram: str) -> str:
    from tracehound.sinks.console import duration, printable

    lines: list[str] = []
    for row in rows:
        by = "".join(f", {name} {value}" for name, value in row["by"].items())
        mean = row["total"] // row["count"]
        shown = duration(mean) if histogram == "duration" else str(mean)
        lines.append(f"{row['point']}{by}: {histogram}, {row['count']} calls, mean {shown}")
        most = max(slot["count"] for slot in row["slots"])
        for slot in row["slots"]:
            bounds = _shown_bounds(slot["from"], slot["to"], histogram == "duration")
            lines.append(f"  {bounds:>24} {slot['count']:>10} {'#' * -(-slot['count'] * BAR // most)}")
    return "".join(printable(line) + "\n" for line in lines)


def _shown_bounds(low: int | None, high: int | None, is_duration: bool) -> str:
    from tracehound.sinks.console import duration

    if low is None:
        return "below 0"
    return f"{duration(low)} to {duration(high or 0)}" if is_duration else f"{low} to {high}"
