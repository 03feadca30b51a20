"""Capture files: bytes in, packets out, one after another in bounded memory.

Sources: the pcap and pcapng specifications (IETF drafts draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng). pcap in both
byte orders, with microseconds or nanoseconds; pcapng with several sections and interfaces, enhanced, simple and
obsolete packet blocks, and the counts of packets that were dropped. Leaves out compressed files, names, comments,
decryption secrets, and what a packet holds.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, final

from tracehound.errors import RecordingError

CHUNK_BYTES: Final = 1 << 20
PACKET_BYTES: Final = 1 << 20  # libpcap writes at most 256 KiB; more is damage
BLOCK_BYTES: Final = 1 << 24
INTERFACES: Final = 1 << 16
NANOSECONDS: Final = 10**9

# The first four bytes of a pcap file -> byte order, ticks a second
PCAP_MAGICS: Final = {
    b"\xa1\xb2\xc3\xd4": (">", 10**6),
    b"\xd4\xc3\xb2\xa1": ("<", 10**6),
    b"\xa1\xb2\x3c\x4d": (">", 10**9),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9),
}
SECTION: Final = 0x0A0D0D0A  # the same in both byte orders
SECTION_ORDERS: Final = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
INTERFACE: Final = 1
OBSOLETE_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
STATISTICS: Final = 5
ENHANCED_PACKET: Final = 6

END_OF_OPTIONS: Final = 0
PACKET_DROPS: Final = 4  # of an enhanced packet
RESOLUTION: Final = 9  # of an interface
OFFSET: Final = 14
DROPPED: Final = (5, 7)  # of statistics: by the interface, by the system
NO_DROP_COUNT: Final = 0xFFFF

# time on the wall clock in ns (None: the file does not say), link type, captured bytes, size on the wire
Packet = tuple[int | None, int, bytes, int]


class _Interface(NamedTuple):
    link_type: int
    snap_length: int
    ticks: int  # a second
    offset_s: int


def has_capture_magic(head: bytes) -> bool:
    """Say whether a file that begins with these 12 bytes is a capture."""
    if head[:4] in PCAP_MAGICS:
        return True
    return head[:4] == SECTION.to_bytes(4, "big") and head[8:12] in SECTION_ORDERS


@final
class CaptureFile:
    """The packets of one file; iterate once. `dropped`: packets that the capturing side says it lost, so far.

    A context manager. Raises RecordingError, with the file's name and the place, behind the last packet that could be
    read.
    """

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self.format = "pcap"
        self._path = path
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror}") from error
        self._data = b""
        self._at = 0
        self._place = 0  # in the file, of _data[0]

    def __enter__(self) -> "CaptureFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def packets(self) -> Iterator[Packet]:
        """Yield the packets in the order of the file. Raises RecordingError at once if it is no capture."""
        if not self._has(12):
            raise RecordingError(f"{self._path} is no capture: it has only {len(self._data)} bytes")
        head = self._data[:12]
        if not has_capture_magic(head):
            raise RecordingError(f"{self._path} is no capture: it begins with {head[:4].hex(' ')}")
        if head[:4] in PCAP_MAGICS:
            return self._pcap(*PCAP_MAGICS[head[:4]])
        self.format = "pcapng"
        return self._pcapng()

    def _has(self, size: int) -> bool:
        """Make `size` bytes from the current place available, if the file has them."""
        missing = size - (len(self._data) - self._at)
        if missing <= 0:
            return True
        try:
            more = self._file.read(max(missing, CHUNK_BYTES))
        except OSError as error:
            raise RecordingError(f"{self._path} cannot be read: {error.strerror}") from error
        self._place += self._at
        self._data = self._data[self._at :] + more
        self._at = 0
        return len(self._data) >= size

    def _damaged(self, what: str) -> RecordingError:
        place = self._place + self._at
        return RecordingError(f"{self._path} is damaged at byte {place}: {what}; what comes before it was read")

    def _cut_off(self) -> RecordingError:
        place = self._place + len(self._data)
        return RecordingError(f"{self._path} is cut off at byte {place}, inside a packet; all before it was read")

    # ---- pcap ----------------------------------------------------------------------------------------------------

    def _pcap(self, order: str, ticks: int) -> Iterator[Packet]:
        if not self._has(24):
            raise self._cut_off()
        major, _, _, _, _, link_type = struct.unpack_from(order + "HHiIII", self._data, 4)
        if major != 2:
            raise self._damaged(f"pcap version {major} is not known")
        self._at = 24
        link_type &= 0xFFFF  # above it: whether a frame check sequence follows
        header, to_ns = struct.Struct(order + "IIII"), NANOSECONDS // ticks
        while self._has(16):
            seconds, fraction, captured, size = header.unpack_from(self._data, self._at)
            if captured > PACKET_BYTES:
                raise self._damaged(f"a packet of {captured} bytes")
            if not self._has(16 + captured):
                raise self._cut_off()
            first = self._at + 16
            self._at = first + captured
            yield (
                seconds * NANOSECONDS + fraction * to_ns,
                link_type,
                self._data[first : self._at],
                max(size, captured),
            )
        if self._at < len(self._data):
            raise self._cut_off()

    # ---- pcapng --------------------------------------------------------------------------------------------------

    def _pcapng(self) -> Iterator[Packet]:
        order, interfaces, dropped = "<", list[_Interface](), dict[int, int]()
        while self._has(12):
            kind_bytes = self._data[self._at : self._at + 4]
            if kind_bytes == SECTION.to_bytes(4, "big"):
                order = SECTION_ORDERS.get(self._data[self._at + 8 : self._at + 12], "")
                if not order:
                    raise self._damaged("a section without a byte order")
                interfaces, dropped = [], {}
            kind, body = self._block(order)
            try:
                if kind == SECTION:
                    if struct.unpack_from(order + "H", body, 4)[0] != 1:
                        raise self._damaged("a section of a version that is not known")
                elif kind == INTERFACE:
                    interfaces.append(_interface(order, body))
                    if len(interfaces) > INTERFACES:
                        raise self._damaged(f"more than {INTERFACES} interfaces")
                elif kind == STATISTICS:
                    number, lost = _statistics(order, body)
                    self.dropped += max(lost - dropped.get(number, 0), 0)
                    dropped[number] = max(lost, dropped.get(number, 0))
                elif kind in _PACKETS:
                    packet, lost = _PACKETS[kind](order, body, interfaces)
                    self.dropped += lost
                    yield packet
            except (struct.error, IndexError):
                raise self._damaged(f"a block of type {kind} that cannot be") from None
            self._at += len(body) + 12
        if self._at < len(self._data):
            raise self._cut_off()

    def _block(self, order: str) -> tuple[int, bytes]:
        """Return type and body of the block at the current place, and stay there."""
        kind, length = struct.unpack_from(order + "II", self._data, self._at)
        if length < 12 or length % 4 or length > BLOCK_BYTES:
            raise self._damaged(f"a block of {length} bytes")
        if not self._has(length):
            raise self._cut_off()
        if struct.unpack_from(order + "I", self._data, self._at + length - 4)[0] != length:
            raise self._damaged("a block whose two lengths differ")
        return kind, self._data[self._at + 8 : self._at + length - 4]


def _options(order: str, body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        if code == END_OF_OPTIONS:
            return
        yield code, body[at + 4 : at + 4 + size]
        at += 4 + (size + 3 & ~3)


def _interface(order: str, body: bytes) -> _Interface:
    link_type, _, snap_length = struct.unpack_from(order + "HHI", body)
    ticks, offset_s = 10**6, 0
    for code, value in _options(order, body, 8):
        if code == RESOLUTION and value:
            exponent = value[0] & 0x7F
            ticks = 2**exponent if value[0] & 0x80 else 10**exponent
        elif code == OFFSET and len(value) == 8:
            (offset_s,) = struct.unpack(order + "q", value)
    return _Interface(link_type, snap_length, ticks, offset_s)


def _statistics(order: str, body: bytes) -> tuple[int, int]:
    """Return an interface's number and how many packets it dropped up to here."""
    (number,) = struct.unpack_from(order + "I", body)
    counts = (value for code, value in _options(order, body, 12) if code in DROPPED and len(value) == 8)
    return number, sum(struct.unpack(order + "Q", value)[0] for value in counts)


def _enhanced(order: str, body: bytes, interfaces: list[_Interface]) -> tuple[Packet, int]:
    number, high, low, captured, size = struct.unpack_from(order + "IIIII", body)
    lost = 0
    for code, value in _options(order, body, 20 + (captured + 3 & ~3)):
        if code == PACKET_DROPS and len(value) == 8:
            (lost,) = struct.unpack(order + "Q", value)
    return _packet(interfaces[number], high << 32 | low, body[20:], captured, size), lost


def _obsolete(order: str, body: bytes, interfaces: list[_Interface]) -> tuple[Packet, int]:
    number, drops, high, low, captured, size = struct.unpack_from(order + "HHIIII", body)
    packet = _packet(interfaces[number], high << 32 | low, body[20:], captured, size)
    return packet, 0 if drops == NO_DROP_COUNT else drops


def _simple(order: str, body: bytes, interfaces: list[_Interface]) -> tuple[Packet, int]:
    (size,) = struct.unpack_from(order + "I", body)
    interface = interfaces[0]
    captured = min(size, interface.snap_length or size)
    return _packet(interface, None, body[4:], captured, size), 0


def _packet(interface: _Interface, ticks: int | None, data: bytes, captured: int, size: int) -> Packet:
    if captured > len(data):
        raise IndexError(captured)
    time_ns = None if ticks is None else ticks * NANOSECONDS // interface.ticks + interface.offset_s * NANOSECONDS
    return time_ns, interface.link_type, data[:captured], max(size, captured)


_PACKETS: Final = {ENHANCED_PACKET: _enhanced, OBSOLETE_PACKET: _obsolete, SIMPLE_PACKET: _simple}
