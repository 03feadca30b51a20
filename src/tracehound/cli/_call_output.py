"""How `call` shows calls: a line as each ends, buffers as a hexdump below it, and a table of points at the end."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tracehound.cli._stderr import say
from tracehound.cli._syscalls import is_syscall, line_end

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.agent import Trace
    from tracehound.kernel.call_points import PointCounts
    from tracehound.kernel.points import Point
    from tracehound.kernel.watch_places import Watch
    from tracehound.sinks import Sink

COLUMNS: Final = (
    "time_ns", "wall_time", "pid", "tid", "comm", "service", "point", "event", "args", "return_value", "errno",
    "duration_ns", "incomplete", "registers", "stack_id", "ip",
)  # fmt: skip
MINUS_ONE: Final = (-1, 0xFFFFFFFF)  # also as an int, of which the upper half of the register is not set
WIDTH: Final = 16  # bytes in a line of a hexdump
FILES: Final = {"flame": "html", "folded": "folded", "pprof": "pprof"}  # option -> form
TEXTS: Final = ("str", "std::string")
_TO_ESCAPE: Final = re.compile(r'"|\\(?!x[0-9a-f]{2})')  # decode has written bytes that are no text as \xHH
_ESCAPED: Final = r"\\\g<0>"
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is shown and written."""
    parser.add_argument("--hexdump", action="store_true", help="show buffers as bytes and text, below the line")
    parser.add_argument(
        "--summary",
        action="store_true",
        help="no lines, only the table at the end; system calls are counted in the kernel",
    )
    parser.add_argument("--config", metavar="FILE", help="points and options from a TOML or JSON file")
    group = parser.add_argument_group("stacks", "written at the end, of calls that have a stack; `-`: standard output")
    group.add_argument("--flame", metavar="FILE", help="a flame graph, as one HTML page")
    group.add_argument("--folded", metavar="FILE", help="one line a stack, its functions and its weight")
    group.add_argument("--pprof", metavar="FILE", help="a profile for `go tool pprof`")
    group.add_argument(
        "--weight", metavar="W", default="count", help="of a stack: count, duration, or a column (default count)"
    )


def open_outputs(options: argparse.Namespace, trace: "Trace") -> "list[Sink]":
    """Open the files of stacks and the lines that the options name; raises SinkError, UsageError."""
    from tracehound.account import recording_source
    from tracehound.sinks._profile import weight_of
    from tracehound.sinks._profile_sink import open_profile

    weight_of(options.weight)
    source = recording_source(trace.target, trace.settings.redact, trace.switches)
    named = [(form, path) for name, form in FILES.items() if (path := getattr(options, name))]
    sinks: list[Sink] = [open_profile(form, path, source, options.weight) for form, path in named]
    if options.format == "table" and not options.summary and not takes_stdout(options):
        sinks.append(Lines(options.hexdump))
    return sinks


def takes_stdout(options: argparse.Namespace) -> bool:
    """Tell whether a file of stacks goes to standard output, which then has nothing else."""
    return any(getattr(options, name) == "-" for name in FILES)


def say_empty(sinks: "Sequence[Sink]") -> None:
    """Say which files of stacks hold none, or were not written, and why."""
    from tracehound.sinks._profile_sink import ProfileSink

    for sink in sinks:
        if not isinstance(sink, ProfileSink):
            continue
        if sink.failure is not None:
            say(f"cannot write {sink.path}: {sink.failure}")
        elif sink.stacks.is_empty:
            why = "no call has a stack" if sink.stacks.without_stack else "there was no call"
            say(f"{sink.path}: {why}{': add --stack' * bool(sink.stacks.without_stack)}")


class Lines:
    """A sink that prints one line for each call as it ends, its stack below; nothing more once its output is gone."""

    def __init__(self, is_dumped: bool = False) -> None:
        """`is_dumped`: show buffers as hexdumps."""
        self._is_dumped = is_dumped
        self._is_open = True
        self._stacks: dict[int, list[str]] = {}

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Print rows of `calls`; keep the stacks that they will name."""
        import pyarrow as pa

        if "stacks" in tables:
            for stack in tables["stacks"].to_pylist():
                self._stacks[stack["stack_id"]] = list(stack_lines(stack))
        rows = tables.get("calls")
        if rows is None or not self._is_open:
            return
        shown = rows.select(list(COLUMNS))
        moment = shown["wall_time"].cast(pa.int64())
        shown = shown.set_column(COLUMNS.index("wall_time"), "wall_time", moment)
        try:
            sys.stdout.write("".join(f"{line}\n" for row in shown.to_pylist() for line in self._lines(row)))
            sys.stdout.flush()
        except (OSError, ValueError):
            self._is_open = False

    def _lines(self, row: Mapping[str, Any]) -> Iterator[str]:
        yield line_of(row, self._is_dumped)
        if self._is_dumped:
            yield from dump_of(row)
        yield from self._stacks.get(row["stack_id"], ())

    def flush(self) -> None:
        """Do nothing: lines are out as they are written."""

    def take_losses(self) -> None:
        """Return nothing: whoever watched has gone."""

    def close(self) -> None:
        """Flush; standard output stays open."""
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def line_of(row: Mapping[str, Any], is_dumped: bool = False) -> str:
    """Return the line that shows a row of `calls`; `wall_time` as nanoseconds. `is_dumped`: buffers are shown below."""
    from tracehound.sinks.console import duration, printable

    moment = f"{(row['time_ns'] or 0) / 1e9:12.3f}"
    if row["wall_time"] is not None:
        at = datetime.fromtimestamp(row["wall_time"] // 1_000_000_000)
        moment = f"{at:%H:%M:%S}.{row['wall_time'] // 1_000_000 % 1000:03}"
    who = f"{row['service'] or row['comm'] or '?'}[{row['tid'] if row['tid'] else row['pid']}]"
    if is_syscall(row):
        return printable(f" {moment}  {who}  {line_end(row)}")
    arguments = ", ".join(_value(each, is_dumped) for each in row["args"] or ())
    end = ""
    if row["event"] == "call":
        end = " = ?" if row["incomplete"] else f" = {row['return_value']}  {duration(row['duration_ns'])}"
    registers = "".join(f" {each['name']}={each['value'] & (1 << 64) - 1:#x}" for each in row.get("registers") or ())
    shown = _watched(row) if row["event"] == "watch" else f"({arguments})"
    return printable(f" {moment}  {who}  {row['point']}{shown}{end}{registers and ' '}{registers}")


def _watched(row: Mapping[str, Any]) -> str:
    """Return what a hit of a watched address says: the value before and after, and which instruction it was before."""
    values = {each["name"]: each["value"] for each in row["args"] or ()}
    at = f"  at {values.get('address') or '?'}"
    by = "" if row.get("ip") is None else f"  before {row['ip'] & (1 << 64) - 1:#x}"
    if "new" not in values:
        return at
    old, new = (values[name] or "?" for name in ("old", "new"))
    return f"{at}  {new if old == new else f'{old} -> {new}'}{by}"


def stack_lines(stack: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that show a stack, the innermost frame first; how it was walked where that is not complete."""
    from tracehound.sinks.console import printable

    for frame in stack["frames"]:
        place = f"{frame['symbol']}+{frame['symbol_offset'] or 0:#x}" if frame["symbol"] else "?"
        file = frame["file"] or f"{frame['kind']} {frame['address'] or 0:#x}"
        at = "" if frame["symbol"] or frame["file_offset"] is None else f"+{frame['file_offset']:#x}"
        yield printable(f"      {place}  {file}{at}")
    if stack["status"] != "complete":
        yield f"      [{stack['status']}]"


def _value(argument: Mapping[str, str | None], is_dumped: bool) -> str:
    value = argument["value"]
    if value is None:
        return "?"
    if is_dumped and (data := _bytes(argument)) is not None:
        return f"<{len(data)} bytes>"
    if argument["type"] not in TEXTS or value == "NULL":
        return value
    return f'"{_TO_ESCAPE.sub(_ESCAPED, value)}"'


def _bytes(argument: Mapping[str, str | None]) -> bytes | None:
    """Return a buffer's bytes, None of all other arguments."""
    kind, value = argument["type"] or "", argument["value"]
    if not kind.startswith("buf") or value is None or not _HEX.fullmatch(value):
        return None
    return bytes.fromhex(value)


def dump_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that show the bytes of each buffer of a call: where, hexadecimal, text."""
    for argument in row["args"] or ():
        data = _bytes(argument)
        if not data:
            continue
        yield f"    {argument['name']}"
        for at in range(0, len(data), WIDTH):
            piece = data[at : at + WIDTH]
            text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
            halves = piece[:8].hex(" "), piece[8:].hex(" ")
            yield f"    {at:08x}  {'  '.join(halves):<48}  |{text}|"


class Counts:
    """A sink that counts calls by point."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.calls: Counter[str] = Counter()
        self.incomplete: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.total_ns: Counter[str] = Counter()
        self.max_ns: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Count rows of `calls` and `losses`."""
        import pyarrow as pa

        if "losses" in tables:
            for name, count in zip(*(tables["losses"][each].to_pylist() for each in ("counter", "count")), strict=True):
                self.losses[name] += count
        if "calls" not in tables:
            return
        rows = tables["calls"]
        columns = {name: rows[name] for name in ("point", "incomplete", "duration_ns")} | {"failed": _failed(rows)}
        wanted = [("point", "count"), *((name, "sum") for name in ("incomplete", "duration_ns", "failed"))]
        for row in pa.table(columns).group_by("point").aggregate([*wanted, ("duration_ns", "max")]).to_pylist():
            point = row["point"]
            self.calls[point] += row["point_count"]
            self.incomplete[point] += row["incomplete_sum"] or 0
            self.errors[point] += row["failed_sum"] or 0
            self.total_ns[point] += row["duration_ns_sum"] or 0
            self.max_ns[point] = max(self.max_ns[point], row["duration_ns_max"] or 0)

    def flush(self) -> None:
        """Do nothing."""

    def take_losses(self) -> None:
        """Return nothing."""

    def close(self) -> None:
        """Do nothing."""

    def text(self, counted: "Sequence[tuple[Point | Watch, PointCounts]]") -> str:
        """Return the counts, the points with the most time first."""
        from tracehound.sinks.console import duration

        heads = (("hits", 10), ("rows", 10), ("no return", 10), ("errors", 10), ("total", 9), ("mean", 9), ("max", 9))
        lines = [" ".join(f"{head:>{width}}" for head, width in heads) + "  point"]
        reached: Counter[str] = Counter()
        for point, of_it in counted:
            reached[point.name] += of_it.hits
        for name in sorted(reached, key=lambda name: (-self.total_ns[name], name)):
            rows, incomplete, total = self.calls[name], self.incomplete[name], self.total_ns[name]
            times = (total, total // (rows - incomplete), self.max_ns[name]) if total else ()
            counts = (reached[name], rows, incomplete, self.errors[name])
            cells = [f"{count:>10}" for count in counts] + [f"{duration(time):>9}" for time in times or (None,) * 3]
            lines.append(f"{' '.join(cells)}  {name}")
        lost = ", ".join(f"{name} {count}" for name, count in self.losses.items() if count)
        return "\n".join([*lines, f"lost: {lost or 'nothing'}"])


def _failed(rows: "pa.RecordBatch") -> Any:
    """Return which calls failed: those with an errno, where that is known; else those that returned -1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    failed = pc.fill_null(pc.is_in(rows["return_value"], pa.array(MINUS_ONE, pa.int64())), False)
    return pc.or_(failed, pc.is_valid(rows["errno"])) if "errno" in rows.schema.names else failed
