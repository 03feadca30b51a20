"""What to trace, as plain values; `resolve` finds what they name on this machine."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start and to follow from its fork on; `user` is the name whose ids it runs with, None for ours."""

    argv: tuple[str, ...]
    user: str | None = None
    env: tuple[tuple[str, str], ...] | None = None
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes that run, by their pids in our own pid namespace; with their children, now and later."""

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cgroup:
    """What is and comes into a version-2 cgroup, and those below it; a folder, or its path from the mount point on."""

    path: str


@dataclass(frozen=True, slots=True)
class Container:
    """A running container, by its name or the beginning of its id."""

    name: str


@dataclass(frozen=True, slots=True)
class Host:
    """Every process but our own."""


Target = Command | Processes | Cgroup | Container | Host


def describe(target: Target) -> str:
    """Return the target as people would write it."""
    match target:
        case Command(argv):
            return shlex.join(argv)
        case Processes(pids):
            return ", ".join(f"pid {pid}" for pid in pids)
        case Cgroup(path):
            return f"cgroup {path}"
        case Container(name):
            return f"container {name}"
    return "all processes"
