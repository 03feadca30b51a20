"""How addresses, options and messages of sockets are shown."""

import socket
import struct
from typing import Final

from tracehound.syscalls.flags import flags_text, name_of, name_text
from tracehound.syscalls.hit import Hit
from tracehound.syscalls.structs import pointer, timeval
from tracehound.syscalls.text import quote

OPTION_TABLES: Final = {0: "ip_option", 1: "so", 6: "tcp_option", 41: "ipv6_option"}
CONTROL_HEAD: Final = 16
SOCKET, OTHER = 1, 2  # enum descriptor_kind
PROTOCOLS: Final = {
    (socket.AF_INET, 6): "TCP", (socket.AF_INET, 17): "UDP",
    (socket.AF_INET6, 6): "TCPv6", (socket.AF_INET6, 17): "UDPv6",
}  # fmt: skip


def sockaddr(data: bytes) -> str:
    """Show an address by its family."""
    family = struct.unpack_from("<H", data)[0]
    name = name_of("family", family) or f"{family:#x}"
    if family == socket.AF_INET and len(data) >= 8:
        return (
            f"{{sa_family=AF_INET, sin_port=htons({int.from_bytes(data[2:4], 'big')}), "
            f'sin_addr=inet_addr("{socket.inet_ntoa(data[4:8])}")}}'
        )
    if family == socket.AF_INET6 and len(data) >= 24:
        port, flow = struct.unpack_from(">HI", data, 2)
        scope = struct.unpack_from("<I", data.ljust(28, b"\0"), 24)[0]
        address = socket.inet_ntop(socket.AF_INET6, data[8:24])
        return (
            f"{{sa_family=AF_INET6, sin6_port=htons({port}), sin6_flowinfo=htonl({flow}), "
            f'inet_pton(AF_INET6, "{address}", &sin6_addr), sin6_scope_id={scope}}}'
        )
    if family == socket.AF_UNIX:
        path = data[2:]
        if not path:
            return "{sa_family=AF_UNIX}"
        shown = f"@{quote(path[1:])}" if path[:1] == b"\0" else quote(path.split(b"\0")[0])
        return f"{{sa_family=AF_UNIX, sun_path={shown}}}"
    if family == socket.AF_NETLINK and len(data) >= 12:
        pid, groups = struct.unpack_from("<II", data, 4)
        return f"{{sa_family=AF_NETLINK, nl_pid={pid}, nl_groups={groups:#010x}}}".replace("0x", "", 1)
    return f"{{sa_family={name}, sa_data={quote(data[2:])}}}"


def option_name(level: int, name: int) -> str:
    """Name a socket's option."""
    table = OPTION_TABLES.get(level)
    if table == "so" and name in (20, 21):
        return "SO_RCVTIMEO_OLD" if name == 20 else "SO_SNDTIMEO_OLD"
    return str(name) if table is None else name_text(table, name)


def option(level: int, name: int, data: bytes, limit: int) -> str:
    """Show the value of an option."""
    if level == 1 and name == 13 and len(data) == 8:
        return "{{l_onoff={}, l_linger={}}}".format(*struct.unpack("<ii", data))
    if level == 1 and name in (20, 21) and len(data) == 16:
        return timeval(data)
    if level == 1 and name == 17 and len(data) == 12:
        return "{{pid={}, uid={}, gid={}}}".format(*struct.unpack("<iii", data))
    if level == 1 and name == 4 and len(data) == 4:
        error = struct.unpack("<i", data)[0]
        return f"[{name_of('errno', error) or error}]" if error else "[0]"
    if level == 1 and name == 3 and len(data) == 4:
        return f"[{name_text('socket_kind', struct.unpack('<i', data)[0])}]"
    if level == 1 and name == 38 and len(data) == 4:
        return f"[{name_text('ip_protocol', struct.unpack('<i', data)[0])}]"
    if level == 1 and name == 39 and len(data) == 4:
        return f"[{name_text('family', struct.unpack('<i', data)[0])}]"
    if len(data) == 4:
        return f"[{struct.unpack('<i', data)[0]}]"
    return quote(data[:limit]) + ("..." if len(data) > limit else "")


def vector(hit: Hit, at: int, phase: int, count: int) -> str:
    """Show an array of iovecs; of what was received only as much as there is."""
    heads = hit.piece(phase, at, "iov")
    if heads is None:
        return pointer(hit.registers[at])
    if not count:
        return "[]"
    data = hit.piece(phase, at, "data")
    left = hit.result if phase == 1 and hit.result is not None else None
    shown, place = [], 0
    for head in range(0, min(len(heads) & ~15, count * 16), 16):
        base, size = struct.unpack_from("<QQ", heads, head)
        kept = min(size, hit.limit)
        moved = size if left is None else min(size, left)
        if left is not None:
            left -= moved
        part = None if data is None else data[place : place + min(kept, moved)]
        place += kept
        shown.append(f"{{iov_base={_base(hit, part, base, moved)}, iov_len={size}}}")
    more = ", ..." if count * 16 > len(heads) else ""
    return f"[{', '.join(shown)}{more}]"


def _base(hit: Hit, part: bytes | None, base: int, size: int) -> str:
    if not hit.shows_data:
        return f"<{size} bytes>"
    if not base or part is None or len(part) < min(size, hit.limit):
        return pointer(base)
    return quote(part) + ("..." if size > hit.limit else "")


def message(hit: Hit, at: int, phase: int, *, is_sent: bool) -> str:
    """Show struct msghdr; one that nothing was received into by what it had before."""
    head = hit.piece(phase, at)
    before = hit.piece(0, at, least=12)
    if head is None or len(head) < 56:
        return pointer(hit.registers[at])
    name, name_size, _, count, control, control_size, flags = struct.unpack_from("<QIxxxxQQQQi", head)
    address = hit.piece(phase, at, "name")
    shown = sockaddr(address) if name and address and len(address) >= 2 else pointer(name)
    size = str(name_size)
    if not is_sent and before is not None:
        first = struct.unpack_from("<I", before, 8)[0]
        size = f"{first} => {name_size}" if first != name_size else size
    if hit.piece(phase, at, "iov") is None and not is_sent and not hit.succeeded:
        return f"{{msg_name={shown}, msg_namelen={size}}}" if hit.failed else pointer(hit.registers[at])
    parts = [f"msg_name={shown}", f"msg_namelen={size}", f"msg_iov={vector(hit, at, phase, count)}"]
    parts.append(f"msg_iovlen={count}")
    if control_size:
        parts.append(f"msg_control={_control(hit.piece(phase, at, 'control'), control)}")
    parts += [f"msg_controllen={control_size}", f"msg_flags={flags_text('msg', flags & 0xFFFFFFFF)}"]
    return "{" + ", ".join(parts) + "}"


def _control(data: bytes | None, address: int) -> str:
    if data is None:
        return pointer(address)
    shown, place = [], 0
    while place + CONTROL_HEAD <= len(data):
        size, level, kind = struct.unpack_from("<Qii", data, place)
        if size < CONTROL_HEAD:
            break
        body = data[place + CONTROL_HEAD : place + size]
        head = f"cmsg_len={size}, cmsg_level={name_text('sockopt_level', level)}"
        name = name_text("scm", kind) if level == 1 else f"{kind:#x}"
        shown.append(f"{{{head}, cmsg_type={name}, cmsg_data={_control_data(level, kind, body)}}}")
        place += (size + 7) & ~7
    return f"[{', '.join(shown)}]"


def _control_data(level: int, kind: int, body: bytes) -> str:
    if level == 1 and kind == 1:
        return f"[{', '.join(str(fd) for (fd,) in struct.iter_unpack('<i', body[: len(body) & ~3]))}]"
    if level == 1 and kind == 2 and len(body) >= 12:
        return "{{pid={}, uid={}, gid={}}}".format(*struct.unpack_from("<iii", body))
    return quote(body)


def behind(piece: bytes) -> str:
    """Show what is behind a descriptor, as bpf/include/descriptor_name.h tells it."""
    kind = piece[0]
    if kind == OTHER and len(piece) >= 16:
        inode, path = struct.unpack_from("<Q", piece, 8)[0], piece[16:].removeprefix(b"/")
        if path.startswith(b"["):
            return f"anon_inode:{_plain(path)}"
        return f"/{_plain(path)} (deleted)" if path else f"pipe:[{inode}]"
    if kind != SOCKET or len(piece) < 48:
        return _plain(piece)
    protocol, family, local_port, inode = struct.unpack_from("<xBHHxxQ", piece)
    remote_port = int.from_bytes(piece[6:8], "big")
    name = PROTOCOLS.get((family, protocol))
    if name is None:
        return f"{(name_of('family', family) or '').removeprefix('AF_') or 'socket'}:[{inode}]"
    size = 4 if family == socket.AF_INET else 16
    local, remote = (socket.inet_ntop(family, piece[at : at + size]) for at in (16, 32))
    ends = [f"[{each}]" if size == 16 else each for each in (local, remote)]
    shown = f"{ends[0]}:{local_port}" + (f"->{ends[1]}:{remote_port}" if remote_port else "")
    return f"{name}:[{shown}]"


def _plain(name: bytes) -> str:
    return quote(name)[1:-1].replace("<", "\\74").replace(">", "\\76")
