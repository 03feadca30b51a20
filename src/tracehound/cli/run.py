"""Run a command under trace and say what it did.

COMMAND keeps its standard streams, its terminal, its signals and its exit code. When it ends, a summary goes to
standard error: who called whom, what was slow, what failed, and whether anything was lost.

examples:
  sudo tracehound run -- python shop.py
  sudo tracehound run --record shop/ -- ./test.sh
  sudo tracehound run --files -- make
  sudo tracehound run --tape shop.tape -- python shop.py
  sudo tracehound run --format json -- make test 2> summary.jsonl
  sudo tracehound run --output rows.txt --no-record -- nginx -g 'daemon off;'

exit codes:
  COMMAND's own (128+N for signal N; 126 not executable, 127 not found); 2 tracing could not start, and COMMAND was not
  started; 120 tracing failed though COMMAND succeeded; 121 --strict, and something was lost.
"""

import argparse
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.cli._command import Command
from tracehound.cli._trace import SOMETHING_LOST, add_trace_arguments, discard, open_sinks, settings_of, show, stop
from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.agent import Trace
    from tracehound.sinks import Sink
    from tracehound.sinks.console import Ending

TRACING_FAILED: Final = 120
OURS_ONLY: Final = (signal.SIGINT, signal.SIGQUIT)  # from the terminal the command gets them by itself
PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_trace_arguments(parser)
    parser.add_argument("--user", metavar="NAME", help="run the command with this user's ids")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the command under trace, print the summary, return the exit code."""
    from tracehound.agent import Trace
    from tracehound.sinks.console import Summary
    from tracehound.target import Command as Target

    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("no command to run. Write: tracehound run -- COMMAND")
    settings = settings_of(options)
    with Trace(Target(tuple(argv), options.user), settings) as trace:
        trace.load()
        summary = Summary()
        outputs, kept = open_sinks(options, trace)
        code, ending = _follow(trace, [*outputs, summary], kept, getattr(options, "debug", False))
    show(options.format, summary, ending)
    if ending.failure:
        return code or TRACING_FAILED
    return SOMETHING_LOST if options.strict and code == 0 and any(summary.losses.values()) else code


def _follow(trace: "Trace", sinks: list["Sink"], kept: str | None, is_debug: bool) -> tuple[int, "Ending"]:
    """Start the command, wait for it, end the trace; return its exit code, and how both ended."""
    from tracehound.account import public_target
    from tracehound.sinks.console import Ending
    from tracehound.target import describe

    with _signals_are_the_commands(trace):
        try:
            trace.start(sinks)
        except BaseException:
            for sink in sinks:
                discard(sink)
            raise
        code = trace.wait()
    elapsed_ns = time.monotonic_ns() - trace.started_ns
    trace.ending = {"elapsed_ns": elapsed_ns, "outcome": _outcome(code)}
    failure = stop(trace, sinks, is_debug)
    shown, notes = describe(public_target(trace.target, trace.settings.redact)), _still_running(trace.still_running)
    notes += tuple(trace.fill_notes)
    return code, Ending(shown, elapsed_ns, _outcome(code), trace.events, kept, notes, failure)


@contextmanager
def _signals_are_the_commands(trace: "Trace") -> Iterator[None]:
    """While the command lives, the terminal's signals are its own, and those sent to us are passed on.

    Handlers, not SIG_IGN: exec would hand that down to the command. What our caller ignored, as nohup does, stays so.
    """

    def pass_on(number: int, _frame: object) -> None:
        trace.signal(number)

    handlers: dict[signal.Signals, Any] = {number: lambda *_: None for number in OURS_ONLY}
    handlers |= dict.fromkeys(PASSED_ON, pass_on)
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


COMMAND: Final = Command("run", "run a command under trace and say what it did", __doc__, add_arguments, run)
