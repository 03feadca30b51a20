"""Packets and capture files made by hand, and the rows that come of them."""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracehound.config import Settings
from tracehound.errors import RecordingError
from tracehound.line import Line
from tracehound.sources.pcap import read_capture

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
START_NS = 1_700_000_000_123_456_000  # of the first packet, on the wall clock
STEP_NS = 1_000_000
MAC = bytes.fromhex("020000000001 020000000002".replace(" ", ""))
CLIENT4, SERVER4 = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))
CLIENT6 = bytes.fromhex("fd000000000000000000000000000001")
SERVER6 = bytes.fromhex("fd000000000000000000000000000002")

Timed = tuple[int, bytes]  # wall clock in ns, packet
Row = dict[str, Any]


# ---- headers ---------------------------------------------------------------------------------------------------------


def tcp(source: int, target: int, seq: int, ack: int, flags: int, payload: bytes = b"", options: bytes = b"") -> bytes:
    offset = (20 + len(options)) // 4
    fixed = struct.pack(">HHIIBBHHH", source, target, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, offset << 4, flags, 512, 0, 0)
    return fixed + options + payload


def udp(source: int, target: int, payload: bytes) -> bytes:
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0) + payload


def ipv4(
    source: bytes, target: bytes, protocol: int, body: bytes, *, ident: int = 0, fragment: int = 0,
    options: bytes = b"", total: int | None = None,
) -> bytes:  # fmt: skip
    header_size = 20 + len(options)
    total = header_size + len(body) if total is None else total
    total = 0 if total > 0xFFFF else total
    fixed = struct.pack(">BBHHHBBH", 0x40 | header_size // 4, 0, total, ident, fragment, 64, protocol, 0)
    return fixed + source + target + options + body


def ipv6(source: bytes, target: bytes, protocol: int, body: bytes, *, length: int | None = None) -> bytes:
    length = (len(body) if len(body) <= 0xFFFF else 0) if length is None else length
    return struct.pack(">IHBB", 0x60000000, length, protocol, 64) + source + target + body


def ip(source: bytes, target: bytes, protocol: int, body: bytes, ident: int = 0) -> bytes:
    if len(source) == 4:
        return ipv4(source, target, protocol, body, ident=ident)
    return ipv6(source, target, protocol, body)


def is_ipv6(packet: bytes) -> bool:
    return packet[0] >> 4 == 6


def ethernet(packet: bytes, tags: Sequence[bytes] = (), padding: int = 0) -> bytes:
    kind = b"\x86\xdd" if is_ipv6(packet) else b"\x08\x00"
    return MAC + b"".join(tags) + kind + packet + bytes(padding)


def cooked(packet: bytes) -> bytes:
    kind = b"\x86\xdd" if is_ipv6(packet) else b"\x08\x00"
    return bytes.fromhex("0004 0001 0006 0200 0000 0001 0000") + kind + packet


def cooked2(packet: bytes) -> bytes:
    kind = b"\x86\xdd" if is_ipv6(packet) else b"\x08\x00"
    return kind + bytes.fromhex("0000 00000001 0001 00 06 0200000000010000") + packet


def null(packet: bytes) -> bytes:
    return struct.pack("<I", 30 if is_ipv6(packet) else 2) + packet


def loop(packet: bytes) -> bytes:
    return struct.pack(">I", 24 if is_ipv6(packet) else 2) + packet


def raw(packet: bytes) -> bytes:
    return packet


# ---- conversations ---------------------------------------------------------------------------------------------------


@dataclass
class Talk:
    """The packets of one TCP connection, each `STEP_NS` after the one before; direction 0 is the client's."""

    client: tuple[bytes, int] = (CLIENT4, 40000)
    server: tuple[bytes, int] = (SERVER4, 80)
    isn: tuple[int, int] = (1000, 5000)
    time_ns: int = START_NS
    packets: list[Timed] = field(default_factory=list)
    ident: int = 100

    def __post_init__(self) -> None:
        self.next = [self.isn[0] + 1, self.isn[1] + 1]

    def add(self, direction: int, flags: int, payload: bytes = b"", *, seq: int | None = None, ack: int | None = None,
            options: bytes = b"", is_kept: bool = True) -> bytes:  # fmt: skip
        """Send a segment; `seq` absolute. Advances the stream unless `seq` is given. Captured if `is_kept`."""
        ends = (self.client, self.server)
        (source, source_port), (target, target_port) = ends[direction], ends[1 - direction]
        at = self.next[direction] if seq is None else seq
        acked = self.next[1 - direction] if ack is None else ack
        segment = tcp(source_port, target_port, at, acked if flags & ACK else 0, flags, payload, options)
        self.ident += 1
        packet = ip(source, target, 6, segment, self.ident)
        if seq is None:
            self.next[direction] += len(payload) + bool(flags & FIN)
        if is_kept:
            self.packets.append((self.time_ns, packet))
        self.time_ns += STEP_NS
        return packet

    def open(self) -> "Talk":
        self.add(0, SYN, seq=self.isn[0], options=bytes.fromhex("020405b4 01030307"))
        self.add(1, SYN | ACK, seq=self.isn[1])
        self.add(0, ACK)
        return self

    def send(self, direction: int, data: bytes, size: int = 1460, lost: Iterable[int] = ()) -> "Talk":
        """Send data in segments; those numbered in `lost` are not in the capture, but acknowledged."""
        for number, first in enumerate(range(0, len(data), size)):
            self.add(direction, PSH | ACK, data[first : first + size], is_kept=number not in lost)
        return self

    def acknowledge(self, direction: int) -> "Talk":
        self.add(direction, ACK)
        return self

    def close(self) -> "Talk":
        self.add(0, FIN | ACK)
        self.add(1, FIN | ACK)
        self.add(0, ACK)
        return self

    def exchange(self, path: str, body: bytes = b"hello", size: int = 1460) -> "Talk":
        """One HTTP request and its response."""
        self.send(0, request(path), size).acknowledge(1)
        return self.send(1, response(body), size).acknowledge(0)


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: example\r\n\r\n".encode()


def response(body: bytes = b"hello", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


# ---- files -----------------------------------------------------------------------------------------------------------


def pcap(
    packets: Iterable[Timed], link: int = 1, wrap: Callable[[bytes], bytes] = ethernet, *, order: str = "<",
    ticks: int = 10**6, snap: int = 1 << 18,
) -> bytes:  # fmt: skip
    magic = 0xA1B23C4D if ticks == 10**9 else 0xA1B2C3D4
    found = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, link)]
    for time_ns, packet in packets:
        frame = wrap(packet)
        seconds, rest = divmod(time_ns, 10**9)
        found.append(struct.pack(order + "IIII", seconds, rest * ticks // 10**9, min(len(frame), snap), len(frame)))
        found.append(frame[:snap])
    return b"".join(found)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int, snap: int = 0, options: bytes = b"", order: str = "<") -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, snap) + options, order)


def enhanced(frame: bytes, ticks: int, number: int = 0, options: bytes = b"", order: str = "<", size: int = 0) -> bytes:
    fixed = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), size or len(frame))
    return block(6, fixed + frame + bytes(-len(frame) % 4) + options, order)


# ---- rows ------------------------------------------------------------------------------------------------------------


class Rows:
    """A sink that keeps the rows of every table."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.error: str | None = None

    def write(self, tables: "dict[str, pa.RecordBatch]") -> None:
        for name, batch in tables.items():
            self.tables.setdefault(name, []).extend(batch.to_pylist())

    def flush(self) -> None: ...

    def take_losses(self) -> None: ...

    def close(self) -> None: ...

    def of(self, table: str) -> list[Row]:
        return self.tables.get(table, [])

    def columns(self, table: str, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.of(table)]

    def lost(self) -> dict[str, int]:
        """Return the counters of `losses`, summed up."""
        found: dict[str, int] = {}
        for row in self.of("losses"):
            found[row["counter"]] = found.get(row["counter"], 0) + row["count"]
        return found


def read(path: Path, **settings: Any) -> Rows:
    """Take a capture through the whole line; `error` is what it ended with."""
    rows = Rows()
    line = Line(Settings(**settings), [rows])  # type: ignore[list-item]
    try:
        for batch in read_capture(path, line.layout):
            line.feed(batch)
            line.advance()
    except RecordingError as error:
        rows.error = str(error)
    assert line.merge.late == line.merge.damaged == 0
    line.finish(max(line.merge.watermark_ns, 0))
    return rows


def rows_of(folder: Path, content: bytes) -> Rows:
    """Take the bytes of a capture file through the whole line."""
    path = folder / "capture"
    path.write_bytes(content)
    return read(path)
