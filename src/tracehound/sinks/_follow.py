"""Rows as they come, for a Python loop: a bounded queue between the line's thread and the reader's.

Batches are kept as they are and become dictionaries in the reader's thread, so a loop that is slow costs the line
nothing; what does not fit is counted as `follow_full`. Left out: what was written before the loop began.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import UsageError
from tracehound.sinks._sink import lost_rows

if TYPE_CHECKING:
    import pyarrow as pa

HELD_BYTES: Final = 32 << 20
Row = dict[str, Any]


class FollowSink:
    """Holds rows of one table, or of all, until they are taken."""

    def __init__(
        self,
        schemas: "Mapping[str, pa.Schema]",
        table: str | None,
        equal: Mapping[str, object],
        held_bytes: int = HELD_BYTES,
    ) -> None:
        """Keep rows whose columns have the values in `equal`; raises UsageError for a table or column that is not."""
        if table is not None and table not in schemas:
            raise UsageError(f"no table {table!r}. Tables: {', '.join(schemas)}")
        wanted = schemas if table is None else {table: schemas[table]}
        for column in equal:
            wanted = {name: schema for name, schema in wanted.items() if column in schema.names}
            if not wanted:
                where = f"table {table} has" if table else "there is"
                raise UsageError(f"{where} no column {column!r}")
        self._wanted = frozenset(wanted)
        self._equal = dict(equal)
        self._held_bytes = held_bytes
        self._bytes = 0
        self._held: deque[dict[str, pa.RecordBatch]] = deque()
        self._lost: Counter[str] = Counter()
        self._last_ns: int | None = None
        self._changed = threading.Condition()
        self.is_closed = False

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Keep what is wanted; count it if the loop is too far behind."""
        kept = {name: rows for name, batch in tables.items() if name in self._wanted and (rows := self._chosen(batch))}
        if not kept:
            return
        size = sum(rows.nbytes for rows in kept.values())
        with self._changed:
            if self._bytes + size > self._held_bytes:
                self._lost["follow_full"] += sum(rows.num_rows for rows in kept.values())
                self._last_ns = max(_newest(rows) for rows in kept.values())
                return
            self._held.append(kept)
            self._bytes += size
            self._changed.notify()

    def _chosen(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        import pyarrow as pa
        import pyarrow.compute as pc

        for column, value in self._equal.items():
            wanted = pa.scalar(value, batch.schema.field(column).type)
            batch = batch.filter(pc.equal(batch[column], wanted))
        return batch if batch.num_rows else None

    def take(self, timeout_s: float) -> list[Row]:
        """Return rows by time, each with its table's name under `table`; none if none came within the time."""
        with self._changed:
            if not self._held and not self.is_closed:
                self._changed.wait(timeout_s)
            held = list(self._held)
            self._held.clear()
            self._bytes = 0
        batches = [(name, batch) for tables in held for name, batch in tables.items()]
        rows = [{"table": name, **row} for name, batch in batches for row in batch.to_pylist()]
        rows.sort(key=lambda row: row.get("time_ns") or 0)
        return rows

    def flush(self) -> None:
        """Do nothing: rows can be taken as soon as they are written."""

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return rows of `losses` for what the loop was too slow for."""
        with self._changed:
            lost, self._lost = self._lost, Counter()
        return lost_rows(lost, self._last_ns)

    def close(self) -> None:
        """Say that no rows will come any more; those that are held can still be taken."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()


def _newest(rows: "pa.RecordBatch") -> int:
    return int(rows["time_ns"][-1].as_py() or 0) if "time_ns" in rows.schema.names else 0
