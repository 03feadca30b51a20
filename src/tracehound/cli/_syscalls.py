"""What `tracehound call sys:...` has beside points of functions: its arguments, its lines, its summary."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.agent import Trace
    from tracehound.kernel.syscalls import Wishes

PREFIX: Final = "sys:"
LIMIT_MAX: Final = 4095
OF_FUNCTIONS: Final = (
    "filter", "caller", "rate", "ceiling", "count", "histogram", "by", "stack", "regs", "reg", "signal",
)  # fmt: skip
NOTES: Final = {
    "compat": "of 32-bit programs, which have other numbers",
    "no_entry": "begun before tracing did",
}


def add_syscall_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only system calls have."""
    group = parser.add_argument_group("system calls")
    group.add_argument("--paths", action="store_true", help="show the file or socket behind each descriptor")
    group.add_argument("--size", type=int, default=32, metavar="N", help="show N bytes of a string or buffer (32)")


def take_syscalls(texts: Sequence[str], options: argparse.Namespace) -> "tuple[list[str], Wishes | None]":
    """Return the texts that are points of functions, and the system calls that the others name, None if none do.

    Raises UsageError for a name or group that there is not.
    """
    others = [text for text in texts if not text.startswith(PREFIX)]
    if len(others) == len(texts):
        if options.paths:
            raise UsageError("--paths is of system calls: name some, like sys:%file")
        return others, None
    from tracehound.kernel.syscalls import Wishes
    from tracehound.syscalls import SyscallSettings, find_calls

    if not 0 < options.size <= LIMIT_MAX:
        raise UsageError(f"--size takes 1 to {LIMIT_MAX} bytes, not {options.size}")
    given = next((name for name in OF_FUNCTIONS if getattr(options, name, None) not in (None, 0, [])), None)
    if given is not None:
        raise UsageError(f"--{given} is of functions, not of system calls")
    names = ",".join(text.removeprefix(PREFIX) for text in texts if text.startswith(PREFIX))
    settings = SyscallSettings(options.size, bool(options.no_redact), options.paths)
    return others, Wishes(tuple(find_calls(names)), settings, options.summary)


def is_syscall(row: Mapping[str, Any]) -> bool:
    """Tell whether a row of `calls` is one of a system call."""
    return str(row["point"]).startswith(PREFIX)


def call_text(row: Mapping[str, Any]) -> str:
    """Return a row of `calls` as a line of strace has it: NAME(ARGUMENTS) = RESULT."""
    from tracehound.syscalls import calls, result_text

    call = calls()[row["point"].removeprefix(PREFIX)]
    arguments = [each["value"] for each in row["args"] if each["name"] != "return"]
    result = next((each["value"] for each in row["args"] if each["name"] == "return"), None)
    if result is None:
        result = result_text(call, row["return_value"], row["errno"])
    return f"{call.name}({', '.join(map(str, arguments))}) = {result}"


def summary_text(trace: "Trace") -> str:
    """Return how often each call was made, how often with an error, and how long it took: the longest in all first."""
    totals, _ = trace.syscall_totals
    whole = sum(total.total_ns for total in totals) or 1
    lines = [f"{'% time':>6} {'seconds':>11} {'usecs/call':>11} {'max usecs':>11} {'calls':>9} {'errors':>9} syscall"]
    for total in sorted(totals, key=lambda total: (-total.total_ns, total.name)):
        share, seconds = 100 * total.total_ns / whole, total.total_ns / 1e9
        mean, most = total.total_ns / total.calls / 1000, total.max_ns / 1000
        counts = f"{total.calls:9} {total.errors or '':>9} {total.name}"
        lines.append(f"{share:6.2f} {seconds:11.6f} {mean:11.1f} {most:11.1f} {counts}")
    calls, errors = sum(total.calls for total in totals), sum(total.errors for total in totals)
    lines.append(f"{100:6.2f} {sum(t.total_ns for t in totals) / 1e9:11.6f} {'':11} {'':11} {calls:9} {errors:9} total")
    return "\n".join(lines)


def line_end(row: Mapping[str, Any]) -> str:
    """Return what a line says behind the thread: the call, and how long it took."""
    from tracehound.sinks.console import duration

    text = call_text(row)
    return text if row["duration_ns"] is None else f"{text}  {duration(row['duration_ns'])}"


def end_text(trace: "Trace", wishes: "Wishes", losses: Mapping[str, int] | None) -> str:
    """Return what is said at the end: the summary if it is asked for, what has no lines, and what was lost."""
    lines = [summary_text(trace)] if wishes.is_quiet else []
    lines += [
        f"not shown: {count} call{'s' * (count != 1)} {NOTES[name]}"
        for name, count in trace.syscall_totals[1].items()
        if count
    ]
    if losses is not None:
        lost = ", ".join(f"{name} {count}" for name, count in losses.items() if count)
        lines.append(f"lost: {lost or 'nothing'}")
    return "\n".join(lines)
