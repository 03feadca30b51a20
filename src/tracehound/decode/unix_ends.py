"""What only unix sockets have: paths of both ends, and whose the other end is.

An `unix` record comes just before the record with which a connection begins.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, NamedTuple

from tracehound.batch import Batch

if TYPE_CHECKING:
    from tracehound.batch import Records


class UnixEnds(NamedTuple):
    """One unix socket; a path that starts with @ is a name without a file (abstract)."""

    local_path: str | None
    remote_path: str | None
    peer_pid: int | None
    peer_cookie: int


UnixEndsOf = MutableMapping[int, UnixEnds]  # by cookie


def add_unix_ends(known: UnixEndsOf, batch: Batch) -> None:
    """Learn of the unix sockets that a batch tells of."""
    records: Records | None = batch.records.get("unix")
    if records is None:
        return
    for record in records.fixed:  # one a socket
        known[int(record["cookie"])] = UnixEnds(
            path_text(bytes(record["local_path"]), int(record["local_size"])),
            path_text(bytes(record["remote_path"]), int(record["remote_size"])),
            int(record["peer_pid"]) or None,
            int(record["peer_cookie"]),
        )


def path_text(raw: bytes, size: int) -> str | None:
    """Return a path of `sun_path` as text, None if there is none."""
    path = raw[:size]
    if path.startswith(b"\0"):
        return "@" + path[1:].decode(errors="backslashreplace")
    return path.partition(b"\0")[0].decode(errors="backslashreplace") or None
