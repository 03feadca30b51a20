"""The library's face of a running trace: its tables and SQL over them, while it runs and after.

Rows are kept in a recording: in the folder that was named, in `last`, or in a temporary one that goes with the object.
Left out: everything that makes the rows (`agent`).
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.account import recording_source
from tracehound.agent import Trace
from tracehound.config import Settings
from tracehound.errors import TargetError, UsageError
from tracehound.recording import Recording, new_state_recording
from tracehound.sinks import FollowSink, Row, Sink, kind
from tracehound.tables import TABLES
from tracehound.target import Cgroup, Command, Container, Host, Processes, Target

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from tracehound.sinks.console import Summary
    from tracehound.sinks.flame import FlameGraph


SNAPSHOT_S: Final = 5.0  # how long rows that were asked for may take
SUMMARY_TABLES: Final = ("probes", "processes", "connections", "files", "requests", "losses")  # as it is told
FOLLOW_S: Final = 0.2  # how often a loop looks whether what is traced has ended


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

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        from tracehound.sinks._html import rows_html

        return rows_html(self.to_arrow(), self.name)


class LiveTrace:
    """A running trace: made by `tracehound.trace`, a context manager.

    `requests`, `connections`, `processes`, `listens`, `retransmits`, `probes`, `losses` are `TableView`s.
    """

    def __init__(
        self, target: Target, settings: Settings, record: Path | str | None, tape: Path | str | None = None
    ) -> None:
        """Prepare; it begins with `start()` or `with`. Raises TargetError when the target is not there."""
        self.exit_code: int | None = None
        self._trace = Trace(target, settings)
        self._record = record
        self._source = recording_source(self._trace.target, settings.redact)
        self._sinks: list[Sink] = []  # that of the recording, and one for each loop
        self._tape = tape
        self._recording: Recording | None = None

    def start(self) -> "LiveTrace":
        """Load the programs, open the recording, start the command or take in what runs.

        Raises KernelError, SinkError, TargetError.
        """
        try:
            self._trace.load()
            self._open()
            self._trace.start(self._sinks)
        except BaseException:
            self.stop()
            raise
        return self

    def _open(self) -> None:
        if self._tape is not None:
            self._trace.open_tape(self._tape)
        settings = self._trace.settings
        source = recording_source(self._trace.target, settings.redact, self._trace.switches, settings.payloads)
        self._source = source
        if self._record == "last":
            folder, owner, cap_bytes = new_state_recording()
            source = replace(source, owner=owner, cap_bytes=cap_bytes)
        elif self._record is None:
            temporary = tempfile.mkdtemp(prefix="tracehound-")
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
            folder = Path(temporary) / "recording"
        else:
            folder = Path(self._record)
        self._sinks.insert(0, kind("parquet").open(str(folder), source))
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

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until what is traced has ended, or for that many seconds.

        Return a command's exit code, 128+N for signal N; None while it runs, and for all other targets.
        """
        is_command = self._trace.process is not None
        if (is_command and timeout_s is None) or (self._trace.wait_ended(timeout_s) and is_command):
            self.exit_code = self._trace.wait()
        return self.exit_code

    @property
    def has_ended(self) -> bool:
        """Whether what is traced is gone; a host never is."""
        return self._trace.has_ended()

    def signal(self, number: int) -> None:
        """Send a signal to the command, if it still runs."""
        self._trace.signal(number)

    def stop(self) -> None:
        """End the trace, whether or not the command has ended; idempotent. The command itself is left alone."""
        try:
            self._trace.stop()
        finally:
            for sink in self._sinks:
                sink.close()

    def open_connections(self, role: str | None = None) -> "pa.Table":
        """Return the connections that are open now, as rows of `connections`, those of one role if it is given.

        Their counters are of this moment. Raises UsageError for a role that there is not.
        """
        if role not in (None, "client", "server"):
            raise UsageError(f"no role {role!r}. There are: client, server")
        moment = self._trace.snapshot()
        self._trace.wait_flushed(SNAPSHOT_S)
        wanted = f" and role = '{role}'" if role else ""
        return self.sql(f"select * from connections where event = 'snapshot' and time_ns >= {moment}{wanted}")

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

    def add_point(self, point: str, *filters: str) -> list[str]:
        """Show calls of a point from now on, in `calls`; return the names of the points that the text names.

        `point` and `filters` are as of `tracehound call`: "libc:write[fd=int,buf:arg2,size_t]", "fd > 2". The switch
        `calls` is put on. Raises UsageError for a text that is none, TargetError for what is not there, KernelError.
        """
        from tracehound.kernel.filters import parse_filter
        from tracehound.kernel.plans import PointOptions
        from tracehound.kernel.points import find_points

        target = self._trace.target
        pids = target.pids if isinstance(target, Processes) else (self.pid,) if self.pid else ()
        options = PointOptions(tuple(parse_filter(each) for each in filters))
        program = target.argv[0] if isinstance(target, Command) else None
        try:
            found = find_points([point], pids, program, options)
        except TargetError:
            if program is None:
                raise
            found = find_points([point], (), program, options)  # it may just have started, and have mapped little
        self._trace.add_points(found)
        return [each.name for each in found]

    def remove_point(self, point: str) -> list[str]:
        """Detach a point, by its name or by the text that `add_point` was given; return the names of what is gone.

        Calls that have begun have rows without return. Raises TargetError if there is no such point.
        """
        return [each.name for each in self._trace.remove_point(point)]

    @property
    def point_counts(self) -> dict[str, dict[str, int]]:
        """Of each point that was ever added: hits, and how many of them have no row: lost, filtered, dropped."""
        pointing = self._trace.pointing
        counts = self._trace.point_counts or (pointing.counts if pointing else ())  # at the end: those of the end
        found: dict[str, dict[str, int]] = {}
        for point, counted in counts:
            of_it = found.setdefault(point.name, dict.fromkeys(counted._fields, 0))
            for name, number in counted._asdict().items():
                of_it[name] += number
        return found

    def open_requests(self) -> "pa.Table":
        """Return the requests that wait for an answer, or for its end, as rows of `requests` whose `end_ns` is null.

        Empty when there are none, and before the start or after the end of the trace.
        """
        import pyarrow as pa

        rows = self._trace.open_requests()
        schema = self._source.schemas["requests"]
        return pa.Table.from_batches([] if rows is None else [rows.select(schema.names)], schema)

    def follow(self, table: str | None = None, **equal: object) -> Iterator[Row]:
        """Return an iterator over the rows from now on, each a dictionary with its table's name under `table`.

        `table`: only of that one; `equal`: only rows with these values, such as `protocol="http1"`. Rows come in the
        order of time within what is decoded at once (about 40 times a second). It ends with what is traced: with the
        command, with the last process, or by `stop()` from another thread. A trace that was not started is started, and
        stopped when the loop is left. A loop that is slower than the rows loses some: `losses`, `follow_full`.
        Raises UsageError for a table or column that there is not, and as `start()`.
        """
        follower = FollowSink(self._source.schemas, table, equal)
        self._sinks.append(follower)
        is_ours = self._recording is None
        if is_ours:
            self.start()
        return self._follow(follower, is_ours)

    def _follow(self, follower: FollowSink, is_ours: bool) -> Iterator[Row]:
        try:
            while not follower.is_closed:
                yield from follower.take(FOLLOW_S)
                if self.has_ended:
                    self._end_follow(is_ours)
                    break
            yield from follower.take(0)
        finally:
            if follower in self._sinks:
                self._sinks.remove(follower)
            if is_ours:
                self.stop()

    def _end_follow(self, is_ours: bool) -> None:
        """Have all rows of what has ended written."""
        if is_ours:
            self.stop()
        else:
            self._trace.wait_flushed(SNAPSHOT_S)

    def sql(self, query: str) -> "pa.Table":
        """Run one SELECT over the tables by name; sees every row older than a second. Raises QueryError."""
        return self.recording.sql(query)

    def flame(self, weight: str = "count", where: str | None = None) -> "FlameGraph":
        """Return the stacks of calls as a page: `str()` of it is the HTML, a notebook shows it.

        `weight`: count, duration, or a column of `calls` with numbers; `where`: an SQL expression over `calls`, with
        units, that chooses calls. Raises UsageError, also when no call has a stack.
        """
        from tracehound.sinks.flame import FlameGraph, profile_of

        return FlameGraph(profile_of(self.recording, weight, where))

    def _repr_html_(self) -> str:
        """Show the summary of the rows so far in a notebook."""
        from tracehound.sinks._html import summary_html

        return summary_html(summary_of(self.recording))

    def __getattr__(self, name: str) -> TableView:
        if name in TABLES:
            return TableView(self.recording, name)
        raise AttributeError(f"no table or attribute {name!r}. Tables: {', '.join(TABLES)}")

    def __enter__(self) -> "LiveTrace":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def summary_of(recording: Recording) -> "Summary":
    """Return the summary of the rows that a recording has now."""
    from tracehound.sinks.console import Summary

    summary = Summary()
    for name in (name for name in SUMMARY_TABLES if name in recording.tables):
        for batch in recording.table(name).to_batches():
            summary.write({name: batch})
    summary.close()
    return summary


def trace(
    command: Sequence[str] | None = None,
    *,
    pid: int | Sequence[int] | None = None,
    cgroup: str | Path | None = None,
    container: str | None = None,
    host: bool = False,
    record: Path | str | None = None,
    tape: Path | str | None = None,
    user: str | None = None,
    **settings: Any,
) -> LiveTrace:
    """Trace a command from its fork on, or what runs, from now on; use as a context manager.

    One of: `command`, a list of words; `pid`, one or several, with their children; `cgroup`, a version-2 one;
    `container`, a name or id; `host`, everything. `record`: a folder for the recording, "last", or None for a temporary
    one. `tape`: a new file for all records, raw, for `tracehound.open` and `tracehound replay`: it holds secrets, too.
    `settings`: those of `Settings`. Raises UsageError for a setting that is not there or cannot be.
    """
    unknown = settings.keys() - set(Settings.__dataclass_fields__)
    if unknown:
        raise UsageError(
            f"no such setting: {', '.join(sorted(unknown))}. Settings: {', '.join(Settings.__dataclass_fields__)}"
        )
    wanted = {"command": command, "pid": pid, "cgroup": cgroup, "container": container, "host": host or None}
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) != 1:
        raise UsageError(f"name one of {', '.join(wanted)}{', not ' * bool(given)}{' and '.join(given)}")
    return LiveTrace(_target(command, pid, cgroup, container, user), Settings(**settings), record, tape)


def _target(
    command: Sequence[str] | None,
    pid: int | Sequence[int] | None,
    cgroup: str | Path | None,
    container: str | None,
    user: str | None,
) -> Target:
    if command is not None:
        if isinstance(command, str) or not command:
            raise UsageError(f'the command is a list of words, such as ["python", "shop.py"], not {command!r}')
        return Command(tuple(command), user)
    if pid is not None:
        return Processes((pid,) if isinstance(pid, int) else tuple(pid))
    if cgroup is not None:
        return Cgroup(str(cgroup))
    return Container(container) if container is not None else Host()
