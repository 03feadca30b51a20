"""The contract of a command: each module here without an underscore is one, and exports one `COMMAND`.

Its help is the module's docstring. What a command needs beyond argparse it imports when it runs.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """A command's name, one line of help, its whole help, its arguments, and what it does: returns the exit code."""

    name: str
    help: str
    doc: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
