"""Packet captures (pcap, pcapng) as batches of the kernel's own records, without root.

The line: file -> packets (`_pcap_file`) -> segments (`_packets`) -> streams (`_segments`) -> records
(`_capture_records`). A connection is one of role null, seen from its client's side; no row has a process. Times are the
packets' own, told by a clock that never goes back: where the capture's does by more than a second, a new anchor says
so. docs/captures.md says what is seen and what is not.
"""

import json
from collections.abc import Iterator
from heapq import heappop, heappush, heappushpop
from pathlib import Path
from typing import Final, final

from tracehound import native
from tracehound.batch import MERGE_LAG_NS, Batch
from tracehound.btf import Layout
from tracehound.errors import RecordingError
from tracehound.sources._capture_records import CaptureRecords
from tracehound.sources._packets import LINK_NAMES, LINKS, Packets
from tracehound.sources._pcap_file import CaptureFile, Packet, has_capture_magic
from tracehound.sources._segments import Segments

__all__ = ["is_capture", "read_capture"]

LOOKAHEAD: Final = 256  # packets: those of several interfaces or queues are written a little out of order
STEP_NS: Final = 1_000_000_000  # a clock that goes back by less is made to stand still
FIRST_NS: Final = 1_000_000_000  # of the clock that records carry
JUMP_NS: Final = 366 * 86_400 * 1_000_000_000  # so long a silence is a wrong time
LAST_NS: Final = 1 << 62


def is_capture(path: Path) -> bool:
    """Say whether a file begins as a pcap or pcapng capture does; False if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return has_capture_magic(file.read(12))
    except OSError:
        return False


def read_capture(path: Path, layout: Layout) -> Iterator[Batch]:
    """Yield the records of a capture in the order of time, each batch with a tick at its end, for `Line.feed`.

    The last tick makes everything complete. Memory is bounded, whatever is in the file. Raises RecordingError, behind
    the records of all that could be read, for a file that is damaged, cut off or of a link type that is not read.
    """
    with CaptureFile(path) as file:
        packets, failure = in_order(file.packets()), None
        capture = _Capture(file, layout)
        while True:
            try:
                packet = next(packets, None)
                if packet is None:
                    break
                capture.take(packet, path)
            except RecordingError as error:
                failure = error
                break
            if capture.records.is_full():
                yield capture.batch()
        yield capture.finish()
        if failure is not None:
            raise failure


def in_order(packets: Iterator[Packet]) -> Iterator[Packet]:
    """Yield packets in the order of their times, as far as they are no farther apart than LOOKAHEAD and STEP_NS.

    What `packets` raises is raised behind the last one.
    """
    waiting: list[tuple[int, int, Packet]] = []
    newest_ns, number, failure = 0, 0, None
    while True:
        try:
            packet = next(packets, None)
        except RecordingError as error:
            packet, failure = None, error
        if packet is None:
            break
        time_ns = newest_ns if packet[0] is None else packet[0]
        if time_ns < newest_ns - STEP_NS:
            while waiting:
                yield heappop(waiting)[2]
            newest_ns = time_ns
        elif time_ns > newest_ns:
            newest_ns = time_ns
        number += 1
        if len(waiting) < LOOKAHEAD:
            heappush(waiting, (time_ns, number, packet))
        else:
            yield heappushpop(waiting, (time_ns, number, packet))[2]
    while waiting:
        yield heappop(waiting)[2]
    if failure is not None:
        raise failure


@final
class _Clock:
    """Wall clock times of packets -> times that rise by 2 at least; anchors where the two drift apart."""

    def __init__(self, records: CaptureRecords) -> None:
        self.now_ns = FIRST_NS
        self._records = records
        self._offset_ns: int | None = None

    def at(self, wall_ns: int | None) -> int:
        """Move to the time of the next packet and return it."""
        earliest_ns = self.now_ns + 2
        if wall_ns is None or not 0 <= wall_ns < LAST_NS:  # not told, or not a time
            self.now_ns = earliest_ns
            return earliest_ns
        time_ns = earliest_ns if self._offset_ns is None else wall_ns - self._offset_ns
        is_step = earliest_ns - time_ns > STEP_NS or time_ns - earliest_ns > JUMP_NS or time_ns > LAST_NS
        self.now_ns = earliest_ns if is_step else max(time_ns, earliest_ns)
        if self._offset_ns is None or is_step:
            self._offset_ns = wall_ns - self.now_ns
            self._records.add_clock(self.now_ns, wall_ns)
        return self.now_ns


@final
class _Capture:
    """One capture that is being read."""

    def __init__(self, file: CaptureFile, layout: Layout) -> None:
        self.records = CaptureRecords(layout)
        self._file = file
        self._clock = _Clock(self.records)
        self._packets = Packets()
        flags = {**layout.enum("connection_flag"), **layout.enum("data_flag")}
        self._segments = Segments(self.records, flags, native.detect)
        self._unread = 0  # packets of link types that are not read
        self._told: dict[str, int] = {}
        self._told_ns = FIRST_NS
        config = {"source": "capture", "format": file.format}
        self.records.add_config(FIRST_NS, json.dumps(config).encode())

    def take(self, packet: Packet, path: Path) -> None:
        """Take the next packet. Raises RecordingError if it is of a file that has no other link type."""
        wall_ns, link_type, data, size = packet
        time_ns = self._clock.at(wall_ns)
        if link_type not in LINKS:
            if self._file.format == "pcap":
                raise RecordingError(f"{path} is of link type {link_type}, which is not read; {LINK_NAMES} are")
            self._unread += 1
            return
        segment = self._packets.read(time_ns, link_type, data, size)
        if segment is not None:
            self._segments.take(time_ns, segment)

    def batch(self) -> Batch:
        """Return what was recorded since the last time."""
        self._count_losses()
        return self.records.take(self._clock.now_ns)

    def finish(self) -> Batch:
        """End the capture; return the last records."""
        self._segments.finish(self._clock.now_ns)
        self._packets.finish()
        self._count_losses()
        return self.records.take(self._clock.now_ns + MERGE_LAG_NS + 2)

    def _count_losses(self) -> None:
        counters = {
            "PACKET_DROPPED": self._file.dropped,
            "PACKET_DAMAGED": self._packets.damaged,
            "PACKET_UNREAD": self._unread,
            "FRAGMENT_LOST": self._packets.fragments_lost,
            "CONNECTION_SHED": self._segments.shed,
        }
        for name, count in counters.items():
            rise = count - self._told.get(name, 0)
            if rise:
                self.records.add_loss(name, rise, self._told_ns, self._clock.now_ns)
        self._told, self._told_ns = counters, self._clock.now_ns
