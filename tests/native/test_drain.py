"""The drain's core, on rings in ordinary memory: what comes out, what is dropped and told, when a tick may be given."""

import gc
import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.rings import BUSY, DATA, DISCARD, FACT, LIFECYCLE, FakeDrain, FakeRing, guarded_pages, record

from tracehound.batch import Batch, split
from tracehound.btf import wire_layout

LAYOUT = wire_layout()
CLASSES = LAYOUT.enum("capture_class")
COUNTERS = LAYOUT.enum("loss_counter")
MS = 1_000_000
MIB = 1 << 20


def column(batches: list[Batch], kind: str, name: str) -> list[int]:
    """Return one column of one kind over all batches."""
    return [value for batch in batches if kind in batch.records for value in batch.records[kind].fixed[name].tolist()]


def taken(drain: FakeDrain) -> list[Batch]:
    """Take and split; nothing stays held."""
    return [split(arena, LAYOUT) for arena in drain.take()]


def test_records_come_out_as_they_were_put_lifecycle_first_the_tick_last() -> None:
    data, lifecycle = FakeRing(), FakeRing(ring=LIFECYCLE)
    with FakeDrain(data, lifecycle) as drain:
        put = [record("data", 1, b"one"), record("data", 2, b"eight888"), record("exec", 3, b"/bin/true")]
        data.put(put[0])
        data.put(put[1])
        lifecycle.put(put[2])
        drain.run_pass(5 * MS)
        arenas = [bytes(arena) for arena in drain.take()]
        assert arenas == [
            put[2],
            put[0] + put[1],
            record("fact_tick", 5 * MS)[:8] + bytes(8) + record("fact_tick")[16:],
        ]
        assert data.positions.tolist() == [data.positions[1]] * 2
        counters = drain.counters()
        assert (counters.data.records, counters.lifecycle.records, counters.passes) == (2, 1, 1)


def test_padding_of_a_record_is_zero_whatever_stood_in_the_ring() -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        at = ring.put(record("data", 1, b"abc")[:-5])
        assert at is not None
        ring.store(at + 8 + 91, b"\xff" * 5)
        drain.run_pass(1)
        assert bytes(drain.take()[0]) == record("data", 1, b"abc")


def test_a_record_may_be_shorter_than_its_place_in_the_ring() -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        ring.put(record("data", 1, b"abc") + bytes(4096))
        ring.put(record("data", 2))
        drain.run_pass(1)
        assert bytes(drain.take()[0]) == record("data", 1, b"abc") + record("data", 2)


def test_ticks_come_with_data_or_each_20_ms_and_tell_the_start_of_the_last_complete_pass() -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        times = []
        for now, with_data in [(100, True), (104, False), (119, False), (120, False), (124, True), (124, True)]:
            if with_data:
                ring.put(record("data"))
            drain.run_pass(now * MS)
            times.append([time // MS for time in column(taken(drain), "fact_tick", "time_ns")])
        assert times == [[100], [], [], [120], [124], []]


def test_a_record_still_being_written_holds_the_tick_back_and_nothing_else() -> None:
    busy, other = FakeRing(), FakeRing(ring=LIFECYCLE)
    with FakeDrain(busy, other) as drain:
        busy.put(record("data", 1))
        at = busy.put(record("data", 2), BUSY)
        assert at is not None
        busy.put(record("data", 3))
        other.put(record("fork", 4))
        drain.run_pass(100 * MS)
        batches = taken(drain)
        assert column(batches, "data", "time_ns") == [1]
        assert column(batches, "fork", "time_ns") == [4]
        assert column(batches, "fact_tick", "time_ns") == []
        assert busy.positions[0] == at
        busy.commit(at)
        drain.run_pass(130 * MS)
        batches = taken(drain)
        assert column(batches, "data", "time_ns") == [2, 3]
        assert column(batches, "fact_tick", "time_ns") == [130 * MS]
        assert drain.counters().busy_passes == 1


def test_what_the_kernel_side_gave_back_is_skipped() -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        ring.put(record("data", 1), DISCARD)
        ring.put(record("data", 2))
        drain.run_pass(1)
        assert column(taken(drain), "data", "time_ns") == [2]
        assert drain.counters().discarded == 1


@pytest.mark.parametrize(
    ("content", "length"),
    [(b"", 0), (bytes(31), 31), (record("data", size=31), -1), (record("data", size=1000), -1), (record("data"), 16)],
)
def test_a_damaged_record_is_counted_and_the_next_one_is_read(content: bytes, length: int) -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        ring.put(content if length < 0 else content[:length])
        ring.put(record("data", 2))
        drain.run_pass(1)
        assert column(taken(drain), "data", "time_ns") == [2]
        assert drain.counters().damaged == 1


def test_positions_that_cannot_be_skip_to_the_producer() -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        for consumer, producer in [(0, 1 << 20), (8, 0), (4, 100), (0, 1 << 63)]:
            ring.positions[:] = consumer, producer
            drain.run_pass(1)
            assert ring.positions[0] == producer
        assert drain.counters().damaged == 4


def test_arenas_outlive_the_drain() -> None:
    ring = FakeRing()
    with FakeDrain(ring) as drain:
        ring.put(record("data", 1, b"kept"))
        drain.run_pass(1)
        arenas = drain.take()
        view = arenas[0][8:]
    del arenas
    gc.collect()
    assert bytes(view) == record("data", 1, b"kept")[8:]


# ---- budgets ----------------------------------------------------------------------------------------


def test_each_step_of_capture_is_set_told_and_taken_back_one_at_a_time() -> None:
    limits = os.memfd_create("limits")
    os.ftruncate(limits, mmap.PAGESIZE)
    ring = FakeRing(1 << 16)
    with FakeDrain(ring, budget=16 * 8192, limit_fd=limits) as drain, mmap.mmap(limits, mmap.PAGESIZE) as word:
        seen, held = [], []

        def run_pass(now_ms: int) -> None:
            drain.run_pass(now_ms * MS)
            seen.append(struct.unpack_from("<I", word)[0])

        for now in range(100, 112):  # an arena is 8 KiB, a sixteenth of the budget
            ring.put(record("data", now, bytes(7900)))
            run_pass(now)
        held = drain.take()
        run_pass(2000)
        assert seen == [0] * 7 + [CLASSES["CAPTURE_HEAD_TAIL"]] * 4 + [CLASSES["CAPTURE_COUNT"]] * 2
        batches = [split(arena, LAYOUT) for arena in held]
        held.clear()
        seen.clear()
        for now in (3000, 3999, 4000, 4999, 5000, 6000):
            run_pass(now)
        assert seen == [3, 3, 2, 2, 0, 0]
        batches += taken(drain)
        changes = list(
            zip(
                *(column(batches, "fact_loss", name) for name in ("first_ns", "last_ns", "count", "counter")),
                strict=True,
            )
        )
        limited = COUNTERS["LOSS_CAPTURE_LIMITED"]
        assert [(first // MS, last // MS, count, counter) for first, last, count, counter in changes] == [
            (107, 107, 1, limited),
            (107, 111, 1, limited),
            (111, 4000, 1, limited),
            (4000, 5000, 1, limited),
        ]
        assert drain.counters().capture_limit_changes == 4
    os.close(limits)


def test_a_full_budget_drops_the_newest_tells_what_and_recovers() -> None:
    ring = FakeRing(1 << 16)
    with FakeDrain(ring, budget=16 * 4096) as drain:
        for number in range(30):
            ring.put(record("data", 1000 + number, bytes(3900), cpu=number % 2, ring_seq=number // 2))
            drain.run_pass(1000 + number)
        batches = taken(drain)
        assert column(batches, "data", "time_ns") == list(range(1000, 1016))
        fields = ("cpu", "first_seq", "last_seq", "count", "first_ns", "last_ns", "ring", "counter", "time_ns")
        drops = sorted(zip(*(column(batches, "fact_drop", name) for name in fields), strict=True))
        full = COUNTERS["LOSS_BACKLOG_FULL"]
        assert drops == [
            (0, 8, 14, 7, 1016, 1028, DATA, full, 1028),
            (1, 8, 14, 7, 1017, 1029, DATA, full, 1029),
        ]
        assert column(batches, "fact_tick", "time_ns") == [1029]
        ring.put(record("data", 2000, bytes(3900), ring_seq=15))
        drain.run_pass(2000)
        batches = taken(drain)
        assert (column(batches, "data", "time_ns"), column(batches, "fact_drop", "count")) == ([2000], [])
        assert drain.counters().data.dropped_records == 14


def test_two_gaps_with_records_between_them_are_told_as_two() -> None:
    ring = FakeRing(1 << 16)
    with FakeDrain(ring, budget=16 * 4096) as drain:

        def put(numbers: range) -> None:
            for number in numbers:
                ring.put(record("data", number, bytes(3900), ring_seq=number))
                drain.run_pass(number)

        put(range(100, 108))
        held = drain.take()
        put(range(108, 120))
        held.clear()
        put(range(120, 130))
        batches = taken(drain)
        assert column(batches, "data", "time_ns") == [*range(108, 116), *range(120, 128)]
        assert column(batches, "fact_drop", "first_seq") == [116, 128]
        assert column(batches, "fact_drop", "last_seq") == [119, 129]


def test_one_ring_full_does_not_touch_the_other() -> None:
    data, lifecycle = FakeRing(1 << 16), FakeRing(1 << 16, LIFECYCLE)
    with FakeDrain(data, lifecycle, budget=1 << 16) as drain:
        for number in range(100):
            data.put(record("data", number, bytes(4000), ring_seq=number))
            lifecycle.put(record("fork", number, ring_seq=number))
            drain.run_pass(number + 1)
        batches = taken(drain)
        assert column(batches, "fork", "time_ns") == list(range(100))
        assert len(column(batches, "data", "time_ns")) + sum(column(batches, "fact_drop", "count")) == 100


def test_memory_stays_flat_when_nobody_takes() -> None:
    ring = FakeRing(1 << 20)
    with FakeDrain(ring, budget=MIB) as drain:
        resident = []
        for number in range(300):
            while ring.put(record("data", number, bytes(16_000), cpu=number % 8, ring_seq=number)) is not None:
                pass
            drain.run_pass(number * 100 * MS + 1)
            resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE)
        assert drain.counters().data.held_peak_bytes <= MIB
        assert resident[-1] - resident[10] < MIB
        assert sum(arena.nbytes for arena in drain.take()) < 2 * MIB


# ---- any order of events ----------------------------------------------------------------------------------------


@dataclass
class Story:
    """What was produced, and what the drain gave."""

    put: dict[int, list[bytes]] = field(default_factory=lambda: {DATA: [], LIFECYCLE: []})
    got: dict[int, bytes] = field(default_factory=lambda: {DATA: b"", LIFECYCLE: b""})
    busy: dict[int, int | None] = field(default_factory=lambda: {DATA: None, LIFECYCLE: None})
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    drops: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    accounted: int = 0  # records delivered or told as dropped
    complete: int = 0  # records that were there at the last pass that met none unfinished

    def next_seq(self, ring: int, cpu: int) -> int:
        number = self.sequences.get((ring, cpu), 0)
        self.sequences[ring, cpu] = number + 1
        return number

    def after_pass(self) -> None:
        """Note what a tick may now speak for."""
        if not any(at is not None for at in self.busy.values()):
            self.complete = sum(map(len, self.put.values()))

    def hear(self, arenas: list[npt.NDArray[np.uint8]]) -> int:
        """Note what was taken; return how many ticks were in it."""
        ticks = 0
        for arena in arenas:
            batch = split(arena, LAYOUT)
            (ring,) = {int(one.fixed["kind"][0]) >> 8 for one in batch.records.values()}
            assert batch.damaged == 0
            if ring == FACT:
                ticks += len(batch.records.get("fact_tick", ()))
                columns = ("ring", "cpu", "first_seq", "last_seq", "count")
                self.drops += zip(*(column([batch], "fact_drop", name) for name in columns), strict=True)
                self.accounted += sum(column([batch], "fact_drop", "count"))
            else:
                assert not ticks
                self.got[ring] += bytes(arena)
                self.accounted += sum(map(len, batch.records.values()))
        if ticks:
            assert arenas[-1][-32:].tobytes()[20:22] == record("fact_tick")[20:22]
            assert self.accounted >= self.complete
        return ticks


@settings(max_examples=12_000)
@given(events=st.binary(max_size=60), budget_pages=st.integers(0, 24))
def test_delivered_and_told_as_dropped_is_all_that_was_produced(events: bytes, budget_pages: int) -> None:
    rings = {DATA: FakeRing(1 << 13), LIFECYCLE: FakeRing(1 << 12, LIFECYCLE)}
    story, now = Story(), 100 * MS
    with FakeDrain(*rings.values(), budget=budget_pages * 4096, lifecycle_budget=4 * 4096) as drain:
        held: list[npt.NDArray[np.uint8]] = []
        for event in events:
            now += 7 * MS
            ring = DATA if event & 1 else LIFECYCLE
            match event >> 5:
                case 0 | 1 | 2 | 3:
                    put_one(story, rings[ring], event, now)
                case 4 if story.busy[ring] is not None:
                    rings[ring].commit(story.busy[ring] or 0)
                    story.busy[ring] = None
                case 5:
                    drain.run_pass(now)
                    story.after_pass()
                case 6:
                    held += (arenas := drain.take())
                    assert story.hear(arenas) <= 1
                    del arenas
                case 7:
                    held.clear()
        for ring, at in story.busy.items():
            if at is not None:
                rings[ring].commit(at)
                story.busy[ring] = None
        drain.run_pass(now + 20 * MS)
        story.after_pass()
        assert story.hear(drain.take()) == 1
        check(story)


def put_one(story: Story, ring: FakeRing, event: int, now: int) -> None:
    """Put one record whose size, CPU and flags are bits of `event`."""
    cpu, size = event >> 1 & 1, (0, 3, 700, 3000)[event >> 5]
    flags = {0: DISCARD, 1: BUSY}.get(event >> 2 & 7, 0)
    if flags == BUSY and story.busy[ring.ring] is not None:
        flags = 0
    kind = "data" if ring.ring == DATA else "exec"
    one = record(kind, now, bytes(size), cpu, story.next_seq(ring.ring, cpu))
    at = ring.put(one, flags)
    if at is not None and flags == BUSY:
        story.busy[ring.ring] = at
    if at is not None and flags != DISCARD:
        story.put[ring.ring].append(one)


def check(story: Story) -> None:
    """Every record was delivered, in order, or is in exactly one told range of its ring and CPU."""
    for ring, put in story.put.items():
        rest, told = story.got[ring], 0
        for one in put:
            if rest.startswith(one):
                rest = rest[len(one) :]
                continue
            cpu, seq = struct.unpack_from("<HQ", one, 22)
            covering = [drop for drop in story.drops if drop[:2] == (ring, cpu) and drop[2] <= seq <= drop[3]]
            assert len(covering) == 1
            told += 1
        assert rest == b""
        assert told == sum(drop[4] for drop in story.drops if drop[0] == ring)


GUARDED = guarded_pages(2)
LENGTHS = [4080, 4088, 4096, BUSY | 32, DISCARD | 32, DISCARD - 1, BUSY - 1]


@settings(max_examples=12_000)
@given(
    content=st.binary(max_size=400),
    words=st.lists(st.tuples(st.integers(0, 511), st.integers(0, 200) | st.sampled_from(LENGTHS)), max_size=8),
    consumer=st.integers(0, 1 << 10),
    waiting=st.one_of(st.integers(0, 512), st.integers(-(1 << 61), 1 << 61)),
)
def test_any_bytes_in_a_ring_are_read_within_bounds(
    content: bytes, words: list[tuple[int, int]], consumer: int, waiting: int
) -> None:
    ring = FakeRing(len(GUARDED) // 2, data=GUARDED)
    ring.store(8 * consumer, content)
    for at, word in words:
        ring.store(8 * (consumer + at), struct.pack("<I", word))
    ring.positions[:] = 8 * consumer, 8 * (consumer + waiting) % (1 << 64)
    with FakeDrain(ring, budget=1 << 15) as drain:
        drain.run_pass(1)
        counters, moved = drain.counters(), 0
        for arena in drain.take():
            batch = split(arena, LAYOUT)
            moved += sum(len(one) for name, one in batch.records.items() if not name.startswith("fact_"))
        assert moved <= counters.data.records
        assert counters.busy_passes or ring.positions[0] == ring.positions[1]
