"""Events of perf rings, in ordinary memory, to records: every field combination, wraps, lies, losses, noise."""

import errno
import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.perf_rings import (
    COMM,
    COMM_EXEC,
    LOST,
    LOST_SAMPLES,
    MMAP2,
    MMAP_BUILD_ID,
    REGISTERS,
    SAMPLE,
    STACK,
    FakePerf,
    Sample,
    Shape,
    add_group,
    event,
    perf_counters,
    sample_id,
    words,
)
from tests.native.rings import FakeDrain, FakeRing, guarded_pages, record

from tracehound.batch import split
from tracehound.btf import wire_layout

LAYOUT = wire_layout()
ALL = Shape(REGISTERS, 64, True)


def records_of(drain: FakeDrain) -> bytes:
    """Read the rings once and return what came out but for facts."""
    drain.run_pass(100)
    arenas = [bytes(arena) for arena in drain.take()]
    return b"".join(arena for arena in arenas if arena[20:22] != b"\x01\x03")


SHAPES = [
    Shape(registers, stack, chain)
    for registers, stack, chain in itertools.product((0, REGISTERS, 0b101), (0, 64, 65232), (False, True))
]
SAMPLES = [
    Sample(abi=abi, slots=range(2 * slots), chain=range(links), stack=bytes([7]) * readable, asked=asked)
    for abi, slots, links, (readable, asked) in itertools.product(
        (0, 1, 2), (0, 1, 16), (0, 5), ((0, 0), (0, 64), (57, 64), (64, 64))
    )
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_field_combination_at_every_kind_of_place(shape: Shape) -> None:
    """Rings begin at other places, so that each event wraps somewhere, or not."""
    count = bin(shape.registers).count("1")
    for at in (0, 8, 4096 - 8, 4096 - 24, 4096 - 80, (1 << 64) - 4096 - 512):
        ring = FakePerf(shape, at=at)
        with FakeDrain() as drain:
            group = add_group(drain, ring)
            for number, each in enumerate(SAMPLES):
                sample = Sample(
                    call=number, abi=each.abi, slots=each.slots, chain=each.chain,
                    registers=range(1, count + 1), stack=each.stack, asked=each.asked, ring_seq=number,
                )  # fmt: skip
                assert ring.put(sample.event(shape))
                assert records_of(drain) == sample.record(shape), (at, sample)
            counters = perf_counters(drain, group)
            assert (counters.records, counters.malformed, counters.passed_over) == (len(SAMPLES), 0, 0)
            assert ring.positions[0] == ring.positions[1]


def test_the_largest_event_is_one_record() -> None:
    shape = Shape(REGISTERS, 65528)
    ring = FakePerf(shape, 1 << 17, at=(1 << 17) - 4096)
    largest = Sample(registers=range(20), stack=bytes(range(256)) * 254, asked=65232, slots=range(2))
    assert len(largest.event(shape)) <= 65535
    with FakeDrain() as drain:
        add_group(drain, ring)
        assert ring.put(largest.event(shape))
        assert records_of(drain) == largest.record(shape)


def lies() -> dict[str, bytes]:
    """Return events that cannot be, of shape ALL."""
    good = Sample(registers=range(20), stack=bytes(64), asked=64)
    body = good.event(ALL)[8:]
    chain, raw, registers = body[:8], body[8:88], body[88:256]
    assert len(raw) == 4 + 76 and len(registers) == 8 * 21
    stack = words([64]) + bytes(64)
    return {
        "nothing": b"",
        "chain behind the end": words([1 << 40]) + body[8:],
        "chain cut": words([200]) + body[8:],
        "raw cut": chain + struct.pack("<I", 5000) + raw[4:],
        "raw too short": chain + struct.pack("<I", 68) + raw[4:72] + registers + stack + words([64]),
        "slots behind the raw part": chain + raw[:4] + good.head(slot_count=1) + bytes(4) + registers,
        "raw too long": chain + struct.pack("<I", 84) + raw[4:] + bytes(8) + registers + stack + words([64]),
        "another kind": chain + raw[:4] + record("data")[:72] + bytes(4) + registers + stack + words([64]),
        "abi 3": chain + raw + words([3]) + registers[8:] + stack + words([64]),
        "registers cut": chain + raw + words([2, 1, 2]),
        "readable more than copied": chain + raw + registers + stack + words([65]),
        "stack cut": chain + raw + registers + words([72]) + bytes(64),
        "without readable": chain + raw + registers + stack,
        "more behind it": body + words([0]),
    }


@pytest.mark.parametrize("what", list(lies()))
def test_a_malformed_event_is_counted_and_the_next_one_is_read(what: str) -> None:
    good = Sample(call=2, registers=range(20), stack=bytes(64), asked=64)
    for at in (0, 4096 - 16):
        ring = FakePerf(ALL, at=at)
        with FakeDrain() as drain:
            group = add_group(drain, ring)
            assert ring.put(event(SAMPLE, lies()[what])) and ring.put(good.event(ALL))
            assert records_of(drain) == good.record(ALL)
            counters = perf_counters(drain, group)
            assert (counters.records, counters.malformed, counters.error) == (1, 1, 0)


def test_what_the_kernel_says_was_lost() -> None:
    ring = FakePerf(Shape(), at=4096 - 8)
    with FakeDrain() as drain:
        group = add_group(drain, ring)
        for content in (event(LOST, words([3, 170])), event(LOST_SAMPLES, words([5])), event(LOST, words([3]))):
            assert ring.put(content)
        assert ring.put(event(COMM, bytes(24))) and ring.put(event(77, bytes(8)))
        assert records_of(drain) == b""
        counters = perf_counters(drain, group)
        assert (counters.lost, counters.malformed, counters.passed_over) == (175, 1, 2)


@pytest.mark.parametrize("size", [0, 7, 12, 4096, 65528])
def test_a_size_that_cannot_be_ends_the_pass_and_when_that_lasts_the_ring(size: int) -> None:
    bad, good = FakePerf(Shape()), FakePerf(Shape())
    with FakeDrain() as drain:
        group = add_group(drain, bad, good)
        for number in range(3):
            sample = Sample(call=number)
            assert bad.put(sample.event(Shape())) is (number >= 0)
            bad.put(event(SAMPLE, bytes(16), size=size))
            good.put(sample.event(Shape()))
            found = records_of(drain)
            # the one before it is read; a pass that reads one well begins to count anew
            assert found == 2 * sample.record(Shape()), number
        assert perf_counters(drain, group, 0).error == 0
        for number in range(4):
            bad.put(event(SAMPLE, bytes(16), size=size))
            good.put(Sample(call=number).event(Shape()))
            assert records_of(drain) == Sample(call=number).record(Shape())
        counters = perf_counters(drain, group, 0)
        assert (counters.error, counters.malformed) == (errno.EBADMSG, 5)
        assert perf_counters(drain, group, 1).error == 0


def test_positions_that_cannot_be() -> None:
    ring = FakePerf(Shape())
    with FakeDrain() as drain:
        group = add_group(drain, ring)
        for head, tail in [(1 << 20, 0), (12, 0)]:
            ring.positions[:] = head, tail
            assert records_of(drain) == b""
            assert ring.positions[1] == head
        assert perf_counters(drain, group).malformed == 2


def test_when_the_budget_is_used_up_the_newest_are_dropped_and_told() -> None:
    shape = Shape(0, 4096)
    ring = FakePerf(shape, 1 << 16)
    with FakeDrain() as drain:
        group = add_group(drain, ring, budget=1 << 18)
        for number in range(100):
            sample = Sample(stack=bytes(4096), asked=4096, cpu=3, ring_seq=number, time_ns=number + 1)
            assert ring.put(sample.event(shape))
            drain.run_pass(number + 1)
        batches = [split(arena, LAYOUT) for arena in drain.take()]
        kept = [seq for batch in batches if "call_stack" in batch.records for seq in
                batch.records["call_stack"].fixed["ring_seq"].tolist()]  # fmt: skip
        drops = [drop for batch in batches if "fact_drop" in batch.records for drop in batch.records["fact_drop"].fixed]
        assert kept == list(range(len(kept))) and 40 < len(kept) < 60
        assert [(int(d["ring"]), int(d["cpu"]), int(d["first_seq"]), int(d["last_seq"])) for d in drops] == [
            (STACK, 3, len(kept), 99)
        ]
        assert sum(int(drop["count"]) for drop in drops) + len(kept) == 100
        counters = drain.counters()
        assert counters.stack.records == len(kept) and counters.stack.dropped_records == 100 - len(kept)
        assert counters.capture_limit == 0  # stacks do not take the room of data
        assert perf_counters(drain, group).records == 100


def mapping_event(path: bytes, misc: int = 0, pid: int = 7) -> bytes:
    body = struct.pack("<IIQQQIIQQII", pid, 8, 0x1000, 0x2000, 0x3000, 8, 1, 77, 78, 5, 2)
    return event(MMAP2, body + path + sample_id(pid), misc)


def test_side_band_becomes_mappings() -> None:
    shape = Shape(is_sideband=True)
    ring = FakePerf(shape, at=4096 - 48)
    with FakeDrain() as drain:
        group = add_group(drain, ring)
        for content in (
            event(COMM, struct.pack("<II16s", 7, 8, b"new") + sample_id(), COMM_EXEC),
            mapping_event(b"/bin/true".ljust(16, b"\0")),
            mapping_event(b"[vdso]\0\0", MMAP_BUILD_ID),
            event(COMM, struct.pack("<II16s", 7, 8, b"renamed") + sample_id()),
            mapping_event(b"unended!"),
            event(MMAP2, bytes(16)),
            event(SAMPLE, bytes(16)),
        ):
            assert ring.put(content)
        (batch,) = (split(arena, LAYOUT) for arena in [records_of(drain)])
        found = batch.records["fact_mapping"]
        names = ("start", "end", "offset", "inode", "inode_generation", "device_major", "device_minor", "flags")
        assert [tuple(int(row[name]) for name in names) for row in found.fixed] == [
            (0, 0, 0, 0, 0, 0, 0, 2),
            (0x1000, 0x3000, 0x3000, 77, 78, 8, 1, 4),
            (0x1000, 0x3000, 0x3000, 0, 0, 0, 0, 0),
        ]
        assert found.tails == b"/bin/true[vdso]"
        assert found.fixed[["pid", "tid", "time_ns", "cpu"]].tolist() == [(7, 8, 5, 1)] * 3
        assert found.fixed["protection"].tolist() == [0, 5, 5]
        counters = perf_counters(drain, group)
        assert (counters.records, counters.passed_over, counters.malformed) == (3, 2, 2)


def test_records_of_bpf_rings_and_perf_rings_come_together_before_the_tick() -> None:
    data, perf = FakeRing(), FakePerf(Shape())
    with FakeDrain(data) as drain:
        add_group(drain, perf)
        data.put(record("data", 1, b"one"))
        perf.put(Sample().event(Shape()))
        drain.run_pass(50_000_000)
        kinds = [kind for arena in drain.take() for kind in split(arena, LAYOUT).records]
        assert kinds == ["data", "call_stack", "fact_tick"]


def mutated() -> st.SearchStrategy[bytes]:
    """Events with some bytes changed, or of nothing but noise."""
    good = [
        Sample(registers=range(20), stack=bytes(40), asked=64, chain=(1, 2), slots=range(4)).event(ALL),
        Sample(abi=0, asked=0).event(ALL),
        event(LOST, words([1, 2])),
        mapping_event(b"/bin/true".ljust(16, b"\0")),
    ]

    def change(content: bytes, changes: list[tuple[int, int]]) -> bytes:
        changed = bytearray(content)
        for place, value in changes:
            changed[place % len(changed)] = value
        return bytes(changed)

    places = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4)
    noise = st.binary(min_size=8, max_size=128).map(lambda raw: raw + bytes(-len(raw) % 8))
    return st.one_of(st.builds(change, st.sampled_from(good), places), noise)


@settings(max_examples=300, deadline=None)
@given(st.lists(mutated(), min_size=1, max_size=12), st.integers(0, 511), st.booleans())
def test_no_bytes_crash_it_and_what_comes_out_is_well_formed(contents: list[bytes], at: int, sideband: bool) -> None:
    shape = Shape(is_sideband=True) if sideband else ALL
    ring = FakePerf(shape, at=8 * at, data=guarded_pages(1))
    with FakeDrain() as drain:
        group = add_group(drain, ring)
        records = 0
        for content in contents:
            ring.put(content)
            batch = split(records_of(drain), LAYOUT)
            assert batch.damaged == 0
            assert set(batch.records) <= {"call_stack", "fact_mapping"}
            records += sum(map(len, batch.records.values()))
            for row in batch.records["call_stack"].fixed if "call_stack" in batch.records else ():
                told = 8 * (int(row["register_count"]) + int(row["chain_count"]) + 2 * int(row["slot_count"]))
                assert int(row["size"]) == 72 + told + int(row["stack_size"])
                assert row["stack_size"] <= row["stack_asked"]
        counters = perf_counters(drain, group)
        assert counters.records == records
        assert bool(np.all(ring.positions[0] == ring.positions[1])) or counters.error
