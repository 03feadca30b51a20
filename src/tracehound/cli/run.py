"""Run a command under trace and say what it did.

COMMAND keeps its standard streams, its terminal, its signals and its exit code. When it ends, a summary goes to
standard error: who called whom, what was slow, what failed, and whether anything was lost.

examples:
  sudo tracehound run -- python shop.py
  sudo tracehound run --record shop/ -- ./test.sh
  sudo tracehound run --format json -- make test 2> summary.jsonl
  sudo tracehound run --output rows.txt --no-record -- nginx -g 'daemon off;'

exit codes:
  COMMAND's own (128+N for signal N; 126 not executable, 127 not found); 2 tracing could not start, and COMMAND was not
  started; 120 tracing failed though COMMAND succeeded; 121 --strict, and something was lost.
"""

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.cli._command import Command
from tracehound.cli._options import add_format, add_switches, switched_off
from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.agent import Trace
    from tracehound.config import Settings
    from tracehound.sinks import Sink, Source
    from tracehound.sinks.console import Ending, Summary

TRACING_FAILED: Final = 120
SOMETHING_LOST: Final = 121
OURS_ONLY: Final = (signal.SIGINT, signal.SIGQUIT)  # from the terminal the command gets them by itself
PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)
SETTINGS: Final = (  # name, type, what it says
    ("memory-mib", int, "budget of user memory for rows and streams (default 256)"),
    ("ring-mib", int, "size of the kernel's ring for data, a power of two (default 16)"),
    ("lifecycle-ring-mib", int, "size of the kernel's ring for processes and connections (default 4)"),
    ("backlog-mib", int, "data that may wait for decode (default 64, at most 3/16 of --memory-mib)"),
    ("response-timeout", float, "seconds after which a request counts as not answered (default 300)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    keep = parser.add_mutually_exclusive_group()
    keep.add_argument("--record", metavar="DIR", help="keep all rows in a new recording (default: capped, as `last`)")
    keep.add_argument("--no-record", action="store_true", help="keep no rows")
    add_format(parser, "table", "json", "none")
    parser.add_argument("--output", metavar="FILE", help="write rows there as they end, in that format")
    parser.add_argument("--strict", action="store_true", help=f"exit {SOMETHING_LOST} if anything was lost")
    parser.add_argument("--user", metavar="NAME", help="run the command with this user's ids")
    parser.add_argument(
        "--no-redact", action="store_true", help="keep secrets in the rows: query strings, passwords ..."
    )
    parser.add_argument("--btf", metavar="FILE", help="the kernel's BTF, if not the running kernel's own")
    for name, kind, text in SETTINGS:
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=text)
    add_switches(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the command under trace, print the summary, return the exit code."""
    from tracehound.agent import Trace
    from tracehound.sinks.console import Summary
    from tracehound.target import Command as Target

    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("no command to run. Write: tracehound run -- COMMAND")
    settings = _settings(options)
    if options.no_redact:
        print("tracehound: --no-redact: secrets will stand in the rows", file=sys.stderr)
    with Trace(Target(tuple(argv), options.user), settings) as trace:
        trace.load()
        summary = Summary()
        outputs, kept = _open_sinks(options, trace)
        code, ending, failed = _follow(trace, [*outputs, summary], kept, getattr(options, "debug", False))
    _show(options.format, summary, ending)
    if failed:
        return code or TRACING_FAILED
    return SOMETHING_LOST if options.strict and code == 0 and any(summary.losses.values()) else code


def _settings(options: argparse.Namespace) -> "Settings":
    from tracehound.config import Settings

    names = {name: name.replace("-", "_") for name, _, _ in SETTINGS}
    given = {field: getattr(options, field) for field in names.values() if getattr(options, field) is not None}
    if "response_timeout" in given:
        given["response_timeout_s"] = given.pop("response_timeout")
    return Settings(btf=options.btf, redact=not options.no_redact, off=switched_off(options), **given)


def _open_sinks(options: argparse.Namespace, trace: "Trace") -> tuple[list["Sink"], str | None]:
    """Open the outputs; return them and what the recording is called, None if none is kept."""
    from tracehound.agent import recording_source
    from tracehound.recording import new_state_recording
    from tracehound.sinks import kind

    source: Source = recording_source(trace.target, trace.settings)
    sinks: list[Sink] = []
    if options.output:
        sinks.append(kind("jsonl" if options.format == "json" else "console").open(options.output, source))
    if options.record:
        sinks.append(kind("parquet").open(options.record, source))
        return sinks, str(Path(options.record))
    if options.no_record:
        return sinks, None
    folder, owner, cap_bytes = new_state_recording()
    sinks.append(kind("parquet").open(str(folder), replace(source, owner=owner, cap_bytes=cap_bytes)))
    return sinks, "last"


def _follow(trace: "Trace", sinks: list["Sink"], kept: str | None, is_debug: bool) -> tuple[int, "Ending", bool]:
    """Start the command, wait for it, end the trace; return its exit code, how it ended, and whether tracing failed."""
    from tracehound.sinks.console import Ending

    with _signals_are_the_commands(trace):
        try:
            trace.start(sinks)
        except BaseException:
            for sink in sinks:
                sink.close()
            raise
        code = trace.wait()
    elapsed_ns = time.monotonic_ns() - trace.started_ns
    failed = False
    with _interrupt_ends_at_once() as interrupted:
        try:
            trace.stop()
        except Exception as error:
            if is_debug:
                raise
            failed = True
            print(f"tracehound: tracing failed, rows are missing: {type(error).__name__}: {error}", file=sys.stderr)
            _tell_failure(sinks, trace.started_ns)
        for sink in sinks:
            _close(sink, sinks, interrupted())
    notes = _still_running(trace.still_running)
    return code, Ending(shlex.join(trace.target.argv), elapsed_ns, _outcome(code), trace.events, kept, notes), failed


def _tell_failure(sinks: list["Sink"], started_ns: int) -> None:
    """Write a loss of everything that came after the failure, whose moment is not known."""
    from tracehound.decode.losses import Loss, loss_rows

    rows = loss_rows([Loss("agent", "tracing_failed", 1, started_ns, time.monotonic_ns())])
    for sink in sinks:
        sink.write({"losses": rows})


@contextmanager
def _signals_are_the_commands(trace: "Trace") -> Iterator[None]:
    """While the command lives, the terminal's signals are its own, and those sent to us are passed on.

    Handlers, not SIG_IGN: exec would hand that down to the command.
    """

    def pass_on(number: int, _frame: object) -> None:
        trace.signal(number)

    handlers: dict[signal.Signals, Any] = {number: lambda *_: None for number in OURS_ONLY}
    handlers |= dict.fromkeys(PASSED_ON, pass_on)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _interrupt_ends_at_once() -> Iterator[Callable[[], bool]]:
    """After the command's end: the first SIGINT skips what can be left out, a second one ends at once."""
    count = 0

    def on_interrupt(*_: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: count > 0
    finally:
        signal.signal(signal.SIGINT, before)


def _close(sink: "Sink", sinks: list["Sink"], is_hurried: bool) -> None:
    """End a sink; what it could not keep is told to the others, of which the summary is the last to be closed."""
    recording = getattr(sink, "recording", None)
    if recording is not None and is_hurried:
        recording.close(compaction=False)
    sink.close()
    losses = sink.take_losses()
    if losses is not None:
        for other in sinks:
            if other is not sink:
                other.write({"losses": losses})


def _outcome(code: int) -> str:
    if code > 128:
        with suppress(ValueError):
            return signal.Signals(code - 128).name
    return f"exit {code}"


def _still_running(pids: list[int]) -> tuple[str, ...]:
    if not pids:
        return ()
    names = []
    for pid in pids[:5]:
        with suppress(OSError):
            names.append(f"{Path(f'/proc/{pid}/comm').read_text().strip()} ({pid})")
    more = f" and {len(pids) - len(names)} more" if len(pids) > len(names) else ""
    return (f"still running, no longer traced: {', '.join(names)}{more}",) if names else ()


def _show(form: str, summary: "Summary", ending: "Ending") -> None:
    from tracehound.sinks.console import columns_of, render, wants_color

    if form == "json":
        sys.stderr.write(summary.json_lines(ending))
    elif form == "table":
        width = columns_of(sys.stderr)
        sys.stderr.write(render(summary, ending, width=width, color=wants_color(sys.stderr)))


COMMAND: Final = Command("run", "run a command under trace and say what it did", __doc__, add_arguments, run)
