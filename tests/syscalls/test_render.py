"""Registers and bytes in, lines out."""

import struct
from pathlib import Path

from tracehound.syscalls import Hit, calls, render, result_text
from tracehound.syscalls.sockets import behind
from tracehound.syscalls.text import quote

FD, FDCWD = 3, 0xFFFFFF9C
ADDRESS = 0x7FFC00001000
Given = dict[tuple[int, int, str], bytes]


def line(
    name: str,
    *registers: int,
    given: Given | None = None,
    result: int | None = 0,
    cut: bool = False,
    hides: bool = False,
) -> str:
    """Return a call as a line; `cut`: there was more of each piece."""
    call = calls()[name]
    pieces = {key: (data, cut) for key, data in (given or {}).items()}
    padded = (*(number & (1 << 64) - 1 for number in registers), *[0] * (6 - len(registers)))
    shown = render(call, Hit(padded, pieces, result, 32, not hides))
    texts = [text for each, _, text in shown.arguments if each != "return"]
    said = next((text for each, _, text in shown.arguments if each == "return"), None)
    said = said if said is not None else result_text(call, shown.return_value, shown.errno)
    return f"{name}({', '.join(texts)}) = {said}"


IN = struct.pack("<H", 2) + (80).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
STAT = struct.pack("<24xI12xQq88x", 0o100644, 0, 1234)
TTY = struct.pack("<24xI12xQq88x", 0o20620, 0x8803, 0)
EVENT = struct.pack("<IQ", 0x80000001, 1 << 33 | 7)
MESSAGE = struct.pack("<QIxxxxQQQQi4x", 0, 0, ADDRESS, 2, 0, 0, 0)
VECTORS = struct.pack("<QQQQ", ADDRESS, 2, ADDRESS, 40)

# Each as the line of the same number in lines.txt.
CASES: list[tuple[str, tuple[int, ...], Given, int | None]] = [
    ("openat", (FDCWD, 1, 0o100, 0o644), {(0, 1, ""): b"/a\nb"}, 3),
    ("openat", (5, 1, 2), {(0, 1, ""): b"x"}, -2),
    ("openat", (FDCWD, 8, 0), {}, -14),
    ("openat", (FDCWD, 0, 0), {}, -14),
    ("close", (0xFFFFFFFF,), {}, -9),
    ("read", (0, ADDRESS, 100), {(1, 1, ""): b"x\0" + b"7"}, 3),
    ("read", (0, ADDRESS, 100), {(1, 1, ""): b"a" * 32}, 40),
    ("read", (0, ADDRESS, 100), {}, -4),
    ("read", (0, ADDRESS, 1), {}, -512),
    ("read", (0, ADDRESS, 1), {}, None),
    ("fstat", (3, ADDRESS), {(1, 1, ""): STAT}, 0),
    ("fstat", (3, ADDRESS), {(1, 1, ""): TTY}, 0),
    ("mmap", (0, 4096, 3, 0x22, -1, 0), {}, 0x7F00_0000_1000),
    ("mkdir", (1, 0o1777), {(0, 0, ""): b"d"}, 0),
    ("chmod", (1, 0), {(0, 0, ""): b"d"}, 0),
    ("umask", (0o22,), {}, 0o77),
    ("socket", (2, 0x80801, 0), {}, 4),
    ("connect", (3, ADDRESS, 16), {(0, 1, ""): IN}, 0),
    ("connect", (3, ADDRESS, 4), {(0, 1, ""): b"\1\0\0x"}, -111),
    (
        "accept",
        (3, ADDRESS, ADDRESS),
        {(1, 1, ""): b"\1\0", (0, 2, ""): struct.pack("<i", 110), (1, 2, ""): struct.pack("<i", 2)},
        5,
    ),
    ("epoll_ctl", (4, 1, 3, ADDRESS), {(0, 3, ""): EVENT}, 0),
    ("epoll_wait", (4, ADDRESS, 8, -1), {(1, 1, ""): b""}, 0),
    ("poll", (ADDRESS, 1, 0), {(0, 0, ""): struct.pack("<ihh", 3, 1, 0), (1, 0, ""): struct.pack("<ihh", 3, 1, 16)}, 1),
    ("poll", (ADDRESS, 1, 0), {(0, 0, ""): struct.pack("<ihh", 3, 1, 0)}, 0),
    ("wait4", (-1, ADDRESS, 1, 0), {(1, 1, ""): struct.pack("<I", 0x8B)}, 9),
    ("rt_sigprocmask", (0, ADDRESS, 0, 8), {(0, 1, ""): struct.pack("<Q", 1 << 16 | 1 << 32)}, 0),
    ("rt_sigprocmask", (2, ADDRESS, 0, 8), {(0, 1, ""): struct.pack("<Q", (1 << 64) - 1 & ~(1 << 8))}, 0),
    ("execve", (1, 2, ADDRESS), {(0, 0, ""): b"/bin/x", (0, 1, ""): b"x\0a b\0", (0, 2, ""): b"\0\0\0"}, 0),
    ("clone", (0x1200011, 0, 0, 0, 0), {}, 7),
    ("futex", (ADDRESS, 0x80, 2, 0), {}, -11),
    ("fcntl", (3, 3, 0), {}, 0o2004002),
    ("fcntl", (3, 2, 1), {}, 0),
    ("prlimit64", (0, 7, 0, ADDRESS), {(1, 3, ""): struct.pack("<QQ", 1 << 20, (1 << 64) - 1)}, 0),
    (
        "sendmsg",
        (3, ADDRESS, 0x4000),
        {(0, 1, ""): MESSAGE, (0, 1, "iov"): VECTORS, (0, 1, "data"): b"hi" + b"z" * 32},
        42,
    ),
    ("readv", (3, ADDRESS, 2), {(1, 1, "iov"): VECTORS, (1, 1, "data"): b"hi" + b"z" * 32}, 3),
    ("nanosleep", (ADDRESS, ADDRESS), {(0, 0, ""): struct.pack("<qq", 1, 5)}, 0),
    ("ioctl", (1, 0x5413, ADDRESS), {(1, 2, ""): struct.pack("<HHHH", 24, 80, 0, 0) + bytes(56)}, 0),
    ("ioctl", (1, 0xC0044501, 0), {}, -25),
    ("kill", (-1, 64), {}, 0),
    ("exit_group", (3,), {}, None),
]


def test_lines() -> None:
    expected = Path(__file__).with_name("lines.txt").read_text().splitlines()
    assert [line(name, *registers, given=given, result=result) for name, registers, given, result in CASES] == expected


def test_bytes_that_a_program_moves_are_counted_where_they_are_not_shown() -> None:
    assert line("write", 1, ADDRESS, 5, result=5, hides=True) == "write(1, <5 bytes>, 5) = 5"
    assert line("read", 0, ADDRESS, 9, result=5, hides=True) == "read(0, <5 bytes>, 9) = 5"
    assert line("read", 0, ADDRESS, 9, result=-4, hides=True).startswith("read(0, 0x7ffc00001000, 9) = -1")
    given = {(0, 1, "iov"): VECTORS}
    shown = "writev(1, [{iov_base=<2 bytes>, iov_len=2}, {iov_base=<40 bytes>, iov_len=40}], 2) = 42"
    assert line("writev", 1, ADDRESS, 2, given=given, result=42, hides=True) == shown


def test_what_is_cut_says_so() -> None:
    assert line("mkdir", 1, 0o700, given={(0, 0, ""): b"long"}, cut=True) == 'mkdir("long"..., 0700) = 0'


def test_quotes() -> None:
    assert quote(b'a"\\\t\x7f\xe9') == '"a\\"\\\\\\t\\177\\351"'
    assert quote(b"\0007\0018\0") == '"\\0007\\0018\\0"'.replace("\\0018", "\\18")


def test_what_is_behind_a_descriptor() -> None:
    inode = struct.pack("<B7xQ", 2, 77)
    assert behind(b"/a b") == "/a b"
    assert behind(inode) == "pipe:[77]"
    assert behind(inode + b"/[eventfd]") == "anon_inode:[eventfd]"
    assert behind(inode + b"/memfd:x") == "/memfd:x (deleted)"
    tcp = struct.pack("<BBHH2sQ16s16s", 1, 6, 2, 5000, (80).to_bytes(2, "big"), 9, b"\x7f\0\0\1", b"\n\0\0\2")
    assert behind(tcp) == "TCP:[127.0.0.1:5000->10.0.0.2:80]"
    listening = struct.pack("<BBHH2sQ16s16s", 1, 17, 10, 53, bytes(2), 9, bytes(16), bytes(16))
    assert behind(listening) == "UDPv6:[[::]:53]"
    assert behind(struct.pack("<BBHH2sQ16s16s", 1, 0, 1, 0, bytes(2), 9, bytes(16), bytes(16))) == "UNIX:[9]"
