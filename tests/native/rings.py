"""A ring buffer in ordinary memory, laid out as the kernel lays out its own, and records to put into it."""

import mmap
import os
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tracehound.btf import wire_layout
from tracehound.kernel.ring import take_arenas
from tracehound.native import ffi, lib

HEADER: Final = struct.Struct("<QIIIHHQ")
BUSY: Final = 1 << 31
DISCARD: Final = 1 << 30
KINDS: Final = {name: number for number, name in wire_layout().kinds.items()}
RING_IDS: Final = wire_layout().enum("ring_id")
LIFECYCLE, DATA, FACT = (RING_IDS[f"RING_{name}"] for name in ("LIFECYCLE", "DATA", "FACT"))


def record(
    kind: str | int, time_ns: int = 0, tail: bytes = b"", cpu: int = 0, ring_seq: int = 0, size: int = -1
) -> bytes:
    """Return one record, padded to 8 bytes; `kind` may be an unknown number, `size` may lie."""
    number = KINDS[kind] if isinstance(kind, str) else kind
    fixed = wire_layout().dtypes[kind].itemsize if isinstance(kind, str) else HEADER.size
    true_size = fixed + len(tail)
    header = HEADER.pack(time_ns, 7, 8, true_size if size < 0 else size, number, cpu, ring_seq)
    return header + bytes(fixed - HEADER.size) + tail + bytes(-true_size % 8)


def guarded_pages(count: int) -> npt.NDArray[np.uint8]:
    """Return the memory of `count` pages; the page behind them is a bus error when touched."""
    fd = os.memfd_create("guarded")
    os.ftruncate(fd, (count + 1) * mmap.PAGESIZE)
    pages = np.frombuffer(mmap.mmap(fd, 0), np.uint8)
    os.ftruncate(fd, count * mmap.PAGESIZE)
    os.close(fd)
    return pages[: count * mmap.PAGESIZE]


class FakeRing:
    """A ring buffer whose producer is Python."""

    def __init__(self, size: int = 1 << 14, ring: int = DATA, data: npt.NDArray[np.uint8] | None = None) -> None:
        self.size, self.ring = size, ring
        self.positions = np.zeros(2, np.uint64)  # consumer, producer
        self.data = np.zeros(2 * size, np.uint8) if data is None else data

    def add_to(self, drain: Any) -> None:
        """Let a `struct drain *` read this ring."""
        consumer = ffi.cast("uint64_t *", self.positions.ctypes.data)
        data = ffi.cast("uint8_t *", self.data.ctypes.data)
        assert lib.drain_add_memory(drain, consumer, consumer + 1, data, self.size, self.ring) == 0

    def free(self) -> int:
        """Return how many bytes can be written."""
        return self.size - int(self.positions[1] - self.positions[0])

    def put(self, content: bytes, flags: int = 0, length: int = -1) -> int | None:
        """Write one record and return where; None if there is no room. `length` may lie."""
        padded = content + bytes(-len(content) % 8)
        if 8 + len(padded) > self.free():
            return None
        at = int(self.positions[1])
        self.store(at, struct.pack("<II", (len(content) if length < 0 else length) | flags, 0) + padded)
        self.positions[1] = at + 8 + len(padded)
        return at

    def commit(self, at: int, flags: int = 0) -> None:
        """Set the flags of the record written at `at`."""
        word = self.data[at % self.size :][:4].view("<u4")[0]
        self.store(at, struct.pack("<I", int(word) & ~BUSY | flags))

    def store(self, position: int, content: bytes) -> None:
        """Write into both copies of the data."""
        places = (position + np.arange(len(content))) % self.size
        values = np.frombuffer(content, np.uint8)
        self.data[places] = values
        self.data[places + self.size] = values


class FakeDrain:
    """A drain without a thread over fake rings; a context manager."""

    def __init__(
        self, *rings: FakeRing, budget: int = 1 << 20, lifecycle_budget: int = 1 << 20, limit_fd: int = -1
    ) -> None:
        self.handle = lib.drain_new(budget, lifecycle_budget, -1)
        for ring in rings:
            ring.add_to(self.handle)
        if limit_fd >= 0:
            assert lib.drain_map_limits(self.handle, limit_fd) == 0

    def __enter__(self) -> "FakeDrain":
        return self

    def __exit__(self, *_: object) -> None:
        lib.drain_free(self.handle)

    def run_pass(self, now_ns: int) -> None:
        """Read every ring once."""
        lib.drain_pass(self.handle, now_ns)

    def take(self) -> list[npt.NDArray[np.uint8]]:
        """Take all that waits."""
        return take_arenas(self.handle)

    def counters(self) -> Any:
        """Return the `struct drain_counters *`."""
        out = ffi.new("struct drain_counters *")
        lib.drain_read_counters(self.handle, out)
        return out
