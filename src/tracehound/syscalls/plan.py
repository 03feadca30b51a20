"""What is copied of a system call: operations for the kernel side, and what its pieces are.

A piece is a run of bytes that an argument points to, at the entry or at the exit. `plan` says of each, in the order in
which the record has them, of which argument it is and which part. An operation is struct call_operation of
bpf/include/call_point.h.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tracehound.syscalls.structs import SIZES
from tracehound.syscalls.table import Argument, Call

# enum call_operand
RETURN: Final = 6
STACK_POINTER: Final = 7
RESULT: Final = 64
RESULT_FD: Final = -1  # instead of an argument
CONSTANT: Final = 0xFF
# enum call_operation_kind
LOAD: Final = 1
STRING: Final = 4
BUFFER: Final = 5
STRINGS: Final = 8
VECTOR: Final = 16
SIGNED: Final = 1
ENTRY: Final = 0
EXIT: Final = 1
OPERATION: Final = struct.Struct("<BBBBBBBBiIQ")

PATH_MAX: Final = 4096
STRUCTS_MAX: Final = 1024  # bytes of an array of structs
VECTOR_MAX: Final = 16  # iovecs of one call
STRINGS_MAX: Final = 32  # arguments of a program
VARIABLES_MAX: Final = 64
LIMIT_DEFAULT: Final = 32  # bytes of a string or buffer that are shown
SMALL: Final = frozenset({"sockaddr", "fd_set", "option", "sigset", "cpu_set"})
SMALL_MAX: Final = 128
MSGHDR_SIZE: Final = 56
SIGNAL_MASK: Final = 296  # of the frame that a handler returns through: uc_sigmask
CONTROL_MAX: Final = 256


@dataclass(slots=True)
class Plan:
    """Operations of a call, packed; of each phase the (argument, part) of each piece."""

    operations: list[bytes] = field(default_factory=list)
    pieces: tuple[list[tuple[int, str]], list[tuple[int, str]]] = field(default_factory=lambda: ([], []))
    descriptors: int = 0  # 1 << argument: what is behind it is the last pieces of the entry

    def load(self, phase: int, base: int, offset: int, size: int) -> int:
        """Read a number at an address; return the operand that it is in."""
        self._add(LOAD, phase, base, CONSTANT, size, 0, offset, 0)
        return RESULT + len(self.operations) - 1

    def piece(self, kind: int, phase: int, argument: int, part: str, base: int, maximum: int,
              length: int = CONSTANT, size: int = 1, offset: int = 0) -> None:  # fmt: skip
        """Add a piece."""
        self._add(kind, phase, base, length, size, len(self.pieces[phase]), offset, maximum)
        self.pieces[phase].append((argument, part))

    def _add(
        self, kind: int, phase: int, base: int, length: int, size: int, piece: int, offset: int, maximum: int
    ) -> None:
        self.operations.append(OPERATION.pack(kind, phase, base, length, size, 0, piece, 0, offset, maximum, 0))


@cache
def plan(call: Call, limit: int = LIMIT_DEFAULT, with_data: bool = True, paths: bool = False) -> Plan:
    """Return what is copied of a call.

    `with_data`: also bytes that a program moves, at most `limit` of each buffer. `paths`: also what is behind each
    descriptor, those of arguments last in the entry, that of the result last in the exit.
    """
    made = Plan()
    for number, argument in enumerate(call.arguments):
        for phase in _phases(argument):
            if argument.type in ("data", "msgbuf") and not with_data:
                continue
            _add(made, call, number, argument, phase, limit, with_data)
    if call.name == "rt_sigreturn" and os.uname().machine == "x86_64":
        made.piece(BUFFER, ENTRY, 0, "mask", STACK_POINTER, 8, offset=SIGNAL_MASK)
    if paths:
        for number, argument in enumerate(call.arguments):
            if argument.type in ("fd", "dirfd"):
                made.descriptors |= 1 << number
                made.pieces[ENTRY].append((number, "fd"))
        if call.result == "fd":
            made.pieces[EXIT].append((RESULT_FD, "fd"))
    return made


def _phases(argument: Argument) -> Iterator[int]:
    if "<" in argument.direction or argument.type == "msghdr":
        yield ENTRY
    if ">" in argument.direction:
        yield EXIT


def _add(made: Plan, call: Call, number: int, argument: Argument, phase: int, limit: int, with_data: bool) -> None:
    length = _length(made, call, argument, phase)
    match argument.type:
        case "path":
            made.piece(STRING, phase, number, "", number, PATH_MAX - 1)
        case "str" if phase == ENTRY:
            made.piece(STRING, phase, number, "", number, limit)
        case "strings":
            made.piece(STRINGS, phase, number, "", number, limit, size=STRINGS_MAX)
        case "count":
            made.piece(STRINGS, phase, number, "", number, 0, size=VARIABLES_MAX)
        case "iovec":
            _add_vector(made, phase, number, number, length, limit if with_data else 0)
        case "msghdr":
            _add_message(made, phase, number, limit if with_data else 0, is_sent=argument.direction == "<")
        case "data" | "bytes" | "random" | "str":
            made.piece(BUFFER, phase, number, "", number, PATH_MAX if call.name == "getcwd" else limit, length)
        case "msgbuf":
            made.piece(BUFFER, phase, number, "type", number, 8)
            made.piece(BUFFER, phase, number, "", number, limit, length, offset=8)
        case "dirents" | "dirents64":
            made.piece(BUFFER, phase, number, "", number, 8 * PATH_MAX - 1, length)
        case kind if kind in SMALL:
            made.piece(BUFFER, phase, number, "", number, SMALL_MAX, CONSTANT if kind == "fd_set" else length)
        case kind:
            size = SIZES[kind]
            if argument.count.isdecimal():
                made.piece(BUFFER, phase, number, "", number, size * int(argument.count))
            elif argument.count:
                made.piece(BUFFER, phase, number, "", number, STRUCTS_MAX, length, size)
            else:
                made.piece(BUFFER, phase, number, "", number, size)


def _length(made: Plan, call: Call, argument: Argument, phase: int) -> int:
    """Return the operand that says how many units there are."""
    if argument.count == "=":
        return RETURN
    names = [each.name for each in call.arguments]
    if argument.count not in names:
        return CONSTANT
    number = names.index(argument.count)
    return made.load(phase, number, 0, 4) if call.arguments[number].type == "length" else number


def _add_vector(made: Plan, phase: int, number: int, base: int, length: int, limit: int) -> None:
    made.piece(BUFFER, phase, number, "iov", base, 16 * VECTOR_MAX, length, 16)
    if limit:
        made.piece(VECTOR, phase, number, "data", base, limit, length, VECTOR_MAX)


def _add_message(made: Plan, phase: int, number: int, limit: int, *, is_sent: bool) -> None:
    """A message that is received has nothing but its head at the entry."""
    made.piece(BUFFER, phase, number, "", number, MSGHDR_SIZE)
    if phase == ENTRY and not is_sent:
        return
    name, name_size = made.load(phase, number, 0, 8), made.load(phase, number, 8, 4)
    made.piece(BUFFER, phase, number, "name", name, SMALL_MAX, name_size)
    vector, count = made.load(phase, number, 16, 8), made.load(phase, number, 24, 8)
    _add_vector(made, phase, number, vector, count, limit)
    control, control_size = made.load(phase, number, 32, 8), made.load(phase, number, 40, 8)
    made.piece(BUFFER, phase, number, "control", control, CONTROL_MAX, control_size)
