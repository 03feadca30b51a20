"""What is kept of a connection while its capture is read: its two ends and streams. State without decisions."""

from typing import Final, final

CLIENT: Final = 0  # the direction of what the client sends: DIRECTION_SEND, as the client is local
SERVER: Final = 1
CAPTURE_UNKNOWN: Final = 0  # of enum capture_class
UNSURE: Final = 1 << 20  # farther ahead an acknowledgement is believed when the sender says the same

End = tuple[bytes, int]  # address, port
Key = tuple[int, End, End]  # transport, from, to
Held = tuple[int, int, bytes, int]  # start, stop, captured bytes, when it came


@final
class Direction:
    """What one end sends. Positions count its payload bytes."""

    __slots__ = (
        "acked", "acked_ns", "base", "calls", "fin", "held", "held_bytes", "idents", "next", "prefix", "seen",
        "unknown_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.base = -1  # sequence number of position 0; -1: not known yet
        self.next = 0  # position of the next byte to deliver
        self.acked = 0  # what the other end has, by its own word
        self.acked_ns = 0  # since when
        self.seen = 0  # how far this end has sent, by its own word
        self.fin = -1  # the stream's end, once it is known
        self.held: list[Held] = []  # behind a hole, by start
        self.held_bytes = 0
        self.idents: dict[int, None] = {}  # of the newest IPv4 packets with payload
        self.prefix = b""
        self.calls = 0
        self.unknown_bytes = 0

    def reach(self) -> int:
        """Return up to where bytes are known to have arrived."""
        acked = self.acked if self.acked - self.next < UNSURE else min(self.acked, self.seen)
        if self.fin >= 0:
            return max(min(acked, self.fin), self.next)
        return max(acked - (acked == self.next + 1), self.next)  # one byte may be a FIN

    def place(self, sequence: int) -> int:
        """Return the position of a sequence number, which is within 2 GiB of the next byte."""
        ahead = (sequence - self.base - self.next) & 0xFFFFFFFF
        return self.next + (ahead - (1 << 32) if ahead >= 1 << 31 else ahead)


@final
class Connection:
    """One connection; `ends` are the client's and the server's."""

    __slots__ = (
        "capture_class", "constants", "cookie", "directions", "due_ns", "ended_ns", "ends", "established_ns", "family",
        "flags", "is_closed", "is_open", "is_partial", "next_syn", "retransmits", "started_ns", "strength",
        "time_ns", "transport", "verdict",
    )  # fmt: skip

    def __init__(self, cookie: int, transport: int, family: int, client: End, server: End) -> None:
        self.cookie = cookie
        self.transport = transport
        self.family = family
        self.ends = (client, server)
        self.constants = (family, transport, client[1], server[1])
        self.directions = (Direction(), Direction())
        self.started_ns = 0
        self.established_ns = 0
        self.ended_ns = 0
        self.time_ns = 0  # of its newest packet
        self.is_open = False  # its first record was written
        self.is_partial = False  # its beginning was not seen
        self.is_closed = False
        self.next_syn: tuple[int, int, int] | None = None  # direction, base, time: the next one of these two ends
        self.due_ns = 0  # when holes that were acknowledged are given up
        self.retransmits = 0
        self.verdict = 0
        self.strength = 0
        self.capture_class = CAPTURE_UNKNOWN
        self.flags = 0  # of data records

    def key(self, direction: int) -> Key:
        return self.transport, self.ends[direction], self.ends[1 - direction]
