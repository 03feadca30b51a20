"""What `tracehound.open` returns: the tables of a recording, a tape or a capture, with the faces of a trace that ended.

A tape or a capture is replayed once, into a temporary recording that goes with the object; without root.
"""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from tracehound.errors import TargetError
from tracehound.live import TableView, summary_of
from tracehound.recording import Recording, resolve
from tracehound.recording.manifest import NAME
from tracehound.replay import kind_of, open_replay
from tracehound.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.sinks.flame import FlameGraph


class Opened:
    """Rows that were kept: made by `tracehound.open`. Its tables are `TableView`s, as those of a trace.

    `notes`: what the replay had to say: where a tape is cut, what one of another version lacks.
    """

    def __init__(
        self, recording: Recording, notes: tuple[str, ...] = (), elapsed_ns: int = 0, outcome: str = "", events: int = 0
    ) -> None:
        """Show a recording; the rest is what a replay tells of the trace."""
        self.recording = recording
        self.notes = notes
        self._ending = elapsed_ns, outcome, events

    def sql(self, query: str) -> "pa.Table":
        """Run one SELECT over the tables by name. Raises QueryError."""
        return self.recording.sql(query)

    def summary(self, width: int = 100) -> str:
        """Return the summary of the trace as text without colour, of lines no longer than `width`."""
        from tracehound.sinks.console import Ending, render

        elapsed_ns, outcome, events = self._ending
        command = " ".join(self.recording.manifest.facts.command)
        ending = Ending(command, elapsed_ns or self._span_ns(), outcome, events, notes=self.notes)
        return render(summary_of(self.recording), ending, width=width, color=False)

    def flame(self, weight: str = "count", where: str | None = None) -> "FlameGraph":
        """Return the stacks of calls as a page: `str()` of it is the HTML, a notebook shows it.

        `weight`: count, duration, or a column of `calls` with numbers; `where`: an SQL expression over `calls`, with
        units, that chooses calls. Raises UsageError, also when no call has a stack.
        """
        from tracehound.sinks.flame import FlameGraph, profile_of

        return FlameGraph(profile_of(self.recording, weight, where))

    def _span_ns(self) -> int:
        timed = [name for name, schema in self.recording.manifest.schemas.items() if "time_ns" in schema.names]
        tables = " union all ".join(f"select time_ns from {name}" for name in timed)
        span = self.sql(f"select max(time_ns) - min(time_ns) as span from ({tables})")["span"][0].as_py()
        return int(span or 0)

    def __getattr__(self, name: str) -> TableView:
        if name in TABLES:
            return TableView(self.recording, name)
        raise AttributeError(f"no table or attribute {name!r}. Tables: {', '.join(TABLES)}")

    def _repr_html_(self) -> str:
        """Show the summary in a notebook."""
        from tracehound.sinks._html import summary_html

        return summary_html(summary_of(self.recording))

    def __repr__(self) -> str:
        return f"<tracehound: {' '.join(self.recording.manifest.facts.command)}>"


def open_kept(path: str | os.PathLike[str], redact: bool = True) -> Opened:
    """Open a recording (a folder, or "last"), a tape, or a packet capture (pcap, pcapng).

    `redact`: blank secrets in the rows of a tape or a capture, as a trace does; a recording is what was kept. Raises
    TargetError if there is no such thing, RecordingError if it cannot be read.
    """
    if path == "last" or Path(path).is_dir() or (Path(path) / NAME).exists():
        return Opened(Recording(resolve(path)))
    if not os.path.lexists(path):
        raise TargetError(f"no recording, tape or capture {path}. `last` is the newest recording kept without a name")
    kind_of(path)
    from tracehound.sinks import kind

    with open_replay(path, redact) as replay:
        temporary = tempfile.mkdtemp(prefix="tracehound-")
        try:
            folder = Path(temporary) / "recording"
            sink = kind("parquet").open(str(folder), replay.source)
            try:
                end = replay.run([sink])
            finally:
                sink.close()
            found = Opened(Recording(folder), end.notes, end.elapsed_ns, end.outcome, end.events)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    weakref.finalize(found, shutil.rmtree, temporary, ignore_errors=True)
    return found
