"""The options that say what to trace of that which runs."""

import argparse
from typing import TYPE_CHECKING

from tracehound.errors import TargetError, UsageError

if TYPE_CHECKING:
    from tracehound.target import Target


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--pid`, `--cgroup`, `--container` and `--all`, of which one must be given."""
    what = parser.add_argument_group("what to trace, one of")
    what.add_argument("--pid", action="append", metavar="N", help="a process with its threads and children; repeatable")
    what.add_argument("--cgroup", metavar="PATH", help="a version-2 cgroup and those below it")
    what.add_argument("--container", metavar="NAME", help="a running container, by name or the beginning of its id")
    what.add_argument("--all", action="store_true", help="every process of this machine")


def target_of(options: argparse.Namespace) -> "Target":
    """Return the target that the options name; raises UsageError if they name none or several."""
    from tracehound.target import Cgroup, Container, Host, Processes

    given = [name for name in ("pid", "cgroup", "container", "all") if getattr(options, name)]
    if not given:
        raise UsageError("nothing to trace. Name one of: --pid N, --cgroup PATH, --container NAME, --all")
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} do not go together: name one target")
    if options.pid:
        return Processes(tuple(dict.fromkeys(map(_pid, options.pid))))
    if options.cgroup:
        return Cgroup(options.cgroup)
    return Container(options.container) if options.container else Host()


def _pid(text: str) -> int:
    from tracehound.resolve import near_processes

    if not text.isdecimal():
        raise TargetError(f"--pid takes a number, not {text}{near_processes(text)}")
    return int(text)
