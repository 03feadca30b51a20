"""Calls whose arguments depend on one another: what is shown of them, and what is said behind the result.

A shape takes the arguments as they are shown by their types, and returns those that are shown, and a note.
"""

import struct
from collections.abc import Callable
from typing import Final

from tracehound.syscalls.flags import flags_text, name_of, name_text
from tracehound.syscalls.hit import ENTRY, EXIT, Hit
from tracehound.syscalls.memory import fd_set
from tracehound.syscalls.sockets import option_name
from tracehound.syscalls.structs import date, mode_text, open_flags, pointer, signal_name, sigset, timespec, timeval
from tracehound.syscalls.table import Call
from tracehound.syscalls.text import quote

Arguments = list[tuple[str, str, str]]
Shape = Callable[[Call, Hit, Arguments], tuple[Arguments, str | None]]
DUMPABLE: Final = {0: "SUID_DUMP_DISABLE", 1: "SUID_DUMP_USER", 2: "SUID_DUMP_ROOT"}
EINTR_RESTARTS: Final = frozenset({-4, -512, -514, -516})


def _open(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    at = next(at for at, argument in enumerate(call.arguments) if argument.type == "open_flags")
    flags = hit.number(at, "u", 32)
    makes = flags & 0o100 or flags & 0x410000 == 0x410000
    return (shown, None) if makes else (shown[: at + 1], None)


def _mq_open(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    return (shown, None) if hit.number(1, "u", 32) & 0o100 else (shown[:2], None)


def _mknod(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    at = next(at for at, argument in enumerate(call.arguments) if argument.name == "mode")
    mode = hit.number(at, "u", 16)
    shown[at] = ("mode", "mode", mode_text(mode))
    is_device = mode & 0o170000 in (0o20000, 0o60000)
    return (shown, None) if is_device else (shown[: at + 1], None)


def _mremap(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    return (shown, None) if hit.number(3) & 6 else (shown[:4], None)


def _clone(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    flags = hit.number(0)
    by_name = {name: (name, kind, text) for name, kind, text in shown}
    parts = [("child_stack", "ptr", by_name["stack"][2]), ("flags", "clone_flags", by_name["flags"][2])]
    if flags & 0x101000:
        parts.append(("parent_tid", "number", by_name["parent_tid"][2]))
    if flags & 0x80000:
        parts.append(("tls", "ptr", by_name["tls"][2]))
    if flags & 0x1200000:
        parts.append(("child_tidptr", "ptr", by_name["child_tid"][2]))
    return [(name, kind, f"{name}={text}") for name, kind, text in parts], None


def _clone3(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    data = hit.piece(ENTRY, 0, least=8)
    if data is not None and hit.succeeded and struct.unpack_from("<Q", data)[0] & 0x100000:
        shown[0] = (*shown[0][:2], f"{shown[0][2]} => {{parent_tid=[{hit.result}]}}")
    return shown, None


def _poll(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    if hit.result == 0:
        return shown, "Timeout"
    after = hit.piece(EXIT, 0)
    if not hit.succeeded or after is None:
        return shown, None
    ready = [each for each in struct.iter_unpack("<ihh", after[: len(after) & ~7]) if each[2]]
    parts = [f"{{fd={fd}, revents={flags_text('poll', events & 0xFFFF)}}}" for fd, _, events in ready]
    left = _time_left(hit, 2) if call.name == "ppoll" else ""
    return shown, f"[{', '.join(parts)}]{left}"


def _time_left(hit: Hit, at: int) -> str:
    after = hit.piece(EXIT, at, least=16)
    return f", left {timespec(after)}" if hit.registers[at] and after is not None else ""


def _select(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    if call.name == "pselect6":
        shown = [*shown[:5], _sigmask(hit, shown[5])]
    if hit.result == 0:
        return shown, "Timeout"
    if not hit.succeeded:
        return shown, None
    count = min(max(hit.number(0, "i", 32), 0), 1024)
    parts = []
    for at, name in ((1, "in"), (2, "out"), (3, "except")):
        after = hit.piece(EXIT, at)
        if hit.registers[at] and after is not None:
            text = fd_set(after, count)
            if text != "[]":
                parts.append(f"{name} {text}")
    after = hit.piece(EXIT, 4, least=16)
    if hit.registers[4] and after is not None:
        parts.append(f"left {timeval(after) if call.name == 'select' else timespec(after)}")
    return shown, ", ".join(parts) or None


def _sigmask(hit: Hit, argument: tuple[str, str, str]) -> tuple[str, str, str]:
    data = hit.piece(ENTRY, 5, least=16)
    if data is None:
        return argument
    address, size = struct.unpack_from("<QQ", data)
    return (*argument[:2], f"{{sigmask={pointer(address)}, sigsetsize={size}}}")


def _sleep(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    """What is left is there only where the sleep was interrupted."""
    at = len(shown) - 1
    was_interrupted = hit.result in EINTR_RESTARTS
    after = hit.piece(EXIT, at, least=16)
    if was_interrupted and hit.registers[at] and after is not None:
        shown[at] = (*shown[at][:2], timespec(after))
    else:
        shown[at] = (*shown[at][:2], pointer(hit.registers[at]))
    return shown, None


def _fcntl(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    command, value, result = hit.number(1, "u", 32), hit.registers[2], hit.result or 0
    note = None
    name, kind, _ = shown[2]
    text = f"{value:#x}" if value else "0"
    if command in (1, 3, 9, 11, 1025, 1032, 1034):  # F_GETFD, F_GETFL, F_GETOWN, F_GETSIG, F_GETLEASE, ...
        if hit.succeeded and command == 1 and result:
            note = f"flags {flags_text('fd_flags', result)}"
        elif hit.succeeded and command == 3:
            note = f"flags {open_flags(result)}"
        elif hit.succeeded and command == 1034 and result:
            note = f"seals {flags_text('seal', result)}"
        return shown[:2], note
    if command == 2:
        text = flags_text("fd_flags", value)
    elif command == 4:
        text = open_flags(value & 0xFFFFFFFF)
    elif command in (0, 8, 1030, 1031):
        text = str(hit.number(2, "i", 32))
    elif command == 1033:
        text = flags_text("seal", value)
    elif command == 10:
        text = signal_name(value)
    elif command in (5, 6, 7, 36, 37, 38):
        text = _lock(hit, command)
    return [*shown[:2], (name, kind, text)], note


def fcntl_result(hit: Hit) -> str | None:
    """Return how the result of fcntl is shown where it is no plain number."""
    command = hit.number(1, "u", 32)
    if command in (1, 3, 1034) and hit.succeeded and hit.result:
        return f"{hit.result:#x}"
    return None


def _lock(hit: Hit, command: int) -> str:
    data = hit.piece(EXIT if command in (5, 36) and hit.succeeded else ENTRY, 2, least=28)
    if data is None:
        return pointer(hit.registers[2])
    kind, whence, start, size, pid = struct.unpack_from("<hhxxxxqqi", data)
    shown = f"{{l_type={name_text('lock', kind)}, l_whence={name_text('seek', whence)}, l_start={start}, l_len={size}"
    return shown + (f", l_pid={pid}}}" if command in (5, 36) else "}")


def _ioctl(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    request, name, value = hit.number(1, "u", 32), name_of("ioctl", hit.number(1, "u", 32)), hit.registers[2]
    shown[1] = ("request", "e.ioctl", name or _request(request))
    before, after = hit.piece(ENTRY, 2, least=8), hit.piece(EXIT, 2, least=8)
    text = pointer(value)
    if name in ("FIOCLEX", "FIONCLEX", "TIOCNOTTY", "TIOCEXCL", "TIOCNXCL"):
        return shown[:2], None
    if name in ("FIONBIO", "FIOASYNC", "TIOCSPGRP") and before is not None:
        text = f"[{struct.unpack_from('<i', before)[0]}]"
    elif name in ("FIONREAD", "TIOCOUTQ", "TIOCGPGRP", "TIOCGSID") and hit.succeeded and after is not None:
        text = f"[{struct.unpack_from('<i', after)[0]}]"
    elif name in ("TIOCGWINSZ", "TIOCSWINSZ"):
        data = before if name == "TIOCSWINSZ" else after if hit.succeeded else None
        if data is not None:
            text = "{{ws_row={}, ws_col={}, ws_xpixel={}, ws_ypixel={}}}".format(*struct.unpack_from("<HHHH", data))
    elif name in ("TCSBRK", "TCXONC", "TCFLSH", "TIOCSCTTY", "FICLONE"):
        text = str(hit.number(2, "i", 32))
    return [*shown[:2], ("argp", "ioctl", text)], None


def _request(request: int) -> str:
    """Take a number apart as the _IOC macros made it."""
    direction = ("_IOC_NONE", "_IOC_WRITE", "_IOC_READ", "_IOC_READ|_IOC_WRITE")[request >> 30]
    return f"_IOC({direction}, {request >> 8 & 0xFF:#x}, {request & 0xFF:#x}, {request >> 16 & 0x3FFF:#x})"


def _futex(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    operation = hit.number(1, "u", 32) & 0x7F
    mask = (
        "val3",
        "hex",
        "FUTEX_BITSET_MATCH_ANY" if hit.number(5, "u", 32) == 0xFFFFFFFF else f"{hit.number(5, 'u', 32):#x}",
    )
    if operation in (0, 6, 11, 13):  # WAIT, LOCK_PI
        return shown[:4], None
    if operation == 9:
        return [*shown[:4], mask], None
    if operation == 10:
        return [*shown[:3], mask], None
    if operation in (3, 4, 12):  # REQUEUE
        count = ("val2", "uint", str(hit.number(3, "u", 32)))
        parts = [*shown[:3], count, shown[4]]
        return ([*parts, shown[5]] if operation != 3 else parts), None
    if operation == 5:
        return [*shown[:3], ("val2", "uint", str(hit.number(3, "u", 32))), shown[4],
                ("val3", "hex", f"{hit.number(5, 'u', 32):#x}")], None  # fmt: skip
    return shown[:3], None


def _prctl(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    name, second = name_of("prctl", hit.number(0, "u", 32)) or "", hit.registers[1]
    data = hit.piece(EXIT if "GET" in name and hit.succeeded else ENTRY, 1, least=4)
    if name in ("PR_SET_NAME", "PR_GET_NAME") and data is not None:
        return [shown[0], ("arg2", "str", quote(data.split(b"\0")[0][:15]))], None
    if name in ("PR_GET_PDEATHSIG",) and data is not None and hit.succeeded:
        number = struct.unpack_from("<i", data)[0]
        return [shown[0], ("arg2", "number", f"[{signal_name(number) if number else 0}]")], None
    if name in ("PR_CAPBSET_READ", "PR_CAPBSET_DROP"):
        return [shown[0], ("arg2", "e.capability", name_text("capability", second))], None
    if name == "PR_SET_PDEATHSIG":
        return [shown[0], ("arg2", "e.signal", signal_name(second) if second else "0")], None
    if name in ("PR_GET_DUMPABLE", "PR_GET_KEEPCAPS", "PR_GET_SECCOMP", "PR_GET_TIMERSLACK", "PR_GET_SECUREBITS"):
        return shown[:1], DUMPABLE.get(hit.result or 0) if name == "PR_GET_DUMPABLE" and hit.succeeded else None
    if name == "PR_SET_DUMPABLE":
        return [shown[0], ("arg2", "e.dumpable", DUMPABLE.get(second, str(second)))], None
    if name in ("PR_SET_KEEPCAPS", "PR_SET_CHILD_SUBREAPER", "PR_SET_TIMERSLACK"):
        return [shown[0], ("arg2", "ulong", str(second))], None
    if name in ("PR_SET_NO_NEW_PRIVS", "PR_GET_NO_NEW_PRIVS"):
        rest = [(f"arg{at + 1}", "ulong", str(hit.registers[at])) for at in range(1, 5)]
        return [shown[0], *rest], None
    return [shown[0], *((f"arg{at + 1}", "hex", f"{hit.registers[at]:#x}" if hit.registers[at] else "0")
                        for at in range(1, 5))], None  # fmt: skip


def _arch_prctl(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    code, data = hit.number(0, "u", 32), hit.piece(EXIT, 1, least=8)
    if code in (0x1003, 0x1004) and data is not None and hit.succeeded:
        shown[1] = ("addr", "ptr", f"[{struct.unpack_from('<Q', data)[0]:#x}]")
    else:
        shown[1] = ("addr", "ptr", pointer(hit.registers[1]))
    return shown, None


def _socket(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    family, protocol = hit.number(0, "u", 32), hit.number(2, "u", 32)
    table = {2: "ip_protocol", 10: "ip_protocol", 16: "netlink_protocol"}.get(family)
    if table is not None:
        shown[2] = ("protocol", f"e.{table}", name_text(table, protocol))
    return shown, None


def _sockopt(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    shown[2] = ("optname", "e.sockopt", option_name(hit.number(1, "i", 32), hit.number(2, "i", 32)))
    return shown, None


def _semctl(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    return shown, None


def _sigtimedwait(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    return shown, signal_name(hit.result) if hit.succeeded and hit.result else None


def _sigreturn(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    mask = hit.piece(ENTRY, 0, "mask")
    return ([("mask", "sigset", f"{{mask={sigset(mask)}}}")] if mask is not None else []), None


def _scheduler(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    return shown, name_text("sched", hit.result or 0) if hit.succeeded else None


def _membarrier(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    asks = not hit.number(0, "u", 32) and hit.result
    return shown[: 2 + (hit.number(1, "u", 32) & 1)], flags_text("membarrier", hit.result or 0) if asks else None


def _membarrier_result(hit: Hit) -> str | None:
    return f"{hit.result:#x}" if hit.result and not hit.number(0, "u", 32) else None


def _time(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    return shown, date(hit.result) if hit.succeeded and hit.result else None


def _statx(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    flags = hit.number(2, "u", 32)
    if not flags & 0x6000:
        rest = flags_text("statx_at", flags) if flags else ""
        shown[2] = ("flags", "f.statx_at", "AT_STATX_SYNC_AS_STAT" + (f"|{rest}" if rest else ""))
    return shown, None


def _wait(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    if call.name == "wait4" and not hit.result:
        shown[3] = (*shown[3][:2], pointer(hit.registers[3]))
    if call.name == "waitid":
        kind = hit.number(0, "u", 32)
        shown[1] = ("id", "id", str(hit.number(1, "i", 32))) if kind != 3 else shown[1]
    return shown, None


def _personality(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    if hit.number(0, "u", 32) == 0xFFFFFFFF:
        shown[0] = (*shown[0][:2], "0xffffffff")
    return shown, flags_text("personality", hit.result or 0) if hit.succeeded else None


def _preadv(call: Call, hit: Hit, shown: Arguments) -> tuple[Arguments, str | None]:
    if "pos_h" in {name for name, _, _ in shown}:
        shown = [each for each in shown if each[0] != "pos_h"]
    return shown, None


# Calls whose result is not always a plain number.
RESULTS: Final[dict[str, Callable[[Hit], str | None]]] = {
    "fcntl": fcntl_result, "membarrier": _membarrier_result,
}  # fmt: skip

SHAPES: Final[dict[str, Shape]] = {
    "open": _open, "openat": _open, "mq_open": _mq_open, "mknod": _mknod, "mknodat": _mknod, "mremap": _mremap,
    "clone": _clone, "clone3": _clone3, "poll": _poll, "ppoll": _poll, "select": _select, "pselect6": _select,
    "nanosleep": _sleep, "clock_nanosleep": _sleep, "fcntl": _fcntl, "ioctl": _ioctl, "futex": _futex, "prctl": _prctl,
    "arch_prctl": _arch_prctl, "socket": _socket, "socketpair": _socket, "setsockopt": _sockopt,
    "getsockopt": _sockopt, "semctl": _semctl, "statx": _statx, "wait4": _wait, "waitid": _wait,
    "personality": _personality, "rt_sigtimedwait": _sigtimedwait, "rt_sigreturn": _sigreturn,
    "sched_getscheduler": _scheduler, "membarrier": _membarrier, "time": _time, "preadv2": _preadv, "pwritev2": _preadv,
}  # fmt: skip
