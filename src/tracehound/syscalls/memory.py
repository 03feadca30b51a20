"""What the arguments of a system call point to, as text.

What could not be read, or what a failed call did not fill, is shown as its address.
"""

import struct
from collections.abc import Callable
from typing import Final

from tracehound.syscalls.hit import ENTRY, EXIT, Hit
from tracehound.syscalls.sockets import message, option, sockaddr, vector
from tracehound.syscalls.structs import SHOW, SIZES, pointer, signal_name, sigset
from tracehound.syscalls.table import Argument, Call
from tracehound.syscalls.text import quote, quote_hexadecimal


def show_memory(call: Call, at: int, argument: Argument, hit: Hit) -> str:
    address = hit.registers[at]
    if argument.type == "data" and not hit.shows_data and (argument.direction == "<" or hit.succeeded):
        return _hidden(call, at, argument, hit)
    phase = EXIT if argument.direction == ">" else ENTRY
    if phase == EXIT and not hit.succeeded:
        if argument.type in ("msghdr", "sockaddr"):
            return _unfilled(call, at, argument, hit)
        return pointer(address)
    if not address:
        return "NULL"
    special = _SPECIAL.get(argument.type)
    if special is not None:
        return special(call, at, hit, phase)
    data = hit.piece(phase, at)
    if data is None:
        return pointer(address)
    if argument.count:
        return _array(call, at, argument, hit, data)
    if len(data) < SIZES[argument.type]:
        return pointer(address)
    text = SHOW[argument.type](data)
    return f"[{text}]" if argument.type in ("number", "length", "offset") else text


def _hidden(call: Call, at: int, argument: Argument, hit: Hit) -> str:
    """Say of bytes that are not shown how many they are."""
    count = hit.result if argument.count == "=" else count_of(call, argument, hit)
    return f"<{count or 0} bytes>"


def _unfilled(call: Call, at: int, argument: Argument, hit: Hit) -> str:
    if argument.type == "msghdr" and hit.piece(ENTRY, at) is not None:
        return message(hit, at, ENTRY, is_sent=False)
    return pointer(hit.registers[at])


def count_of(call: Call, argument: Argument, hit: Hit) -> int:
    """Return how many units an argument points to."""
    if argument.count == "=":
        return hit.result or 0
    if argument.count.isdecimal():
        return int(argument.count)
    names = [each.name for each in call.arguments]
    at = names.index(argument.count)
    return hit.number(at, "u", 64 if call.arguments[at].type in ("size", "ulong") else 32)


def _array(call: Call, at: int, argument: Argument, hit: Hit, data: bytes) -> str:
    size, show_one = SIZES[argument.type], SHOW[argument.type]
    count = count_of(call, argument, hit)
    shown = [show_one(data[place : place + size]) for place in range(0, len(data) - size + 1, size)]
    more = ", ..." if count > hit.limit or count > len(shown) else ""
    return f"[{', '.join(shown[: hit.limit])}{more}]"


def _string(call: Call, at: int, hit: Hit, phase: int) -> str:
    found = hit.pieces.get((phase, at, ""))
    if found is None:
        return pointer(hit.registers[at])
    data, is_cut = found
    return quote(data) + ("..." if is_cut else "")


def _result_string(call: Call, at: int, hit: Hit, phase: int) -> str:
    if phase == EXIT:
        data = hit.piece(phase, at)
        return pointer(hit.registers[at]) if data is None else quote(data.split(b"\0")[0])
    return _string(call, at, hit, phase)


def _bytes(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at)
    if data is None:
        return pointer(hit.registers[at])
    count = count_of(call, call.arguments[at], hit)
    if call.arguments[at].type == "random":
        return quote_hexadecimal(data[: hit.limit], hit.limit) + ("..." if count > hit.limit else "")
    return quote(data[: hit.limit]) + ("..." if count > hit.limit else "")


def _strings(call: Call, at: int, hit: Hit, phase: int) -> str:
    found = hit.pieces.get((phase, at, ""))
    if found is None:
        return pointer(hit.registers[at])
    texts = found[0].split(b"\0")[:-1]
    shown = ", ".join(quote(text) + ("..." if len(text) >= hit.limit else "") for text in texts)
    return f"[{shown}{', ...' if found[1] and len(texts) >= 32 else ''}]"


def _count(call: Call, at: int, hit: Hit, phase: int) -> str:
    found = hit.pieces.get((phase, at, ""))
    if found is None:
        return pointer(hit.registers[at])
    count = found[0].count(b"\0")
    more = " or more" if count >= 64 else ""
    return f"{hit.registers[at]:#x} /* {count} var{'' if count == 1 else 's'}{more} */"


def _iovec(call: Call, at: int, hit: Hit, phase: int) -> str:
    return vector(hit, at, phase, count_of(call, call.arguments[at], hit))


def _sockaddr(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at)
    return pointer(hit.registers[at]) if not data or len(data) < 2 else sockaddr(data)


def _length(call: Call, at: int, hit: Hit, phase: int) -> str:
    """A length that the call may change."""
    before, after = hit.piece(ENTRY, at, least=4), hit.piece(EXIT, at, least=4)
    if before is None:
        return pointer(hit.registers[at])
    first = struct.unpack_from("<i", before)[0]
    if after is None or after == before or not hit.succeeded:
        return f"[{first}]"
    return f"[{first} => {struct.unpack_from('<i', after)[0]}]"


def _offset(call: Call, at: int, hit: Hit, phase: int) -> str:
    before, after = hit.piece(ENTRY, at, least=8), hit.piece(EXIT, at, least=8)
    if before is None:
        return pointer(hit.registers[at])
    first = struct.unpack_from("<q", before)[0]
    if after is None or not hit.succeeded or after == before:
        return f"[{first}]"
    return f"[{first}] => [{struct.unpack_from('<q', after)[0]}]"


def _sigset(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at)
    return pointer(hit.registers[at]) if data is None else sigset(data)


def _cpu_set(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at)
    if data is None:
        return pointer(hit.registers[at])
    bits = int.from_bytes(data, "little")
    return f"[{' '.join(str(cpu) for cpu in range(bits.bit_length()) if bits >> cpu & 1)}]"


def fd_set(data: bytes, count: int) -> str:
    """Show the descriptors that are in a set."""
    bits = int.from_bytes(data, "little") & ((1 << count) - 1)
    return f"[{' '.join(str(fd) for fd in range(count) if bits >> fd & 1)}]"


def _fd_set(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at)
    return pointer(hit.registers[at]) if data is None else fd_set(data, min(max(hit.number(0, "i", 32), 0), 1024))


def _wstatus(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at, least=4)
    if data is None or not hit.result:
        return pointer(hit.registers[at])
    return f"[{{{wait_status(struct.unpack_from('<I', data)[0])}}}]"


def wait_status(status: int) -> str:
    """Show how a child ended or changed."""
    if status & 0x7F == 0:
        return f"WIFEXITED(s) && WEXITSTATUS(s) == {status >> 8 & 0xFF}"
    if status == 0xFFFF:
        return "WIFCONTINUED(s)"
    if status & 0xFF == 0x7F:
        return f"WIFSTOPPED(s) && WSTOPSIG(s) == {signal_name(status >> 8 & 0xFF)}"
    core = " && WCOREDUMP(s)" if status & 0x80 else ""
    return f"WIFSIGNALED(s) && WTERMSIG(s) == {signal_name(status & 0x7F)}{core}"


def _dirents(call: Call, at: int, hit: Hit, phase: int) -> str:
    """Say how many entries there are; each has its own size in it."""
    found = hit.pieces.get((phase, at, ""))
    if found is None:
        return pointer(hit.registers[at])
    data, is_cut = found
    place, count, offset = 0, 0, 16
    while place + offset + 2 <= len(data):
        size = struct.unpack_from("<H", data, place + offset)[0]
        if not size:
            break
        place += size
        count += 1
    more = " or more" if is_cut else ""
    return f"{hit.registers[at]:#x} /* {count} entr{'y' if count == 1 else 'ies'}{more} */"


def _option(call: Call, at: int, hit: Hit, phase: int) -> str:
    data = hit.piece(phase, at)
    if data is None:
        return pointer(hit.registers[at])
    return option(hit.number(1, "i", 32), hit.number(2, "i", 32), data, hit.limit)


def _message(call: Call, at: int, hit: Hit, phase: int) -> str:
    if hit.piece(phase, at) is None:
        return pointer(hit.registers[at])
    return message(hit, at, phase, is_sent=phase == ENTRY)


def _msgbuf(call: Call, at: int, hit: Hit, phase: int) -> str:
    kind, data = hit.piece(phase, at, "type", 8), hit.piece(phase, at)
    if not hit.shows_data and kind is None:
        return f"<{count_of(call, call.arguments[at], hit)} bytes>"
    if kind is None or data is None:
        return pointer(hit.registers[at])
    more = "..." if count_of(call, call.arguments[at], hit) > hit.limit else ""
    return f"{{mtype={struct.unpack_from('<q', kind)[0]}, mtext={quote(data)}{more}}}"


def _address(call: Call, at: int, hit: Hit, phase: int) -> str:
    return pointer(hit.registers[at])


_SPECIAL: Final[dict[str, Callable[[Call, int, Hit, int], str]]] = {
    "path": _string, "str": _result_string, "data": _bytes, "bytes": _bytes, "random": _bytes, "strings": _strings,
    "count": _count, "iovec": _iovec, "msghdr": _message, "sockaddr": _sockaddr, "length": _length,
    "offset": _offset, "sigset": _sigset, "cpu_set": _cpu_set, "fd_set": _fd_set, "wstatus": _wstatus,
    "dirents": _dirents, "dirents64": _dirents, "option": _option, "msgbuf": _msgbuf, "sigmask_argument": _address,
    "ioctl": _address, "fcntl": _address, "prctl": _address, "arch_prctl": _address,
}  # fmt: skip
