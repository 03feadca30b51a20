"""What to trace, as plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start and to follow from its fork on; `user` is the name whose ids it runs with, None for ours."""

    argv: tuple[str, ...]
    user: str | None = None
    env: tuple[tuple[str, str], ...] | None = None
    cwd: str | None = None
