"""Show again what a tape or a packet capture holds: the rows and the summary of the trace, without root.

FILE is a tape (`run --tape FILE`) of this machine or another one, or a packet capture (pcap, pcapng). A tape that is
cut shows all up to there; one of another version says what it lacks. Nothing of this machine is looked at.

examples:
  tracehound replay shop.tape
  tracehound replay shop.tape --output - --where "duration_ns > 50ms"
  tracehound replay shop.tape --record shop/
  tracehound replay web.pcapng --format json --output rows.jsonl

exit codes:
  0 done, 1 the file is damaged or cannot be read, 2 there is no such file, or it is of another kind, 121 --strict, and
  something was lost.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracehound.cli._command import Command
from tracehound.cli._options import add_format
from tracehound.cli._stderr import say
from tracehound.cli._trace import SOMETHING_LOST, show

if TYPE_CHECKING:
    from tracehound.replay import Replay
    from tracehound.sinks import Sink


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a tape, or a packet capture")
    parser.add_argument("--record", metavar="DIR", help="keep all rows in a new recording")
    add_format(parser, "table", "json", "none")
    parser.add_argument("--output", metavar="FILE", help="write rows there, in that format; `-` is standard output")
    parser.add_argument("--where", metavar="EXPR", help='rows written: "duration_ns > 50ms and status >= 500"')
    parser.add_argument("--strict", action="store_true", help=f"exit {SOMETHING_LOST} if anything was lost")
    parser.add_argument("--no-redact", action="store_true", help="show secrets: query strings, passwords ...")


def run(options: argparse.Namespace) -> int:
    """Replay the file, print the summary, return the exit code."""
    from tracehound.replay import open_replay
    from tracehound.sinks.console import Ending, Summary

    if options.no_redact:
        say("--no-redact: secrets will stand in the rows")
    with open_replay(options.file, redact=not options.no_redact) as replay:
        summary = Summary()
        sinks: list[Sink] = [*_open_outputs(options, replay), summary]
        try:
            end = replay.run(sinks)
        finally:
            for sink in sinks:
                sink.close()
                losses = sink.take_losses()
                if losses is not None:
                    summary.write({"losses": losses})
        for note in end.notes:
            say(note)
        kept = str(Path(options.record)) if options.record else None
        show(options.format, summary, Ending(replay.command, end.elapsed_ns, end.outcome, end.events, kept))
    return SOMETHING_LOST if options.strict and any(summary.losses.values()) else 0


def _open_outputs(options: argparse.Namespace, replay: "Replay") -> "list[Sink]":
    from tracehound.sinks import WhereSink, kind, where_rows

    sinks: list[Sink] = []
    source = replay.source
    where = where_rows(options.where, source.schemas) if options.where else None
    if options.output:
        rows = kind("jsonl" if options.format == "json" else "console").open(options.output, source)
        sinks.append(rows if where is None else WhereSink(rows, where))
    if options.record:
        sinks.append(kind("parquet").open(options.record, source))
    return sinks


COMMAND: Final = Command("replay", "show again what a tape or a packet capture holds", __doc__, add_arguments, run)
