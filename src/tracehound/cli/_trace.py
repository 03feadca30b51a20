"""What the commands that trace share: their options, outputs, how a trace is stopped, and the summary."""

import argparse
import os
import pwd
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tracehound.cli._options import add_format, add_switches, near, switched_off
from tracehound.cli._stderr import say, write_stderr
from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.agent import Trace
    from tracehound.config import Filter, Settings
    from tracehound.sinks import Sink, Source
    from tracehound.sinks.console import Ending, Summary

SOMETHING_LOST: Final = 121
INTERRUPTED: Final = 130
SETTINGS: Final = (  # name, type, what it says
    ("memory-mib", int, "budget of user memory for rows and streams (default 256)"),
    ("ring-mib", int, "size of the kernel's ring for data, a power of two (default 16)"),
    ("lifecycle-ring-mib", int, "size of the kernel's ring for processes and connections (default 4)"),
    ("backlog-mib", int, "data that may wait for decode (default 64, at most 3/16 of --memory-mib)"),
    ("tape-mib", int, "a tape grows no larger (default 1024)"),
    ("response-timeout", float, "seconds after which a request counts as not answered (default 300)"),
)


FILTERS: Final = (  # name, what it says
    ("uid", "processes of this user, a number or a name"),
    ("pid", "this process, in the initial pid namespace"),
    ("tid", "this thread"),
    ("comm", "processes of this name, its first 15 bytes"),
    ("port", "connections with this port at either end"),
    ("protocol", "this protocol"),
)
TEXTS: Final = frozenset({"comm", "protocol"})


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that every tracing command has."""
    keep = parser.add_mutually_exclusive_group()
    keep.add_argument("--record", metavar="DIR", help="keep all rows in a new recording (default: capped, as `last`)")
    keep.add_argument("--no-record", action="store_true", help="keep no rows")
    parser.add_argument("--tape", metavar="FILE", help="keep all records, raw, for `replay`: secrets too")
    add_format(parser, "table", "json", "none")
    parser.add_argument("--output", metavar="FILE", help="write rows there as they end, in that format")
    parser.add_argument("--strict", action="store_true", help=f"exit {SOMETHING_LOST} if anything was lost")
    parser.add_argument(
        "--no-redact", action="store_true", help="keep secrets in the rows: query strings, passwords ..."
    )
    parser.add_argument(
        "--payloads", action="store_true", help="keep the captured bytes too, in the recording; nothing redacts them"
    )
    parser.add_argument("--files", action="store_true", help="opens of files, too; costs all programs some speed")
    parser.add_argument(
        "--nat",
        action=argparse.BooleanOptionalAction,
        help="addresses after NAT (default: if this network namespace has rules of it)",
    )
    parser.add_argument("--btf", metavar="FILE", help="the kernel's BTF, if not the running kernel's own")
    filters = parser.add_argument_group(
        "filters",
        "repeatable, values of one are alternatives; tid and protocol leave out requests only",
    )
    for name, text in FILTERS:
        metavar = name.upper() if name in TEXTS else "N"
        filters.add_argument(f"--only-{name}", action="append", metavar=metavar, help=f"only {text}")
        filters.add_argument(f"--no-{name}", action="append", metavar=metavar, help=f"nothing of {text}")
    filters.add_argument(
        "--where", metavar="EXPR", help='rows shown as they end: "duration_ns > 50ms and status >= 500"'
    )
    for name, kind, text in SETTINGS:
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=text)
    add_switches(parser)


def settings_of(options: argparse.Namespace) -> "Settings":
    """Return the settings that the options name; what is worth a warning is said. Raises UsageError."""
    from tracehound.config import Settings

    names = {name: name.replace("-", "_") for name, _, _ in SETTINGS}
    given = {field: getattr(options, field) for field in names.values() if getattr(options, field) is not None}
    if "response_timeout" in given:
        given["response_timeout_s"] = given.pop("response_timeout")
    if options.no_redact:
        say("--no-redact: secrets will stand in the rows")
    if options.payloads and options.no_record:
        raise UsageError("--payloads keeps bytes in a recording: take --no-record away")
    if options.payloads:
        say("--payloads: the recording will hold raw bytes of connections, passwords too; nothing redacts them")
    filters = tuple(filters_of(options))
    if filters:
        say(f"filters: {' '.join(map(str, filters))}")
    return Settings(
        files=options.files,
        nat=options.nat,
        btf=options.btf,
        redact=not options.no_redact,
        payloads=options.payloads,
        filters=filters,
        off=switched_off(options),
        **given,
    )


def filters_of(options: argparse.Namespace) -> "Iterator[Filter]":
    """Yield the filters that the options name; raises UsageError for a value that cannot be."""
    from tracehound.config import Filter

    for name, _ in FILTERS:
        for sense in ("only", "no"):
            for text in getattr(options, f"{sense}_{name}") or ():
                yield Filter(name, sense == "only", _filter_value(f"--{sense}-{name}", name, text))


def _filter_value(option: str, name: str, text: str) -> int | str:
    if name == "comm":
        return text
    if name == "protocol":
        from tracehound.protocols import load_protocols

        known = [protocol.name for protocol in load_protocols()]
        if text not in known:
            raise UsageError(f"{option}: no protocol {text}{near(text, known)}")
        return text
    if name == "uid" and not text.isdecimal():
        with suppress(KeyError):
            return pwd.getpwnam(text).pw_uid
        raise UsageError(f"{option}: no such user: {text}")
    if not text.isdecimal() or int(text) >= (1 << 16 if name == "port" else 1 << 32):
        raise UsageError(f"{option} takes a number, not {text}")
    return int(text)


def open_sinks(options: argparse.Namespace, trace: "Trace") -> tuple[list["Sink"], str | None]:
    """Open the outputs; return them and what the recording is called, None if none is kept."""
    from tracehound.account import recording_source
    from tracehound.recording import new_state_recording
    from tracehound.sinks import WhereSink, kind, where_rows

    settings = trace.settings
    source: Source = recording_source(trace.target, settings.redact, trace.switches, settings.payloads)
    sinks: list[Sink] = []
    if options.tape:
        trace.open_tape(options.tape)
        say(f"{options.tape} will hold the raw traffic, secrets too; before you show it: tracehound tape scrub")
    where = where_rows(options.where, source.schemas) if options.where else None
    if options.output:
        live = kind("jsonl" if options.format == "json" else "console").open(options.output, source)
        sinks.append(live if where is None else WhereSink(live, where))
    if options.record:
        sinks.append(kind("parquet").open(options.record, source))
        return sinks, str(Path(options.record))
    if options.no_record:
        return sinks, None
    folder, owner, cap_bytes = new_state_recording()
    sinks.append(kind("parquet").open(str(folder), replace(source, owner=owner, cap_bytes=cap_bytes)))
    return sinks, "last"


def stop(trace: "Trace", sinks: list["Sink"], is_debug: bool, interrupts: int = 0) -> str | None:
    """End the trace and close the sinks, the summary last; return how tracing failed, which is said, or None.

    `interrupts`: how many SIGINT came before; the second one ends at once.
    """
    failure = None
    with _interrupt_ends_at_once(interrupts) as interrupted:
        try:
            trace.stop()
        except Exception as error:
            if is_debug:
                raise
            failure = f"{type(error).__name__}: {error}"
            say(f"tracing failed, rows are missing: {failure}")
            _tell_failure(sinks, trace.started_ns)
        for sink in sinks:
            _close(sink, sinks, interrupted())
    return failure


def _tell_failure(sinks: list["Sink"], started_ns: int) -> None:
    """Write a loss of everything that came after the failure, whose moment is not known."""
    from tracehound.decode.losses import Loss, loss_rows

    rows = loss_rows([Loss("agent", "tracing_failed", 1, started_ns, time.monotonic_ns())])
    for sink in sinks:
        sink.write({"losses": rows})


def discard(sink: "Sink") -> None:
    """End a sink of a trace that did not begin; its recording does not stay, least of all as `last`."""
    recording = getattr(sink, "recording", None)
    if recording is not None:
        recording.discard()
    sink.close()


def end_at_once() -> NoReturn:
    """End this process now, as interrupted twice: nothing may be waited for, not even a reader of our output.

    What is loaded goes with its descriptors; of a recording there are whole files and batches at every moment.
    """
    os._exit(INTERRUPTED)


@contextmanager
def _interrupt_ends_at_once(count: int) -> Iterator[Callable[[], bool]]:
    """While the trace ends: the first SIGINT skips what can be left out, a second one ends at once."""
    before_it = count

    def on_interrupt(*_: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            end_at_once()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: count > before_it
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


def show(form: str, summary: "Summary", ending: "Ending") -> None:
    """Print the summary to standard error in the wanted form."""
    from tracehound.sinks.console import columns_of, render, wants_color

    if form == "json":
        write_stderr(summary.json_lines(ending))
    elif form == "table" and sys.stderr is not None:
        width = columns_of(sys.stderr)
        write_stderr(render(summary, ending, width=width, color=wants_color(sys.stderr)))
