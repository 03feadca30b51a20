"""The recording as an output: a folder of Parquet files (see `tracehound.recording`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tracehound.recording import RecordingWriter
from tracehound.sinks._sink import SinkKind, Source

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetSink:
    """A recording that is being written."""

    def __init__(self, path: str, source: Source) -> None:
        self.recording = RecordingWriter(
            path, source.schemas, source.facts, cap_bytes=source.cap_bytes, owner=source.owner
        )

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Take rows of the tables that the recording has; others are passed over."""
        for name, batch in tables.items():
            if name in self.recording.tables:
                self.recording.append(name, batch)

    def flush(self) -> None:
        """Make the rows readable."""
        self.recording.flush()

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return rows that the cap or the disk refused."""
        return self.recording.take_losses()

    def close(self) -> None:
        """Make Parquet of all rows and join small files."""
        self.recording.close()


SINK: Final = SinkKind("parquet", "a folder of Parquet files, one folder per table: the recording", ParquetSink)
