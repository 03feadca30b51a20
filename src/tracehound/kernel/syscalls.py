"""Which system calls are wanted, and what is copied of each: written into the maps of `syscall`.

A call has one of the last points, behind those of functions; its operations stand
at the end of the table that all points share.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tracehound.btf import wire_layout
from tracehound.errors import UsageError
from tracehound.native import ffi, lib
from tracehound.syscalls import SYSCALLS_MAX, Call, Plan, SyscallSettings, numbers, plan

WANTED, RETURNS, FORKS, EXECS, MAKES_FD, SHOWS_FDS, QUIET = (1 << bit for bit in range(7))  # enum syscall_flag
FORKING: Final = frozenset({"clone", "clone3", "fork", "vfork"})
EXECUTING: Final = frozenset({"execve", "execveat"})
NOTES: Final = ("compat", "no_entry")  # enum syscall_note
TOTAL_WORDS: Final = 4  # struct syscall_total


DEFAULT: Final = SyscallSettings()


@dataclass(frozen=True, slots=True)
class Wishes:
    """The calls that are wanted, and what is copied of them; `is_quiet`: they are counted and have no records."""

    calls: tuple[Call, ...]
    settings: SyscallSettings = DEFAULT
    is_quiet: bool = False

    def plan(self, call: Call) -> Plan:
        """Return what is copied of a call."""
        return plan(call, self.settings.limit, self.settings.with_data, self.settings.paths)


class Total(NamedTuple):
    """Of one call: how often it ended, how often with an error, and how long it took in all and at most."""

    name: str
    calls: int
    errors: int
    total_ns: int
    max_ns: int


Update = Callable[[str, bytes, bytes], None]


def write_wishes(wishes: Wishes, update: Update) -> None:
    """Write what is wanted with `update(map, key, value)`; raises UsageError if that is too much."""
    limits = wire_layout().enum("call_limit")
    place, here = limits["CALL_TABLE_MAX"], numbers()
    for call in wishes.calls:
        made = wishes.plan(call)
        place -= len(made.operations)
        if place < limits["CALL_TABLE_MAX"] // 2 or len(made.operations) > limits["CALL_OPERATIONS_MAX"]:
            raise UsageError(f"sys:{call.name}: too much is to be copied")
        for at, operation in enumerate(made.operations, place):
            update("call_operations", struct.pack("<I", at), operation)
        number = here[call.name]
        point = np.zeros(1, wire_layout().btf.dtype("call_point"))
        point["first"], point["operations"] = place, len(made.operations)
        point["pieces"] = [len(pieces) for pieces in made.pieces]
        update("call_points", struct.pack("<I", limits["CALL_POINTS_MAX"] - SYSCALLS_MAX + number), point.tobytes())
    for call in wishes.calls:  # now they may be seen
        made = wishes.plan(call)
        update("syscall_wishes", struct.pack("<I", here[call.name]), bytes((_flags(call, wishes), made.descriptors)))


def _flags(call: Call, wishes: Wishes) -> int:
    flags = WANTED
    flags |= RETURNS * call.returns | FORKS * (call.name in FORKING) | EXECS * (call.name in EXECUTING)
    return flags | MAKES_FD * (call.result == "fd") | SHOWS_FDS * wishes.settings.paths | QUIET * wishes.is_quiet


def read_totals(maps: dict[str, int], wishes: Wishes) -> list[Total]:
    """Return what was counted of each call that was made."""
    found = []
    for call in wishes.calls:
        rows = _per_cpu(maps["syscall_totals"], numbers()[call.name], TOTAL_WORDS)
        if any(row[0] for row in rows):
            calls, errors, total_ns = (sum(row[at] for row in rows) for at in range(3))
            found.append(Total(call.name, calls, errors, total_ns, max(row[3] for row in rows)))
    return found


def read_notes(maps: dict[str, int]) -> dict[str, int]:
    """Return what was noticed and has no rows, by `NOTES`."""
    return {
        name: sum(row[0] for row in _per_cpu(maps["syscall_notes"], number, 1)) for number, name in enumerate(NOTES)
    }


def _per_cpu(fd: int, key: int, words: int) -> list[list[int]]:
    cpus = lib.libbpf_num_possible_cpus()
    values = ffi.new("uint64_t[]", cpus * words)
    if lib.bpf_map_lookup_elem(fd, struct.pack("<I", key), values):
        return []
    return [list(values[at : at + words]) for at in range(0, cpus * words, words)]
