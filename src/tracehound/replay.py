"""Records that were kept -> rows: a tape or a packet capture through the same line as the live rings, without root.

Of this machine only files are read, with the build id of one that stacks need and the tape lacks: what decode knew of
the other one is on the tape. A capture has no processes, and no settings of its own. Leaves out who wants the rows:
the command line, `opened`.
"""

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tracehound.account import public_schemas
from tracehound.batch import LAST_WATERMARK, Batch, split
from tracehound.btf import Layout, wire_layout
from tracehound.config import Settings
from tracehound.errors import LayoutError, RecordingError, TargetError, TracehoundError, UsageError
from tracehound.line import Line
from tracehound.sources import tape as tapes
from tracehound.sources.tape import Frame, Tape, is_tape
from tracehound.sources.versions import Versions

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.decode.exchange import Connection
    from tracehound.decode.names import Kept
    from tracehound.protocols import Protocol
    from tracehound.sinks import Sink, Source

FLUSH_FRAMES: Final = 256
TAPE: Final = "tape"
CAPTURE: Final = "capture"
NAMED: Final = 8  # of what a tape lacks
_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay ended. `notes`: lines that the user should be told; `outcome` as in the summary of the run."""

    elapsed_ns: int
    events: int
    outcome: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Times:
    """The times of the oldest and the newest record."""

    first_ns: int = 0
    last_ns: int = 0

    def see(self, batch: Batch) -> None:
        for records in batch.records.values():
            if len(records):
                times = records.fixed["time_ns"]
                self.first_ns = min(self.first_ns or int(times.min()), int(times.min()))
                self.last_ns = max(self.last_ns, min(int(times.max()), LAST_WATERMARK))


def kind_of(path: str | os.PathLike[str]) -> str:
    """Tell what a file is, TAPE or CAPTURE.

    Raises TargetError for another file or none, RecordingError for one that cannot be read.
    """
    if not os.path.lexists(path):
        raise TargetError(f"no file {path}")
    if os.path.isdir(path):
        raise TargetError(f"{path} is a folder, not a tape or a capture")
    if is_tape(path):
        return TAPE
    if _captures()[1](Path(path)):
        return CAPTURE
    raise TargetError(f"{path} is neither a tape nor a packet capture (pcap, pcapng)")


def _captures() -> tuple[Callable[[Path, Layout], Iterable[Batch]], Callable[[Path], bool]]:
    """Return `read_capture` and `is_capture`."""
    from importlib import import_module

    try:
        module = import_module("tracehound.sources.pcap")
    except ModuleNotFoundError:  # a build without captures
        return (lambda *_: ()), (lambda _: False)
    return module.read_capture, module.is_capture


class NullColumns:
    """Makes null what a tape of another version says nothing of: the first enricher of its replay."""

    def __init__(self, columns: Iterable[str]) -> None:
        """Take names as `connections.srtt_us`."""
        self._of_table: dict[str, list[str]] = {}
        for name in columns:
            table, _, column = name.partition(".")
            self._of_table.setdefault(table, []).append(column)

    def add(self, tables: "dict[str, pa.RecordBatch]") -> "dict[str, pa.RecordBatch]":
        """Return the tables without these columns' values."""
        import pyarrow as pa

        cleaned = {}
        for name, columns in self._of_table.items():
            rows = tables.get(name)
            if rows is not None:
                arrays = [
                    pa.nulls(rows.num_rows, column.type) if column.name in columns else rows.column(at)
                    for at, column in enumerate(rows.schema)
                ]
                cleaned[name] = pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
        return tables | cleaned


class TapeReplay:
    """A tape on its way through the line. A context manager."""

    def __init__(self, tape: Tape, redact: bool = True) -> None:
        """Compare the layouts and read the settings that were in force; the tape is closed with this.

        Raises RecordingError.
        """
        self.tape = tape
        try:
            self._versions = Versions(tape.layout, wire_layout())
            self.settings = self._read_settings(redact)
        except LayoutError as error:
            tape.close()
            raise RecordingError(f"{tape.path} cannot be replayed: {error}") from error
        except BaseException:
            tape.close()
            raise

    def _read_settings(self, redact: bool) -> Settings:
        from tracehound.decode.tails import tail_pieces

        first = next((frame for frame in self.tape.frames() if frame.type == tapes.RECORDS), None)
        batch = split(first.data, self.tape.layout) if first else None
        config = batch.records.get("fact_config") if batch else None
        if config is None:
            return Settings(redact=redact)
        (text,) = tail_pieces(config, ["text_size"])
        try:
            return Settings.from_text(text[0].as_py(), redact=redact)
        except UsageError as error:
            raise RecordingError(f"{self.tape.path}: its settings are damaged: {error}") from error

    @property
    def source(self) -> "Source":
        """What a sink is told of the tape when it is opened."""
        from tracehound.sinks import Source

        return Source(public_schemas(), self.tape.facts)

    @property
    def command(self) -> str:
        """What was traced, as it may be shown."""
        command = self.tape.facts.command
        return shlex.join(command) if len(command) > 1 else "".join(command)

    def run(
        self,
        sinks: "Sequence[Sink]",
        protocols: "Sequence[Protocol] | None" = None,
        connections: "dict[int, Connection] | None" = None,
        keep_names: "Kept | None" = None,
    ) -> Replayed:
        """Send all rows to the sinks, which stay the caller's; a tape that is cut gives the rows up to there.

        `protocols`: others than those of this version; `connections`: the map in which decode keeps those it knows;
        `keep_names`: is told what answers of DNS need of their bytes.
        """
        from tracehound.symbols.mapped_files import open_local
        from tracehound.symbols.module_store import ModuleStore

        modules = ModuleStore(open_local)
        line = Line(self.settings, sinks, self._versions.layout, protocols=protocols, modules=modules)
        self._learn_modules(line)
        if connections is not None:
            line.decoder.keep_connections(connections)
        if keep_names is not None:
            line.decoder.keep_names(keep_names)
        if self._versions.null_columns:
            line.enrichers.insert(0, NullColumns(self._versions.null_columns))
        times, end, finished_ns, unknown = _Times(), dict[str, Any](), 0, 0
        for count, frame in enumerate(self.tape.frames(), 1):
            if frame.type == tapes.RECORDS:
                with _decoding(self.tape.path):
                    self._take(line, frame, times)
            elif frame.type == tapes.PROBES:
                line.write_probes(self._understood(_probe_rows, frame))
            elif frame.type == tapes.COUNTS:
                line.count_losses(*self._understood(_counts, frame))
            elif frame.type == tapes.FINISH:
                finished_ns = self._understood(_finish_ns, frame)
                with _decoding(self.tape.path):
                    line.finish(finished_ns)
            elif frame.type == tapes.END:
                end = self._understood(dict, frame)
            else:
                unknown += 1
            if count % FLUSH_FRAMES == 0:
                line.flush()
        notes = self._finish(line, times, end, finished_ns)
        if unknown:
            notes.append(f"this tape has {unknown} parts that this version does not know; they were left out")
        line.flush()
        elapsed_ns = int(end.get("elapsed_ns") or times.last_ns - times.first_ns)
        return Replayed(elapsed_ns, line.events, str(end.get("outcome", "")), (*self._lacks(), *notes))

    def _learn_modules(self, line: Line) -> None:
        """Take what stacks need of files before the stacks: it was written when the first of them had been walked."""
        if "fact_module" in self.tape.layout.dtypes:
            for frame in self.tape.frames_of(self.tape.layout.enum("ring_id")["RING_FACT"]):
                batch = split(frame.data, self.tape.layout)
                if "fact_module" in batch.records:
                    line.decoder.stacks.learn(self._versions.convert(batch))

    def _understood(self, read: Callable[[Any], _Told], frame: Frame) -> _Told:
        """Return what a frame of JSON tells; raises RecordingError for one that tells something else."""
        try:
            return read(json.loads(frame.data))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise RecordingError(f"{self.tape.path}: a frame cannot be understood: {error!r}") from error

    def _take(self, line: Line, frame: Frame, times: _Times) -> None:
        batch = split(frame.data, self.tape.layout)
        times.see(batch)
        line.feed(self._versions.convert(batch))
        line.advance()

    def _finish(self, line: Line, times: _Times, end: Mapping[str, Any], finished_ns: int) -> list[str]:
        """End a line whose end is not on the tape, with rows of `losses`; return what the user should know."""
        cut, stopped = self.tape.cut, str(end.get("stopped", ""))
        if cut is None and not stopped:
            return []
        from tracehound.decode.losses import Loss, loss_rows

        if not finished_ns:
            complete_ns = max(line.merge.watermark_ns, 0)
            with _decoding(self.tape.path):
                incomplete = line.break_off()
            missing = sum(end.get("lost", {}).values()) or 1
            losses = [Loss("tape", stopped or "tape_cut", missing, times.last_ns, times.last_ns)]
            if incomplete:
                losses.append(Loss("tape", "incomplete", incomplete, complete_ns, times.last_ns))
            line.write({"losses": loss_rows(losses)})
        if cut is None:
            return [f"the tape stopped before the trace ended ({stopped.replace('_', ' ')}); rows end there"]
        kept = "all rows are there" if finished_ns else "rows end there"
        return [f"{self.tape.path} is cut at byte {cut.position:,}: {cut.reason}; {kept}"]

    def _lacks(self) -> list[str]:
        """Say what a tape of another version lacks."""
        versions, lines = self._versions, list[str]()
        missing = [*versions.missing_members, *(f"records of {kind}" for kind in versions.missing_kinds)]
        if missing:
            columns = f": columns {', '.join(versions.null_columns)} are null" if versions.null_columns else ""
            lines.append(f"this tape lacks {_some(missing)}{columns}")
        if versions.unknown_kinds:
            kinds = _some(list(versions.unknown_kinds))
            lines.append(f"this tape has records of kinds that this version does not know, left out: {kinds}")
        return lines

    def __enter__(self) -> "TapeReplay":
        return self

    def __exit__(self, *_: object) -> None:
        self.tape.close()


class CaptureReplay:
    """A packet capture on its way through the line. A context manager."""

    def __init__(self, path: Path, redact: bool = True) -> None:
        """Take the file; nothing is read yet."""
        self.path = path
        self.settings = Settings(redact=redact)

    @property
    def source(self) -> "Source":
        """What a sink is told of the capture when it is opened."""
        from importlib.metadata import version

        from tracehound.recording import Facts
        from tracehound.sinks import Source

        return Source(public_schemas(), Facts("", "", version("tracehound"), (str(self.path),)))

    @property
    def command(self) -> str:
        """What was captured: the file's name."""
        return self.path.name

    def run(self, sinks: "Sequence[Sink]") -> Replayed:
        """Send all rows to the sinks, which stay the caller's. Raises what the reader of captures raises."""
        line, times = Line(self.settings, sinks), _Times()
        for count, batch in enumerate(_captures()[0](self.path, line.layout), 1):
            times.see(batch)
            line.feed(batch)
            line.advance()
            if count % FLUSH_FRAMES == 0:
                line.flush()
        line.count_losses(times.last_ns)
        line.finish(times.last_ns)
        line.flush()
        return Replayed(times.last_ns - times.first_ns, line.events)

    def __enter__(self) -> "CaptureReplay":
        return self

    def __exit__(self, *_: object) -> None:
        pass


Replay = TapeReplay | CaptureReplay


def open_replay(path: str | os.PathLike[str], redact: bool = True) -> Replay:
    """Open a tape or a capture; raises TargetError for another file, RecordingError for one that cannot be read."""
    if kind_of(path) == TAPE:
        return TapeReplay(Tape(path), redact)
    return CaptureReplay(Path(path), redact)


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn what records lead to that no kernel writes, as times beyond 2^63, into a RecordingError."""
    try:
        yield
    except TracehoundError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RecordingError(f"{path}: its records cannot be decoded: {reason}") from error


def _counts(told: dict[str, Any]) -> tuple[int, dict[tuple[str, str], int]]:
    return int(told["time_ns"]), {(str(stage), str(name)): int(count) for stage, name, count in told["counters"]}


def _finish_ns(told: dict[str, Any]) -> int:
    return int(told["time_ns"])


def _probe_rows(rows: "list[dict[str, Any]]") -> "pa.RecordBatch":
    from tracehound.tables import TABLES, build

    names = [column.name for column in TABLES["probes"] if any(column.name in row for row in rows)]
    return build(TABLES["probes"], len(rows), {name: [row.get(name) for row in rows] for name in names})


class Survey(NamedTuple):
    """What a tape holds: records by kind, and sizes in bytes."""

    records: dict[str, int]
    unreadable: int
    file_bytes: int
    record_bytes: int


def survey(tape: Tape) -> Survey:
    """Count what a tape holds; `tape.cut` is known afterwards."""
    records, unreadable, record_bytes = Counter[str](), 0, 0
    for frame in tape.frames():
        if frame.type == tapes.RECORDS:
            batch = split(frame.data, tape.layout)
            records.update({kind: len(found) for kind, found in batch.records.items()})
            unreadable += batch.damaged
            record_bytes += len(frame.data)
    return Survey(dict(records.most_common()), unreadable, tape.path.stat().st_size, record_bytes)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
