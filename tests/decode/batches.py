"""Batches from literal records: what the tests of columns are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tracehound.batch import Batch, Records
from tracehound.btf import wire_layout

LAYOUT = wire_layout()
NUMBERS = {name: number for number, name in LAYOUT.kinds.items()}
LAST = (1 << 63) - 1


@dataclass(frozen=True)
class Record:
    """One record: its kind, the members that are not 0, and its tail."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    tail: bytes = b""

    @property
    def time_ns(self) -> int:
        """Its time."""
        return int(self.fields.get("time_ns", 0))


def one(kind: str, time_ns: int, tail: bytes = b"", **fields: Any) -> Record:
    """Make a record."""
    return Record(kind, {"time_ns": time_ns, **fields}, tail)


def batch(records: Iterable[Record], watermark_ns: int = LAST) -> Batch:
    """Make a batch of records, sorted as the merge sorts them."""
    kinds: dict[str, list[Record]] = {}
    ordered = sorted(
        records, key=lambda r: (r.time_ns, NUMBERS[r.kind] >> 8, r.fields.get("cpu", 0), r.fields.get("ring_seq", 0))
    )
    for record in ordered:
        kinds.setdefault(record.kind, []).append(record)
    return Batch({kind: _columns(kind, rows) for kind, rows in kinds.items()}, watermark_ns)


def _columns(kind: str, rows: Sequence[Record]) -> Records:
    fixed = np.zeros(len(rows), LAYOUT.dtypes[kind])
    fixed["kind"] = NUMBERS[kind]
    for at, record in enumerate(rows):
        fixed[at]["size"] = fixed.itemsize + len(record.tail)
        for name, value in record.fields.items():
            fixed[at][name] = value
    offsets = np.cumsum([0, *(len(record.tail) for record in rows)], dtype=np.int64)
    return Records(fixed, offsets, b"".join(record.tail for record in rows))


def cut(records: Sequence[Record], watermarks: Iterable[int]) -> list[Batch]:
    """Cut records into batches as the merge would with these watermarks; the last batch has the rest."""
    batches, since = [], -1
    for until in [*sorted(set(watermarks)), LAST]:
        batches.append(batch([r for r in records if since < r.time_ns <= until], until))
        since = until
    return batches


def rows(table: pa.RecordBatch | pa.Table | None, *columns: str) -> list[tuple[Any, ...]]:
    """Return the named columns as tuples; none for no table."""
    if table is None:
        return []
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def whole_rows(table: pa.RecordBatch | pa.Table | None) -> list[dict[str, Any]]:
    """Return rows as dicts without their nulls."""
    if table is None:
        return []
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
