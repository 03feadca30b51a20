"""Fills `wall_time` from the newest clock anchor (`fact_clock`) that is not newer than the row.

A row older than the first anchor takes that one. A step of the clock moves `wall_time` from the next anchor on, never
`time_ns`.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tracehound.enrich.columns import Tables, int_column, replace_columns

KEPT: Final = 4096  # anchors, one a second: more than any row waits


class WallClock:
    """Knows the anchors of a trace."""

    def __init__(self) -> None:
        self._since_ns = np.empty(0, np.int64)
        self._offset_ns = np.empty(0, np.int64)  # realtime - monotonic

    def add(self, tables: Tables) -> Tables:
        """Fill `wall_time` in every table that has it."""
        anchors = tables.get("fact_clock")
        if anchors is not None:
            offset_ns = int_column(anchors, "realtime_ns") - int_column(anchors, "monotonic_ns")
            self._since_ns = np.concatenate((self._since_ns, int_column(anchors, "time_ns")))[-KEPT:]
            self._offset_ns = np.concatenate((self._offset_ns, offset_ns))[-KEPT:]
        if not len(self._since_ns):
            return tables
        return {
            name: self._fill(table) if "wall_time" in table.schema.names else table for name, table in tables.items()
        }

    def _fill(self, table: pa.RecordBatch) -> pa.RecordBatch:
        time_ns = int_column(table, "time_ns")
        at = np.maximum(np.searchsorted(self._since_ns, time_ns, side="right") - 1, 0)
        return replace_columns(table, {"wall_time": pa.array(time_ns + self._offset_ns[at])})
