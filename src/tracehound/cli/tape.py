"""Look at a tape, or take the secrets out of it.

A tape holds the raw traffic of a trace, passwords and tokens included, and only its owner can read it. `scrub` writes
another one of the same lengths that gives the same rows: bodies, header values, query values, secret arguments, and all
bytes of protocols that are not known, are overwritten. `info` says what a tape is of.

examples:
  sudo tracehound run --tape shop.tape -- python shop.py
  tracehound tape info shop.tape
  tracehound tape scrub shop.tape shop-to-show.tape
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tracehound.cli._command import Command
from tracehound.cli._options import Parser
from tracehound.cli._stderr import say
from tracehound.errors import RecordingError, UsageError

if TYPE_CHECKING:
    from tracehound.sources.tape import Tape

DIFFERENT: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own commands."""
    acts = parser.add_subparsers(dest="act", metavar="(info | scrub)", parser_class=Parser)
    info = acts.add_parser("info", help="say what a tape is of", description="Say what a tape is of.")
    info.add_argument("file", metavar="FILE", help="a tape")
    scrub = acts.add_parser("scrub", help="take the secrets out", description="Take the secrets out of a tape.")
    scrub.add_argument("source", metavar="IN", help="a tape")
    scrub.add_argument("target", metavar="OUT", help="the tape to be made, a new file")


def run(options: argparse.Namespace) -> int:
    """Do one of the acts."""
    if options.act is None:
        raise UsageError("say what to do with the tape: info FILE, scrub IN OUT. Help: tracehound tape --help")
    return _info(options) if options.act == "info" else _scrub(options)


def _info(options: argparse.Namespace) -> int:
    from tracehound.sources.tape import Tape

    with Tape(options.file) as tape:
        for name, value in _lines(tape):
            print(f"{name:<10} {value}")
    return 0


def _lines(tape: "Tape") -> "Iterator[tuple[str, str]]":
    """Yield name and text of what is to be said of a tape; reads it whole."""
    from tracehound.replay import survey

    facts, found = tape.facts, survey(tape)
    yield "command", " ".join(facts.command)
    yield "host", f"{facts.host}, kernel {facts.kernel}, boot {facts.boot_id}"
    if facts.clock_anchors:
        moment = datetime.fromtimestamp(facts.clock_anchors[0][1] / 1e9, UTC)
        yield "started", moment.isoformat(timespec="milliseconds")
    yield "version", f"tracehound {facts.version}"
    yield "switches", ", ".join(name for name, is_on in facts.switches.items() if is_on) or "none"
    yield "secrets", "scrubbed" if tape.redacted else "raw: may hold passwords, tokens, bodies"
    yield "size", f"{found.file_bytes:,} bytes, {found.record_bytes:,} unpacked"
    yield "records", ", ".join(f"{kind} {count:,}" for kind, count in found.records.items()) or "none"
    if found.unreadable:
        yield "damaged", f"{found.unreadable:,} records"
    if tape.cut is not None:
        yield "cut", f"at byte {tape.cut.position:,}: {tape.cut.reason}"


def _scrub(options: argparse.Namespace) -> int:
    from tracehound.scrub import scrub
    from tracehound.sources.tape import is_tape

    if not is_tape(options.source):
        raise RecordingError(f"{options.source} is not a tape")
    report = scrub(options.source, options.target)
    for note in report.notes:
        say(note)
    kept = f"{report.kept_bytes:,} of {report.payload_bytes:,} bytes of traffic stay"
    print(f"tracehound: {options.target} is made; {kept}, {report.arguments:,} arguments blanked", file=sys.stderr)
    return DIFFERENT if report.differs else 0


COMMAND: Final = Command("tape", "say what a tape is of, or take the secrets out of it", __doc__, add_arguments, run)
