"""JSON lines: one object per row with its table's name, to a file, a pipe or standard output (`-`)."""

import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tracehound.errors import SinkError
from tracehound.recording import loss_counter
from tracehound.sinks._encode import json_lines
from tracehound.sinks._sink import SinkKind, Source, lost_rows

if TYPE_CHECKING:
    import pyarrow as pa

NOT_SHOWN: Final = frozenset({"payloads"})  # raw bytes: they are kept in a recording only


class JsonLinesSink:
    """One open file of JSON lines; whole batches are written, nothing is held back."""

    def __init__(self, path: str, source: Source) -> None:
        self._schemas = source.schemas
        self._lost: Counter[str] = Counter()
        self._last_ns: int | None = None
        self._is_open = True
        try:
            self._descriptor = (
                os.dup(sys.stdout.fileno())
                if path == "-"
                else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            )
        except OSError as error:
            raise SinkError(f"cannot write {path}: {error.strerror}") from error

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Write rows of the tables that users see; counts them when the output is full or gone."""
        for name, batch in tables.items():
            if name in self._schemas and name not in NOT_SHOWN and batch.num_rows:
                self._write_batch(name, batch)

    def _write_batch(self, name: str, batch: "pa.RecordBatch") -> None:
        view = memoryview(json_lines(name, batch))
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._lost[loss_counter(error)] += batch.num_rows
            if "time_ns" in batch.schema.names:
                self._last_ns = batch["time_ns"][-1].as_py()

    def flush(self) -> None:
        """Do nothing: rows are out as soon as they are written."""

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return rows that the output refused."""
        lost, self._lost = self._lost, Counter()
        return lost_rows(lost, self._last_ns)

    def close(self) -> None:
        """Close the file."""
        if self._is_open:
            self._is_open = False
            with suppress(OSError):
                os.close(self._descriptor)


SINK: Final = SinkKind("jsonl", "one JSON object per row with its table's name, to a file or `-`", JsonLinesSink)
