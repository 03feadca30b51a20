"""A recording being written: rows go into Arrow streams, these become Parquet files, small files one at the end.

Killed at any moment it can be read up to the last flush. A full disk or a reached cap costs rows, which are counted,
and never the program. Parquet is made by one thread of its own, so that neither encoding nor fsync holds up the caller.
"""

import fcntl
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import SinkError, UsageError
from tracehound.recording import manifest as manifests
from tracehound.recording.files import Files, loss_counter
from tracehound.recording.manifest import Facts, Manifest
from tracehound.recording.owner import Owner
from tracehound.recording.parquet import compact, convert
from tracehound.recording.parts import ARROWS, PARQUET, Part, batch_message, schema_message
from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    import pyarrow as pa

PART_BYTES: Final = 64 << 20
PART_SECONDS: Final = 60.0
_PENDING_BYTES: Final = 8 << 20  # rows held in memory between two flushes
_ROOM_SHARE: Final = 64  # a recording with less than this part of its cap free is full for good


class _Stream:
    """The open part of one table."""

    def __init__(self, files: Files, directory: Path, schema: "pa.Schema") -> None:
        self._files = files
        self.directory = directory
        self.schema = schema
        self.number = 1
        self.descriptor = -1
        self.size_bytes = 0
        self.opened_at = 0.0
        self.pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0

    def take_pending(self) -> "pa.RecordBatch":
        import pyarrow as pa

        pending, self.pending, self.pending_bytes = self.pending, [], 0
        return pa.Table.from_batches(pending, self.schema).combine_chunks().to_batches()[0]

    def write(self, message: memoryview) -> None:
        """Append one message, after the schema if the part is new; raises OSError: then the part is to be closed."""
        if self.descriptor < 0:
            self._files.make_directory(self.directory)
            self.descriptor = self._files.create(self.directory / Part(self.number, self.number, ARROWS).name)
            self.size_bytes, self.opened_at = 0, time.monotonic()
            self._write_all(schema_message(self.schema))
        self._write_all(message)

    def _write_all(self, view: memoryview) -> None:
        while view:
            written = os.write(self.descriptor, view)
            self.size_bytes += written
            view = view[written:]

    def close(self) -> int | None:
        """End the part and return its number, None if there was none."""
        if self.descriptor < 0:
            return None
        os.close(self.descriptor)
        self.descriptor = -1
        self.number += 1
        return self.number - 1

    def is_due(self, now: float) -> bool:
        return self.descriptor >= 0 and (self.size_bytes >= PART_BYTES or now - self.opened_at >= PART_SECONDS)


class RecordingWriter:
    """Writes a recording into `directory`, which is made, or is empty.

    `schemas` are the tables' Arrow schemas; `cap_bytes` bounds all files together, `owner` are the ids to write with.
    Calls may come from any thread. Raises SinkError, UsageError if a recording is there already.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schemas: "Mapping[str, pa.Schema]",
        facts: Facts,
        *,
        cap_bytes: int | None = None,
        owner: Owner | None = None,
    ) -> None:
        self.directory = Path(directory)
        self._manifest = Manifest(facts, dict(schemas), manifests.now())
        self._cap_bytes = cap_bytes
        self._files = Files(owner)
        self._lock = threading.RLock()
        self._streams = {name: _Stream(self._files, self.directory / name, schema) for name, schema in schemas.items()}
        self._closed_bytes: dict[tuple[str, int], int] = {}  # (table, number) -> size of its file
        self._is_full = False
        self._is_closed = False
        self._lost: dict[str, tuple[int, int | None, int | None]] = {}  # counter -> rows, first_ns, last_ns
        self._totals: Counter[tuple[str, str]] = Counter()
        self._changed = False
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._worker = threading.Thread(target=self._work, name="tracehound-parquet", daemon=True)
        try:
            self._directory_fd = self._claim()
            self._write_manifest()
        except OSError as error:
            raise SinkError(f"cannot write a recording to {self.directory}: {error.strerror or error}") from error

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables it takes."""
        return tuple(self._streams)

    def append(self, table: str, batch: "pa.RecordBatch") -> None:
        """Take rows of a table; they are readable after the next flush. Raises ValueError on another schema."""
        if batch.num_rows == 0:
            return
        with self._lock:
            if self._is_closed:
                raise SinkError(f"the recording {self.directory} is closed")
            stream = self._streams[table]
            if not batch.schema.equals(stream.schema):
                raise ValueError(f"rows of {table} do not have the schema of this recording")
            if table == "losses":
                self._add_totals(batch)
            if self._is_full and table != "losses":
                self._count_lost("recording_full", batch)
                return
            stream.pending.append(batch)
            stream.pending_bytes += batch.get_total_buffer_size()  # `nbytes` is 50 times dearer
            if stream.pending_bytes >= _PENDING_BYTES:
                self._flush_stream(table, stream)

    def flush(self) -> None:
        """Make all rows taken so far readable; to be called at least once a second. Never raises on a full disk."""
        with self._lock:
            self._flush()

    def anchor(self, monotonic_ns: int, realtime_ns: int) -> None:
        """Add a clock anchor to the manifest."""
        with self._lock:
            facts = self._manifest.facts
            anchors = (*facts.clock_anchors, (monotonic_ns, realtime_ns))
            self._update(facts=replace(facts, clock_anchors=anchors))

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return the rows lost here since the last call as rows of `losses`; not yet in the recording.

        After `close` it gives, once, those that nobody took before: `close` has put them into the recording itself.
        """
        with self._lock:
            losses = self._lost_rows()
            self._lost = {}
        return losses

    def _lost_rows(self) -> "pa.RecordBatch | None":
        if not self._lost:
            return None
        counts, firsts, lasts = zip(*self._lost.values(), strict=True)
        values = {"stage": ["recording"] * len(counts), "counter": list(self._lost), "count": counts}
        times = {"time_ns": lasts, "first_ns": firsts, "last_ns": lasts}
        return build(TABLES["losses"], len(counts), values | times)

    def close(self, *, compaction: bool = True) -> None:
        """Write what is pending, make Parquet of it, join small files unless told not to, note the end. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._flush()
            losses = self._lost_rows()
            if losses is not None and "losses" in self._streams:
                self.append("losses", losses)
                self._flush()
            self._is_closed = True
            for name, stream in self._streams.items():
                self._end_part(name, stream)
            self._wait()
            if compaction:
                for stream in self._streams.values():
                    with suppress(OSError):  # the small files stay
                        compact(self._files, stream.directory, stream.schema)
            self._update(ended=manifests.now())
            with suppress(OSError):
                self._write_manifest()
            os.close(self._directory_fd)

    def discard(self) -> None:
        """End, and remove all that was written: what was to be recorded has not begun."""
        self.close(compaction=False)
        for path in (*(self.directory / name for name in self._streams), self.directory / manifests.NAME):
            with suppress(OSError):
                self._files.remove_all(path)
        with suppress(OSError):  # others' files are in it
            self._files.remove_directory(self.directory)

    def __enter__(self) -> "RecordingWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- below here the lock is held ------------------------------------------------------------

    def _claim(self) -> int:
        is_private = self._manifest.facts.notes.get("redacted") == "false"
        self._files.make_directory(self.directory, is_private=is_private)
        taken = {manifests.NAME, *self._streams} & set(os.listdir(self.directory))
        if taken:
            raise UsageError(f"{self.directory} already holds a recording ({sorted(taken)[0]}); name another folder")
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # says "being written" until we are gone
        except OSError as error:
            os.close(descriptor)
            raise UsageError(f"{self.directory} is being written by another tracehound") from error
        return descriptor

    def _flush(self) -> None:
        now = time.monotonic()
        for name, stream in self._streams.items():
            if stream.pending:
                self._flush_stream(name, stream)
            if stream.is_due(now):
                self._end_part(name, stream)
        if self._changed:
            with suppress(OSError):  # tried again at the next flush
                self._write_manifest()

    def _flush_stream(self, name: str, stream: _Stream) -> None:
        batch = stream.take_pending()
        message = batch_message(batch)
        if name != "losses" and not self._has_room(len(message)):
            self._count_lost("recording_full", batch)
            return
        try:
            stream.write(message)
        except OSError as error:
            self._count_lost(loss_counter(error), batch)
            self._end_part(name, stream)  # its end may be torn: readers cut that

    def _has_room(self, size_bytes: int) -> bool:
        if self._cap_bytes is None or self._used_bytes() + size_bytes <= self._cap_bytes:
            return True
        if not self._is_full:  # Parquet is several times smaller: make it now
            for name, stream in self._streams.items():
                self._end_part(name, stream)
            self._wait()
            room = self._cap_bytes - self._used_bytes()
            self._is_full = room < max(size_bytes, self._cap_bytes // _ROOM_SHARE)
        return not self._is_full

    def _used_bytes(self) -> int:
        open_bytes = sum(stream.size_bytes for stream in self._streams.values() if stream.descriptor >= 0)
        return open_bytes + sum(list(self._closed_bytes.values()))

    def _end_part(self, name: str, stream: _Stream) -> None:
        size_bytes = stream.size_bytes
        number = stream.close()
        if number is None:
            return
        self._closed_bytes[name, number] = size_bytes
        if not self._worker.is_alive():
            self._worker.start()
        self._jobs.put(lambda: self._convert(name, stream, number))

    def _convert(self, name: str, stream: _Stream, number: int) -> None:
        convert(self._files, stream.directory, stream.schema, number)
        path = stream.directory / Part(number, number, PARQUET).name
        self._closed_bytes[name, number] = path.stat().st_size if path.exists() else 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with suppress(Exception):  # the stream stays and is read; `close` must not wait for ever
                job()
            self._jobs.task_done()
        self._jobs.task_done()

    def _wait(self) -> None:
        self._jobs.join()
        if self._is_closed and self._worker.is_alive():
            self._jobs.put(None)
            self._worker.join()

    def _count_lost(self, counter: str, batch: "pa.RecordBatch") -> None:
        import pyarrow.compute as pc

        rows, first, last = self._lost.get(counter, (0, None, None))
        times = pc.min_max(batch["time_ns"]).as_py() if "time_ns" in batch.schema.names else {"min": None, "max": None}
        firsts = [value for value in (first, times["min"]) if value is not None]
        lasts = [value for value in (last, times["max"]) if value is not None]
        self._lost[counter] = (rows + batch.num_rows, min(firsts, default=None), max(lasts, default=None))

    def _add_totals(self, batch: "pa.RecordBatch") -> None:
        for row in batch.select(["stage", "counter", "count"]).to_pylist():
            self._totals[row["stage"], row["counter"]] += row["count"] or 0
        losses: dict[str, dict[str, int]] = {}
        for (stage, counter), count in self._totals.items():
            losses.setdefault(stage, {})[counter] = count
        self._update(losses=losses)

    def _update(self, **changes: Any) -> None:
        self._manifest = replace(self._manifest, **changes)
        self._changed = True

    def _write_manifest(self) -> None:
        manifests.write(self.directory, self._manifest, self._files)
        self._changed = False
