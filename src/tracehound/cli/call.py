"""Show calls of any function of a program, and system calls: with arguments, return value, duration and caller.

examples:
  sudo tracehound call 'libc:open*[path=str]' -- ls
  sudo tracehound call sys:%file --paths -- ls
  sudo tracehound call --summary --pid 4242 sys:all
  sudo tracehound call --pid 4242 'libc:getaddrinfo[str,str]'
  sudo tracehound call --hexdump 'libc:write[int,buf:arg2,size_t]' -- ls
  sudo tracehound call --filter 'path ^= /etc/' 'libc:open*[path=str,int]' -- ls /etc
  sudo tracehound call 'libc:read[int,data=buf:ret@exit]' -- cat /etc/hostname
  sudo tracehound call --stack --flame calls.html libc:malloc -- make
  sudo tracehound call --count comm libc:malloc -- make
  sudo tracehound call --histogram duration './server:handle_*' -- ./server
  sudo tracehound call --pid 4242 --watch server:limit:w --watch 0x7f12c0de0010:rw:8 --regs
  sudo tracehound call --summary --config points.toml -- ./server
  sudo tracehound call --add 'libc:close[int]'      (to the one that runs; --remove libc:close)
  tracehound query last "select symbol, count(*), avg(duration_ns) from calls group by all"

A POINT is LIB:SYMBOL, LIB:SYMBOL+0xOFFSET, LIB:0xOFFSET (in the file) or, with --pid, 0xADDRESS; `*` and `?` in SYMBOL
name several. LIB is a path, or the name of the program or of a library that it has loaded: c, libc and libc.so.6 are
one. Behind it, in brackets, its arguments, in order: [NAME=]TYPE[:LENGTH][:LOCATION][@exit | @both].

TYPE: int8 to int64, uint8 to uint64, char, short, int, long, size_t, ssize_t, bool, ptr ... (x behind: hexadecimal);
str or str:N (at most N bytes); std::string; buf:N or buf:LENGTH; a struct (timespec, stat, sockaddr, iovec ...);
T[N] or T[LENGTH], an array; str[], as argv; *T, what a pointer leads to. LENGTH: a register, argN, ret, or the NAME of
another argument. LOCATION: a register, argN or ret; with +N and -N an address; `.` reads the pointer there:
sp+0x20-0x8.+8. @exit is the value when the call returns, @both each. ->TYPE behind the brackets: what it
returns. docs/calls.md has more.

Options stand before or behind the points; what stands behind -- is the command.

With --stack and --regs each hit has its registers and a copy of its stack, by the kernel. --watch shows who reads,
writes or runs an address, with the value before and after: hardware breakpoints of all threads, of which a CPU has
four. What the kernel itself reads or writes for the process is not seen by them.

sys:NAME is a system call, `*` and `?` name several, sys:%GROUP those of a group (file, desc, process, network, memory,
signal, ipc, creds, clock, epoll, ...), sys:all every one, with `,` and `!` between and before them: sys:%file,!stat. A
line is as strace has it; --paths shows what is behind descriptors, --summary counts in the kernel and shows no lines.
The bytes that read, write, send and recv move are shown with --no-redact only.

Breakpoints stand where a function begins and at its RET instructions; nothing else of the program is changed, and
they go with tracehound. Each process that has the file loaded runs into them: also one that is not shown is slowed.
Secrets in arguments are blanked, by NAME and by what they look like, unless --no-redact.

--config FILE names many points and options in TOML or JSON:

  [options]
  duration = 10
  [[points]]
  library = "libc"
  symbol = "write"
  arguments = ["int", "buf:arg2", "size_t"]

exit codes:
  COMMAND's own, 0 without one; 1 tracing failed; 2 no such point or target, or tracing could not start; 121 --strict,
  and something was lost.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tracehound.cli._call_config import apply_config
from tracehound.cli._call_control import Control
from tracehound.cli._call_options import add_call_options, call_options_of
from tracehound.cli._call_output import Counts, add_output_arguments, open_outputs, say_empty, takes_stdout
from tracehound.cli._call_points import (
    add_point_arguments,
    asked_of_running,
    clean_rows,
    entry_only,
    group_rows,
    groups_text,
    point_options,
    take_back_point,
    told_at_end,
    told_at_start,
    told_of_points,
)
from tracehound.cli._command import Command
from tracehound.cli._options import Parser, add_debug
from tracehound.cli._syscalls import add_syscall_arguments, end_text, take_syscalls
from tracehound.cli._trace import SOMETHING_LOST, add_trace_arguments, discard, open_sinks, settings_of, stop
from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.agent import Trace
    from tracehound.kernel.plans import PointOptions
    from tracehound.sinks import Sink
    from tracehound.target import Target

FAILED: Final = 1
FEATURES: Final = frozenset({"processes", "calls"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-p",
        "--pid",
        action="append",
        type=int,
        metavar="N",
        help="a process with its threads and children; repeatable",
    )
    parser.add_argument("--duration", type=float, metavar="S", help="end after this many seconds")
    add_point_arguments(parser)
    add_call_options(parser)
    add_output_arguments(parser)
    add_trace_arguments(parser)
    add_syscall_arguments(parser)
    parser.add_argument("points", nargs=argparse.REMAINDER, metavar="POINT [-- COMMAND]", help="what to show")


def run(options: argparse.Namespace) -> int:
    """Show calls until the target, the time or the user ends it; print the counts, return the exit code."""
    from tracehound.agent import Trace
    from tracehound.kernel.points import find_file, find_points

    if options.add or options.remove:
        print(*asked_of_running(options), sep="\n")
        return 0
    _take_options_behind(options)
    if options.config:
        apply_config(options, add_arguments)
    texts, target, program = _target(options)
    settings = settings_of(options)
    texts, wishes = take_syscalls(texts, options)
    pids = tuple(options.pid or ())
    asked_of_all = point_options(options, lambda library: find_file(library, pids, program))
    points = find_points(texts, pids, program, asked_of_all) if texts else []
    extras = call_options_of(options)
    for line in told_at_start(options) + told_of_points(points):
        print(f"tracehound: {line}", file=sys.stderr)
    if options.format == "json" and not (options.output or options.summary or takes_stdout(options)):
        options.output = "-"
    features = FEATURES if points or options.watch else FEATURES - {"calls"}
    with (
        Trace(target, settings, features, points=points, call_options=extras, syscalls=wishes) as trace,
        _signals(trace, target) as asked,
    ):
        shown = open_outputs(options, trace)
        trace.load()
        counts = Counts()
        outputs, _ = open_sinks(options, trace)
        sinks: list[Sink] = [*shown, *outputs, counts]  # closed in this order: what a file lost goes to the recording
        with Control(lambda question: _control(trace, question, pids, program, asked_of_all)):
            code, failure = _follow(trace, sinks, asked, options)
    sys.stdout.flush()
    say_empty(shown)
    if points or options.watch:
        _tell(options, trace, counts, asked_of_all)
    if wishes is not None:
        print(end_text(trace, wishes, None if points else counts.losses), file=sys.stderr)
    if failure:
        return FAILED
    return SOMETHING_LOST if options.strict and code == 0 and any(counts.losses.values()) else code


def _control(
    trace: "Trace", question: Mapping[str, Any], pids: Sequence[int], program: str | None, asked: "PointOptions"
) -> list[str]:
    """Add or remove points of the running trace, as somebody asks; return their names. Raises TracehoundError."""
    from dataclasses import replace

    from tracehound.kernel.filters import parse_filter
    from tracehound.kernel.points import find_points

    if question["do"] == "removed":
        return [each.name for each in trace.remove_point(question["point"])]
    of_it = replace(asked, filters=tuple(parse_filter(each) for each in question["filters"]))
    points = find_points([question["point"]], pids, program, of_it)
    trace.add_points(points)
    return [entry_only(each) or each.name for each in points]


def _tell(options: argparse.Namespace, trace: "Trace", counts: Counts, asked: "PointOptions") -> None:
    """Print what was counted in the kernel, then the hits of each point and what has no row."""
    if asked.is_quiet:
        rows = group_rows(trace.point_counts, trace.point_groups)
        rows = rows if options.no_redact else clean_rows(rows)
        sys.stdout.write(groups_text(rows, options.format, options.histogram))
        sys.stdout.flush()
    print(counts.text([*trace.point_counts, *trace.watch_counts]), file=sys.stderr)
    for line in trace.fill_notes:
        print(line, file=sys.stderr)
    for line in told_at_end(trace.point_counts, trace.pointing.off if trace.pointing else ()):
        print(line, file=sys.stderr)


def _take_options_behind(options: argparse.Namespace) -> None:
    """Take options that stand behind points, before a `--`, as if they stood before them. Raises UsageError."""
    parser = Parser(prog="tracehound call", add_help=False, allow_abbrev=False)
    add_debug(parser)
    add_arguments(parser)
    points: list[str] = []
    while True:
        take_back_point(options)
        words: list[str] = options.points
        end = words.index("--") if "--" in words else len(words)
        at = next((at for at in range(end) if words[at].startswith("-")), None)
        if at is None:
            options.points = [*points, *words]
            return
        points += words[:at]
        _, unknown = parser.parse_known_args(words[at:end], options)
        if unknown:
            parser.refuse(unknown)
        options.points += words[end:]


def _target(options: argparse.Namespace) -> "tuple[list[str], Target, str | None]":
    """Return the points' texts, the target, and the program that is to be started."""
    from tracehound.target import Command as Started
    from tracehound.target import Processes

    words: list[str] = options.points
    at = words.index("--") if "--" in words else len(words)
    texts, argv = words[:at], words[at + 1 :]
    if not texts and not options.watch:
        raise UsageError("no point. Write: tracehound call --pid N LIB:SYMBOL, or LIB:SYMBOL -- COMMAND; or sys:NAME")
    if bool(argv) == bool(options.pid):
        raise UsageError("name one target: --pid N, or -- COMMAND behind the points")
    if options.duration is not None and options.duration <= 0:
        raise UsageError(f"--duration must be above 0, not {options.duration:g}")
    return (texts, Started(tuple(argv)), argv[0]) if argv else (texts, Processes(tuple(options.pid)), None)


@contextmanager
def _signals(trace: "Trace", target: "Target") -> Iterator[threading.Event]:
    """Have signals end the trace, or reach the command; yield what is set when the trace is to end."""
    from tracehound.cli.attach import _interrupts
    from tracehound.cli.run import _signals_are_the_commands
    from tracehound.target import Processes

    if isinstance(target, Processes):
        with _interrupts() as asked:
            yield asked.event
    else:
        with _signals_are_the_commands(trace):
            yield threading.Event()


def _follow(
    trace: "Trace", sinks: list["Sink"], asked: threading.Event, options: argparse.Namespace
) -> tuple[int, str | None]:
    """Start, wait for the end, end the trace; return the exit code, and how tracing failed if it did."""
    try:
        trace.start(sinks)
    except BaseException:
        for sink in sinks:
            discard(sink)
        raise
    _wait(trace, options.duration, asked)
    has_ended = trace.process is not None and trace.process.poll() is not None
    code = trace.wait() if has_ended else 0
    return code, stop(trace, sinks, getattr(options, "debug", False))


def _wait(trace: "Trace", duration_s: float | None, asked: threading.Event) -> None:
    until = None if duration_s is None else time.monotonic() + duration_s
    while not asked.is_set() and (until is None or time.monotonic() < until):
        if trace.wait_ended(0.25 if until is None else max(0.0, min(0.25, until - time.monotonic()))):
            return


COMMAND: Final = Command(
    "call", "show calls of any function of a program, and system calls", __doc__, add_arguments, run
)
