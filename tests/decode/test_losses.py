"""Numbers of records in, `losses` rows out: every lost number in exactly one row."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.batches import LAYOUT, Record, batch, cut, one, rows

from tracehound.decode.losses import Loss, Losses, Rises, loss_rows
from tracehound.decode.settings import DecodeSettings

MS = 1_000_000
DATA_RING = LAYOUT.enum("ring_id")["RING_DATA"]
LOSS = LAYOUT.enum("loss_counter")


def data(time_ns: int, number: int, cpu: int = 0) -> Record:
    return one("data", time_ns, cpu=cpu, ring_seq=number)


def drop(time_ns: int, first: int, last: int, count: int, cpu: int = 0, **fields: Any) -> Record:
    what: dict[str, Any] = {
        "ring": DATA_RING,
        "counter": LOSS["LOSS_BACKLOG_FULL"],
        "first_seq": first,
        "last_seq": last,
        "count": count,
    }
    return one("fact_drop", time_ns, cpu=cpu, **(what | fields))


def mark(time_ns: int, next_seq: int, cpu: int = 0) -> Record:
    return one("fact_ring", time_ns, cpu=cpu, ring=DATA_RING, next_seq=next_seq)


def lost(records: list[Record], watermarks: list[int]) -> list[Loss]:
    losses = Losses(LAYOUT, DecodeSettings())
    found = [loss for part in cut(records, watermarks) for loss in losses.decode(part)]
    return found + losses.finish()


def gap(count: int, first_ns: int, last_ns: int, cpu: int = 0) -> Loss:
    return Loss("ring", "ring_full", count, first_ns, last_ns, cpu)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([data(10, 0), data(20, 1), data(30, 2)], [], id="nothing lost"),
        pytest.param([data(10, 0), data(20, 3), data(30, 4)], [gap(2, 10, 20)], id="one gap"),
        pytest.param([data(10, 2), data(20, 3)], [gap(2, 10, 10)], id="the first ones"),
        pytest.param([data(10, 0), data(11, 2), data(12, 1)], [], id="out of order"),
        pytest.param([data(10, 0), data(11, 2), data(11 + 200 * MS, 1)], [], id="just in time"),
        pytest.param([data(10, 0), data(11, 2), data(12 + 200 * MS, 1)], [gap(1, 10, 11)], id="too late"),
        pytest.param([data(10, 0, 0), data(11, 0, 3), data(12, 2, 3)], [gap(1, 11, 12, 3)], id="each cpu its own"),
        pytest.param(
            [data(10, 0), one("exec", 11), one("exec", 12, ring_seq=2)], [gap(1, 11, 12)], id="each ring its own"
        ),
        pytest.param([data(10, 0), mark(90, 5)], [gap(4, 10, 90)], id="a lost tail"),
        pytest.param([mark(90, 5)], [gap(5, 90, 90)], id="all lost"),
        pytest.param([mark(90, 0)], [], id="nothing ever written"),
        pytest.param([data(10, 0), mark(20, 1), data(30, 1), mark(40, 2)], [], id="marks on the way"),
        pytest.param(
            [data(10, 0), drop(50, 1, 4, 4, first_ns=12, last_ns=18), data(60, 5)],
            [Loss("drain", "backlog_full", 4, 12, 18, 0)],
            id="thrown away by the drain",
        ),
        pytest.param(
            [data(10, 0), drop(50, 2, 6, 3, first_ns=12, last_ns=18), data(15, 4), data(60, 9)],
            [Loss("drain", "backlog_full", 3, 12, 18, 0), gap(1, 10, 12), gap(1, 12, 18), gap(2, 18, 60)],
            id="gaps before, in and after what was thrown away, one survived",
        ),
        pytest.param(
            [drop(50, 0, 2, 3, first_ns=1, last_ns=2), drop(60, 3, 9, 7, first_ns=3, last_ns=4), mark(90, 10)],
            [Loss("drain", "backlog_full", 3, 1, 2, 0), Loss("drain", "backlog_full", 7, 3, 4, 0)],
            id="all thrown away",
        ),
        pytest.param(
            [one("fact_tick", 5, ring_seq=9), one("fact_tick", 6, ring_seq=50)], [], id="facts are not checked"
        ),
    ],
)
def test_numbers(records: list[Record], expected: list[Loss]) -> None:
    for watermarks in ([], [10, 20, 30, 40], [11], [MS], list(range(0, 100, 5)), [100 * MS, 201 * MS, 500 * MS]):
        assert sorted(lost(records, watermarks)) == sorted(expected)


@pytest.mark.parametrize(
    ("counter", "expected"),
    [
        ("LOSS_FAULT", [Loss("kernel", "fault", 9, 1, 2)]),
        ("LOSS_OPAQUE_BYTES", [Loss("kernel", "opaque_bytes", 9, 1, 2)]),
        ("LOSS_STORAGE_FULL", [Loss("kernel", "storage_full", 9, 1, 2)]),
        ("LOSS_CAPTURE_LIMITED", [Loss("capture", "capture_limited", 9, 1, 2)]),
        ("LOSS_RING_FULL", []),  # the missing numbers tell it
        ("LOSS_BACKLOG_FULL", []),
    ],
)
def test_counters_of_the_kernel(counter: str, expected: list[Loss]) -> None:
    fact = one("fact_loss", 5, counter=LOSS[counter], count=9, first_ns=1, last_ns=2)
    assert lost([fact], []) == expected


def test_steps_of_the_clock() -> None:
    hour = 3_600_000 * MS
    anchors = [
        (0, 5_000 * MS),
        (1_000 * MS, 6_000 * MS + 400_000),
        (2_000 * MS, 7_000 * MS + hour),
        (3_000 * MS, 8_000 * MS + hour),
    ]
    facts = [one("fact_clock", at, monotonic_ns=at, realtime_ns=wall) for at, wall in anchors]
    assert lost(facts, []) == [Loss("clock", "clock_step", 1, 1_000 * MS, 2_000 * MS)]


def test_rows() -> None:
    table = loss_rows([gap(2, 10, 20, 3), ("stream", "gap", 512, 11, 12, None, 1793)])
    assert rows(table, "time_ns", "stage", "counter", "count", "first_ns", "last_ns", "cpu", "connection") == [
        (20, "ring", "ring_full", 2, 10, 20, 3, None),
        (12, "stream", "gap", 512, 11, 12, None, 1793),
    ]
    assert loss_rows([]).num_rows == 0


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),  # 0: lost; 1: thrown away; else delivered
    st.lists(st.integers(0, 30 * MS), min_size=60, max_size=60),
    st.lists(st.integers(0, 900 * MS), max_size=6),
)
def test_the_sum_is_exact_for_any_cut(fates: list[int], delays: list[int], watermarks: list[int]) -> None:
    records = [data(number * 10 * MS + delays[number], number) for number, fate in enumerate(fates) if fate > 1]
    run: list[int] = []
    for number, fate in enumerate([*fates, 0]):
        if fate == 1:
            run.append(number)
        elif run:
            at = run[-1] * 10 * MS
            records.append(drop(at + MS, run[0], run[-1], len(run), first_ns=run[0] * 10 * MS, last_ns=at))
            run = []
    records.append(mark(len(fates) * 10 * MS + 40 * MS, len(fates)))
    found = lost(records, watermarks)
    assert sum(loss.lost for loss in found if loss.counter == "ring_full") == fates.count(0)
    assert sum(loss.lost for loss in found if loss.counter == "backlog_full") == fates.count(1)
    assert all(loss.lost > 0 and loss.first_ns <= loss.last_ns for loss in found if loss.counter == "backlog_full")
    assert found == lost(records, [])


def test_many_records_are_columns() -> None:
    numbers = [number for number in range(100_000) if number % 1_000]
    numbers = [numbers[at ^ 1] if at ^ 1 < len(numbers) else numbers[at] for at in range(len(numbers))]
    batches = [
        batch([data(n * 100, n) for n in numbers[at : at + 10_000]], numbers[at] * 100)
        for at in range(0, len(numbers), 10_000)
    ]
    losses = Losses(LAYOUT, DecodeSettings())
    started = time.process_time()
    found = [loss for part in batches for loss in losses.decode(part)] + losses.finish()
    assert time.process_time() - started < 1
    assert sum(loss.lost for loss in found) == 100


def test_records_of_iterators_have_no_number_and_are_no_loss() -> None:
    seeds = [one("exec", n * MS, ring_seq=(1 << 64) - 1) for n in (1, 2, 3)]
    assert lost([data(1, 0), *seeds, data(4 * MS, 1)], [2 * MS]) == []
    assert lost(seeds, []) == []


def test_counters_that_rose_are_told_once() -> None:
    rises = Rises(100)
    late, damaged = ("merge", "late"), ("split", "damaged")
    assert rises.take({late: 0, damaged: 2}, 200) == [Loss(*damaged, 2, 100, 200)]
    assert rises.take({late: 0, damaged: 2}, 300) == []
    assert rises.take({late: 1, damaged: 5}, 400) == [Loss(*late, 1, 300, 400), Loss(*damaged, 3, 300, 400)]
