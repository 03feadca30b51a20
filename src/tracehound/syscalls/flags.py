"""Names of flags and of numbers that are one of a list, by the tables of `flags.txt`."""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

# Order in which names are joined where it is not that of the values.
ORDERS: Final = {
    "access": ("R_OK", "W_OK", "X_OK"),
    "socket_flags": ("SOCK_CLOEXEC", "SOCK_NONBLOCK"),
    "sigaction": ("SA_RESTORER", "SA_ONSTACK", "SA_RESTART", "SA_NODEFER", "SA_RESETHAND", "SA_SIGINFO",
                  "SA_NOCLDSTOP", "SA_NOCLDWAIT"),
    "msync": ("MS_ASYNC", "MS_SYNC", "MS_INVALIDATE"),
    "open": ("O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_NOCTTY", "O_TRUNC", "O_APPEND", "O_NONBLOCK", "O_SYNC",
             "O_DSYNC", "FASYNC", "O_DIRECT", "O_LARGEFILE", "O_NOFOLLOW", "O_NOATIME", "O_CLOEXEC", "O_PATH",
             "O_TMPFILE", "O_DIRECTORY"),
}  # fmt: skip
RENAMED: Final = {"SCHED_NORMAL": "SCHED_OTHER"}  # as people know it
ZEROS: Final = {"access": "F_OK", "prot": "PROT_NONE", "personality": "PER_LINUX"}


@cache
def _tables() -> dict[str, list[tuple[int, str]]]:
    found = {}
    for line in files("tracehound.syscalls").joinpath("flags.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        words = [RENAMED.get(word, word) for word in rest.split()]
        found[name] = [(int(value, 16), text) for text, value in zip(words[::2], words[1::2], strict=True)]
    return found


@cache
def _names(table: str) -> dict[int, str]:
    return dict(reversed(_tables()[table]))


@cache
def _flags(table: str) -> list[tuple[int, str]]:
    """Return the flags of a table, those of several bits first."""
    order = ORDERS.get(table, ())
    rows = sorted(_tables()[table], key=lambda row: order.index(row[1]) if row[1] in order else len(order))
    return sorted((row for row in rows if row[0]), key=lambda row: -row[0].bit_count() if _is_compound(row[0]) else -1)


def _is_compound(value: int) -> bool:
    return value.bit_count() > 1


@lru_cache(4096)
def flags_text(table: str, value: int) -> str:
    """Return the names of a number's bits, what has none in hexadecimal."""
    if not value:
        return ZEROS.get(table) or _names(table).get(0, "0")
    left, found = value, []
    for bits, name in _flags(table):
        if left & bits == bits:
            left &= ~bits
            found.append(name)
    order = [name for _, name in _tables()[table]]
    special: Sequence[str] = ORDERS.get(table, ())
    found.sort(key=lambda name: (special.index(name) if name in special else len(special), order.index(name)))
    if left:
        found.append(f"{left:#x}" if found else f"{left:#x} /* {unknown(table)} */")
    return "|".join(found)


def unknown(table: str) -> str:
    """Return what stands for a name that is not in a table: the beginning that its names share, with ???."""
    names = [name for _, name in _tables()[table]]
    return (names[0].split("_")[0] + "_" if names and "_" in names[0] else "") + "???"


@lru_cache(4096)
def name_text(table: str, value: int) -> str:
    """Return a number's name, itself if it has none."""
    return _names(table).get(value) or f"{value:#x} /* {unknown(table)} */"


@cache
def number_of(table: str, name: str) -> int | None:
    """Return the number that has a name, None if there is none."""
    return next((value for value, each in _tables()[table] if each == name), None)


def name_of(table: str, value: int) -> str | None:
    """Return a number's name, None if it has none."""
    return _names(table).get(value)
