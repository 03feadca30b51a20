"""A system call that was seen -> its arguments and its result as text, in the form that strace has made familiar.

An argument that points to what could not be read, or that a failed call did not fill, is shown as its address.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tracehound.syscalls.flags import flags_text, name_of, name_text, number_of
from tracehound.syscalls.hit import ENTRY, EXIT, Hit
from tracehound.syscalls.memory import show_memory
from tracehound.syscalls.shapes import RESULTS, SHAPES
from tracehound.syscalls.sockets import behind
from tracehound.syscalls.structs import device, mmap_flags, open_flags, permissions, pointer, signal_name
from tracehound.syscalls.table import Call

AT_FDCWD: Final = -100
RESTARTS: Final = {
    512: ("ERESTARTSYS", "To be restarted if SA_RESTART is set"),
    513: ("ERESTARTNOINTR", "To be restarted"),
    514: ("ERESTARTNOHAND", "To be restarted if no handler"),
    516: ("ERESTART_RESTARTBLOCK", "Interrupted by signal"),
}
RESTART_TEXTS: Final = dict(RESTARTS.values())
NUMBERS: Final = {
    "int": ("i", 32), "uint": ("u", 32), "long": ("i", 64), "ulong": ("u", 64), "size": ("u", 64), "off": ("i", 64),
    "pid": ("i", 32), "id": ("i", 32),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a call: (name, type, text) of each argument.

    Where more is shown of the result than `result_text` makes of it, the last one is called `return` and has that.
    """

    arguments: list[tuple[str, str, str]]
    return_value: int | None
    errno: str | None


def render(call: Call, hit: Hit) -> Shown:
    """Return how a call is shown."""
    arguments = [(each.name, each.type, show(call, at, hit)) for at, each in enumerate(call.arguments)]
    shape = SHAPES.get(call.name)
    note = None
    if shape is not None:
        arguments, note = shape(call, hit, arguments)
    value, errno = _result(hit)
    plain = result_text(call, value, errno)
    text = plain
    if hit.succeeded and value is not None:
        if call.name in RESULTS:
            text = RESULTS[call.name](hit) or plain
        elif call.result == "fd":
            text = named(value, hit.piece(EXIT, -1, "fd"))
    if note:
        text = f"{text} ({note})"
    if text != plain:
        arguments.append(("return", "result", text))
    return Shown(arguments, value, errno)


def _result(hit: Hit) -> tuple[int | None, str | None]:
    """Return a result as a number (None: it did not end, or will be restarted), and the error's name."""
    if hit.result is None or not hit.failed:
        return hit.result, None
    if -hit.result in RESTARTS:
        return None, RESTARTS[-hit.result][0]
    return -1, name_of("errno", -hit.result) or str(-hit.result)


def result_text(call: Call, value: int | None, errno: str | None) -> str:
    """Return what stands behind the `=` of a call."""
    if errno in RESTART_TEXTS:
        return f"? {errno} ({RESTART_TEXTS[errno]})"
    if errno is not None:
        number = number_of("errno", errno)
        return f"-1 {errno} ({os.strerror(number)})" if number else f"-1 {errno}"
    if value is None:
        return "?"
    if call.result in ("ptr", "hex"):
        return f"{value & (1 << 64) - 1:#x}"
    if call.result == "octal":
        return permissions(value) if value else "000"
    return str(value)


def named(fd: int | str, piece: bytes | None) -> str:
    """Show a descriptor, with what is behind it if that was read."""
    return str(fd) if piece is None else f"{fd}<{behind(piece)}>"


def show(call: Call, at: int, hit: Hit) -> str:
    """Return one argument as text."""
    argument = call.arguments[at]
    if argument.direction:
        return show_memory(call, at, argument, hit)
    kind = argument.type
    if kind in NUMBERS:
        return str(hit.number(at, *NUMBERS[kind]))
    if kind.startswith("f."):
        return flags_text(kind[2:], hit.number(at, "u", 64 if kind == "f.prot" else 32))
    if kind.startswith("e."):
        return enumerated(kind[2:], hit.number(at, "u", 32))
    return _OTHERS[kind](hit, at)


def enumerated(table: str, value: int) -> str:
    """Show one of a list; numbers below 0 stand in a table as 64 bits."""
    if table == "signal":
        return signal_name(value)
    if value >> 31:
        return name_of(table, value | 0xFFFFFFFF << 32) or name_text(table, value)
    return name_text(table, value)


def _dirfd(hit: Hit, at: int) -> str:
    fd = hit.number(at, "i", 32)
    return named("AT_FDCWD" if fd == AT_FDCWD else fd, hit.piece(ENTRY, at, "fd"))


def _socket_type(hit: Hit, at: int) -> str:
    value = hit.number(at, "u", 32)
    kind, rest = name_text("socket_kind", value & 0xF), value & ~0xF
    if rest & ~0x80800:
        return name_text("socket_kind", value)
    return f"{kind}|{flags_text('socket_flags', rest)}" if rest else kind


def _clone_flags(hit: Hit, at: int) -> str:
    value = hit.number(at)
    names = [flags_text("clone", value & ~0xFF)] if value & ~0xFF else []
    return "|".join([*names, *([signal_name(value & 0xFF)] if value & 0xFF else [])]) or "0"


def _with_permissions(table: str) -> Callable[[Hit, int], str]:
    def show_flags(hit: Hit, at: int) -> str:
        value = hit.number(at, "u", 32)
        rest = value & ~0o777
        names = [flags_text("ipc_create", rest & 0xE00 if table == "ipc_create" else rest & 0x600)]
        extra = rest & 0x1800 if table == "shm" else 0
        if extra:
            names.append(flags_text("shm", extra))
        return "|".join([name for name in names if name != "0"] + [permissions(value & 0o777)])

    return show_flags


def _futex(hit: Hit, at: int) -> str:
    value = hit.number(at, "u", 32)
    name = name_text("futex", value & 0x7F) + ("_PRIVATE" if value & 0x80 else "")
    return name + ("|FUTEX_CLOCK_REALTIME" if value & 0x100 else "")


_OTHERS: Final[dict[str, Callable[[Hit, int], str]]] = {
    "ptr": lambda hit, at: pointer(hit.registers[at]),
    "hex": lambda hit, at: f"{hit.registers[at]:#x}" if hit.registers[at] else "0",
    "fd": lambda hit, at: named(hit.number(at, "i", 32), hit.piece(ENTRY, at, "fd")),
    "dirfd": _dirfd,
    "mode": lambda hit, at: permissions(hit.number(at, "u", 16)),
    "dev": lambda hit, at: device(hit.number(at, "u", 32)),
    "open_flags": lambda hit, at: open_flags(hit.number(at, "u", 32)),
    "mmap_flags": lambda hit, at: mmap_flags(hit.number(at, "u", 32)),
    "socket_type": _socket_type,
    "clone_flags": _clone_flags,
    "ipc_key": lambda hit, at: f"{hit.number(at, 'u', 32):#x}" if hit.number(at, "u", 32) else "IPC_PRIVATE",
    "shmget": _with_permissions("shm"),
    "semget": _with_permissions("ipc_create"),
    "futex_op": _futex,
}
