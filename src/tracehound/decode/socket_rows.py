"""Records of sockets -> rows: which member of a connection record becomes which column, and when it is null.

`connections` decides which rows there are and to whom they belong; here all is the same for every row.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, fields
from socket import AF_UNIX
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.decode.addresses import (
    FAMILIES,
    ROLES,
    address_column,
    errno_name,
    format_address,
    name_column,
    tcp_state_name,
    transport_column,
)
from tracehound.decode.nat import Translations
from tracehound.decode.unix_ends import UnixEndsOf
from tracehound.tables import TABLES, build

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]

_MOST: Final = np.iinfo(np.int64).max  # no socket moves more: beyond it the kernel side was wrong
UNIX_COLUMNS: Final = ("local_path", "remote_path", "peer_pid")
CLOSE: Final = 4  # of enum connection_event
SNAPSHOT: Final = 7
CAPTURED: Final = 16  # of enum connection_flag
EVENTS: Final = {1: "open", 2: "accept", 3: "error", 4: "close", 7: "snapshot"}  # enum connection_event


@dataclass(slots=True)
class Events:
    """Rows to be: parallel columns; pid and tid 0, fd and generation -1 stand for null."""

    event: Int64s  # enum connection_event
    connection: Int64s
    time_ns: Int64s
    written_ns: Int64s  # when the row was known: the order of rows
    pid: Int64s
    tid: Int64s
    fd: Int64s
    generation: Int64s
    preexisting: Bools
    counted: Bools  # the record's counters are of this moment
    records: Rows

    def take(self, rows: Bools) -> "Events":
        """Return the rows of a mask."""
        return Events(**{field.name: getattr(self, field.name)[rows] for field in fields(Events)})


def join_events(parts: Sequence[Events]) -> Events | None:
    """Return all rows in the order in which they were known, None if there are none."""
    parts = [part for part in parts if len(part.event)]
    if not parts:
        return None
    columns = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Events)}
    order = np.lexsort((columns["event"], columns["connection"], columns["written_ns"]))
    return Events(**{name: column[order] for name, column in columns.items()})


def connection_rows(
    events: Events,
    protocols_of: MutableMapping[int, tuple[str | None, str | None]],
    translations: Translations,
    unix_ends: UnixEndsOf,
    is_end: bool = False,
) -> pa.RecordBatch:
    """Return `connections` rows; what the maps know of a connection is taken out of them at its close.

    The snapshots at the end know their protocol too; others come too early to.
    """
    records, counted = events.records, events.counted
    known = records["event"] != 0  # else it stands in for a data record: no addresses
    opened = (records["started_ns"] != 0) & (records["established_ns"] != 0)
    connect_ns = records["established_ns"].astype(np.int64) - records["started_ns"].astype(np.int64)
    values: dict[str, Any] = {
        "time_ns": events.time_ns,
        "pid": _nullable(events.pid, events.pid > 0),
        "tid": _nullable(events.tid, events.tid > 0),
        "preexisting": events.preexisting,
        "event": name_column(events.event, EVENTS.get),
        "connection": events.connection,
        "cookie": records["cookie"],
        "transport": transport_column(records["family"], records["transport"]),
        "role": name_column(records["role"], ROLES.get),
        **_ends(records, known),
        **_actual_ends(records, translations),
        "fd": _nullable(events.fd, events.fd >= 0),
        "generation": _nullable(events.generation, events.generation >= 0),
        "connect_ns": _nullable(connect_ns, opened & (records["role"] == 1) & (connect_ns >= 0)),
        "srtt_us": _nullable(records["srtt_us"], counted & (records["srtt_us"] != 0)),
        "state": name_column(records["state"], tcp_state_name),
        "error": name_column(records["error"], errno_name),
    }
    for name in ("first_read_ns", "first_write_ns", "last_read_start_ns"):
        values[name] = _nullable(records[name], counted & (records[name] != 0))
    is_called = records["flags"] & CAPTURED == 0  # a capture has no calls
    for name in ("send_calls", "receive_calls", "bytes_sent", "bytes_received", "retransmits"):
        is_known = counted & (records[name] <= _MOST)
        values[name] = _nullable(records[name], is_known & is_called if name.endswith("_calls") else is_known)
    values |= _unix(records, events.event == CLOSE, unix_ends)
    translations.forget(records[events.event == 4])
    values |= _protocols(events, protocols_of, is_end)
    return build(TABLES["connections"], len(records), values)


def listen_rows(records: Rows, listen_event: int, preexisting: int, unix_ends: UnixEndsOf) -> pa.RecordBatch:
    """Return `listens` rows of connection records; `preexisting` is the flag's bit."""
    is_open = records["event"] == listen_event
    known = np.ones(len(records), bool)
    ends = _ends(records, known)
    ended_ns = records["ended_ns"].astype(np.int64)
    values = {
        "time_ns": np.where(~is_open & (ended_ns != 0), ended_ns, records["time_ns"].astype(np.int64)),
        "pid": _nullable(records["pid"], records["pid"] > 0),
        "tid": _nullable(records["tid"], records["tid"] > 0),
        "preexisting": (records["flags"] & preexisting) != 0,
        "event": name_column(is_open, lambda opened: "open" if opened else "close"),
        "cookie": records["cookie"],
        "backlog": _nullable(records["backlog"], is_open),
        **{name: ends[name] for name in ("family", "local_ip", "local_port")},
        "local_path": _unix(records, ~is_open, unix_ends)["local_path"],
    }
    return build(TABLES["listens"], len(records), values)


def retransmit_rows(records: Rows) -> pa.RecordBatch:
    """Return `retransmits` rows."""
    values = {
        "time_ns": records["time_ns"],
        "pid": _nullable(records["pid"], records["pid"] > 0),
        "tid": _nullable(records["tid"], records["tid"] > 0),
        "connection": records["cookie"].astype(np.int64) << 8 | records["attempt"] & 0xFF,
        "state": name_column(records["state"], tcp_state_name),
        "sequence": records["sequence"],
        "size_bytes": records["size_bytes"],
    }
    return build(TABLES["retransmits"], len(records), values)


def _ends(records: Rows, known: Bools) -> dict[str, Any]:
    family = np.where(known, records["family"], 0)
    return {
        "family": name_column(records["family"], FAMILIES.get),
        "local_ip": address_column(family, records["local_address"]),
        "local_port": _nullable(records["local_port"], records["local_port"] != 0),
        "remote_ip": address_column(np.where(records["remote_port"] != 0, family, 0), records["remote_address"]),
        "remote_port": _nullable(records["remote_port"], records["remote_port"] != 0),
    }


def _unix(records: Rows, is_last: Bools, unix_ends: UnixEndsOf) -> dict[str, Any]:
    """Return the columns that only unix sockets fill; what is known of a socket is forgotten with its last row."""
    columns: dict[str, list[Any]] = {name: [None] * len(records) for name in UNIX_COLUMNS}
    for row in np.flatnonzero(records["family"] == AF_UNIX).tolist():
        cookie = int(records["cookie"][row])
        ends = unix_ends.pop(cookie, None) if is_last[row] else unix_ends.get(cookie)
        for name in UNIX_COLUMNS if ends is not None else ():
            columns[name][row] = getattr(ends, name)
    return dict(columns)


def _actual_ends(records: Rows, translations: Translations) -> dict[str, Any]:
    found = translations.of_each(records)
    return {
        "actual_remote_ip": [one and format_address(one.family, one.remote_address) for one in found],
        "actual_remote_port": [one and one.remote_port for one in found],
    }


def _protocols(
    events: Events, protocols_of: MutableMapping[int, tuple[str | None, str | None]], is_end: bool
) -> dict[str, Any]:
    nothing = (None, None)
    found: list[tuple[str | None, str | None]] = [nothing] * len(events.event)
    if not is_end:  # a capture's snapshots are of its end
        for row in np.flatnonzero((events.event == SNAPSHOT) & (events.records["flags"] & CAPTURED != 0)).tolist():
            found[row] = protocols_of.get(int(events.connection[row]), nothing)
    at = np.flatnonzero(np.isin(events.event, (CLOSE, SNAPSHOT) if is_end else (CLOSE,))).tolist()
    for row, connection in zip(at, events.connection[at].tolist(), strict=True):
        found[row] = protocols_of.pop(connection, nothing)
    return {"protocol": [protocol for protocol, _ in found], "why": [why for _, why in found]}


def _nullable(column: npt.NDArray[Any], valid: Bools) -> pa.Array:
    return pa.array(column, mask=~valid)
