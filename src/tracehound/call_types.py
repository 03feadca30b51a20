"""Types of arguments of calls: numbers, and structs of the C library as they lie in memory (64-bit, little-endian).

Sources: psABI of x86-64 and AAPCS64 for sizes, the headers of glibc and of Linux for structs. Knows neither how a
value is read (`kernel`) nor how it is shown (`decode`).
"""

import platform
import struct
from dataclasses import dataclass
from typing import Final

IS_X86: Final = platform.machine() == "x86_64"

NUMBERS: Final = {
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4",
    "uint64": "u8", "ptr": "u8", "float": "f4", "double": "f8",
}  # fmt: skip
ALIASES: Final = {
    "char": "int8" if IS_X86 else "uint8", "schar": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16",
    "int": "int32", "uint": "uint32", "long": "int64", "ulong": "uint64", "bool": "uint8", "size_t": "uint64",
    "ssize_t": "int64", "off_t": "int64", "socklen_t": "uint32", "pid_t": "int32", "mode_t": "uint32",
    "time_t": "int64", "pointer": "ptr",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: `format` of the struct module, a name for each of its values (`_`: not shown, NAME/x: hexadecimal)."""

    format: str
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return struct.calcsize("<" + self.format)


def _struct(form: str, names: str) -> Struct:
    return Struct(form, tuple(names.split()))


_STAT_X86: Final = _struct(
    "QQQIII4xQqqqqqqqqq24x",
    "st_dev/x st_ino st_nlink st_mode/o st_uid st_gid st_rdev/x st_size st_blksize st_blocks "
    "st_atime st_atime_nsec st_mtime st_mtime_nsec st_ctime st_ctime_nsec",
)
_STAT_ARM: Final = _struct(
    "QQIIIIQ8xqi4xqqqqqqq8x",
    "st_dev/x st_ino st_mode/o st_nlink st_uid st_gid st_rdev/x st_size st_blksize st_blocks "
    "st_atime st_atime_nsec st_mtime st_mtime_nsec st_ctime st_ctime_nsec",
)
STRUCTS: Final = {
    "timespec": _struct("qq", "tv_sec tv_nsec"),
    "timeval": _struct("qq", "tv_sec tv_usec"),
    "timezone": _struct("ii", "tz_minuteswest tz_dsttime"),
    "itimerspec": _struct("qqqq", "interval_sec interval_nsec value_sec value_nsec"),
    "itimerval": _struct("qqqq", "interval_sec interval_usec value_sec value_usec"),
    "stack_t": _struct("Qi4xQ", "ss_sp/x ss_flags ss_size"),
    "sigset": _struct("Q", "mask/s"),
    "sigaction": _struct("QQ120xi4xQ", "sa_handler/x sa_mask/s sa_flags/x sa_restorer/x"),
    "kernel_sigaction": _struct("QQQQ", "sa_handler/x sa_flags/x sa_restorer/x sa_mask/s")
    if IS_X86
    else _struct("QQQ", "sa_handler/x sa_flags/x sa_mask/s"),
    "siginfo": _struct("iii4xiIQ96x", "si_signo si_errno si_code si_pid si_uid si_value/x"),
    "epoll_event": _struct("IQ" if IS_X86 else "I4xQ", "events/x data/x"),
    "pollfd": _struct("iHH", "fd events/x revents/x"),
    "dirent": _struct("QqHB", "d_ino d_off d_reclen d_type"),  # the name follows
    "rusage": _struct(
        "qqqqqqqqqqqqqqqqqq",
        "utime_sec utime_usec stime_sec stime_usec ru_maxrss ru_ixrss ru_idrss ru_isrss ru_minflt ru_majflt ru_nswap "
        "ru_inblock ru_oublock ru_msgsnd ru_msgrcv ru_nsignals ru_nvcsw ru_nivcsw",
    ),
    "rlimit": _struct("QQ", "rlim_cur rlim_max"),
    "utsname": _struct("65s65s65s65s65s65s", "sysname nodename release version machine domainname"),
    "sysinfo": _struct(
        "qQQQQQQQQQHH4xQQI4x",
        "uptime load1 load5 load15 totalram freeram sharedram bufferram totalswap freeswap procs _ totalhigh freehigh "
        "mem_unit",
    ),
    "stat": _STAT_X86 if IS_X86 else _STAT_ARM,
    "statfs": _struct(
        "qqQQQQQiiqqq32x",
        "f_type/x f_bsize f_blocks f_bfree f_bavail f_files f_ffree fsid0/x fsid1/x f_namelen f_frsize f_flags/x",
    ),
    "iovec": _struct("QQ", "iov_base/x iov_len"),
    "msghdr": _struct(
        "QI4xQQQQi4x", "msg_name/x msg_namelen msg_iov/x msg_iovlen msg_control/x msg_controllen msg_flags/x"
    ),
    "sockaddr": _struct("H126x", "sa_family"),  # what follows depends on the family
    "pthread_attr": _struct("56s", "raw"),
    "tm": _struct("iiiiiiiii4xqQ", "tm_sec tm_min tm_hour tm_mday tm_mon tm_year tm_wday tm_yday tm_isdst tm_gmtoff _"),
}  # fmt: skip
DIRENT_NAME_MAX: Final = 256


def struct_size(name: str) -> int:
    """Return how many bytes of a struct are read."""
    return STRUCTS[name].size + (DIRENT_NAME_MAX if name == "dirent" else 0)
