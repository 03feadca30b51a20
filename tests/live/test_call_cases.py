"""A table of cases: every type, location, filter and form of the exit, each with what its rows must say."""

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.conftest import RunCli, rows

import tracehound

pytest.importorskip("capstone")

IS_X86 = os.uname().machine == "x86_64"


class Case(NamedTuple):
    """What is asked at a function, and the values of each call of it, in order; filters name the argument `it`."""

    function: str
    arguments: str
    expected: list[list[str | None]]
    filters: tuple[str, ...] = ()


def one(function: str, arguments: str, *expected: str | None) -> Case:
    return Case(function, arguments, [list(expected)])


def some(function: str, arguments: str, expected: list[str | None], *filters: str) -> Case:
    return Case(function, arguments, [[each] for each in expected], filters)


NUMBERS = [
    one("numbers", "int8,int16,int32,int64", "-5", "-300", "-70000", "-5000000000"),
    one("numbers", "char,short,int,long", "-5" if IS_X86 else "251", "-300", "-70000", "-5000000000"),
    one("numbers", "int8x,int16x,int32x,int64x", "0xfb", "0xfed4", "0xfffeee90", "0xfffffffed5fa0e00"),
    one("numbers", "ptr,ptr,ptr,ptr,uint8,uint16", *[None] * 4, "200", "60000"),
    one("numbers", "int,int,int,int,uint8x,uint16x,uint,uint64", *[None] * 4, "0xc8", "0xea60", "4000000000",
        str(1 << 63)),
    one("numbers", "int,int,int,ssize_t,uchar,ushort,uint32x,ulongx", *[None] * 3, "-5000000000", "200", "60000",
        "0xee6b2800", "0x8000000000000000"),
    one("plain", "size_t,int", "0", "0"),
    one("plain", "bool,off_t", "0", None),
    one("plain", "uint64x,socklen_t", "0x0", "0"),
    one("plain", "pid_t,mode_t", "0", "0"),
]  # fmt: skip
TEXTS = [
    some("text", "str", ["alpha", "beta", "alphabet", "x" * 256 + "…", "NULL"]),
    some("text", "str:3", ["alp…", "bet…", "alp…", "xxx…", "NULL"]),
    some("text", "str:400", ["alpha", "beta", "alphabet", "x" * 300, "NULL"]),
    some("text", "str:arg0", ["alpha", "beta", "alphabet", "x" * 256 + "…", "NULL"]),
    some("text", "str:4:arg0+1", ["lpha", "eta", "lpha…", "xxxx…", None]),
    some("give_string", "std::string", ["short", "a text that is longer than sixteen"]),
    some("give_string", "std", ["short", "a text that is longer than sixteen"]),
    some("give_string", "std::__cxx11::string:6", ["short", "a text…"]),
    some("give_cxx_string", "std::__1::string", ["small", "of libc++, and not a short one"]),
    one("give_words", "str[]", '["one", "", "three"]'),
    one("give_words", "string_array", '["one", "", "three"]'),
    one("give_words", "argv", '["one", "", "three"]'),
    one("give_words", "str[2]", '["one", ""]…'),
    one("give_words", "*str", "one"),
    one("give_words", "str:arg0.", "one"),
    one("give_words", "str:arg0+16.", "three"),
]
BUFFERS = [
    some("give_bytes", "buf:3", ["160301", "474554", None, "626164"]),
    some("give_bytes", "buf:arg1", ["16030100", b"GET / HTTP".hex(), "", ""]),
    Case("give_bytes", "buf:n,n=long", [["16030100", "4"], [b"GET / HTTP".hex(), "10"], ["", "0"], ["", "-1"]]),
    some("give_bytes", "buf:2:arg0+1", ["0301", "4554", None, "6164"]),
    one("give_edge", "buf:16", b"edge".hex() + "…"),
    one("give_edge", "buf:arg1", b"edge".hex() + "…"),
    one("give_large", "buf:32768", b"L".hex() * 32768),
    one("give_large", "buf:arg1", b"L".hex() * 32768 + "…"),
]
ARRAYS = [
    one("give_numbers", "int[4]", "[1, -2, 3, -4]"),
    one("give_numbers", "int[arg1]", "[1, -2, 3, -4]"),
    one("give_numbers", "int[n],n=int", "[1, -2, 3, -4]", "4"),
    one("give_numbers", "int_arr:2", "[1, -2]"),
    one("give_numbers", "uint_arr:2", "[1, 4294967294]"),
    one("give_numbers", "int32x[2]", "[0x1, 0xfffffffe]"),
    one("give_numbers", "*int", "1"),
    one("give_numbers", "int:arg0+4", "-2"),
    one("give_numbers", "uint8:arg0+0x0c", "252"),
    one("give_pointers", "ptr[2]", "[0x1234, 0x0]"),
    one("give_pointers", "ptr_arr:2", "[0x1234, 0x0]"),
    one("give_floats", "double[2]", "[1.5, -0.25]"),
    one("give_floats", "*double", "1.5"),
    one("give_floats", "double:arg0+8", "-0.25"),
]
STRUCTS = [
    one("give_timespec", "timespec", "{tv_sec=1, tv_nsec=2}"),
    one("give_timespec", "timespec[arg1]", "[{tv_sec=1, tv_nsec=2}, {tv_sec=3, tv_nsec=4}]"),
    one("give_timeval", "timeval", "{tv_sec=5, tv_usec=6}"),
    one("give_timezone", "timezone", "{tz_minuteswest=60, tz_dsttime=1}"),
    one("give_itimerspec", "itimerspec", "{interval_sec=1, interval_nsec=2, value_sec=3, value_nsec=4}"),
    one("give_stack", "stack_t", "{ss_sp=0x1000, ss_flags=2, ss_size=8192}"),
    one("give_sigset", "sigset", "{mask=[2 15]}"),
    one("give_sigaction", "sigaction", "{sa_handler=0x0, sa_mask=[1], sa_flags=0x10000000, sa_restorer=0x0}"),
    one("give_siginfo", "siginfo", "{si_signo=17, si_errno=0, si_code=1, si_pid=42, si_uid=1000, si_value=0x0}"),
    one("give_epoll", "epoll_event[2]", "[{events=0x1, data=0x7}, {events=0x4, data=0x8}]"),
    one("give_pollfd", "pollfd[arg1]", "[{fd=3, events=0x1, revents=0x0}, {fd=4, events=0x4, revents=0x10}]"),
    one("give_dirent", "dirent", '{d_ino=9, d_off=10, d_reclen=32, d_type=8, d_name="name.txt"}'),
    one("give_rusage", "rusage", "{utime_sec=1, utime_usec=2, stime_sec=0, stime_usec=0, ru_maxrss=3, ru_ixrss=0, "
        "ru_idrss=0, ru_isrss=0, ru_minflt=0, ru_majflt=0, ru_nswap=0, ru_inblock=0, ru_oublock=0, ru_msgsnd=0, "
        "ru_msgrcv=0, ru_nsignals=0, ru_nvcsw=0, ru_nivcsw=4}"),
    one("give_utsname", "utsname",
        '{sysname="Linux", nodename="node", release="", version="", machine="machine", domainname=""}'),
    one("give_sysinfo", "sysinfo", "{uptime=11, load1=0, load5=0, load15=0, totalram=12, freeram=0, sharedram=0, "
        "bufferram=0, totalswap=0, freeswap=0, procs=13, totalhigh=0, freehigh=0, mem_unit=1}"),
    one("give_stat", "stat", "{st_dev=0x0, st_ino=14, st_nlink=1, st_mode=0100644, st_uid=0, st_gid=0, st_rdev=0x0, "
        "st_size=15, st_blksize=0, st_blocks=0, st_atime=0, st_atime_nsec=0, st_mtime=0, st_mtime_nsec=0, st_ctime=0, "
        "st_ctime_nsec=0}" if IS_X86 else None),
    one("give_statfs", "statfs",
        "{f_type=0xef53, f_bsize=4096, f_blocks=0, f_bfree=0, f_bavail=0, f_files=0, f_ffree=0, "
        "fsid0=0x0, fsid1=0x0, f_namelen=255, f_frsize=0, f_flags=0x0}"),
    one("give_iovec", "iovec[arg1]", "[{iov_base=0x10, iov_len=3}, {iov_base=0x20, iov_len=4}]"),
    one("give_msghdr", "msghdr", "{msg_name=0x0, msg_namelen=0, msg_iov=0x30, msg_iovlen=2, msg_control=0x0, "
        "msg_controllen=0, msg_flags=0x2}"),
    some("give_inet", "sockaddr", ["10.0.0.1:80", "10.0.0.2:80"]),
    one("give_inet6", "sockaddr", "[::1]:443"),
    one("give_local", "sockaddr", "unix:/run/some.sock"),
    one("give_attr", "pthread_attr", "0102" + "00" * 54),
]  # fmt: skip
LOCATIONS = [
    one("give_nested", "str:arg0+16.+8.", "deep"),
    one("give_nested", "int:arg0+0x10.+0x8-0x4", "77"),
    one("give_nested", "buf:4:arg0+0x20-0x10.+8.", b"deep".hex()),
    one("give_nested", "**int:arg0+16.+4", None),
    some("find", "long:arg0", ["0", "1"]),
    some("inner", "long", ["1", "2"]),
]
IN_REGISTERS = [
    one("numbers", "int:rdx,int16:rsi", "-70000", "-300"),
    one("numbers", "uint:sp+8,uint64:sp+0x30-0x20", "4000000000", str(1 << 63)),
    some("text", "str:rdi", ["alpha", "beta", "alphabet", "x" * 256 + "…", "NULL"]),
    some("give_bytes", "buf:rsi", ["16030100", b"GET / HTTP".hex(), "", ""]),
    some("find", "long:rdi", ["0", "1"]),
    Case("inner", "ptr:rsp,ptr:rbp,ptr:rip,ptr:rbx,ptr:r15", [[None] * 5] * 2),
]  # fmt: skip
EXITS = [
    one("fill", "str@exit,long,int", "filled", "16", None),
    one("fill", "str@both,size_t", "before", "filled", "16"),
    one("fill", "buf:ret@exit", b"filled".hex()),
    one("fill", "str:ret", None),
    one("fill", "buf:6:arg0@exit", b"filled".hex()),
    one("fill", "*int:arg2@both", "2", "42"),
    one("fill", "int:arg2+0@exit", "42"),
    one("fill", "long:ret", "6"),
    one("fill", "uint8x:ret", "0x6"),
    some("find", "str:ret", ["NULL", "found"]),
    one("fill", "char[ret]@exit", str([*b"filled"])),
]  # fmt: skip
FILTERS = [
    some("plain", "it=long", ["3"], "it == 3"),
    some("plain", "it=long", ["3", "5"], "it == 3", "it == 5"),
    some("plain", "it=long", ["0", "1", "2", "4", "5", "6", "7", "8", "9"], "it != 3"),
    some("plain", "it=long", ["7", "8", "9"], "it > 6"),
    some("plain", "it=long", ["0", "1"], "it < 2"),
    some("plain", "it=long", ["4", "5", "6"], "it >= 4", "it <= 6"),
    some("plain", "it=long", ["4", "6"], "it >= 4", "it <= 6", "it != 5"),
    some("plain", "it=int:arg1", ["-9"], "it < -8"),
    some("plain", "it=int:arg1", ["-1", "-2"], "it == -1", "it == -2"),
    some("plain", "it=uint32x:arg1", ["0xffffffff"], "it == 0xffffffff"),
    some("text", "it=str", ["alpha", "alphabet"], "it ^= alpha"),
    some("text", "it=str", ["alpha"], "it == alpha"),
    some("text", "it=str", ["alpha", "beta", "alphabet"], "it ^= alpha", "it ^= be"),
    some("text", "it=str", ["beta", "x" * 256 + "…", "NULL"], "it !^= alpha"),
    some("text", "it=str", ["beta", "alphabet", "x" * 256 + "…", "NULL"], "it != alpha"),
    some("text", "it=str", ["alpha"], "it ^= alpha", "it != alphabet"),
    some("text", "it=str:2", ["alphabet"], "it == alphabet"),
    some("give_bytes", "it=buf:arg1", ["16030100"], "it ^= 0x1603"),
    some("give_bytes", "it=buf:arg1", [b"GET / HTTP".hex(), "", ""], "it !^= 0x1603"),
    some("give_bytes", "it=buf:arg1", [b"GET / HTTP".hex()], "it ^= GET"),
    some("give_string", "it=std::string", ["short"], "it == short"),
    some("give_inet", "it=sockaddr", ["10.0.0.2:80"], "it == 10.0.0.2"),
    some("give_inet", "it=sockaddr", ["10.0.0.1:80"], "it == 10.0.0.1:80"),
    some("give_inet", "it=sockaddr", ["10.0.0.1:80"], "it != 10.0.0.2"),
    some("give_inet6", "it=sockaddr", ["[::1]:443"], "it == ::1"),
    some("give_nested", "it=int:arg0+16.+4", ["77"], "it > 76"),
    some("give_inet", "it=sockaddr", [], "it == 10.0.0.3"),
]
CASES = [
    *NUMBERS, *TEXTS, *BUFFERS, *ARRAYS, *STRUCTS, *LOCATIONS, *(IN_REGISTERS if IS_X86 else []), *EXITS, *FILTERS,
]  # fmt: skip


def named(case: Case, number: int) -> tuple[str, list[str]]:
    """Return the point of a case and its filters, its first argument named by its number."""
    first = case.arguments.removeprefix("it=")
    filters = [each.replace("it", f"c{number}", 1) for each in case.filters]
    return f"call_cases:{case.function}[c{number}={first}]", filters


def test_every_type_location_filter_and_exit(run_cli: RunCli, c_target: Callable[[str], Path], tmp_path: Path) -> None:
    points, filters = [], list[str]()
    for number, case in enumerate(CASES):
        point, of_it = named(case, number)
        points.append(point)
        filters += of_it
    options = [word for each in filters for word in ("--filter", each)]
    record = tmp_path / "record"
    command = ("call", "--record", record, "--format", "none", *options, *points, "--", c_target("call_cases"))
    finished = run_cli(*command)
    assert finished.code == 0, finished.err
    found = defaultdict[int, list[list[str | None]]](list)
    for row in sorted(rows(tracehound.open(record).calls), key=lambda row: row["entry_ns"]):
        names = [each["name"] for each in row["args"]]
        found[int(names[0].split("@")[0][1:])].append([each["value"] for each in row["args"]])
    wrong = []
    for number, case in enumerate(CASES):
        given = found[number]
        same = [
            [want if want is None else have for have, want in zip(row, expected, strict=False)]
            for row, expected in zip(given, case.expected, strict=False)
        ]
        is_cut = case.function == "plain" and not case.filters  # ten calls, the first is looked at
        if same != case.expected or (len(given) != len(case.expected) and not is_cut):
            wrong.append(f"{named(case, number)[0]} {case.filters}: {given} is not {case.expected}")
    assert not wrong, "\n".join(wrong)
    assert all(f"filter: {each}" in finished.err for each in filters)
    print(f"{len(CASES)} cases, each with its rows")
