"""release, exec and exit records in; generations of descriptors out."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.batches import LAYOUT, Record, batch, cut, one, rows
from tests.decode.test_connections import OPEN, call, event

from tracehound.decode.connections import Connections
from tracehound.decode.descriptors import WIDE, Generations
from tracehound.decode.settings import DecodeSettings


def release(time_ns: int, pid: int, first: int, last: int | None = None) -> Record:
    return one("release", time_ns, pid=pid, tid=pid, first=first, last=first if last is None else last)


def ask(generations: Generations, *calls: tuple[int, int, int]) -> list[int]:
    """Return the generations of (pid, fd, time_ns)."""
    columns = (np.array(column, np.int64) for column in zip(*calls, strict=True))
    return generations.at(*columns).tolist()  # type: ignore[no-any-return]


def test_what_counts_for_a_slot() -> None:
    generations = Generations()
    records = [
        release(10, 7, 3),
        release(20, 7, 3, 5),
        release(30, 7, 100, 100 + WIDE),
        one("exec", 40, pid=7),
        release(50, 8, 3),
        release(60, 7, 0, 0xFFFFFFFF),
    ]
    generations.take(batch(records))
    assert ask(generations, (7, 3, 9), (7, 3, 10), (7, 3, 20), (7, 5, 20), (7, 6, 20)) == [-1, 1, 2, 1, 0]
    assert ask(generations, (7, 3, 30), (7, 3, 40), (7, 3, 55), (7, 3, 60), (8, 3, 60)) == [3, 4, 4, 5, 1]
    assert ask(generations, (7, -1, 60), (9, 3, 60)) == [-1, 0]
    generations.take(batch([one("exit", 70, pid=7)]))
    assert ask(generations, (7, 3, 65), (7, 9, 65), (8, 3, 65)) == [5, 3, 1]
    generations.take(batch([]))
    assert len(generations) == 1


def test_nothing_is_known_without_records_of_descriptors() -> None:
    generations = Generations()
    generations.take(batch([one("exec", 5, pid=7)]))
    assert ask(generations, (7, 3, 10)) == [-1]
    assert generations.at(*(np.empty(0, np.int64),) * 3).tolist() == []


def test_an_exec_before_the_first_release_counts_in_no_cut() -> None:
    records = [one("exec", 5, pid=7), release(10, 7, 3), one("exec", 20, pid=7)]
    for watermarks in ((), (7,), (15,)):
        generations = Generations()
        for part in cut(records, watermarks):
            generations.take(part)
        assert ask(generations, (7, 3, 30), (7, 4, 30)) == [2, 1], watermarks


STEPS = st.lists(
    st.tuples(st.sampled_from(["release", "exec", "ask"]), st.integers(1, 2), st.integers(3, 6)), max_size=40
)


@given(STEPS, st.sets(st.integers(0, 400)))
def test_like_a_count_however_it_is_cut(steps: list[tuple[str, int, int]], watermarks: set[int]) -> None:
    records: list[Record] = [release(1, 9, 3)]
    expected: dict[int, tuple[int, int, int]] = {}
    counts: dict[tuple[int, int], int] = {}
    for number, (kind, pid, slot) in enumerate(steps):
        time_ns = 10 * (number + 1)
        if kind == "release":
            records.append(release(time_ns, pid, slot, slot + 1))
        elif kind == "exec":
            records.append(one("exec", time_ns, pid=pid))
        for at in range(20) if kind != "ask" else ():
            counts[pid, at] = counts.get((pid, at), 0) + (kind == "exec" or at in (slot, slot + 1))
        if kind == "ask":
            expected[time_ns] = (pid, slot, counts.get((pid, slot), 0))
            records.append(one("data", time_ns, pid=pid, fd=slot))
    generations = Generations()
    for part in cut(records, watermarks):
        generations.take(part)
        calls = part.records["data"].fixed["time_ns"].tolist() if "data" in part.records else []
        wanted = [expected[time_ns] for time_ns in calls]
        if calls:
            found = ask(generations, *((p, s, t) for (p, s, _), t in zip(wanted, calls, strict=True)))
            assert found == [count for _, _, count in wanted]


def test_a_connection_has_the_generation_of_its_first_call() -> None:
    generations = Generations()
    connections = Connections(LAYOUT, DecodeSettings(), {}, generations=generations)
    records: list[Any] = [
        release(5, 60, 5),
        event(10, OPEN, 77, pid=60),
        release(15, 60, 5),
        call(20, 77),
        release(25, 60, 5),
        call(30, 77),
        event(40, OPEN, 78, pid=60),
    ]
    found = []
    for part in cut(records, [12, 22]):
        generations.take(part)
        found += rows(connections.decode(part).get("connections"), "event", "fd", "generation")
    found += rows(connections.finish(2_000_000_000)["connections"], "event", "fd", "generation")
    assert found == [("open", 5, 2), ("open", None, None), ("snapshot", 5, 2), ("snapshot", None, None)]
