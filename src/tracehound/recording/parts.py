"""The files of one table: names, which of them count, and the Arrow stream of rows not yet in Parquet.

Names are `N.parquet`, `N.arrows`, and `N-M.parquet` for parts made one. Follows the Arrow IPC streaming format.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

ARROWS: Final = "arrows"
PARQUET: Final = "parquet"
_NAME: Final = re.compile(r"([0-9]+)(?:-([0-9]+))?\.(arrows|parquet)")
_TRIES: Final = 20
_END_BYTES: Final = 8  # of the end-of-stream marker


class Part(NamedTuple):
    """One file: the numbers it covers, both included, and its kind."""

    first: int
    last: int
    kind: str

    @property
    def name(self) -> str:
        """The file's name."""
        numbers = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{numbers}.{self.kind}"


def choose(names: Sequence[str]) -> list[Part]:
    """Return the parts that count, in order of their numbers: the wider file, and Parquet before Arrow."""
    parts = [
        Part(int(match[1]), int(match[2] or match[1]), match[3]) for name in names if (match := _NAME.fullmatch(name))
    ]
    parts.sort(key=lambda part: (part.first, -part.last, part.kind == ARROWS))
    chosen: list[Part] = []
    for part in parts:
        if not chosen or part.last > chosen[-1].last:
            chosen.append(part)
    return chosen


def list_parts(directory: Path) -> list[Part]:
    """Return the parts that count in a table's folder; [] if there is none.

    A listing is not atomic: one that meets a rename may show neither name. Two equal ones in a row show no rename.
    """
    before: list[str] | None = None
    for _ in range(_TRIES):
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            names = []
        if names == before:
            break
        before = names
    return choose(names)


def schema_message(schema: "pa.Schema") -> memoryview:
    """Return the bytes with which an Arrow stream begins."""
    return memoryview(schema.serialize())


def batch_message(batch: "pa.RecordBatch") -> memoryview:
    """Return the bytes that add a batch to an Arrow stream, compressed: that costs less than the writing it saves."""
    import pyarrow as pa

    codec = "lz4" if pa.Codec.is_available("lz4") else None
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())[len(schema_message(batch.schema)) : -_END_BYTES]


def read_stream(path: Path, schema: "pa.Schema") -> "list[pa.RecordBatch]":
    """Return the whole batches of a file of `schema` (see `whole_batches`); raises OSError."""
    return whole_batches(path.read_bytes(), schema)


def whole_batches(stream: bytes, schema: "pa.Schema", *, is_trusted: bool = False) -> "list[pa.RecordBatch]":
    """Return the whole batches of an Arrow stream; what a cut or a crash left behind them is not an error.

    The batches refer to `stream` and keep it. A trusted stream is one that this process wrote.
    """
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    try:
        reader = pa.ipc.open_stream(pa.py_buffer(stream), options=pa.ipc.IpcReadOptions(use_threads=False))
        if not reader.schema.equals(schema):
            return []
        while True:
            batch = reader.read_next_batch()
            if not is_trusted:
                batch.validate(full=True)  # pages that a power loss left zero must not reach a query
            batches.append(batch)
    except (StopIteration, pa.ArrowException, OSError):
        return batches
