"""Captured packets: link, IP and transport headers in, one TCP segment or UDP datagram out.

Sources: the link types of tcpdump.org, IEEE 802.1Q, RFC 791, 8200, 9293, 768. Fragments are put together as Linux does
(net/ipv4/ip_fragment.c, RFC 5722): a fragment that overlaps another one spoils its datagram, an exact copy does not.
Checksums are not looked at: network cards fill them in after the capture. Leaves out tunnels (GRE, VXLAN, IP in IP),
MPLS, PPPoE, other transports and ICMP.
"""

from bisect import bisect_left
from collections.abc import Callable
from socket import AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP
from struct import Struct
from typing import Final, NamedTuple, final

NANOSECONDS: Final = 10**9

IPV4: Final = 0x0800
IPV6: Final = 0x86DD
VLANS: Final = (0x8100, 0x88A8, 0x9100)  # 802.1Q, 802.1ad, and what came before it
VLAN_TAGS: Final = 4

# IPv6 extension headers, of lengths in units of 8 bytes without the first one
HOP_BY_HOP: Final = 0
FRAGMENT: Final = 44
AUTHENTICATION: Final = 51
EXTENSIONS: Final = (HOP_BY_HOP, 43, 60, 135, 139, 140)
EXTENSION_HEADERS: Final = 16

FRAGMENTS_BYTES: Final = 4 << 20  # of all datagrams that are not complete
FRAGMENTED: Final = 1024  # such datagrams
FRAGMENTS: Final = 8192  # of one datagram
FRAGMENTS_NS: Final = 30 * NANOSECONDS  # as net.ipv4.ipfrag_time
DATAGRAM_BYTES: Final = 65535

_TCP: Final = Struct(">HHII")
_UDP: Final = Struct(">HHH")


class Segment(NamedTuple):
    """What one packet brought. `size`: payload bytes on the wire, of which `payload` holds the first."""

    transport: int  # IPPROTO_TCP or IPPROTO_UDP
    family: int
    source: bytes
    source_port: int
    target: bytes
    target_port: int
    sequence: int
    acknowledged: int
    flags: int  # of TCP
    payload: bytes
    size: int
    ident: int  # of an IPv4 packet, else 0: two packets with the same one are copies


# ---- link layer ------------------------------------------------------------------------------------------------------


def _tagged(data: bytes, kind: int, at: int) -> tuple[int, int]:
    """Step over VLAN tags; return EtherType and the place behind them."""
    for _ in range(VLAN_TAGS):
        if kind not in VLANS or len(data) < at + 4:
            break
        kind = data[at + 2] << 8 | data[at + 3]
        at += 4
    return kind, at


def _ethernet(data: bytes) -> tuple[int, int]:
    return _tagged(data, data[12] << 8 | data[13], 14)


def _cooked(data: bytes) -> tuple[int, int]:
    return _tagged(data, data[14] << 8 | data[15], 16)


def _cooked2(data: bytes) -> tuple[int, int]:
    return _tagged(data, data[0] << 8 | data[1], 20)


def _loopback(data: bytes) -> tuple[int, int]:
    """Address family of the capturing system, in its byte order (NULL) or the network's (LOOP)."""
    family = int.from_bytes(data[:4], "little")
    if family > 0xFFFF:
        family = int.from_bytes(data[:4], "big")
    return {2: IPV4, 10: IPV6, 24: IPV6, 28: IPV6, 30: IPV6}.get(family, 0), 4  # IPv6: Linux and the BSDs


def _raw(data: bytes) -> tuple[int, int]:
    return {4: IPV4, 6: IPV6}.get(data[0] >> 4, 0), 0


LINKS: Final[dict[int, Callable[[bytes], tuple[int, int]]]] = {
    0: _loopback,
    1: _ethernet,
    12: _raw,
    14: _raw,
    101: _raw,
    108: _loopback,
    113: _cooked,
    228: _raw,
    229: _raw,
    276: _cooked2,
}
LINK_NAMES: Final = "Ethernet, raw IP, Linux cooked (v1, v2) and BSD loopback"


# ---- network and transport layer -------------------------------------------------------------------------------------


@final
class Packets:
    """Reads packets; keeps fragments. `damaged`: packets that cannot be; `fragments_lost`: datagrams never complete."""

    def __init__(self) -> None:
        self.damaged = 0
        self.fragments_lost = 0
        self._pending: dict[tuple[bytes, bytes, int, int], _Datagram] = {}  # the oldest first
        self._pending_bytes = 0

    def read(self, time_ns: int, link_type: int, data: bytes, size: int) -> Segment | None:
        """Return what a packet brought; None if it is of another transport, a fragment, or damaged.

        `size`: of the packet on the wire; of a packet that was cut (snaplen) `data` is shorter.
        """
        try:
            kind, at = LINKS[link_type](data)
            if kind == IPV4:
                return self._ipv4(time_ns, data, at, size)
            if kind == IPV6:
                return self._ipv6(time_ns, data, at, size)
        except IndexError:  # a header that is not there
            self.damaged += 1
        return None

    def _ipv4(self, time_ns: int, data: bytes, at: int, size: int) -> Segment | None:
        header_size = (data[at] & 15) * 4
        total = data[at + 2] << 8 | data[at + 3]
        if total == 0:  # larger than the field: split into packets by the card, after the capture
            total = size - at
        if data[at] >> 4 != 4 or header_size < 20 or total < header_size:
            self.damaged += 1
            return None
        ident, fragment, protocol = data[at + 4] << 8 | data[at + 5], data[at + 6] << 8 | data[at + 7], data[at + 9]
        source, target = data[at + 12 : at + 16], data[at + 16 : at + 20]
        if len(target) < 4:
            raise IndexError(at)
        first, stop = at + header_size, at + total
        if not fragment & 0x3FFF:
            return self._transport(protocol, int(AF_INET), source, target, data, first, stop, ident)
        if protocol not in (IPPROTO_TCP, IPPROTO_UDP):
            return None
        start, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
        if more:
            stop -= (stop - first) % 8
        whole = self._fragment(time_ns, (source, target, ident, protocol), start, data[first:stop], stop - first, more)
        if whole is None:
            return None
        payload, length = whole
        return self._transport(protocol, int(AF_INET), source, target, payload, 0, length, ident)

    def _ipv6(self, time_ns: int, data: bytes, at: int, size: int) -> Segment | None:
        length = data[at + 4] << 8 | data[at + 5]
        protocol, source, target = data[at + 6], data[at + 8 : at + 24], data[at + 24 : at + 40]
        if data[at] >> 4 != 6 or len(target) < 16:
            raise IndexError(at)
        first = at + 40
        stop = first + length if length else size  # 0: a jumbogram, or larger than the field
        for _ in range(EXTENSION_HEADERS):
            if protocol in EXTENSIONS:
                protocol, first = data[first], first + (data[first + 1] + 1) * 8
            elif protocol == AUTHENTICATION:
                protocol, first = data[first], first + (data[first + 1] + 2) * 4
            elif protocol == FRAGMENT:
                following, placed = data[first], data[first + 2] << 8 | data[first + 3]
                ident = int.from_bytes(data[first + 4 : first + 8], "big")
                first += 8
                if placed & 0xFFF9:
                    key = (source, target, ident, following)
                    more = bool(placed & 1)
                    whole = self._fragment(time_ns, key, placed & 0xFFF8, data[first:stop], stop - first, more)
                    if whole is None:
                        return None
                    data, first, stop = whole[0], 0, whole[1]
                protocol = following
            else:
                break
        return self._transport(protocol, int(AF_INET6), source, target, data, first, stop, 0)

    def _transport(
        self, protocol: int, family: int, source: bytes, target: bytes, data: bytes, at: int, stop: int, ident: int
    ) -> Segment | None:
        """Read the transport's header at `at`; on the wire the packet goes on up to `stop`."""
        if protocol == IPPROTO_TCP:
            header_size = (data[at + 12] >> 4) * 4
            flags, first = data[at + 13], at + header_size
            if header_size < 20 or first > stop:
                self.damaged += 1
                return None
            source_port, target_port, sequence, acknowledged = _TCP.unpack_from(data, at)
            return Segment(
                protocol, family, source, source_port, target, target_port, sequence, acknowledged, flags,
                data[first:stop], stop - first, ident,
            )  # fmt: skip
        if protocol == IPPROTO_UDP:
            if len(data) < at + 8:
                raise IndexError(at)
            source_port, target_port, length = _UDP.unpack_from(data, at)
            if length:  # 0: larger than the field
                stop = min(stop, at + length)
            if stop < at + 8:
                self.damaged += 1
                return None
            first = at + 8
            return Segment(
                protocol, family, source, source_port, target, target_port, 0, 0, 0, data[first:stop], stop - first,
                ident,
            )  # fmt: skip
        return None

    # ---- fragments -----------------------------------------------------------------------------------------------

    def _fragment(
        self, time_ns: int, key: tuple[bytes, bytes, int, int], start: int, data: bytes, size: int, more: bool
    ) -> tuple[bytes, int] | None:
        """Keep a fragment; return captured bytes and size of its datagram if that is complete now."""
        self._expire(time_ns)
        if size <= 0 or start + size > DATAGRAM_BYTES or (more and size % 8):
            self.damaged += 1
            return None
        datagram = self._pending.get(key)
        if datagram is None:
            datagram = self._pending[key] = _Datagram(time_ns)
        before = datagram.held
        fits = datagram.add(start, data, size, more)
        self._pending_bytes += datagram.held - before
        if not fits:
            self._forget(key)
            self.fragments_lost += 1
            return None
        if datagram.is_complete():
            self._forget(key)
            return datagram.joined(), datagram.size
        while len(self._pending) > FRAGMENTED or self._pending_bytes > FRAGMENTS_BYTES:
            self._forget(next(iter(self._pending)))
            self.fragments_lost += 1
        return None

    def _expire(self, time_ns: int) -> None:
        while self._pending:
            oldest = next(iter(self._pending))
            if time_ns - self._pending[oldest].time_ns < FRAGMENTS_NS:
                return
            self._forget(oldest)
            self.fragments_lost += 1

    def _forget(self, key: tuple[bytes, bytes, int, int]) -> None:
        self._pending_bytes -= self._pending.pop(key).held

    def finish(self) -> None:
        """Count the datagrams that will not become complete any more."""
        self.fragments_lost += len(self._pending)
        self._pending.clear()
        self._pending_bytes = 0


@final
class _Datagram:
    """The fragments of one datagram so far."""

    __slots__ = ("_pieces", "_sum", "held", "size", "time_ns")

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns  # of the first one
        self.held = 0
        self.size = -1  # of the whole, -1: not known yet
        self._pieces: list[tuple[int, int, bytes]] = []  # start, stop, captured; by start, never overlapping
        self._sum = 0

    def add(self, start: int, data: bytes, size: int, more: bool) -> bool:
        """Take a fragment; False: it does not go with the others, the datagram is spoilt."""
        stop, pieces = start + size, self._pieces
        at = bisect_left(pieces, (start,))
        if at < len(pieces) and pieces[at][:2] == (start, stop):
            return True  # a copy
        if (at and pieces[at - 1][1] > start) or (at < len(pieces) and pieces[at][0] < stop):
            return False
        if not more:
            if self.size >= 0 or (pieces and pieces[-1][1] > stop):
                return False
            self.size = stop
        elif self.size >= 0 and stop > self.size:
            return False
        if len(pieces) >= FRAGMENTS:
            return False
        pieces.insert(at, (start, stop, data))
        self._sum += size
        self.held += len(data) + 100
        return True

    def is_complete(self) -> bool:
        return self._sum == self.size

    def joined(self) -> bytes:
        """Return the captured bytes up to the first that is missing."""
        found = []
        for start, stop, data in self._pieces:
            found.append(data)
            if len(data) < stop - start:
                break
        return b"".join(found)
