"""The command line: finds the command, parses, runs it, and turns errors into one line and an exit code.

Exit codes: 2 wrong use, nothing to trace, or tracing cannot start; 1 failed while running; 130 interrupted; else what
the command returns.
"""

import argparse
import errno
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tracehound.cli._command import Command
from tracehound.cli._options import HelpFormatter, Parser, add_debug
from tracehound.cli._stderr import say
from tracehound.errors import (
    ProtocolError,
    RecordingError,
    TargetError,
    TracehoundError,
)

__all__ = ["all_parsers", "commands", "main"]

_FAILED: Final = (ProtocolError, RecordingError)  # all others: it could not begin, or was asked wrongly
_INTERRUPTED: Final = 130
_REFUSED: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # by whatever takes the output
_DESCRIPTION: Final = """\
Tracehound shows what Linux programs really do: which processes ran, who talked to
whom, every HTTP request, Redis command and SQL statement with its time and outcome;
and calls of functions and system calls, with arguments and stacks.
From outside, with eBPF; nothing is changed or restarted."""
_EXAMPLES: Final = """\
examples:
  sudo tracehound run -- python shop.py
  sudo tracehound attach --pid 4242
  tracehound query last "select * from requests where status >= 500"
  tracehound replay web.pcap --output -
  sudo tracehound call sys:%file -- ls
  sudo tracehound call --stack --flame calls.html libc:malloc -- ls
  tracehound doctor

`tracehound COMMAND --help` tells more."""


def commands() -> tuple[str, ...]:
    """Return the names of all commands, in order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return its exit code."""
    _open_missing_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in _before_dashes(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read our output has seen enough
        _silence(sys.stdout)
        return 0
    except OSError as error:
        if is_debug:
            raise
        if error.errno not in _REFUSED or error.filename is not None:
            return _mistake(error)
        say(f"cannot write the output: {error.strerror}")
        _silence(sys.stdout)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except TracehoundError as error:
        if is_debug:
            raise
        say(str(error))
        return _exit_code(error)
    except Exception as error:
        if is_debug:
            raise
        return _mistake(error)


def _mistake(error: Exception) -> int:
    say(f"unexpected {type(error).__name__}: {error}. This is a mistake in tracehound; --debug shows where")
    return 1


def _run(arguments: list[str]) -> int:
    parser, by_name = _parser(arguments)
    try:
        options, unknown = parser.parse_known_args(arguments)
    except SystemExit as end:  # --help, --version
        return int(end.code or 0)
    if unknown:
        (by_name[options.command][1] if options.command else parser).refuse(unknown)
    if options.command is None:
        parser.print_help()
        return 2
    return by_name[options.command][0].run(options)


def _parser(arguments: Sequence[str]) -> tuple[Parser, dict[str, tuple[Command, Parser]]]:
    """Return the parser; if the first argument names a command only that one is imported."""
    names = commands()
    wanted = [name for name in names if arguments[:1] == [name]] or names
    parser = Parser(
        prog="tracehound",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tracehound {_version()}")
    add_debug(parser)
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    by_name = {}
    for name in wanted:
        command: Command = importlib.import_module(f"{__name__}.{name}").COMMAND
        sub = choices.add_parser(
            name,
            help=command.help,
            description=command.doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_debug(sub)
        command.add_arguments(sub)
        by_name[name] = (command, sub)
    return parser, by_name


def all_parsers() -> tuple[Parser, dict[str, tuple[Command, Parser]]]:
    """Return the program's own parser, and every command with its parser."""
    return _parser(())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tracehound")
    except PackageNotFoundError:
        return "(not installed)"


def _before_dashes(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _exit_code(error: TracehoundError) -> int:
    if isinstance(error, TargetError):
        return error.exit_code
    return 1 if isinstance(error, _FAILED) else 2


def _open_missing_streams() -> None:
    """Put /dev/null where the caller closed a standard stream: else the next file that is opened takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                descriptor = os.open(os.devnull, os.O_RDWR)
                os.set_inheritable(descriptor, descriptor <= 2)
                setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 - until the end


def _silence(stream: object) -> None:
    """Keep the interpreter from complaining about the broken pipe when it flushes at its end."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[attr-defined]
        os.close(null)
