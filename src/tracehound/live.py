"""The library's face of a running trace: its tables and SQL over them, while it runs and after.

Rows are kept in a recording: in the folder that was named, in `last`, or in a temporary one that goes with the object.
Left out: everything that makes the rows (`agent`).
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracehound.agent import Trace, recording_source
from tracehound.config import Settings
from tracehound.errors import UsageError
from tracehound.recording import Recording, new_state_recording
from tracehound.sinks import Sink, kind
from tracehound.tables import TABLES
from tracehound.target import Command

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa


class TableView:
    """One table of a recording; every call reads the rows that are there by then."""

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self.name = name

    def to_arrow(self) -> "pa.Table":
        """Return all rows as an Arrow table, with the columns of docs/tables.md."""
        return self._recording.table(self.name)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all rows as a pandas frame; needs pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """Return all rows as a polars frame, without a copy; needs polars."""
        import polars

        return polars.DataFrame(self.to_arrow())

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} rows>"


class LiveTrace:
    """A command under trace: made by `tracehound.trace`, a context manager.

    `requests`, `connections`, `processes`, `listens`, `retransmits`, `probes`, `losses` are `TableView`s.
    """

    def __init__(self, command: Command, settings: Settings, record: Path | str | None) -> None:
        """Prepare; the command starts with `start()` or `with`. Raises TargetError when it is not there."""
        self.exit_code: int | None = None
        self._trace = Trace(command, settings)
        self._record = record
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._sink: Sink | None = None
        self._recording: Recording | None = None

    def start(self) -> "LiveTrace":
        """Load the programs, open the recording, start the command; raises KernelError, SinkError, TargetError."""
        try:
            self._trace.load()
            self._open()
            assert self._sink is not None
            self._trace.start([self._sink])
        except BaseException:
            self.stop()
            raise
        return self

    def _open(self) -> None:
        source = recording_source(self._trace.target, self._trace.settings)
        if self._record == "last":
            folder, owner, cap_bytes = new_state_recording()
            source = replace(source, owner=owner, cap_bytes=cap_bytes)
        elif self._record is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tracehound-")
            folder = Path(self._temporary.name) / "recording"
        else:
            folder = Path(self._record)
        self._sink = kind("parquet").open(str(folder), source)
        self._recording = Recording(folder)

    @property
    def recording(self) -> Recording:
        """The recording that the rows are kept in; raises UsageError before the start."""
        if self._recording is None:
            raise UsageError("the trace has not started: use it in a `with` block, or call start()")
        return self._recording

    @property
    def pid(self) -> int | None:
        """The command's process, None before it was started."""
        return self._trace.process.pid if self._trace.process else None

    def wait(self) -> int:
        """Wait until the command has ended; return its exit code, 128+N for signal N."""
        self.exit_code = self._trace.wait()
        return self.exit_code

    def signal(self, number: int) -> None:
        """Send a signal to the command, if it still runs."""
        self._trace.signal(number)

    def stop(self) -> None:
        """End the trace, whether or not the command has ended; idempotent. The command itself is left alone."""
        try:
            self._trace.stop()
        finally:
            if self._sink is not None:
                self._sink.close()

    @property
    def switches(self) -> dict[str, bool]:
        """Which features are on."""
        return self._trace.switches

    def enable(self, feature: str) -> None:
        """Attach the programs of a feature while the trace runs, if it is not on; raises UsageError for no feature."""
        self._trace.enable(feature)

    def disable(self, feature: str) -> None:
        """Detach the programs of a feature while the trace runs, if it is on; raises UsageError for no feature."""
        self._trace.disable(feature)

    def sql(self, query: str) -> "pa.Table":
        """Run one SELECT over the tables by name; sees every row older than a second. Raises QueryError."""
        return self.recording.sql(query)

    def __getattr__(self, name: str) -> TableView:
        if name in TABLES:
            return TableView(self.recording, name)
        raise AttributeError(f"no table or attribute {name!r}. Tables: {', '.join(TABLES)}")

    def __enter__(self) -> "LiveTrace":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def trace(
    command: Sequence[str], *, record: Path | str | None = None, user: str | None = None, **settings: Any
) -> LiveTrace:
    """Trace a command from its fork on; use as a context manager.

    `record`: a folder for the recording, "last", or None for a temporary one. `settings`: those of `Settings`.
    Raises UsageError for a setting that is not there or cannot be.
    """
    if isinstance(command, str) or not command:
        raise UsageError(f'the command is a list of words, such as ["python", "shop.py"], not {command!r}')
    unknown = settings.keys() - set(Settings.__dataclass_fields__)
    if unknown:
        raise UsageError(
            f"no such setting: {', '.join(sorted(unknown))}. Settings: {', '.join(Settings.__dataclass_fields__)}"
        )
    return LiveTrace(Command(tuple(command), user), Settings(**settings), record)
