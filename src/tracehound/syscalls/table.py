"""The table of system calls (`calls.txt`, `numbers.txt`) and their groups."""

import fnmatch
import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Final

from tracehound.errors import UsageError

GROUP_LETTERS: Final = {
    "F": "file", "D": "desc", "P": "process", "N": "network", "S": "signal", "I": "ipc", "M": "memory", "C": "creds",
    "K": "clock", "T": "stat",
}  # fmt: skip

# Groups by name alone.
NAMED_GROUPS: Final = {
    "epoll": "epoll_*", "dup": "dup dup2 dup3", "exec": "execve execveat", "exit": "exit exit_group",
    "clone": "clone clone3 fork vfork", "kill": "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal",
    "mount": "mount umount2 pivot_root move_mount open_tree* fs* mount_setattr statmount listmount", "sched": "sched_*",
    "inotify": "inotify_*", "send": "sendto sendmsg sendmmsg", "recv": "recvfrom recvmsg recvmmsg",
    "read": "read readv pread64 preadv preadv2", "write": "write writev pwrite64 pwritev pwritev2",
    "attr": "*xattr *xattrat file_?etattr", "io_uring": "io_uring_*", "poll": "poll ppoll select pselect6 epoll_*wait*",
    "time": "time gettimeofday settimeofday clock_* timer* nanosleep *itimer alarm adjtimex times",
}  # fmt: skip
GROUP_ALIASES: Final = {"net": "network", "trace=all": "all"}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: `direction` is "" for a number, else `<`, `>` or `<>`; `count`: how many, see calls.txt."""

    name: str
    type: str
    direction: str = ""
    count: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One system call."""

    name: str
    groups: frozenset[str]
    arguments: tuple[Argument, ...]
    result: str

    @property
    def returns(self) -> bool:
        """Tell whether it ever returns."""
        return self.result != "none"


@cache
def calls() -> dict[str, Call]:
    """Return every call by its name."""
    found = {}
    for line in _lines("calls.txt"):
        words = line.split()
        result = "int"
        if "=" in words:
            result = words[-1]
            words = words[: words.index("=")]
        groups = frozenset(GROUP_LETTERS[letter] for letter in words[1] if letter != "-")
        found[words[0]] = Call(words[0], groups, tuple(_argument(word) for word in words[2:]), result)
    return found


def _lines(name: str) -> Iterable[str]:
    text = files("tracehound.syscalls").joinpath(name).read_text()
    return (line for line in text.splitlines() if line and not line.startswith("#"))


def _argument(word: str) -> Argument:
    name, _, kind = word.partition(":")
    bare = kind.lstrip("<>")
    of, _, count = bare.partition("*")
    return Argument(name, of, kind[: len(kind) - len(bare)], count)


@cache
def numbers(machine: str = os.uname().machine) -> dict[str, int]:
    """Return the number of each call that a machine (x86_64, aarch64) has."""
    column = {"x86_64": 1, "aarch64": 2}[machine]
    words = (line.split() for line in _lines("numbers.txt"))
    return {each[0]: int(each[column]) for each in words if each[column] != "-" and each[0] in calls()}


def number_of(name: str) -> int:
    """Return a call's number on this machine."""
    return numbers()[name]


def find_calls(text: str) -> list[Call]:
    """Return what stands behind `sys:`: a name, a glob, `%group`, `all`, or several with commas between.

    `!` before one takes it out again. Raises UsageError, with near matches.
    """
    here = numbers()
    found: dict[str, Call] = {}
    for part in filter(None, text.split(",")):
        takes_out = part.startswith("!")
        names = [name for name in _names_of(part.lstrip("!")) if name in here]
        for name in names:
            if takes_out:
                found.pop(name, None)
            else:
                found[name] = calls()[name]
    if not found:
        raise UsageError(f"sys:{text} names no system call")
    return list(found.values())


def _names_of(part: str) -> list[str]:
    table = calls()
    if part in ("all", "%all"):
        return list(table)
    if part.startswith("%"):
        group = GROUP_ALIASES.get(part[1:], part[1:])
        if group in NAMED_GROUPS:
            return [name for pattern in NAMED_GROUPS[group].split() for name in fnmatch.filter(table, pattern)]
        names = [name for name, call in table.items() if group in call.groups]
        if not names:
            groups = [*GROUP_LETTERS.values(), *NAMED_GROUPS]
            near = get_close_matches(group, groups, 3, 0.6)
            shown = ", ".join(f"%{name}" for name in near or groups)
            raise UsageError(f"no group {part} of system calls. {'Near' if near else 'There are'}: {shown}")
        return names
    names = fnmatch.filter(table, part)
    if not names:
        near = get_close_matches(part, table, 3, 0.6)
        raise UsageError(f"no system call {part}" + (f". Near: {', '.join(near)}" if near else ""))
    if not any(name in numbers() for name in names):
        raise UsageError(f"this machine ({os.uname().machine}) has no system call {part}")
    return names
