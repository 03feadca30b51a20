"""A perf ring in ordinary memory, laid out as the kernel lays out its own, and events to put into it."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tests.native.rings import RING_IDS, FakeDrain, record

from tracehound.native import ffi, lib

STACK: Final = RING_IDS["RING_STACK"]
SAMPLE, LOST, COMM, MMAP2, LOST_SAMPLES = 9, 2, 3, 10, 13
COMM_EXEC, MMAP_BUILD_ID = 1 << 13, 1 << 14
REGISTERS: Final = 0xFF0FFF  # all that x86-64 gives


@dataclass(frozen=True)
class Shape:
    """Options of a ring."""

    registers: int = 0
    stack_bytes: int = 0
    has_chain: bool = False
    is_sideband: bool = False

    def native(self) -> Any:
        """Return it as a `struct perf_shape *`."""
        return ffi.new(
            "struct perf_shape *", [self.registers, self.stack_bytes, self.has_chain, self.is_sideband, -1, -1, 0]
        )


@dataclass(frozen=True)
class Sample:
    """What a sample holds; `stack` what could be read of the `asked` bytes."""

    call: int = 1
    abi: int = 2
    slots: Sequence[int] = ()  # u64s: two of each slot
    chain: Sequence[int] = ()
    registers: Sequence[int] = ()
    stack: bytes = b""
    asked: int = 0
    cpu: int = 0
    ring_seq: int = 0
    time_ns: int = 5

    def head(self, slot_count: int = -1) -> bytes:
        """Return the raw part, as BPF writes it."""
        fixed = record("call_stack", self.time_ns, cpu=self.cpu, ring_seq=self.ring_seq)
        count = len(self.slots) // 2 if slot_count < 0 else slot_count
        # what user space fills in is not to be trusted
        return fixed[:32] + struct.pack("<QQIIIIII", self.call, 99, 9, 9, 9, count, 9, 9) + words(self.slots)

    def event(self, shape: Shape) -> bytes:
        """Return the event that the kernel makes of it."""
        body = b""
        if shape.has_chain:
            body += words([len(self.chain), *self.chain])
        raw = self.head()
        raw += bytes(-(4 + len(raw)) % 8)
        body += struct.pack("<I", len(raw)) + raw
        if shape.registers:
            body += words([self.abi, *(self.registers if self.abi else ())])
        if shape.stack_bytes:
            body += words([self.asked])
            if self.asked:
                body += self.stack.ljust(self.asked, b"\xaa") + words([len(self.stack)])
        return event(SAMPLE, body)

    def record(self, shape: Shape) -> bytes:
        """Return the record that it is to become, padded."""
        registers = self.registers if shape.registers and self.abi else ()
        chain = self.chain if shape.has_chain else ()
        stack, asked = (self.stack, self.asked) if shape.stack_bytes else (b"", 0)
        tail = words(registers) + words(chain) + words(self.slots) + stack
        counts = (len(registers), len(chain), len(self.slots) // 2, len(stack), asked)
        fixed = struct.pack("<QQIIIIII", self.call, shape.registers, self.abi if shape.registers else 0, *counts)
        whole = record("call_stack", self.time_ns, tail, self.cpu, self.ring_seq)
        return whole[:32] + fixed + whole[72:]


def words(values: Sequence[int]) -> bytes:
    """Return u64s."""
    return struct.pack(f"<{len(values)}Q", *values)


def event(kind: int, body: bytes, misc: int = 0, size: int = -1) -> bytes:
    """Return an event; `size` may lie."""
    return struct.pack("<IHH", kind, misc, 8 + len(body) if size < 0 else size) + body


def sample_id(pid: int = 7, tid: int = 8, time_ns: int = 5, cpu: int = 1) -> bytes:
    """Return what stands at the end of side-band."""
    return struct.pack("<IIQII", pid, tid, time_ns, cpu, 0)


class FakePerf:
    """A ring whose producer is Python; `at` is where it begins, so that events wrap."""

    def __init__(self, shape: Shape, size: int = 4096, at: int = 0, data: npt.NDArray[np.uint8] | None = None) -> None:
        self.shape, self.size = shape, size
        self.positions = np.array([at, at], np.uint64)  # head, tail
        self.data = np.zeros(size, np.uint8) if data is None else data

    def add_to(self, drain: FakeDrain, group: int) -> None:
        """Let a drain read it as one of a group."""
        head = ffi.cast("uint64_t *", self.positions.ctypes.data)
        data = ffi.cast("uint8_t *", self.data.ctypes.data)
        shape = self.shape.native()
        assert lib.drain_add_perf_memory(drain.handle, group, head, head + 1, data, self.size, shape) == 0

    def put(self, content: bytes) -> bool:
        """Write one event; False: there is no room."""
        head, tail = (int(each) for each in self.positions)
        if len(content) > self.size - (head - tail) % (1 << 64):
            return False
        places = (head % self.size + np.arange(len(content))) % self.size
        self.data[places] = np.frombuffer(content, np.uint8)
        self.positions[0] = (head + len(content)) % (1 << 64)
        return True


def add_group(drain: FakeDrain, *rings: FakePerf, budget: int = 1 << 20) -> int:
    """Let a drain read perf rings."""
    group = int(lib.drain_add_group(drain.handle, budget, STACK))
    for ring in rings:
        ring.add_to(drain, group)
    return group


def perf_counters(drain: FakeDrain, group: int, number: int = 0) -> Any:
    """Return the `struct perf_counters *` of a ring."""
    out = ffi.new("struct perf_counters *")
    assert lib.drain_read_perf(drain.handle, group, number, out) == 0
    return out
