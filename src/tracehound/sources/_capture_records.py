"""Records of a capture, collected as columns: what the kernel side would write of the same traffic.

Process, thread and descriptor are nobody's: 0, 0 and -1. Times never go back, so records leave in their order.
"""

from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tracehound.batch import Batch, Records, split
from tracehound.btf import Layout
from tracehound.procfs import FactWriter

BATCH_RECORDS: Final = 4096
BATCH_BYTES: Final = 4 << 20
COUNT_MAX: Final = 1 << 62

DATA_COLUMNS: Final = (
    "time_ns", "cookie", "position_end", "call_size", "head_size", "sequence", "direction", "flags", "verdict",
    "strength", "capture_class", "family", "transport", "local_port", "remote_port",
)  # fmt: skip


@final
class CaptureRecords:
    """Collects records until `take`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._kinds = {name: number for number, name in layout.kinds.items()}
        self._events = layout.enum("connection_event")
        self._losses = layout.enum("loss_counter")
        self._rows: list[tuple[int, ...]] = []
        self._heads: list[bytes] = []
        self._bytes = 0
        self._data_written = 0
        self._lifecycle: dict[str, list[dict[str, Any]]] = {}
        self._lifecycle_written = 0
        self._facts = FactWriter(layout)

    def is_full(self) -> bool:
        """Say whether it is time for `take`."""
        count = len(self._rows) + sum(map(len, self._lifecycle.values()))
        return count >= BATCH_RECORDS or self._bytes >= BATCH_BYTES

    def add_data(self, row: tuple[int, ...], head: bytes) -> None:
        """Add a data record: its members as in DATA_COLUMNS, its bytes."""
        self._rows.append(row)
        self._heads.append(head)
        self._bytes += len(head)

    def add_connection(self, time_ns: int, event: str, fields: dict[str, Any]) -> None:
        """Add a connection record of `CONNECTION_<event>`."""
        self._add_lifecycle("connection", {"time_ns": time_ns, "event": self._events[f"CONNECTION_{event}"], **fields})

    def add_retransmit(self, time_ns: int, fields: dict[str, Any]) -> None:
        """Add a record of a segment sent again."""
        self._add_lifecycle("retransmit", {"time_ns": time_ns, **fields})

    def _add_lifecycle(self, kind: str, fields: dict[str, Any]) -> None:
        fields["ring_seq"] = self._lifecycle_written
        self._lifecycle_written += 1
        self._lifecycle.setdefault(kind, []).append(fields)

    def add_clock(self, time_ns: int, realtime_ns: int) -> None:
        """Add an anchor: that moment by both clocks."""
        self._facts.add("fact_clock", time_ns, {"monotonic_ns": time_ns, "realtime_ns": realtime_ns})

    def add_config(self, time_ns: int, text: bytes) -> None:
        """Add what is known of the source, as JSON."""
        self._facts.add("fact_config", time_ns, {"text_size": len(text)}, text)

    def add_loss(self, counter: str, count: int, first_ns: int, last_ns: int) -> None:
        """Add a rise of `LOSS_<counter>`."""
        fields = {"counter": self._losses[f"LOSS_{counter}"], "count": min(count, COUNT_MAX)}
        self._facts.add("fact_loss", last_ns, fields | {"first_ns": first_ns, "last_ns": last_ns})

    def take(self, tick_ns: int) -> Batch:
        """Return all records added since the last time, and behind them a tick of that time."""
        self._facts.add("fact_tick", tick_ns, {})
        records = split(self._facts.take(), self._layout).records
        if self._rows:
            records["data"] = self._data()
        for kind, rows in self._lifecycle.items():
            records[kind] = self._plain(kind, rows)
        self._lifecycle = {}
        return Batch(records)

    def _data(self) -> Records:
        rows, heads = self._rows, self._heads
        self._rows, self._heads, self._bytes = [], [], 0
        columns: npt.NDArray[np.int64] = np.array(rows, np.int64)
        fixed = self._zeros("data", len(rows))
        for at, name in enumerate(DATA_COLUMNS):
            fixed[name] = columns[:, at]
        fixed["fd"] = -1
        fixed["size"] += fixed["head_size"]
        fixed["ring_seq"] = np.arange(self._data_written, self._data_written + len(rows))
        self._data_written += len(rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(fixed["head_size"], out=offsets[1:])
        return Records(fixed, offsets, b"".join(heads))

    def _plain(self, kind: str, rows: list[dict[str, Any]]) -> Records:
        fixed = self._zeros(kind, len(rows))
        for record, fields in zip(fixed, rows, strict=True):
            for name, value in fields.items():
                record[name] = value
        return Records(fixed, np.zeros(len(rows) + 1, np.int64), b"")

    def _zeros(self, kind: str, count: int) -> npt.NDArray[np.void]:
        fixed: npt.NDArray[np.void] = np.zeros(count, self._layout.dtypes[kind])
        fixed["kind"] = self._kinds[kind]
        fixed["size"] = fixed.itemsize
        return fixed
