"""Files made and written with another user's ids, though this process is root (`sudo`).

Follows setfsuid(2): per thread, and the kernel takes the file capabilities away with it, so that a link which that user
planted in the folder leads nowhere they could not go themselves. Supplementary groups stay ours.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ctypes


class Owner(NamedTuple):
    """The user and group for whom files are made."""

    uid: int
    gid: int


@cache
def _libc() -> "ctypes.CDLL":
    import ctypes

    return ctypes.CDLL(None)


@contextmanager
def acting_as(owner: Owner | None) -> Iterator[None]:
    """Make this thread touch files as `owner` would; None changes nothing. Raises PermissionError if that fails."""
    if owner is None or (owner.uid, owner.gid) == (os.geteuid(), os.getegid()):
        yield
        return
    libc = _libc()
    previous_gid = libc.setfsgid(owner.gid)
    previous_uid = libc.setfsuid(owner.uid)
    try:
        if libc.setfsuid(-1) != owner.uid:  # -1 changes nothing and tells what is in force
            raise PermissionError(f"cannot act as user {owner.uid}")
        yield
    finally:
        libc.setfsuid(previous_uid)
        libc.setfsgid(previous_gid)
