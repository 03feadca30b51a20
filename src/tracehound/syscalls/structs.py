"""How the structs that system calls point to are shown, and how large they are (of 64-bit Linux)."""

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tracehound.syscalls.flags import flags_text, name_of, name_text
from tracehound.syscalls.text import quote

INFINITY: Final = (1 << 64) - 1
UTIME_NOW: Final = (1 << 30) - 1
UTIME_OMIT: Final = (1 << 30) - 2
UTS_FIELD: Final = 65


def _pair(first: str, second: str) -> Callable[[bytes], str]:
    def show(data: bytes) -> str:
        one, two = struct.unpack_from("<qq", data)
        return f"{{{first}={one}, {second}={two}}}"

    return show


timespec = _pair("tv_sec", "tv_nsec")
timeval = _pair("tv_sec", "tv_usec")


def utimespec(data: bytes) -> str:
    """Show a time that a file is given."""
    seconds, nanoseconds = struct.unpack_from("<qq", data)
    if nanoseconds in (UTIME_NOW, UTIME_OMIT):
        return "UTIME_NOW" if nanoseconds == UTIME_NOW else "UTIME_OMIT"
    return timespec(data) + _remark(date(seconds, nanoseconds))


def date(seconds: int, fraction: int = 0, digits: int = 9) -> str | None:
    """Return a moment as a date, None for the first one and for none that a calendar has."""
    if not seconds and not fraction:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return None
    part = f".{fraction:0{digits}}" if fraction else ""
    return f"{moment}{part}+0000"


def _remark(text: str | None) -> str:
    return f" /* {text} */" if text else ""


def itimerspec(data: bytes) -> str:
    """Show struct itimerspec."""
    return f"{{it_interval={timespec(data[:16])}, it_value={timespec(data[16:])}}}"


def itimerval(data: bytes) -> str:
    """Show struct itimerval."""
    return f"{{it_interval={timeval(data[:16])}, it_value={timeval(data[16:])}}}"


def mode_text(mode: int) -> str:
    """Show a file's mode with its type."""
    kind, bits = mode & 0o170000, mode & 0o7777
    parts = [name_of("file_type", kind) or f"{kind:#o}"] if kind else []
    parts += [name for bit, name in ((0o4000, "S_ISUID"), (0o2000, "S_ISGID"), (0o1000, "S_ISVTX")) if bits & bit]
    return "|".join([*parts, f"{bits & 0o777:#03o}".replace("0o", "0") if bits & 0o777 else "000"])


def permissions(mode: int) -> str:
    """Show permissions alone."""
    return "0" + f"{mode:03o}" if mode >= 0o100 else f"{mode:03o}"


def device(number: int) -> str:
    """Show a device's number as kernels have it in 64 bits."""
    major = (number >> 8 & 0xFFF) | (number >> 32 & ~0xFFF)
    minor = (number & 0xFF) | (number >> 12 & ~0xFF)
    return f"makedev({hexadecimal(major)}, {hexadecimal(minor)})"


def stat(data: bytes) -> str:
    """Show what is most asked of struct stat."""
    mode, rdev, size = struct.unpack_from("<24xI12xQq", data)
    what = f"st_rdev={device(rdev)}" if mode & 0o170000 in (0o20000, 0o60000) else f"st_size={size}"
    return f"{{st_mode={mode_text(mode)}, {what}, ...}}"


def statx(data: bytes) -> str:
    """Show what is most asked of struct statx."""
    mask, _, attributes, _, _, _, mode, _, size = struct.unpack_from("<IIQIIIHxxQQ", data)
    return (
        f"{{stx_mask={flags_text('statx_mask', mask)}, stx_attributes={flags_text('statx_attr', attributes)}, "
        f"stx_mode={mode_text(mode)}, stx_size={size}, ...}}"
    )


def statfs(data: bytes) -> str:
    """Show struct statfs."""
    kind, block, blocks, free, available, files, files_free, one, two, name, fragment, flags = struct.unpack_from(
        "<qqQQQQQIIqqq", data
    )
    return (
        f"{{f_type={name_text('file_system', kind)}, f_bsize={block}, f_blocks={blocks}, f_bfree={free}, "
        f"f_bavail={available}, f_files={files}, f_ffree={files_free}, "
        f"f_fsid={{val=[{hexadecimal(one)}, {hexadecimal(two)}]}}, "
        f"f_namelen={name}, f_frsize={fragment}, f_flags={_statfs_flags(flags)}}}"
    )


def _statfs_flags(flags: int) -> str:
    """ST_VALID is the kernel's own."""
    valid = ["ST_VALID"] if flags & 0x20 else []
    rest = flags & ~0x20
    return "|".join([*valid, *([flags_text("statfs", rest)] if rest else [])]) or "0"


def signal_name(number: int) -> str:
    """Name a signal; the kernel's first real-time one is 32."""
    if 32 <= number <= 64:
        return "SIGRTMIN" if number == 32 else f"SIGRT_{number - 32}"
    return name_of("signal", number) or str(number)


def sigset(data: bytes) -> str:
    """Show a set of signals; one with most of them by those that are not in it."""
    bits = int.from_bytes(data[:8].ljust(8, b"\0"), "little")
    prefix = ""
    if bits.bit_count() >= 42:  # two thirds
        bits, prefix = ~bits & INFINITY, "~"
    names = [signal_name(number).removeprefix("SIG") for number in range(1, 65) if bits >> number - 1 & 1]
    return f"{prefix}[{' '.join(names)}]"


def handler(address: int) -> str:
    """Show what is done at a signal."""
    return {0: "SIG_DFL", 1: "SIG_IGN", INFINITY: "SIG_ERR"}.get(address) or f"{address:#x}"


def sigaction(data: bytes) -> str:
    """Show the kernel's struct sigaction."""
    action, flags, restorer = struct.unpack_from("<QQQ", data)
    end = f", sa_restorer={restorer:#x}" if flags & 0x4000000 else ""
    shown = flags_text("sigaction", flags)
    return f"{{sa_handler={handler(action)}, sa_mask={sigset(data[24:])}, sa_flags={shown}{end}}}"


def stack_t(data: bytes) -> str:
    """Show an alternate signal stack."""
    address, flags, size = struct.unpack_from("<QIxxxxQ", data)
    return f"{{ss_sp={pointer(address)}, ss_flags={flags_text('sigstack', flags)}, ss_size={size}}}"


def siginfo(data: bytes) -> str:
    """Show a signal's cause: of a child, else its sender."""
    number, error, code, _, pid, uid = struct.unpack_from("<iiiiiI", data)
    status, _, user, system = struct.unpack_from("<24xiiqq", data)
    if not number:
        return "{}"
    if number == 17:
        shown = str(status) if code == 1 else signal_name(status)
        return (
            f"{{si_signo=SIGCHLD, si_code={name_text('cld', code)}, si_pid={pid}, si_uid={uid}, si_status={shown}, "
            f"si_utime={user}, si_stime={system}}}"
        )
    reason = name_of("si_code", code & INFINITY) or name_of("si_code", code) or str(code)
    del error
    return f"{{si_signo={signal_name(number)}, si_code={reason}, si_pid={pid}, si_uid={uid}}}"


def pointer(address: int) -> str:
    """Show an address."""
    return f"{address:#x}" if address else "NULL"


def rusage(data: bytes) -> str:
    """Show the times of struct rusage."""
    return f"{{ru_utime={timeval(data[:16])}, ru_stime={timeval(data[16:32])}, ...}}"


def _limit(value: int, infinity: str) -> str:
    if value == INFINITY:
        return infinity
    return f"{value // 1024}*1024" if value > 1024 and value % 1024 == 0 else str(value)


def rlimit(data: bytes, infinity: str = "RLIM64_INFINITY") -> str:
    """Show struct rlimit."""
    soft, hard = struct.unpack_from("<QQ", data)
    return f"{{rlim_cur={_limit(soft, infinity)}, rlim_max={_limit(hard, infinity)}}}"


def utsname(data: bytes) -> str:
    """Show the system's name and the host's."""
    system, node = (data[at : at + UTS_FIELD].split(b"\0")[0] for at in (0, UTS_FIELD))
    return f"{{sysname={quote(system)}, nodename={quote(node)}, ...}}"


def sysinfo(data: bytes) -> str:
    """Show struct sysinfo."""
    up, *rest = struct.unpack_from("<qQQQQQQQQQH6xQQI", data)
    loads, names = rest[:3], ("totalram", "freeram", "sharedram", "bufferram", "totalswap", "freeswap", "procs",
                              "totalhigh", "freehigh", "mem_unit")  # fmt: skip
    shown = ", ".join(f"{name}={value}" for name, value in zip(names, rest[3:], strict=True))
    return f"{{uptime={up}, loads=[{', '.join(map(str, loads))}], {shown}}}"


def tms(data: bytes) -> str:
    """Show struct tms."""
    names = ("tms_utime", "tms_stime", "tms_cutime", "tms_cstime")
    values = struct.unpack_from("<qqqq", data)
    return "{" + ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True)) + "}"


def epoll_event(data: bytes) -> str:
    """Show the packed struct epoll_event."""
    events, word = struct.unpack_from("<IQ", data)
    return f"{{events={flags_text('epoll', events)}, data={{u32={word & 0xFFFFFFFF}, u64={word}}}}}"


def pollfd_events(data: bytes) -> str:
    """Show a descriptor with what is waited for."""
    fd, events, _ = struct.unpack_from("<ihh", data)
    return f"{{fd={fd}, events={flags_text('poll', events & 0xFFFF)}}}" if fd >= 0 else f"{{fd={fd}}}"


def sembuf(data: bytes) -> str:
    """Show struct sembuf."""
    number, operation, flags = struct.unpack_from("<Hhh", data)
    names = [name for bit, name in ((0x1000, "SEM_UNDO"), (0x800, "IPC_NOWAIT")) if flags & bit]
    return f"{{sem_num={number}, sem_op={operation}, sem_flg={'|'.join(names) or flags}}}"


def sigevent(data: bytes) -> str:
    """Show struct sigevent."""
    value, number, notify = struct.unpack_from("<Qii", data)
    (thread,) = struct.unpack_from("<16xi", data)
    word = value & 0xFFFFFFFF
    word -= (word >> 31) << 32
    shown = f"{{sigev_value={{sival_int={word}, sival_ptr={pointer(value)}}}, " if value else "{"
    shown += f"sigev_signo={signal_name(number)}, sigev_notify={name_text('sigev', notify)}"
    return shown + (f", sigev_notify_thread_id={thread}}}" if notify == 4 else "}")


def open_how(data: bytes) -> str:
    """Show struct open_how."""
    flags, mode, resolve = struct.unpack_from("<QQQ", data)
    shown = f", mode={permissions(mode)}" if flags & 0x40 or flags & 0x410000 == 0x410000 else ""
    return f"{{flags={open_flags(flags)}{shown}, resolve={flags_text('resolve', resolve)}}}"


def open_flags(flags: int) -> str:
    """Show flags of open, which always say whether it is read or written."""
    access = ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE")[flags & 3]
    rest = flags & ~3
    return f"{access}|{flags_text('open', rest)}" if rest else access


def mmap_flags(value: int) -> str:
    """Show flags of mmap: the kind of sharing first."""
    kind, rest = value & 3, value & ~3
    shown = name_of("mmap_type", kind) or ("0" if not rest else f"{kind:#x}")
    return f"{shown}|{flags_text('mmap', rest)}" if rest else shown


def clone_args(data: bytes) -> str:
    """Show struct clone_args."""
    flags, pidfd, child, parent, exit_signal, stack, size, tls = struct.unpack_from("<8Q", data)
    parts = [f"flags={flags_text('clone', flags)}"]
    if flags & 0x1000:
        parts.append(f"pidfd={pointer(pidfd)}")
    if flags & 0x1200000:
        parts.append(f"child_tid={pointer(child)}")
    if flags & 0x100000:
        parts.append(f"parent_tid={pointer(parent)}")
    parts.append(f"exit_signal={signal_name(exit_signal) if exit_signal else 0}")
    parts += [f"stack={pointer(stack)}", f"stack_size={hexadecimal(size)}"]
    if flags & 0x80000:
        parts.append(f"tls={pointer(tls)}")
    return "{" + ", ".join(parts) + "}"


def hexadecimal(value: int) -> str:
    """Show a number as C's %#x does."""
    return f"{value:#x}" if value else "0"


def timezone(data: bytes) -> str:
    """Show struct timezone."""
    west, dst = struct.unpack_from("<ii", data)
    return f"{{tz_minuteswest={west}, tz_dsttime={dst}}}"


def utimbuf(data: bytes) -> str:
    """Show struct utimbuf."""
    access, change = struct.unpack_from("<qq", data)
    return f"{{actime={access}{_remark(date(access))}, modtime={change}{_remark(date(change))}}}"


def mq_attr(data: bytes) -> str:
    """Show struct mq_attr."""
    flags, most, size, current = struct.unpack_from("<qqqq", data)
    return f"{{mq_flags={flags_text('open', flags)}, mq_maxmsg={most}, mq_msgsize={size}, mq_curmsgs={current}}}"


def sched_attr(data: bytes) -> str:
    """Show struct sched_attr."""
    size, policy, flags, nice, priority, runtime, deadline, period, least, most = struct.unpack_from(
        "<IIQiIQQQII", data
    )
    clamps = f", sched_util_min={least}, sched_util_max={most}" if size >= 56 else ""
    return (
        f"{{size={size}, sched_policy={name_text('sched', policy)}, sched_flags={flags_text('sched_flags', flags)}, "
        f"sched_nice={nice}, sched_priority={priority}, sched_runtime={runtime}, sched_deadline={deadline}, "
        f"sched_period={period}{clamps}}}"
    )


def cap_header(data: bytes) -> str:
    """Show the head of capget and capset."""
    version, pid = struct.unpack_from("<Ii", data)
    names = {0x19980330: "1", 0x20071026: "2", 0x20080522: "3"}
    shown = f"_LINUX_CAPABILITY_VERSION_{names[version]}" if version in names else f"{version:#x}"
    return f"{{version={shown}, pid={pid}}}"


def _one(layout: str, show: Callable[[int], str]) -> Callable[[bytes], str]:
    return lambda data: show(struct.unpack_from(layout, data)[0])


# Type -> how one is shown.
SHOW: Final[dict[str, Callable[[bytes], str]]] = {
    "timespec": timespec, "timeval": timeval, "utimespec": utimespec, "itimerspec": itimerspec, "itimerval": itimerval,
    "stat": stat, "statx": statx, "statfs": statfs, "sigaction": sigaction, "stack_t": stack_t, "siginfo": siginfo,
    "rusage": rusage, "rlimit": rlimit, "rlimit64": rlimit, "utsname": utsname, "sysinfo": sysinfo, "tms": tms,
    "epoll_event": epoll_event, "pollfd": pollfd_events, "sembuf": sembuf, "sigevent": sigevent, "open_how": open_how,
    "clone_args": clone_args, "timezone": timezone, "utimbuf": utimbuf, "mq_attr": mq_attr, "sched_attr": sched_attr,
    "cap_header": cap_header,
    "sched_param": _one("<i", lambda value: f"[{value}]"), "fds": _one("<i", str),
    "ints": _one("<i", str), "ids": _one("<I", str),
    "number": _one("<I", str), "numbers": _one("<I", str), "longs": _one("<q", str),
    "hexes": _one("<Q", lambda value: f"{value:#x}"), "length": _one("<i", str), "offset": _one("<q", str),
}  # fmt: skip

SIZES: Final = {
    "timespec": 16, "timeval": 16, "utimespec": 16, "itimerspec": 32, "itimerval": 32, "stat": 144, "statx": 256,
    "statfs": 88, "sigaction": 32, "stack_t": 24, "siginfo": 48, "rusage": 144, "rlimit": 16, "rlimit64": 16,
    "utsname": 390, "sysinfo": 112, "tms": 32, "epoll_event": 12, "pollfd": 8, "sembuf": 6, "sigevent": 24,
    "open_how": 24, "clone_args": 64, "timezone": 8, "utimbuf": 16, "mq_attr": 32, "sched_attr": 56, "cap_header": 8,
    "sched_param": 4, "fds": 4, "ints": 4, "ids": 4, "number": 4, "numbers": 4, "longs": 8, "hexes": 8, "length": 4,
    "offset": 8, "wstatus": 4, "sigmask_argument": 16, "ioctl": 64, "fcntl": 32, "prctl": 16, "arch_prctl": 8,
}  # fmt: skip
