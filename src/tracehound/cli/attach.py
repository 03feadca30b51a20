"""Trace what runs, from now on, and say what it did.

Rows are shown as they end: one line for each request and each connection that failed. What was there before is marked
`preexisting` in the tables. Children are followed, and what moves into a traced cgroup; a process that leaves it stays
traced. Ends when the target has ended, after --duration, or with Ctrl-C, and then prints the summary to standard error.
Nothing is changed or restarted, and nothing stays; tracehound itself is never traced.

examples:
  sudo tracehound attach --pid 4242
  sudo tracehound attach --pid 4242 --pid 4300 --duration 60 --no-record
  sudo tracehound attach --cgroup system.slice/nginx.service
  sudo tracehound attach --container shop-db --format json > rows.jsonl

exit codes:
  0 ended in order, Ctrl-C too; 1 tracing failed; 2 there is no such target, or tracing could not start; 121 --strict,
  and something was lost; 130 interrupted twice.
"""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tracehound.cli._command import Command
from tracehound.cli._target import add_target_arguments, target_of
from tracehound.cli._trace import (
    SOMETHING_LOST,
    add_trace_arguments,
    discard,
    end_at_once,
    open_sinks,
    settings_of,
    show,
    stop,
)
from tracehound.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.agent import Trace
    from tracehound.sinks import Sink
    from tracehound.sinks.console import StatusLine, Summary

TICK_S: Final = 0.25
FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target_arguments(parser)
    parser.add_argument("--duration", type=float, metavar="S", help="end after this many seconds")
    add_trace_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Trace the target until it, the time or the user ends it; print the summary, return the exit code."""
    from tracehound.agent import Trace
    from tracehound.sinks.console import Ending, StatusLine, Summary
    from tracehound.target import describe

    target = target_of(options)
    if options.duration is not None and options.duration <= 0:
        raise UsageError(f"--duration must be above 0, not {options.duration:g}")
    settings = settings_of(options)
    if options.format != "none" and not options.output:
        options.output = "-"
    is_debug = getattr(options, "debug", False)
    with Trace(target, settings) as trace, _interrupts() as asked:
        trace.load()
        summary, status = Summary(), StatusLine(sys.stderr)
        outputs, kept = open_sinks(options, trace)
        sinks: list[Sink] = [_Screen(outputs[0], status) if options.output == "-" else sink for sink in outputs[:1]]
        sinks += [*outputs[1:], summary]
        try:
            trace.start(sinks)
        except BaseException:
            for sink in sinks:
                discard(sink)
            raise
        _say_start(trace)
        _watch(trace, summary, status, options.duration, asked)
        elapsed_ns = time.monotonic_ns() - trace.started_ns
        trace.ending = {"elapsed_ns": elapsed_ns}
        ended = trace.has_ended() and trace.failure is None
        failure = stop(trace, sinks, is_debug, asked.count)
        status.erase()
        if ended:
            print(f"tracehound: {describe(target)} has ended", file=sys.stderr)
    show(
        options.format,
        summary,
        Ending(describe(target), elapsed_ns, "", trace.events, kept, tuple(trace.fill_notes), failure),
    )
    if failure:
        return FAILED
    return SOMETHING_LOST if options.strict and any(summary.losses.values()) else 0


class _Asked:
    """How often the user asked for the end: the second SIGINT is not waited for."""

    def __init__(self) -> None:
        self.count = 0
        self.event = threading.Event()

    def on_signal(self, number: int, _frame: object) -> None:
        self.event.set()
        if number == signal.SIGINT:
            self.count += 1
            if self.count > 1:
                end_at_once()


@contextmanager
def _interrupts() -> Iterator[_Asked]:
    asked = _Asked()
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, asked.on_signal) for number in wanted}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Screen:
    """Rows on a terminal that has a status line too: it goes before rows come."""

    def __init__(self, rows: "Sink", status: "StatusLine") -> None:
        self._rows = rows
        self._status = status

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        self._status.erase()
        self._rows.write(tables)
        self._rows.flush()

    def flush(self) -> None:
        self._rows.flush()

    def take_losses(self) -> "pa.RecordBatch | None":
        return self._rows.take_losses()

    def close(self) -> None:
        self._rows.close()


def _say_start(trace: "Trace") -> None:
    from tracehound.target import describe

    for note in trace.notes:
        print(f"tracehound: {note}", file=sys.stderr)
    print(f"tracehound: tracing {describe(trace.target)}; Ctrl-C ends it", file=sys.stderr)


def _watch(trace: "Trace", summary: "Summary", status: "StatusLine", duration_s: float | None, asked: _Asked) -> None:
    """Wait for the end, with the status line."""
    until = None if duration_s is None else time.monotonic() + duration_s
    before, before_ns = 0, trace.started_ns
    while not asked.event.is_set() and (until is None or time.monotonic() < until):
        if trace.wait_ended(TICK_S if until is None else max(0.0, min(TICK_S, until - time.monotonic()))):
            return
        now = time.monotonic_ns()
        rate = (summary.requests - before) * 1e9 / max(now - before_ns, 1)
        before, before_ns = summary.requests, now
        status.show(
            elapsed_ns=now - trace.started_ns,
            events=trace.events,
            requests=summary.requests,
            requests_per_second=rate,
            errors=summary.failed,
            lost=sum(summary.losses.values()),
        )


COMMAND: Final = Command("attach", "trace what runs, and show its requests as they end", __doc__, add_arguments, run)
