"""Rows of `calls` and `stacks` that the tests of their outputs share."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from tests.recording.rows import FACTS

from tracehound.sinks import Source
from tracehound.sinks._profile import Profile, Stacks, weight_of
from tracehound.tables import TABLES, arrow_schema, build

SOURCE: Final = Source({}, FACTS)
SHOP: Final = "/usr/bin/shop"


def frame(symbol: str | None, offset: int | None = 16, **values: Any) -> dict[str, Any]:
    """Return a native frame of the shop."""
    row = {"kind": "native", "build_id": "ab12", "file": SHOP, "file_offset": offset, "symbol": symbol}
    return row | {"address": 1 << 40, "symbol_offset": 4, "source": None, "line": None, "inlined": False} | values


def stacks(rows: Mapping[int, Sequence[dict[str, Any]]], **status: str) -> pa.RecordBatch:
    """Return rows of `stacks` by their ids, frames innermost first; `status`: of id N as `sN`, else complete."""
    found = [
        {"stack_id": number, "status": status.get(f"s{number}", "complete"), "depth": len(frames), "frames": frames}
        for number, frames in rows.items()
    ]
    return pa.RecordBatch.from_pylist(found, arrow_schema(TABLES["stacks"]))


def calls(rows: Sequence[tuple[int | None, int | None]], comm: str = "shop", **columns: Any) -> pa.RecordBatch:
    """Return rows of `calls`: the stack and the duration of each."""
    ids, durations = [row[0] for row in rows], [row[1] for row in rows]
    values = {"time_ns": range(len(rows)), "comm": [comm] * len(rows), "duration_ns": durations, "stack_id": ids}
    return build(TABLES["calls"], len(rows), values | columns)


def profile(weight: str, *tables: dict[str, pa.RecordBatch]) -> Profile:
    """Return the profile of tables that came one after another."""
    collected = Stacks(weight_of(weight))
    for each in tables:
        collected.write(each)
    return collected.profile(FACTS)


KERNEL: Final = frame("do_sys_openat2", None, kind="kernel", build_id=None, file=None, address=-(1 << 40))
PYTHON: Final = frame("shop.orders:load", None, kind="python", file=None, build_id=None, source="orders.py", line=12)


def shop(weight: str = "count") -> Profile:
    """Return the profile of a shop: kernel, Python and inlined frames, a truncated stack, one whose row was lost."""
    rows = {
        1: [frame("open64", 100, file="/lib/libc.so.6"), frame("load", 200), frame("main", 300)],
        2: [KERNEL, frame("open64", 100, file="/lib/libc.so.6"), PYTHON, frame("main", 310)],
        3: [frame("inner", 400, inlined=True, source="shop.c", line=7), frame("load", 400), frame(None, 0x512)],
    }
    durations = [(1, 1000), (1, 3000), (2, 500), (3, 70), (9, 1), (None, 5), (1, None)]
    lost = build(TABLES["losses"], 1, {"counter": ["ring_full"], "count": [4]})
    return profile(weight, {"calls": calls(durations)}, {"stacks": stacks(rows, s3="truncated"), "losses": lost})
