"""Hits of watched addresses: rows of `calls` with the event `watch`."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.decode.tails import tail_pieces
from tracehound.tables import TABLES, arrow_type, build

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records
    from tracehound.btf import Layout

NAMES = ("point", "module", "symbol")


class Watches:
    """Knows the watched points."""

    def __init__(self, layout: "Layout") -> None:
        self._known = layout.enum("watch_known")
        self._points: dict[int, dict[str, Any]] = {}

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the rows of a batch, None if there are none."""
        facts, hits = batch.records.get("fact_point"), batch.records.get("call_watch")
        if facts is not None:
            (texts,) = tail_pieces(facts, ("text_size",))
            for number, text in zip(facts.fixed["point"].tolist(), texts.to_pylist(), strict=True):
                self._points[number] = json.loads(text)
        return None if hits is None else self._rows(hits)

    def _rows(self, hits: "Records") -> pa.RecordBatch:
        fixed = hits.fixed
        numbers, which = np.unique(fixed["point"], return_inverse=True)
        points = [self._points.get(int(number), {}) for number in numbers]
        values: dict[str, Any] = {
            name: pa.array([point.get(name) for point in points], pa.string()).take(pa.array(which)) for name in NAMES
        }
        values |= {name: fixed[name].astype(np.int64) for name in ("call", "ip", "sp", "bp")}
        values |= {
            "time_ns": fixed["time_ns"].astype(np.int64),
            "entry_ns": fixed["time_ns"].astype(np.int64),
            "pid": fixed["pid"],
            "tid": fixed["tid"],
            "cpu": fixed["cpu"].astype(np.int32),
            "preexisting": np.zeros(len(fixed), bool),
            "incomplete": np.zeros(len(fixed), bool),
            "event": pa.array(["watch"] * len(fixed)),
            "args": self._arguments(hits),
        }
        return build(TABLES["calls"], len(fixed), values)

    def _arguments(self, hits: "Records") -> pa.Array:
        """Return the address, and of data the value before and after."""
        fixed, count = hits.fixed, len(hits)
        sizes, which = np.unique(fixed["size_bytes"], return_inverse=True)
        kinds = pa.array([f"uint{8 * size}" for size in sizes.tolist()], pa.string()).take(pa.array(which))
        columns = [(pa.array(["address"] * count), pa.array(["ptr"] * count), _hexadecimal(fixed["address"]))]
        for name in ("old", "new"):
            is_unknown = pa.array(fixed["known"] & self._known[f"WATCH_{name.upper()}_VALUE"] == 0)
            shown = pc.if_else(is_unknown, pa.scalar(None, pa.string()), _hexadecimal(fixed[f"{name}_value"]))
            columns.append((pa.array([name] * count), kinds, shown))
        wanted = np.stack([np.ones(count, bool), *([fixed["size_bytes"] > 0] * 2)], 1)
        places = np.stack([np.arange(count) + at * count for at in range(3)], 1)[wanted]
        joined = [pa.concat_arrays([column[at] for column in columns]).take(pa.array(places)) for at in range(3)]
        kind = arrow_type("arguments")
        structs = pa.StructArray.from_arrays(joined, fields=list(kind.value_type))
        ends = np.concatenate(([0], np.cumsum(wanted.sum(1)))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), structs).cast(kind)


def _hexadecimal(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    distinct, which = np.unique(numbers, return_inverse=True)
    return pa.array([f"{number:#x}" for number in distinct.tolist()], pa.string()).take(pa.array(which))
