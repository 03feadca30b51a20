"""Draw the stacks of calls as a flame graph, or write them for other tools: from a recording or a tape.

RECORDING is a folder that `call --record` made, or `last`, the newest that was kept without a name; or a tape, which is
replayed first. Calls have stacks if they were traced with `call --stack`. html is one page that needs no network and no
other file; folded is text, one line a stack; pprof is for `go tool pprof`.

The weight of a stack is how many calls had it (count), how long they took in all (duration), or the sum of any column
of `calls` with numbers. EXPR chooses calls, as in `--where` of `call`.

examples:
  sudo tracehound call --stack 'libc:write[int,ptr,size_t]' -- python3 shop.py
  tracehound flame last
  tracehound flame last --weight duration --where "duration_ns > 1ms and pid = 4242" --output slow.html
  tracehound flame last --weight return_value --format folded | sort -k2 -n
  tracehound flame shop.tape --format pprof --output shop.pb.gz && go tool pprof -http : shop.pb.gz
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from tracehound.cli._command import Command
from tracehound.cli._options import add_format
from tracehound.cli._stderr import say
from tracehound.errors import SinkError, UsageError

OUTPUTS: Final = {"html": "flame.html", "folded": "-", "pprof": "profile.pb.gz"}  # where no --output is given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("recording", metavar="RECORDING", help="a folder, `last`, or a tape")
    parser.add_argument(
        "--weight",
        metavar="W",
        default="count",
        help="count, duration, or a column of calls with numbers (default count)",
    )
    parser.add_argument("--where", metavar="EXPR", help='only these calls: "duration_ns > 50ms and pid = 4242"')
    shown = ", ".join(f"{path} for {form}" for form, path in OUTPUTS.items())
    parser.add_argument("--output", metavar="FILE", help=f"write there, `-` is standard output (default {shown})")
    add_format(parser, *OUTPUTS)


def run(options: argparse.Namespace) -> int:
    """Write the file, say what it holds."""
    from tracehound.opened import open_kept
    from tracehound.sinks._profile_sink import writer
    from tracehound.sinks.flame import profile_of

    path = options.output or OUTPUTS[options.format]
    if path == "-" and options.format == "pprof" and sys.stdout.isatty():
        raise UsageError("--format pprof is not text: name a file with --output")
    kept = open_kept(options.recording)
    for note in kept.notes:
        say(note)
    profile = profile_of(kept.recording, options.weight, options.where)
    for damaged, reason in kept.recording.damaged.items():
        say(f"left out {damaged}, which is damaged: {reason}")
    content = writer(options.format)(profile)
    if path == "-":
        sys.stdout.buffer.write(content)
        return 0
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise SinkError(f"cannot write {path}: {error.strerror}") from error
    calls = sum(stack.rows for stack in profile.stacks)
    about = profile.about
    say("; ".join((f"{path}: {calls:,} calls in {len(profile.stacks):,} distinct stacks", about.lost, *about.notes)))
    return 0


COMMAND: Final = Command("flame", "draw the stacks of calls, or write them for pprof", __doc__, add_arguments, run)
