"""Clock anchors in, wall_time out."""

import pyarrow as pa
from tests.enrich.rows import table

from tracehound.enrich.clock import WallClock

WALL = 1_700_000_000_000_000_000


def wall_times(tables: dict[str, pa.RecordBatch], name: str) -> list[int]:
    numbers: list[int] = tables[name].column("wall_time").cast(pa.int64()).to_pylist()
    return numbers


def test_the_newest_anchor_that_is_not_newer() -> None:
    clock = WallClock()
    anchors = table(
        "fact_clock",
        {"time_ns": 100, "monotonic_ns": 99, "realtime_ns": WALL},
        {"time_ns": 200, "monotonic_ns": 199, "realtime_ns": WALL + 5_000},  # a step
    )
    rows = table("requests", *({"time_ns": at} for at in (50, 99, 150, 200, 300)))
    losses = table("losses", {"time_ns": 100})
    found = clock.add({"fact_clock": anchors, "requests": rows, "losses": losses})
    assert wall_times(found, "requests") == [WALL - 49, WALL, WALL + 51, WALL + 5_001, WALL + 5_101]
    assert wall_times(found, "losses") == [WALL + 1]
    assert found["fact_clock"] is anchors
    assert wall_times(clock.add({"probes": table("probes", {"time_ns": 199})}), "probes") == [WALL + 100]


def test_without_an_anchor_it_stays_null() -> None:
    rows = {"requests": table("requests", {"time_ns": 5})}
    assert WallClock().add(rows) == rows
