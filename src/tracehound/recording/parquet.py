"""Parquet files of a recording: made from an Arrow stream, or several small ones made one.

Strings are dictionary-encoded, numbers are kept as differences from one another (measured: half the size and half the
time of the defaults); zstd.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.recording.files import Files
from tracehound.recording.parts import ARROWS, PARQUET, Part, list_parts, whole_batches

if TYPE_CHECKING:
    import pyarrow as pa

SMALL_BYTES: Final = 16 << 20  # a file below this is joined with its neighbours
LARGE_BYTES: Final = 64 << 20  # no joined file is larger
_ROWS: Final = 128 << 10  # of a row group


def convert(files: Files, directory: Path, schema: "pa.Schema", number: int) -> None:
    """Make `N.parquet` of `N.arrows` and remove that; raises OSError, and then the stream is still there."""
    import pyarrow as pa

    stream = directory / Part(number, number, ARROWS).name
    batches = whole_batches(files.read(stream), schema, is_trusted=True)
    if batches:
        table = pa.Table.from_batches(batches, schema)
        with _parquet(files, directory / Part(number, number, PARQUET).name, schema) as write:
            write(table)
    files.remove(stream)


def compact(files: Files, directory: Path, schema: "pa.Schema") -> None:
    """Join neighbouring small Parquet files; raises OSError, and then the small ones are still there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for group in _groups(directory):
        joined = Part(group[0].first, group[-1].last, PARQUET)
        with _parquet(files, directory / joined.name, schema) as write:
            for part in group:
                write(pq.read_table(pa.BufferReader(files.read(directory / part.name)), schema=schema))
        for part in group:
            files.remove(directory / part.name)


def _groups(directory: Path) -> Iterator[list[Part]]:
    group: list[Part] = []
    total = 0
    for part in list_parts(directory):
        size_bytes = (directory / part.name).stat().st_size
        fits = part.kind == PARQUET and size_bytes < SMALL_BYTES
        if group and not (fits and total + size_bytes <= LARGE_BYTES):
            if len(group) > 1:
                yield group
            group, total = [], 0
        if fits:
            group.append(part)
            total += size_bytes
    if len(group) > 1:
        yield group


@contextmanager
def _parquet(files: Files, path: Path, schema: "pa.Schema") -> "Iterator[Callable[[pa.Table], None]]":
    """Give a function that writes tables to a Parquet file, which is there when the block ends well; raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with files.whole(path) as file, pq.ParquetWriter(file, schema, **_options(schema)) as writer:
            yield lambda table: writer.write_table(table, row_group_size=_ROWS)
    except pa.ArrowException as error:
        raise OSError(f"cannot write {path}: {error}") from error


def _options(schema: "pa.Schema") -> dict[str, Any]:
    import pyarrow as pa

    texts = [column.name for column in schema if pa.types.is_string(column.type)]
    numbers = [column.name for column in schema if pa.types.is_integer(column.type) and column.type.bit_width >= 32]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": texts or False,
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED") or None,
        "write_statistics": [column.name for column in schema if column.name.endswith("_ns")],  # a fifth of the time
        "store_schema": True,
    }
