"""The drain thread over rings in files that are laid out as the kernel's: no root needed."""

import gc
import mmap
import os
import select
import struct
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from tests.native.rings import DATA, LIFECYCLE, FakeRing, record

from tracehound.batch import Merge, split
from tracehound.btf import wire_layout
from tracehound.errors import KernelError
from tracehound.kernel.ring import Drain

LAYOUT = wire_layout()
PAGE = mmap.PAGESIZE


class FileRing(FakeRing):
    """A fake ring in a file: what `Drain` maps as it maps a BPF ring buffer."""

    def __init__(self, size: int = 1 << 16, ring: int = DATA) -> None:
        self.fd = os.memfd_create("ring")
        os.ftruncate(self.fd, 2 * PAGE + 2 * size)
        self.memory = np.frombuffer(mmap.mmap(self.fd, 0), np.uint8)
        super().__init__(size, ring, self.memory[2 * PAGE :])
        self.consumer, self.producer = (self.memory[page * PAGE :][:8].view(np.uint64) for page in (0, 1))

    def put(self, content: bytes, flags: int = 0, length: int = -1) -> int | None:
        """Write one record; the producer's position last."""
        self.positions[0] = self.consumer[0]
        at = super().put(content, flags, length)
        self.producer[0] = self.positions[1]
        return at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def row(self) -> tuple[int, int, int]:
        """Return what Drain wants to know."""
        return self.fd, self.size, self.ring


def threads() -> list[str]:
    """Return the names of this process's threads."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def test_the_thread_reads_wakes_and_ends() -> None:
    with FileRing() as ring, Drain([ring.row()], period_us=1000) as drain:
        assert "hound-drain" in threads()
        ring.put(record("data", 1, b"hello"))
        assert select.select([drain.wake_fd], [], [], 5)[0]
        arenas = drain.take()
        assert bytes(arenas[0]) == record("data", 1, b"hello")
        (tick,) = split(arenas[-1], LAYOUT).records["fact_tick"].fixed["time_ns"].tolist()
        assert 0 <= time.monotonic_ns() - tick < 5_000_000_000
        assert not select.select([drain.wake_fd], [], [], 0)[0]
        drain.stop()
        assert "hound-drain" not in threads()


def test_stop_reads_a_last_time_and_what_waits_can_still_be_taken() -> None:
    with FileRing() as ring, Drain([ring.row()], period_us=10_000_000) as drain:
        time.sleep(0.02)
        ring.put(record("data", 1))
        drain.stop()
        drain.stop()
        assert bytes(drain.take()[0]) == record("data", 1)
        assert drain.take() == []


def test_a_forced_wake_is_not_needed_for_the_period_to_end() -> None:
    with FileRing() as ring, Drain([ring.row()], period_us=1000) as drain:
        deadline = time.monotonic() + 5
        while drain.counters()["passes"] < 5:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.mark.parametrize("size", [0, 4095, 12_288])
def test_a_ring_that_cannot_be_mapped_is_one_clear_error(size: int) -> None:
    with FileRing() as ring, pytest.raises(KernelError, match=f"cannot map ring 2 of {size} bytes: Invalid argument"):
        Drain([(ring.fd, size, DATA)])


def test_a_closed_descriptor_is_one_clear_error_and_leaves_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KernelError, match="Bad file descriptor"):
        Drain([(1 << 20, 4096, DATA)])
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_leaves_no_descriptor_and_no_mapping_but_held_arenas() -> None:
    with FileRing() as ring:
        before = len(os.listdir("/proc/self/fd"))
        drain = Drain([ring.row()])
        ring.put(record("data", 1, b"kept"))
        drain.stop()
        arenas = drain.take()
        drain.close()
        drain.close()
        assert len(os.listdir("/proc/self/fd")) == before
        del ring.memory, ring.data, ring.consumer, ring.producer
        gc.collect()
        assert "memfd:ring" not in Path("/proc/self/maps").read_text()
        assert bytes(arenas[0]) == record("data", 1, b"kept")


def test_a_slow_taker_under_load_loses_nothing_that_is_not_told() -> None:
    """A producer thread as fast as Python can, a taker that holds what it took: delivered + dropped = produced."""
    produced = 0

    def produce() -> None:
        nonlocal produced
        while not done.is_set():
            if (
                ring.put(record("data", time.monotonic_ns(), bytes(produced % 3000), produced % 3, produced // 3))
                is not None
            ):
                produced += 1

    done = threading.Event()
    with FileRing(1 << 16) as ring, Drain([ring.row()], budget_bytes=256 << 10, period_us=1000) as drain:
        producer = threading.Thread(target=produce)
        producer.start()
        merge, held, batches = Merge(LAYOUT), [], []
        for turn in range(30):
            time.sleep(0.02)
            held += drain.take()
            if turn % 6 == 5:
                batches += [split(arena, LAYOUT) for arena in held]
                held.clear()
        done.set()
        producer.join()
        drain.stop()
        batches += [split(arena, LAYOUT) for arena in [*held, *drain.take()]]
        for batch in batches:
            merge.push(batch)
        whole = merge.flush()
        counters = drain.counters()
    assert whole is not None
    keys = whole.records["data"].fixed[["cpu", "ring_seq"]].tolist()
    told: set[tuple[int, int]] = set()
    for drop in whole.records["fact_drop"].fixed:
        told |= {(int(drop["cpu"]), seq) for seq in range(int(drop["first_seq"]), int(drop["last_seq"]) + 1)}
    assert counters["data_dropped_records"] == len(told) > 0
    assert len(set(keys)) == len(keys)
    assert set(keys) | told == {(number % 3, number // 3) for number in range(produced)}
    assert not set(keys) & told
    assert counters["data_held_peak_bytes"] <= 256 << 10


def test_rings_of_both_kinds_have_counters_of_their_own() -> None:
    with FileRing() as data, FileRing(ring=LIFECYCLE) as lifecycle, Drain([data.row(), lifecycle.row()]) as drain:
        data.put(record("data", 1))
        lifecycle.put(record("fork", 1))
        lifecycle.put(struct.pack("<I", 1) * 4)
        drain.close()
        counters = drain.counters()
        assert (counters["data_records"], counters["lifecycle_records"], counters["damaged"]) == (1, 1, 1)
        assert drain.take() == []
