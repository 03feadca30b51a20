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
from tracehound.cli._stderr import say
from tracehound.errors import RecordingError, UsageError

if TYPE_CHECKING:
    from tracehound.sources.tape import Tape

DIFFERENT: Final = 1
FILES: Final = {"info": 1, "scrub": 2}
USAGE: Final = {"info": "info takes one tape", "scrub": "scrub takes a tape and the name of the one to be made"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("act", choices=tuple(FILES), metavar="COMMAND", help="info FILE, or scrub IN OUT")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a tape; of scrub then the tape to be made, a new file"
    )


def run(options: argparse.Namespace) -> int:
    """Do what is asked for."""
    if len(options.files) != FILES[options.act]:
        raise UsageError(f"{USAGE[options.act]}. Help: tracehound tape --help")
    return _info(options.files[0]) if options.act == "info" else _scrub(*options.files)


def _info(path: str) -> int:
    from tracehound.sources.tape import Tape

    with Tape(path) as tape:
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


def _scrub(source: str, target: str) -> int:
    from tracehound.scrub import scrub
    from tracehound.sources.tape import is_tape

    if not is_tape(source):
        raise RecordingError(f"{source} is not a tape")
    report = scrub(source, target)
    for note in report.notes:
        say(note)
    kept = f"{report.kept_bytes:,} of {report.payload_bytes:,} bytes of traffic stay"
    print(f"tracehound: {target} is made; {kept}, {report.arguments:,} arguments blanked", file=sys.stderr)
    return DIFFERENT if report.differs else 0


COMMAND: Final = Command("tape", "say what a tape is of, or take the secrets out of it", __doc__, add_arguments, run)
