"""What is known of a file, kept on disk by its build id: named parts, each bytes, as they are in memory.

What is read is trusted to walk stacks and name functions for a tracer that may be root, so a file counts only if it is
whole and this user's alone; anything else is as if it were not there. $XDG_CACHE_HOME/tracehound/symbols/v2, ~/.cache
without the variable; the oldest give way beyond FOLDER_LIMIT.
"""

import hashlib
import os
import re
import stat
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

MAGIC: Final = b"THSYMBOL"
VERSION: Final = 2
PARTS_LIMIT: Final = 16
SIZE_LIMIT: Final = 1 << 30  # bytes of one file
FOLDER_LIMIT: Final = 2 << 30  # bytes of all
_HEADER: Final = struct.Struct("<8sII16s")  # magic, version, parts, digest of all that follows
_PART: Final = struct.Struct("<24sQ")  # name, bytes
_KEY: Final = re.compile(r"[0-9a-z][0-9a-z-]{0,160}")

Parts = Mapping[str, bytes | memoryview]


def cache_folder() -> Path:
    """Return where this user's files are."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return root / "tracehound" / "symbols" / f"v{VERSION}"


def load(key: str, kind: str, folder: Path | None = None) -> dict[str, memoryview] | None:
    """Return the parts kept of one kind for a key; None if there are none that can be trusted."""
    folder = folder or cache_folder()
    if not _KEY.fullmatch(key):
        return None
    try:
        if not _is_ours(os.stat(folder)):
            return None
        fd = os.open(folder / f"{key}.{kind}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or not _is_ours(status) or status.st_size > SIZE_LIMIT:
                return None
            return _parse(file.read(), f"{key}.{kind}")
    except OSError:
        return None


def store(key: str, kind: str, parts: Parts, folder: Path | None = None) -> bool:
    """Keep parts for a key; a reader sees all of the file or none. False if it could not be kept."""
    folder = folder or cache_folder()
    if not _KEY.fullmatch(key) or len(parts) > PARTS_LIMIT or sum(map(len, parts.values())) > SIZE_LIMIT // 2:
        return False
    table = b"".join(_PART.pack(name.encode(), len(content)) for name, content in parts.items())
    content = table + b"".join(bytes(content) + bytes(-len(content) % 8) for content in parts.values())
    header = _HEADER.pack(MAGIC, VERSION, len(parts), _digest(f"{key}.{kind}", content))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(os.stat(folder)):
            return False
        fd, unfinished = tempfile.mkstemp(dir=folder)  # mode 0600
        try:
            with open(fd, "wb") as file:
                file.write(header + content)
            os.replace(unfinished, folder / f"{key}.{kind}")
        except OSError:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
    except OSError:
        return False
    _make_room(folder)
    return True


def _make_room(folder: Path) -> None:
    """Delete the oldest files while all together are more than FOLDER_LIMIT."""
    with suppress(OSError), os.scandir(folder) as entries:
        files = sorted((status.st_mtime_ns, status.st_size, one.path) for one in entries if (status := _status(one)))
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= FOLDER_LIMIT:
                break
            os.unlink(path)
            total -= size


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    with suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def _digest(name: str, content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=16, key=hashlib.blake2b(name.encode()).digest()).digest()


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _parse(data: bytes, name: str) -> dict[str, memoryview] | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, count, digest = _HEADER.unpack_from(data)
    content = memoryview(data)[_HEADER.size :]
    at = count * _PART.size
    if (magic, version) != (MAGIC, VERSION) or count > PARTS_LIMIT or digest != _digest(name, content):
        return None
    found = {}
    for index in range(count):
        part, size = _PART.unpack_from(content, index * _PART.size)
        found[part.rstrip(b"\0").decode()] = content[at : at + size]
        at += size + -size % 8
    return found if at == len(content) else None
