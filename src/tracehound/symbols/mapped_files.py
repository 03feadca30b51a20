"""The executable memory of running processes as /proc tells it, and the files behind it, opened while they are there.

A file is opened when it is first seen and held until its tables are read: one that was deleted meanwhile, or whose
process has ended, is still there. What is opened by name counts only if it is the file that was mapped: same device and
inode, or same build id. Sources: proc(5). Left out: memory of 32-bit programs.
"""

import fcntl
import os
import re
import stat
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from tracehound.errors import TargetError
from tracehound.symbols.address_space import FileKey, Mapped, is_file
from tracehound.symbols.elf import Elf
from tracehound.symbols.module import Module
from tracehound.symbols.module_store import plain_path

HELD_LIMIT: Final = 256  # descriptors
KNOWN_LIMIT: Final = 1 << 14  # files whose build id is remembered
MAPS_LIMIT: Final = 32 << 20  # bytes of a list of mappings
PERF_MAP_PIECE: Final = 8 << 20  # bytes that are read at once
PERF_MAP_LIMIT: Final = 64 << 20
FS_IOC_GETVERSION: Final = 0x80087601
VDSO: Final = b"[vdso]"
_LINE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)$", re.MULTILINE
)
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class _File(NamedTuple):
    """One state of a file."""

    device: int
    inode: int
    size: int
    changed_ns: int


_Node = tuple[tuple[int, int], int, int]  # device, inode, generation: of all keys of one file


class MappedFiles:
    """Lists mappings and holds their files."""

    def __init__(self) -> None:
        self._held: OrderedDict[_Node, int] = OrderedDict()  # descriptors
        self._known: OrderedDict[_File, tuple[bytes, int]] = OrderedDict()  # build id, generation
        self._perf_maps: dict[int, tuple[int, int]] = {}  # pid -> (inode, bytes that were read)

    def close(self) -> None:
        """Close all files."""
        while self._held:
            os.close(self._held.popitem()[1])

    def __enter__(self) -> "MappedFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list(self, pid: int) -> "list[Mapped]":
        """Return the executable mappings of a process, their files opened; empty for one that is gone or hidden."""
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                text = file.read(MAPS_LIMIT)
        except OSError:
            return []
        found = []
        for start_text, end_text, offset_text, major, minor, inode_text, name in _LINE.findall(text):
            start, end, offset = (int(part, 16) for part in (start_text, end_text, offset_text))
            path = _unescaped(name)
            key = FileKey(b"", (int(major, 16), int(minor, 16)), int(inode_text), path)
            is_code = is_file(key.inode, path)
            if is_code and key.inode:
                key = self.hold(pid, start, end, key)
            elif path == VDSO:
                key, offset = key._replace(build_id=own_vdso().build_id or b""), 0
            found.append(Mapped(start, end, offset, key if is_code else None))
        return found

    def hold(self, pid: int, start: int, end: int, key: FileKey) -> FileKey:
        """Open the file of a mapping, if it is not known; return its key with build id and generation.

        `key.build_id`, where it is known, is what the file must have if it can only be opened by name.
        """
        fd = self._open(pid, start, end, key)
        if fd is None:
            return key
        found = os.fstat(fd)
        file = _File(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        known = self._known.get(file)
        if known is not None:
            os.close(fd)
            return key._replace(build_id=known[0], generation=known[1])
        known = self._known[file] = _build_id(fd), _generation(fd)
        if len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)
        key = key._replace(build_id=known[0], generation=known[1])
        self._keep(_node(key), fd)
        return key

    def keep(self, path: str) -> None:
        """Open a file that will be mapped, for it may be gone by the time that this is told; does nothing if it is."""
        with suppress(OSError):
            fd = os.open(path, _OPEN)
            found = os.fstat(fd)
            device = os.major(found.st_dev), os.minor(found.st_dev)
            self._keep((device, found.st_ino, _generation(fd)), fd)

    def _keep(self, node: _Node, fd: int) -> None:
        while node not in self._held and len(self._held) >= HELD_LIMIT:
            os.close(self._held.popitem(last=False)[1])
        other = self._held.pop(node, None)
        if other is not None:
            os.close(other)
        self._held[node] = fd

    def module_of(self, key: FileKey) -> Module | None:
        """Open a file for its tables to be read, the one that is held or else by its name; None if it is gone."""
        if key.path == VDSO:
            return own_vdso()
        fd = self._held.pop(_node(key), None)
        return _module(_open_checked(os.fsdecode(plain_path(key)), key) if fd is None else fd, key)

    def perf_map_piece(self, pid: int) -> bytes:
        """Return what a process added to its perf map since the last time; empty if there is nothing that counts.

        The file must be one that the process's own user, or root, wrote.
        """
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                status = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
            user = int(status[b"Uid"].split()[1])
            inner = int(status.get(b"NSpid", b"%d" % pid).split()[-1])
            fd = os.open(f"/proc/{pid}/root/tmp/perf-{inner}.map", _OPEN | os.O_NOFOLLOW)
        except (OSError, KeyError, IndexError):
            return b""
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, user) or found.st_mode & stat.S_IWOTH:
                return b""
            inode, at = self._perf_maps.get(pid, (found.st_ino, 0))
            if inode != found.st_ino or found.st_size < at:
                at = 0
            if at >= PERF_MAP_LIMIT:
                return b""
            piece = os.pread(fd, PERF_MAP_PIECE, at)
            self._perf_maps[pid] = found.st_ino, at + len(piece)
            return piece
        except OSError:
            return b""
        finally:
            os.close(fd)

    def forget(self, pid: int) -> None:
        """Forget how far the perf map of a process was read."""
        self._perf_maps.pop(pid, None)

    def _open(self, pid: int, start: int, end: int, key: FileKey) -> int | None:
        with suppress(OSError):  # the very file, whatever its name is by now; needs a capability
            path = f"/proc/{pid}/map_files/{start:x}-{end:x}"
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode) and found.st_ino == key.inode:  # a device is not opened
                return os.open(path, _OPEN)
        name = os.fsdecode(plain_path(key))
        fd = _open_checked(f"/proc/{pid}/root{name}", key)
        return _open_checked(name, key) if fd is None else fd


def _node(key: FileKey) -> _Node:
    return key.device, key.inode, key.generation


def open_local(key: FileKey) -> Module | None:
    """Open a file of this machine that another one had, by its path; None unless it has the same build id."""
    if key.path == VDSO:
        return own_vdso() if own_vdso().build_id == key.build_id else None
    fd = _open_checked(os.fsdecode(plain_path(key)), key._replace(inode=0)) if key.build_id else None
    return _module(fd, key)


@cache
def own_vdso() -> Module:
    """Return the code that the kernel maps into every process, as this one has it; raises TargetError."""
    return Module.vdso()


def _open_checked(path: str, key: FileKey) -> int | None:
    """Open a file by name if it is the one that `key` means."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        fd = os.open(path, _OPEN)
    except (OSError, ValueError):
        return None
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        if key.inode and (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino) == (*key.device, key.inode):
            return fd
        if key.build_id and _build_id(fd) == key.build_id:
            return fd
    os.close(fd)
    return None


def _module(fd: int | None, key: FileKey) -> Module | None:
    """Return the module of a descriptor, which is closed; None for a file that is none."""
    if fd is None:
        return None
    try:
        return Module.open(fd, os.fsdecode(plain_path(key)))
    except TargetError:
        return None
    finally:
        os.close(fd)


def _generation(fd: int) -> int:
    """Return what tells a file apart from an earlier one of the same inode; 0 where the file system does not tell."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, FS_IOC_GETVERSION, bytes(8))[:4], "little")
    except OSError:
        return 0


def _build_id(fd: int) -> bytes:
    with suppress(TargetError):
        return (Elf.open(fd).build_id or b"")[:20]
    return b""


def _unescaped(name: bytes) -> bytes:
    return name.replace(rb"\012", b"\n")
