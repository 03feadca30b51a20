"""Streams and events of connections -> records, with the kernel's verdicts and capture classes.

What the class `unknown` leaves out of a call by the kernel is kept here: it was captured. Without any verdict after as
many bytes or segments as the kernel looks at, the rest is counted only, but for answers of DNS.
"""

from collections.abc import Callable
from socket import IPPROTO_TCP
from typing import Any, Final, final

from tracehound.sources._capture_connection import CAPTURE_UNKNOWN, SERVER, Connection
from tracehound.sources._capture_records import CaptureRecords
from tracehound.sources._packets import Segment

# As the kernel side: pieces of a call, bytes that detectors see, bytes and calls without a verdict
PIECE_BYTES: Final = 16384
DETECT_BYTES: Final = 32
UNKNOWN_BYTES: Final = 65536
UNKNOWN_CALLS: Final = 256
MATCH_STRONG: Final = 2
CAPTURE_FRAMED: Final = 1
CAPTURE_COUNT: Final = 3
NAMES_PORT: Final = 53

# Of include/net/tcp_states.h
ESTABLISHED: Final = 1
CLOSED: Final = 7

ATTEMPT: Final = 1

Detect = Callable[[bytes, int, int, int], tuple[int, int]]


@final
class StreamRecords:
    """Writes the records of connections; the client is their local end."""

    def __init__(self, records: CaptureRecords, flags: dict[str, int], detect: Detect) -> None:
        """`flags`: of `enum connection_flag`, by name."""
        self._records = records
        self._detect = detect
        self._captured, self._preexisting = flags["CONNECTION_CAPTURED"], flags["CONNECTION_PREEXISTING"]

    def deliver(self, time_ns: int, connection: Connection, direction: int, payload: bytes, size: int) -> None:
        """Write the next bytes of a stream: `size`, of which the first were captured."""
        if connection.capture_class == CAPTURE_UNKNOWN:
            self._look(connection, direction, payload)
        if connection.capture_class == CAPTURE_COUNT and not _may_name(connection, direction):
            payload = b""
        captured = len(payload)
        if captured == size <= PIECE_BYTES:
            self.write_data(time_ns, connection, direction, payload, size)
            return
        for at in range(0, captured, PIECE_BYTES):
            piece = payload[at : at + PIECE_BYTES]
            self.write_data(time_ns, connection, direction, piece, len(piece))
        if captured < size:
            self.write_data(time_ns, connection, direction, b"", size - captured)

    def deliver_datagram(self, time_ns: int, connection: Connection, direction: int, payload: bytes, size: int) -> None:
        """Write a datagram, as one record."""
        if connection.capture_class == CAPTURE_UNKNOWN:
            self._look(connection, direction, payload)
        if connection.capture_class == CAPTURE_COUNT and not _may_name(connection, direction):
            payload = b""
        self.write_data(time_ns, connection, direction, payload, size)

    def write_data(self, time_ns: int, connection: Connection, direction: int, payload: bytes, size: int) -> None:
        """Write one data record as it is, and move on by `size`; of no bytes: says how far a hole reaches."""
        one = connection.directions[direction]
        sequence = (one.base + one.next) & 0xFFFFFFFF if connection.transport == IPPROTO_TCP else 0
        one.next += size
        self._records.add_data(
            (
                time_ns, connection.cookie, one.next, size, len(payload), sequence, direction, connection.flags,
                connection.verdict, connection.strength, connection.capture_class, *connection.constants,
            ),
            payload,
        )  # fmt: skip

    def _look(self, connection: Connection, direction: int, payload: bytes) -> None:
        """Show the detectors a segment, or the stream's first bytes while they are fewer than detectors read."""
        one = connection.directions[direction]
        head = payload[:DETECT_BYTES]
        filled = len(one.prefix)
        if one.next == filled and filled < DETECT_BYTES and (filled or len(payload) < DETECT_BYTES):
            one.prefix = head = (one.prefix + head)[:DETECT_BYTES]
        verdict, strength = self._detect(head, direction, connection.transport, connection.ends[SERVER][1])
        if strength > connection.strength:
            connection.verdict, connection.strength = verdict, strength
            if strength == MATCH_STRONG:
                connection.capture_class = CAPTURE_FRAMED
        one.calls += 1
        one.unknown_bytes += len(payload)
        if not connection.verdict and (one.unknown_bytes >= UNKNOWN_BYTES or one.calls >= UNKNOWN_CALLS):
            connection.capture_class = CAPTURE_COUNT

    def write_retransmit(self, time_ns: int, connection: Connection, segment: Segment) -> None:
        """Write that a segment was sent again."""
        connection.retransmits += 1
        fields = {
            "cookie": connection.cookie, "sequence": segment.sequence, "size_bytes": segment.size,
            "state": ESTABLISHED, "attempt": ATTEMPT,
        }  # fmt: skip
        self._records.add_retransmit(time_ns, fields)

    def write_event(self, time_ns: int, connection: Connection, event: str, flags: int = 0, error: int = 0) -> None:
        """Write a connection record; the client is local."""
        sent, received = connection.directions
        client, server = connection.ends
        is_end = event in ("CLOSE", "ERROR")
        is_known = connection.transport == IPPROTO_TCP and (not connection.is_partial or connection.started_ns)
        values: dict[str, Any] = {
            "cookie": connection.cookie,
            "attempt": ATTEMPT,
            "started_ns": connection.started_ns,
            "established_ns": connection.established_ns,
            "ended_ns": connection.ended_ns if is_end else 0,
            "bytes_sent": max(sent.next, sent.fin),
            "bytes_received": max(received.next, received.fin),
            "bytes_read": max(received.next, received.fin),
            "base_sent": max(sent.base, 0) if is_known else 0,
            "base_received": max(received.base, 0) if is_known else 0,
            "retransmits": connection.retransmits,
            "error": error,
            "local_address": _padded(client[0]),
            "remote_address": _padded(server[0]),
            "local_port": client[1],
            "remote_port": server[1],
            "family": connection.family,
            "transport": connection.transport,
            "state": (CLOSED if is_end else ESTABLISHED) if connection.transport == IPPROTO_TCP else 0,
            "flags": flags | self._captured | (self._preexisting if connection.is_partial else 0),
        }
        self._records.add_connection(time_ns, event, values)


def _may_name(connection: Connection, direction: int) -> bool:
    """Say whether what comes may be answers of DNS."""
    return direction == SERVER and connection.ends[SERVER][1] == NAMES_PORT


def _padded(address: bytes) -> list[int]:
    return list(address.ljust(16, b"\0"))
