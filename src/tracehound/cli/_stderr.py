"""What we say on standard error. That nobody can read it (a closed pipe, a full disk) changes nothing else."""

import sys
from contextlib import suppress


def write_stderr(text: str) -> None:
    """Write a text as it is; give up silently where that cannot be done."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def say(message: str) -> None:
    """Write one line that begins with our name."""
    write_stderr(f"tracehound: {message}\n")
