"""The contract of an output: it is opened by its kind, given tables, flushed once a second, asked what it lost, closed.

A sink never raises for trouble while it runs (a full disk, a reader that went away): it counts the rows and says so by
`take_losses`. It raises SinkError when it is opened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.recording import Facts, Owner


class Sink(Protocol):
    """One open output."""

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Take rows by table name, with the columns of `tables.py`; the sink may keep the batches."""

    def flush(self) -> None:
        """Make visible what was written; called about once a second."""

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return rows of `losses` for what this sink could not keep since the last call."""

    def close(self) -> None:
        """Flush and end; may be called twice."""


def lost_rows(lost: "Mapping[str, int]", last_ns: int | None) -> "pa.RecordBatch | None":
    """Return rows of `losses` of an output from its counters, None if there are none."""
    if not lost:
        return None
    values = {"time_ns": [last_ns] * len(lost), "last_ns": [last_ns] * len(lost)}
    names = {"stage": ["output"] * len(lost), "counter": list(lost), "count": list(lost.values())}
    return build(TABLES["losses"], len(lost), {**values, **names})


@dataclass(frozen=True, slots=True)
class Source:
    """What is written, told to a sink when it is opened: the tables' schemas and the facts of the trace."""

    schemas: "Mapping[str, pa.Schema]"
    facts: "Facts"
    cap_bytes: int | None = None
    owner: "Owner | None" = None


class SinkKind(NamedTuple):
    """What a module here exports as `SINK`: `open` takes a path and a `Source`, and raises SinkError."""

    name: str
    doc: str
    open: Callable[[str, Source], Sink]
