"""Rows of `requests` as columns, and what they say of their connections.

The columns that are the same for all rows of a connection are made once for each and taken by place. `exchange` is the
id that both ends of a call compute alone: 8 bytes of BLAKE2b over the addresses and the base of the client's stream
(unix: over the cookie of the client's socket), then the position of the request's first byte, big-endian.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from socket import AF_UNIX
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.decode.addresses import ROLES, format_address
from tracehound.decode.exchange import GAP, Connection
from tracehound.decode.nat import Translated, end_bytes
from tracehound.decode.pairing import Row
from tracehound.protocols._protocol import PREPARED_UNKNOWN, PUSH, TRUNCATED, Protocol
from tracehound.tables import build, requests_columns

ROLE_CLIENT: Final = 1  # of enum connection_role
TRACEPARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

Facts = tuple[int, str | None, str | None, bool, str | None, int | None, str | None, int | None, bytes | None]


class RequestRows:
    """Builds `requests` with the columns that the protocols declare."""

    def __init__(self, protocols: Sequence[Protocol]) -> None:
        self._columns = requests_columns(
            chain.from_iterable((*one.request_extras, *one.response_extras) for one in protocols)
        )
        self._extras = {
            one.name: ([c.name for c in one.request_extras], [c.name for c in one.response_extras]) for one in protocols
        }

    def build(self, rows: list[Row], facts: list[tuple[Any, ...]]) -> "pa.RecordBatch":
        (
            number, slot, operation, resource, statement, statement_id, outcome, error_type, request_bytes,
            request_position, start_ns, end_ns, time_ns, who, flags, key, trace, request_extras,
            status, error_message, response_bytes, response_position, first_response_ns, response_extras,
        ) = zip(*rows, strict=True)  # fmt: skip
        count = len(rows)
        slots, flag_bits = np.array(slot), np.array(flags, np.int64)
        threads = np.array(who, np.uint64)
        pids = (threads >> np.uint64(32)).astype(np.int64)
        tids = (threads & np.uint64(0xFFFFFFFF)).astype(np.int64)
        ends, starts = pa.array(end_ns, pa.int64()), np.array(start_ns, np.int64)
        positions = np.array(request_position, np.int64)
        values: dict[str, Any] = {
            "time_ns": np.array(time_ns, np.int64),
            "pid": pa.array(pids, pa.int64(), mask=pids == 0),
            "tid": pa.array(tids, pa.int64(), mask=tids == 0),
            "preexisting": np.zeros(count, np.bool_),
            "request": np.array(number, np.int64),
            "operation": operation,
            "resource": resource,
            "statement": statement,
            "statement_id": statement_id,
            "stream_id": [one if type(one) is int else None for one in key],
            "status": status,
            "outcome": outcome,
            "error_type": error_type,
            "error_message": error_message,
            "request_bytes": np.array(request_bytes, np.int64),
            "response_bytes": response_bytes,
            "request_position": positions,
            "response_position": response_position,
            "start_ns": starts,
            "first_response_ns": first_response_ns,
            "end_ns": ends,
            "duration_ns": pc.subtract(ends, pa.array(starts)),
            "tls": np.zeros(count, np.bool_),
            "truncated": flag_bits & TRUNCATED != 0,
            "gap": flag_bits & GAP != 0,
            "prepared_unknown": flag_bits & PREPARED_UNKNOWN != 0,
        }
        values.update(connection_columns(facts, slots))
        values["exchange"] = exchange_column([one[8] for one in facts], slots, positions, flag_bits & PUSH == 0)
        values.update(trace_columns(trace))
        values.update(self._extra_columns([one[1] for one in facts], slots, request_extras, response_extras))
        return build(self._columns, count, values)

    def _extra_columns(
        self,
        protocol_of_slot: Sequence[str | None],
        slots: npt.NDArray[np.int64],
        request_extras: Sequence[tuple[Any, ...]],
        response_extras: Sequence[tuple[Any, ...]],
    ) -> dict[str, Any]:
        """Return the columns that protocols declare; rows of other protocols have nulls there."""
        columns: dict[str, Any] = {}
        present = set(protocol_of_slot)
        for protocol, declared in self._extras.items():
            if protocol not in present:
                continue
            is_only = len(present) == 1
            mine = None if is_only else np.array([one == protocol for one in protocol_of_slot])[slots].tolist()
            for names, extras in zip(declared, (request_extras, response_extras), strict=True):
                for place, name in enumerate(names):
                    column = [one[place] if one else None for one in extras] if mine is None else [
                        one[place] if one and is_mine else None for one, is_mine in zip(extras, mine, strict=True)
                    ]  # fmt: skip
                    before = columns.get(name)
                    columns[name] = column if before is None else [
                        b if a is None else a for a, b in zip(before, column, strict=True)
                    ]  # fmt: skip
        return columns


class Endpoints(NamedTuple):
    """What rows say of a connection's two ends, and what `exchange` is made of; kept packed, as they are many."""

    family: int
    local_address: bytes  # 16 bytes, of IPv4 the first 4
    local_port: int
    remote_address: bytes
    remote_port: int
    local: bytes  # address and port after NAT: what `exchange` is made of
    remote: bytes
    base_sent: int
    base_received: int
    cookie: int
    peer_cookie: int  # unix: of the peer's socket, 0 if not known


_ENDPOINTS: Final = Struct("<H16sH16sH18s18sIIQQ")


def endpoints_of(record: Any, translated: Translated | None = None, peer_cookie: int = 0) -> bytes:
    """Return the addresses and bases of a connection record as packed `Endpoints`.

    `translated`: where it goes after NAT; `peer_cookie`: of the peer of a unix socket.
    """
    family = int(record["family"])
    local, remote = record["local_address"].tobytes(), record["remote_address"].tobytes()
    local_port, remote_port = int(record["local_port"]), int(record["remote_port"])
    return _ENDPOINTS.pack(
        family,
        local,
        local_port,
        remote,
        remote_port,
        translated.local if translated else end_bytes(family, local, local_port),
        translated.remote if translated else end_bytes(family, remote, remote_port),
        int(record["base_sent"]),
        int(record["base_received"]),
        int(record["cookie"]),
        peer_cookie,
    )


def connection_facts(connection: Connection) -> Facts:
    """Return what every row of a connection says."""
    role = connection.role
    protocol = None if connection.protocol is None else connection.protocol.name
    begin: tuple[int, str | None, str | None, bool] = (connection.id, protocol, ROLES.get(role), connection.joined)
    if connection.record is None:
        return (*begin, None, connection.ports[0] or None, None, connection.ports[1] or None, None)
    ends = Endpoints._make(_ENDPOINTS.unpack(connection.record))
    remote_ip = format_address(ends.family, ends.remote_address) if ends.remote_port else None
    return (
        *begin, format_address(ends.family, ends.local_address), ends.local_port or None, remote_ip,
        ends.remote_port or None, exchange_prefix(ends, connection.side),
    )  # fmt: skip


def exchange_prefix(ends: Endpoints, role: int) -> bytes | None:
    """Return the first half of `exchange`, the same at both ends; None if the role or the bases are not known.

    `role`: of the local end.
    """
    if role not in ROLES:
        return None
    if ends.family == AF_UNIX:
        cookie = (0, ends.cookie, ends.peer_cookie)[role]
        return blake2b(cookie.to_bytes(8, "big"), digest_size=8, person=b"unix").digest() if cookie else None
    if role == ROLE_CLIENT:
        client, server, base = ends.local, ends.remote, ends.base_sent
    else:
        client, server, base = ends.remote, ends.local, ends.base_received
    if not ends.base_sent and not ends.base_received:
        return None
    return blake2b(client + server + base.to_bytes(4, "big"), digest_size=8).digest()


def connection_columns(facts: Sequence[tuple[Any, ...]], slots: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the columns that are the same for all rows of a connection; slots: (rows,) places in `facts`."""
    names = (
        ("connection", pa.int64()), ("protocol", pa.string()), ("role", pa.string()), ("joined_midstream", pa.bool_()),
        ("local_ip", pa.string()), ("local_port", pa.int32()), ("remote_ip", pa.string()), ("remote_port", pa.int32()),
    )  # fmt: skip
    indices = pa.array(slots)
    columns = zip(*(one[:8] for one in facts), strict=True)
    return {name: pa.array(column, kind).take(indices) for (name, kind), column in zip(names, columns, strict=True)}


def exchange_column(
    prefixes: Sequence[bytes | None],
    slots: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    is_wanted: npt.NDArray[np.bool_],
) -> "pa.Array":
    """Return `exchange`: each row's connection's prefix, then the big-endian position of its request."""
    known = np.array([prefix is not None for prefix in prefixes])
    halves = np.frombuffer(b"".join(prefix or bytes(8) for prefix in prefixes), ">u8")
    whole = np.empty((len(slots), 2), ">u8")
    whole[:, 0], whole[:, 1] = halves[slots], positions
    valid = np.packbits(known[slots] & is_wanted, bitorder="little").tobytes()
    buffers = [pa.py_buffer(valid), pa.py_buffer(whole.tobytes())]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(slots), buffers)


def trace_columns(traces: Sequence[bytes | None]) -> dict[str, Any]:
    """Split values of traceparent (W3C Trace Context); those that are not valid give nulls."""
    if not any(traces):
        return {}
    ids: list[str | None] = []
    spans: list[str | None] = []
    flags: list[int | None] = []
    for trace in traces:
        trace_id, span_id, trace_flags = split_traceparent(trace) if trace else (None, None, None)
        ids.append(trace_id)
        spans.append(span_id)
        flags.append(trace_flags)
    return {"trace_id": ids, "parent_span_id": spans, "trace_flags": flags}


def split_traceparent(trace: bytes) -> tuple[str, str, int] | tuple[None, None, None]:
    """Return trace id, parent id and flags of a valid value; a version after 00 may go on after them."""
    found = TRACEPARENT.fullmatch(trace)
    if found is None or not found[2].strip(b"0") or not found[3].strip(b"0"):
        return None, None, None
    if found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None, None, None
    return found[2].decode(), found[3].decode(), int(found[4], 16)
