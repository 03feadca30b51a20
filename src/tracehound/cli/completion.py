"""Print what a shell needs to complete tracehound's commands and options.

SHELL is bash, zsh or fish. The script is made of the commands of this version: make it anew after an upgrade.

examples:
  tracehound completion bash > /etc/bash_completion.d/tracehound
  tracehound completion zsh > ~/.zfunc/_tracehound       (with ~/.zfunc in $fpath)
  tracehound completion fish > ~/.config/fish/completions/tracehound.fish
"""

import argparse
import sys
from typing import Final

from tracehound.cli._command import Command
from tracehound.cli._shells import SHELLS, Completion, Program, Value

_KINDS: Final = {"FILE": Value.FILE, "DIR": Value.FOLDER, "RECORDING": Value.RECORDING}  # by metavar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=sorted(SHELLS), metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(SHELLS[options.shell](program()))
    return 0


def program() -> Program:
    """Return what can be completed, read from the parsers."""
    from tracehound.cli import all_parsers

    whole, by_name = all_parsers()
    commands = {name: (command.help, completions(parser)) for name, (command, parser) in by_name.items()}
    return Program(completions(whole), commands)


def completions(parser: argparse.ArgumentParser) -> list[Completion]:
    """Return the options of a parser, and its positional arguments in their order."""
    formatter = parser._get_formatter()
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        text = formatter._expand_help(action) if action.help else ""
        words = tuple(str(choice) for choice in action.choices or ())
        found.append(Completion(tuple(action.option_strings), text, _value_of(action), words))
    return found


def _value_of(action: argparse.Action) -> Value:
    if action.nargs == 0:
        return Value.NONE
    if action.nargs == argparse.REMAINDER:
        return Value.COMMAND
    if action.choices:
        return Value.WORDS
    return _KINDS.get(str(action.metavar), Value.OTHER)


COMMAND: Final = Command("completion", "print shell completion for bash, zsh or fish", __doc__, add_arguments, run)
