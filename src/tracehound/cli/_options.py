"""Options that several commands share, and the parser that answers a mistake with one line and near matches."""

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

from tracehound.errors import UsageError
from tracehound.kernel.probes import DEFAULT_FEATURES, FEATURES

_CHOICE = re.compile(r"argument (?P<what>.+): invalid choice: '(?P<given>.*?)' \(choose from (?P<all>.*)\)")


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError; a wrong choice gets its near matches."""
        if match := _CHOICE.fullmatch(message):
            choices = re.findall(r"[\w-]+", match["all"])
            kind = "command" if match["what"] == "COMMAND" else f"value of {match['what']}"
            message = f"no {kind} {match['given']}{near(match['given'], choices)}"
        raise UsageError(f"{message}. Help: {self.prog} --help")

    def refuse(self, unknown: Iterable[str]) -> NoReturn:
        """Raise UsageError for arguments that no option took."""
        first = next(iter(unknown))
        if not first.startswith("-"):
            self.error(f"unexpected argument {first}")
        options = [option for action in self._actions for option in action.option_strings]
        name = first.split("=")[0]
        self.error(f"no option {name}{near(name, options)}")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Texts as they are written; commands in a column, though argparse measures them without their second indent."""

    def add_argument(self, action: argparse.Action) -> None:
        """Add an action, and make room for its commands' names if it has some."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            longest = max(map(len, action.choices), default=0) + 2 * self._indent_increment
            self._action_max_length = max(self._action_max_length, longest)


def near(given: str, choices: Iterable[str]) -> str:
    """Return `. Near: a, b`, or all choices if none is near and they are few."""
    names = list(choices)
    found = difflib.get_close_matches(given, names, 3, 0.6)
    if found:
        return f". Near: {', '.join(found)}"
    return f". There are: {', '.join(names)}" if len(names) <= 12 else ""


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Add `--debug`."""
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show a traceback of an error")


def add_switches(parser: argparse.ArgumentParser) -> None:
    """Add `--no-X` for each switch X that is on by default."""
    group = parser.add_argument_group("switches")
    for feature in (each for each in FEATURES if each in DEFAULT_FEATURES):
        group.add_argument(f"--no-{feature}", action="store_true", help=f"do not attach the programs of {feature}")


def switched_off(options: argparse.Namespace) -> frozenset[str]:
    """Return the switches that the options of `add_switches` turn off."""
    return frozenset(feature for feature in DEFAULT_FEATURES if getattr(options, f"no_{feature}"))


def add_format(parser: argparse.ArgumentParser, *choices: str) -> None:
    """Add `--format` with its choices, the first of them the default."""
    parser.add_argument(
        "--format",
        choices=choices,
        default=choices[0],
        metavar="F",
        help=f"{', '.join(choices)} (default {choices[0]})",
    )
