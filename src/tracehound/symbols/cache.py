"""Unwind tables on disk, one file a build id: a header, then the rows as they are in memory.

What is read is trusted to walk stacks of a tracer that may be root, so a file counts only if it is whole and this
user's alone; anything else is as if it were not there. $XDG_CACHE_HOME/tracehound/unwind/v1, ~/.cache without the
variable.
"""

import hashlib
import os
import stat
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from tracehound.symbols.ehframe import ROW, Rows

MAGIC: Final = b"THUNWIND"
VERSION: Final = 1
ROWS_LIMIT: Final = 1 << 26
_HEADER: Final = struct.Struct("<8sII20sxxxxQ16s")  # magic, version, build id's size and bytes, rows, digest
_SIZE_LIMIT: Final = _HEADER.size + ROWS_LIMIT * ROW.itemsize


def cache_folder() -> Path:
    """Return where this user's tables are."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return root / "tracehound" / "unwind" / f"v{VERSION}"


def load_rows(build_id: bytes, folder: Path | None = None) -> Rows | None:
    """Return the rows kept for a build id, ROW[n]; None if there are none that can be trusted."""
    folder = folder or cache_folder()
    try:
        if not _is_ours(os.stat(folder)):
            return None
        fd = os.open(folder / _name(build_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or not _is_ours(status) or status.st_size > _SIZE_LIMIT:
                return None
            return _parse(file.read(), build_id)
    except OSError:
        return None


def store_rows(build_id: bytes, rows: Rows, folder: Path | None = None) -> bool:
    """Keep rows for a build id; a reader sees all of the file or none. False if it could not be kept."""
    folder = folder or cache_folder()
    content = np.ascontiguousarray(rows, dtype=ROW).tobytes()
    if not 0 < len(build_id) <= 20 or len(rows) > ROWS_LIMIT:
        return False
    header = _HEADER.pack(MAGIC, VERSION, len(build_id), build_id, len(rows), _digest(build_id, content))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(os.stat(folder)):
            return False
        fd, unfinished = tempfile.mkstemp(dir=folder)  # mode 0600
        try:
            with open(fd, "wb") as file:
                file.write(header + content)
            os.replace(unfinished, folder / _name(build_id))
        except OSError:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
    except OSError:
        return False
    return True


def _name(build_id: bytes) -> str:
    return f"{build_id.hex()}.eh"


def _digest(build_id: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16, key=build_id).digest()


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _parse(data: bytes, build_id: bytes) -> Rows | None:
    if len(data) < _HEADER.size or not 0 < len(build_id) <= 20:
        return None
    magic, version, size, found, count, digest = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    if (magic, version, size, found[:size]) != (MAGIC, VERSION, len(build_id), build_id):
        return None
    if len(content) != count * ROW.itemsize or digest != _digest(build_id, content):
        return None
    return np.frombuffer(content, dtype=ROW)
