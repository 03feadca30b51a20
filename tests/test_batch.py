"""The merge: one total order, the same however the stream is cut."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.rings import HEADER, record

from tracehound.batch import MERGE_LAG_NS, Batch, Merge, Records, in_parts, split
from tracehound.btf import wire_layout

LAYOUT = wire_layout()
LAG = MERGE_LAG_NS
Row = tuple[int, int, int, bytes]  # time_ns, cpu, ring_seq, tail
Rows = dict[str, list[Row]]


def rows(batches: Iterable[Batch | None]) -> Rows:
    """Return the records of all batches by kind, in the order in which they came."""
    found: Rows = {}
    for batch in batches:
        for name, one in batch.records.items() if batch else ():
            columns = (one.fixed[field].tolist() for field in ("time_ns", "cpu", "ring_seq"))
            tails = (one.tails[one.offsets[i] : one.offsets[i + 1]] for i in range(len(one)))
            found.setdefault(name, []).extend(zip(*columns, tails, strict=True))
    return found


def tick(time_ns: int) -> bytes:
    return record("fact_tick", time_ns)


def merge(*parts: bytes) -> tuple[list[Batch | None], Merge]:
    """Push each part as a batch, take after each, flush at the end."""
    merge = Merge(LAYOUT)
    batches: list[Batch | None] = []
    for part in parts:
        merge.push(split(part, LAYOUT))
        batches.append(merge.take())
    batches.append(merge.flush())
    return batches, merge


def test_records_come_out_in_time_order_once_they_are_complete() -> None:
    data = record("data", LAG + 30, b"b", ring_seq=1) + record("data", LAG + 10, b"a", ring_seq=0)
    batches, merged = merge(data, tick(2 * LAG + 20), record("data", LAG + 25, b"x", cpu=1) + tick(2 * LAG + 30))
    assert [None if batch is None else batch.watermark_ns for batch in batches] == [
        None,
        LAG + 20,
        LAG + 30,
        2 * LAG + 30,
    ]
    assert [rows([batch]) for batch in batches] == [
        {},
        {"data": [(LAG + 10, 0, 0, b"a")]},
        {"data": [(LAG + 25, 1, 0, b"x"), (LAG + 30, 0, 1, b"b")]},
        {"fact_tick": [(2 * LAG + 20, 0, 0, b""), (2 * LAG + 30, 0, 0, b"")]},
    ]
    assert merged.late == 0


def test_equal_times_are_ordered_by_cpu_then_by_sequence() -> None:
    keys = [(5, 1, 0), (5, 0, 7), (5, 0, 3), (4, 9, 9), (5, 1, 0)]
    batches, _ = merge(*(record("data", time, b"%d" % i, cpu, seq) for i, (time, cpu, seq) in enumerate(keys)))
    assert rows(batches)["data"] == [
        (4, 9, 9, b"3"),
        (5, 0, 3, b"2"),
        (5, 0, 7, b"1"),
        (5, 1, 0, b"0"),
        (5, 1, 0, b"4"),
    ]


def test_a_late_record_is_counted_and_comes_with_the_next_batch() -> None:
    batches, merged = merge(
        record("data", 100) + tick(LAG + 200),
        record("data", 150, b"late") + record("data", 201, b"in time"),
        tick(LAG + 300),
    )
    assert [rows([batch]).get("data") for batch in batches] == [
        [(100, 0, 0, b"")],
        None,
        [(150, 0, 0, b"late"), (201, 0, 0, b"in time")],
        None,
    ]
    assert merged.late == 1


def test_a_tick_within_a_batch_does_not_make_what_stood_before_it_late() -> None:
    _, merged = merge(record("data", 100) + tick(LAG + 200) + record("data", 150))
    assert merged.late == 1
    _, merged = merge(record("data", 150) + record("data", 100) + tick(LAG + 200))
    assert merged.late == 0


def test_nothing_in_nothing_out() -> None:
    merged = Merge(LAYOUT)
    merged.push(split(b"", LAYOUT))
    assert merged.take() is None
    assert merged.flush() is None


def test_a_batch_made_by_hand_can_be_merged() -> None:
    made = split(record("data", 3, b"c") + record("data", 1, b"a"), LAYOUT).records["data"]
    merged = Merge(LAYOUT)
    merged.push(Batch({"data": Records(made.fixed, made.offsets, made.tails)}))
    assert rows([merged.flush()]) == {"data": [(1, 0, 0, b"a"), (3, 0, 0, b"c")]}


def test_times_of_any_size_are_merged() -> None:
    last = (1 << 64) - 1
    batches, _ = merge(record("data", last) + tick(last), record("data", 1 << 63), record("data", 1) + tick(last - 1))
    assert [row[0] for row in rows(batches)["data"]] == [1, 1 << 63, last]


def test_damage_is_summed_up() -> None:
    _, merged = merge(record(0x2FF), record("data", size=5))
    assert merged.damaged == 2


# ---- however it is cut ----------------------------------------------------------------------------------------

ONE = st.tuples(
    st.sampled_from(["data", "data", "fork", "exec", "fact_tick"]),
    st.integers(0, 60),  # time, in ms/4: several lags
    st.integers(0, 2),
    st.integers(0, 3),
    st.binary(max_size=3),
)


def merge_slowly(stream: list[bytes]) -> Rows:
    """Return what must come out: at each rise of the watermark all that came before it and is not younger, sorted."""
    kinds = LAYOUT.kinds
    found: Rows = {}
    waiting: list[tuple[tuple[int, int, int], str, bytes]] = []
    watermark = -1

    def put_out(until: int) -> None:
        waiting.sort(key=lambda item: item[0])
        while waiting and waiting[0][0][0] <= until:
            (time, cpu, seq), name, tail = waiting.pop(0)
            found.setdefault(name, []).append((time, cpu, seq, tail))

    for one in stream:
        time, _, _, size, kind, cpu, seq = HEADER.unpack_from(one)
        waiting.append(((time, cpu, seq), kinds[kind], one[LAYOUT.dtypes[kinds[kind]].itemsize : size]))
        if kinds[kind] == "fact_tick" and time - LAG > watermark:
            watermark = time - LAG
            put_out(watermark)
    put_out(1 << 64)
    return found


@settings(max_examples=6_000)
@given(items=st.lists(ONE, max_size=25), cuts=st.sets(st.integers(1, 24)), takes=st.integers(0, (1 << 25) - 1))
def test_the_result_does_not_depend_on_how_the_stream_is_cut(
    items: list[tuple[str, int, int, int, bytes]], cuts: set[int], takes: int
) -> None:
    stream = [
        record(kind, time * LAG // 8, tail if kind in ("data", "exec") else b"", cpu, seq)
        for kind, time, cpu, seq, tail in items
    ]
    merged = Merge(LAYOUT)
    batches: list[Batch | None] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    for number, (start, end) in enumerate(pairwise(bounds)):
        merged.push(split(b"".join(stream[start:end]), LAYOUT))
        if takes >> number & 1:
            batches.append(merged.take())
    batches.append(merged.flush())
    found = rows(batches)
    assert found == merge_slowly(stream)
    watermarks = [batch.watermark_ns for batch in batches if batch]
    assert watermarks == sorted(set(watermarks))


@pytest.mark.parametrize("kind", ["data", "fork"])
def test_what_is_merged_does_not_change_what_was_pushed(kind: str) -> None:
    batch = split(record(kind, 2) + record(kind, 1), LAYOUT)
    merged = Merge(LAYOUT)
    merged.push(batch)
    merged.flush()
    assert batch.records[kind].fixed["time_ns"].tolist() == [2, 1]


@given(found=st.lists(st.tuples(st.sampled_from(["data", "connection", "exit"]), st.integers(1, 30)), max_size=60))
def test_parts_are_the_whole_in_order(found: list[tuple[str, int]]) -> None:
    raw = [
        record(kind, LAG + time_ns, ring_seq=number, tail=b"t" * (time_ns % 3) if kind == "data" else b"")
        for number, (kind, time_ns) in enumerate(sorted(found, key=lambda one: one[1]))
    ]
    whole = Batch(split(b"".join(raw), LAYOUT).records, 2 * LAG)
    parts = list(in_parts(whole, 7))
    assert rows(parts) == rows([whole])
    assert parts[-1].watermark_ns == 2 * LAG and len(parts) <= max(-(-len(found) // 7), 1)
    for part, following in pairwise(parts):
        assert all((each.fixed["time_ns"] <= part.watermark_ns).all() for each in part.records.values())
        assert all((each.fixed["time_ns"] > part.watermark_ns).all() for each in following.records.values())
