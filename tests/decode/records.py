"""Makes records as the kernel would, for tests of everything behind the rings.

`Recorder` writes raw records of any kind; `Socket` is one end of a TCP connection and writes what the hooks would write
for its calls, by capture class. Times rise by `STEP_NS` a record unless set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tracehound.batch import Batch, split
from tracehound.btf import Layout, wire_layout

STEP_NS = 1_000_000
PIECE = 16384
CALL = 65536
HEAD, TAIL = 4096, 256
SEND, RECEIVE = 0, 1
CLIENT, SERVER = 1, 2
UNKNOWN, FRAMED, HEAD_TAIL, COUNT = 0, 1, 2, 3
PEEK, OPAQUE, DISPUTED, FIRST, PREEXISTING, UNWATCHED = 1, 2, 4, 32, 64, 256
STRONG = 2


class Recorder:
    """A growing list of raw records, in the order of time."""

    def __init__(self, layout: Layout | None = None, time_ns: int = 1_000_000_000) -> None:
        self.layout = layout or wire_layout()
        self.time_ns = time_ns
        self.raw: list[bytes] = []
        self.times: list[int] = []
        self._kinds = {name: number for number, name in self.layout.kinds.items()}
        self._next: dict[tuple[int, int], int] = {}

    def add(self, kind: str, tail: bytes = b"", *, time_ns: int | None = None, cpu: int = 0, **fields: Any) -> None:
        """Add one record; fields that are not given are 0."""
        if time_ns is None:
            self.time_ns += STEP_NS
            time_ns = self.time_ns
        self.time_ns = max(self.time_ns, time_ns)
        record = np.zeros(1, self.layout.dtypes[kind])
        ring = self._kinds[kind] >> 8
        number = self._next.get((ring, cpu), 0)
        self._next[ring, cpu] = number + 1
        size = record.itemsize + len(tail)
        fields |= {"time_ns": time_ns, "cpu": cpu, "kind": self._kinds[kind], "size": size, "ring_seq": number}
        for name, value in fields.items():
            if isinstance(value, bytes) and record.dtype[name].shape:
                value = np.frombuffer(value.ljust(record.dtype[name].shape[0], b"\0"), np.uint8)
            record[name] = value
        self.raw.append((record.tobytes() + tail).ljust(-(-size // 8) * 8, b"\0"))
        self.times.append(time_ns)

    def lose(self, index: int) -> None:
        """Take out a record, as a full ring would."""
        del self.raw[index], self.times[index]

    def batch(self, start: int = 0, stop: int | None = None) -> Batch:
        """Return some records as a batch whose watermark is the time of the last."""
        raw, times = self.raw[start:stop], self.times[start:stop]
        return replace(split(b"".join(raw), self.layout), watermark_ns=max(times, default=0))

    def batches(self, cuts: Sequence[int] = ()) -> Iterator[Batch]:
        """Return all records, cut at the given places."""
        edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(self.raw)), len(self.raw)]
        for start, stop in pairwise(edges):
            if start < stop:
                yield self.batch(start, stop)


@dataclass
class Socket:
    """One end of a TCP connection. `local`, `remote`: (4 or 16 bytes, port)."""

    recorder: Recorder
    cookie: int
    role: int
    local: tuple[bytes, int] = (bytes((127, 0, 0, 1)), 40000)
    remote: tuple[bytes, int] = (bytes((127, 0, 0, 1)), 80)
    base: tuple[int, int] = (1000, 2000)  # sent, received
    pid: int = 100
    tid: int = 101
    attempt: int = 1
    verdict: int = 0
    strength: int = STRONG
    capture: int = FRAMED
    flags: int = 0
    position: list[int] = field(default_factory=lambda: [0, 0])
    skip_until: list[int] = field(default_factory=lambda: [0, 0])

    def lifecycle(self, event: str, *, time_ns: int | None = None, **fields: Any) -> None:
        """Add a connection record: OPEN, ACCEPT, CLOSE, ..."""
        layout = self.recorder.layout
        values: dict[str, Any] = {
            "pid": self.pid, "tid": self.tid, "cookie": self.cookie, "attempt": self.attempt, "family": 2,
            "transport": 6, "role": self.role, "event": layout.enum("connection_event")[f"CONNECTION_{event}"],
            "local_address": self.local[0], "remote_address": self.remote[0],
            "local_port": self.local[1], "remote_port": self.remote[1],
            "base_sent": self.base[0], "base_received": self.base[1], "established_ns": 1,
            "bytes_sent": self.position[SEND], "bytes_read": self.position[RECEIVE],
            "bytes_received": self.position[RECEIVE],
        }  # fmt: skip
        self.recorder.add("connection", time_ns=time_ns, **(values | fields))

    def open(self) -> "Socket":
        self.lifecycle("OPEN" if self.role == CLIENT else "ACCEPT", time_ns=self.recorder.time_ns + 1)
        return self

    def close(self, **fields: Any) -> None:
        self.lifecycle("CLOSE", **fields)

    def move(
        self, direction: int, data: bytes | int, *, capture: int | None = None, flags: int = 0, **given: Any
    ) -> None:
        """Send or receive with one call; `data` as a size: bytes whose content does not matter."""
        if isinstance(data, int):
            data = bytes(data)
        end = self.position[direction] + len(data)
        if not flags & PEEK:
            self.position[direction] = end
        if end <= self.skip_until[direction]:
            return
        capture = self.capture if capture is None else capture
        skip = max(self.skip_until[direction] - (end - len(data)), 0)
        for offset, head, tail in pieces(data, skip, capture, flags):
            self.recorder.add(
                "data", head + tail, pid=self.pid, tid=self.tid, cookie=self.cookie, position_end=end,
                call_size=len(data), offset=offset, head_size=len(head), tail_size=len(tail), direction=direction,
                flags=self.flags | flags | (FIRST if offset == skip else 0), verdict=self.verdict,
                strength=self.strength if self.verdict else 0, family=2, transport=6, capture_class=capture,
                role=self.role, local_port=self.local[1], remote_port=self.remote[1], **given,
            )  # fmt: skip
            given.pop("time_ns", None)

    def send(self, data: bytes | int, **given: Any) -> None:
        self.move(SEND, data, **given)

    def receive(self, data: bytes | int, **given: Any) -> None:
        self.move(RECEIVE, data, **given)


def pieces(data: bytes, skip: int, capture: int, flags: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (offset, head, tail) of the records of one call."""
    if flags & OPAQUE or capture == COUNT:
        yield skip, b"", b""
    elif capture == FRAMED:
        stop = min(len(data), skip + CALL)
        for offset in range(skip, max(stop, skip + 1), PIECE):
            yield offset, data[offset : min(offset + PIECE, stop)], b""
        if stop < len(data):
            yield stop, b"", data[-min(len(data) - stop, TAIL) :]
    else:
        head = data[skip : skip + HEAD]
        left = len(data) - skip - len(head)
        yield skip, head, data[len(data) - min(left, TAIL) :] if left and capture == HEAD_TAIL else b""


def both_ends(recorder: Recorder, **given: Any) -> tuple[Socket, Socket]:
    """Return a client and a server that talk to each other over loopback, open."""
    address, client_port, server_port = bytes((127, 0, 0, 1)), 40000, 80
    client = Socket(
        recorder, 11, CLIENT, (address, client_port), (address, server_port), (1000, 2000), 100, 101, **given
    )
    server = Socket(
        recorder, 12, SERVER, (address, server_port), (address, client_port), (2000, 1000), 200, 201, **given
    )
    return client.open(), server.open()
