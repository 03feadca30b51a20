"""The file operations of a recording, each with the ids of its owner; whole files appear whole or not at all.

Only these calls run with foreign ids: a thread inherits them from the one that starts it, so neither pyarrow, which has
pools of threads, nor a thread's start may happen inside.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tracehound.recording.owner import Owner, acting_as


def loss_counter(error: OSError) -> str:
    """Return the counter of `losses` for rows that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk_full"
    return "output_closed" if error.errno == errno.EPIPE else "write_error"


class Files:
    """File operations as `owner`, as ourselves if None. All raise OSError."""

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        """Make a directory and its parents; one that is there stays as it is. `is_private`: for its owner only."""
        with acting_as(self._owner):
            path.mkdir(0o700 if is_private else 0o777, parents=True, exist_ok=True)

    def create(self, path: Path) -> int:
        """Create a file that is not there and return a descriptor to write it."""
        with acting_as(self._owner):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def read(self, path: Path) -> bytes:
        """Return a file's bytes."""
        with acting_as(self._owner):
            return path.read_bytes()

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with acting_as(self._owner):
            path.unlink()

    def remove_all(self, path: Path) -> None:
        """Remove a file, or a directory with all that is in it."""
        with acting_as(self._owner):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        with acting_as(self._owner):
            path.rmdir()

    @contextmanager
    def whole(self, path: Path) -> Iterator[BinaryIO]:
        """Give a file to write, which takes the place of `path` when the block ends well: synced, then renamed."""
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with acting_as(self._owner):
                file = temporary.open("wb")
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            with acting_as(self._owner):
                temporary.replace(path)
            _sync_directory(path.parent)
        except BaseException:
            with suppress(OSError), acting_as(self._owner):
                temporary.unlink()
            raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
