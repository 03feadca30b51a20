"""How a bench states its claims: a PASS or FAIL line each, and the exit code."""

import statistics
import sys
from collections.abc import Sequence


class Gates:
    """The gates of one bench, printed as they are measured."""

    def __init__(self) -> None:
        self.held = True

    def at_least(self, claim: str, value: float, limit: float) -> None:
        """State that `value` is to be `limit` or more."""
        self._state(claim, value, value >= limit, f"at least {limit:g}")

    def at_most(self, claim: str, value: float, limit: float) -> None:
        """State that `value` is to be `limit` or less."""
        self._state(claim, value, value <= limit, f"at most {limit:g}")

    def holds(self, claim: str, is_true: bool) -> None:
        """State what is no number."""
        self.held &= is_true
        print(f"{'PASS' if is_true else 'FAIL'}  {claim}")

    def _state(self, claim: str, value: float, is_true: bool, limit: str) -> None:
        self.holds(f"{claim}: {value:.2f} ({limit})", is_true)

    def exit(self) -> None:
        """End the bench: exit code 1 if a gate does not hold."""
        sys.exit(0 if self.held else 1)


def spread(values: Sequence[float]) -> str:
    """Return `median (least to most)`."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def rounds_from(arguments: Sequence[str], default: int) -> int:
    """Return how often to measure: the command line's one argument."""
    return int(arguments[1]) if len(arguments) > 1 else default
