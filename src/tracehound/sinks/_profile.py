"""Rows of `calls` and `stacks` -> one profile: distinct stacks with their weights, for `folded`, `pprof` and `flame`.

A stack counts once for each row of `calls` that has its `stack_id`, or with the sum of a column of these rows. Frames
are numbered as they come, so that a profile holds each place once; work by frame is done in columns.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound.errors import UsageError
from tracehound.sinks._text import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.recording import Facts

COUNT: Final = "count"
SHORT_WEIGHTS: Final = {"duration": "duration_ns"}
WHOLE: Final = frozenset({"complete", "fp_used", "patched"})  # of these the outermost frame is the true one
NO_ROW: Final = "no_row"  # the status of a stack whose row of `stacks` was lost
NOT_KEPT: Final = "not_kept"  # that of all stacks that are more than STACKS_MAX
STACKS_MAX: Final = 1 << 19  # some 400 MB at a depth of 100
PROCESS: Final = "process"
STATUS: Final = "status"
_KEY: Final = ("kind", "build_id", "file", "file_offset", "address", "symbol", "source", "line", "inlined")

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Function(NamedTuple):
    """What frames are merged by; `kind`: native, python, jit, kernel, or process and status, which are no code."""

    name: str
    kind: str
    file: str = ""
    source: str = ""
    is_inlined: bool = False


class Place(NamedTuple):
    """One distinct frame: `function` is a number in `functions`, `address` an offset in `file` where that is known."""

    function: int
    build_id: str
    address: int
    line: int


class Stack(NamedTuple):
    """One stack of one process; `frames` are numbers in `places`, the innermost first. `rows`: of `calls`."""

    process: str
    status: str
    frames: Int32s
    rows: int
    weight: int


@dataclass(frozen=True, slots=True)
class About:
    """What a profile is of, as its outputs say it; `started_ns` of the wall clock, 0 if unknown."""

    command: str
    host: str
    kernel: str
    version: str
    started_ns: int
    losses: Mapping[str, int]
    weight: str
    unit: str
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> str:
        """What was lost, in words."""
        found = [f"{name} {count:,}" for name, count in sorted(self.losses.items()) if count]
        return f"lost: {', '.join(found)}" if found else "nothing lost"


@dataclass(frozen=True, slots=True)
class Profile:
    """Distinct stacks with their weights, and what they are of."""

    functions: list[Function]
    places: list[Place]
    stacks: list[Stack]
    about: About

    @property
    def statuses(self) -> dict[str, tuple[int, int]]:
        """Of each status how many stacks have it, and their weight."""
        stacks, weights = Counter[str](), Counter[str]()
        for stack in self.stacks:
            stacks[stack.status] += 1
            weights[stack.status] += stack.weight
        return {status: (count, weights[status]) for status, count in stacks.most_common()}


class Weight(NamedTuple):
    """What a stack weighs: `column` of `calls`, None for one a row; as it is called, and its unit."""

    column: str | None
    name: str
    unit: str


def weight_of(text: str) -> Weight:
    """Return the weight that a user named: count, duration, or a column of `calls` with numbers; raises UsageError."""
    from tracehound.tables import TABLES

    if text == COUNT:
        return Weight(None, "calls", "count")
    column = SHORT_WEIGHTS.get(text, text)
    numbers = [each.name for each in TABLES["calls"] if each.type in ("int64", "int32")]
    if column not in numbers:
        from difflib import get_close_matches

        near = get_close_matches(text, numbers, 3, 0.6)
        shown = f"Near: {', '.join(near)}" if near else "There are: count, duration, and columns of calls with numbers"
        raise UsageError(f"no weight {text}. {shown}")
    return Weight(column, text, "nanoseconds" if column.endswith("_ns") else "count")


@dataclass(slots=True)
class Stacks:
    """Collects a profile from tables, as they come; memory grows with distinct stacks only, up to `STACKS_MAX`."""

    weight: Weight = field(default_factory=lambda: weight_of(COUNT))
    losses: Counter[str] = field(default_factory=Counter)
    without_stack: int = 0  # rows of `calls`
    without_weight: int = 0  # rows whose column is null or below 0: they weigh nothing
    _functions: dict[Function, int] = field(default_factory=dict)
    _places: dict[Place, int] = field(default_factory=dict)
    _frames: dict[int | None, tuple[str, Int32s]] = field(default_factory=dict)  # by stack_id: status, places
    _rows: Counter[tuple[str, int | None]] = field(default_factory=Counter)  # by process and stack_id
    _weights: Counter[tuple[str, int | None]] = field(default_factory=Counter)

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Take rows of `calls`, `stacks` and `losses`; of others nothing."""
        if "stacks" in tables:
            self.take_stacks(tables["stacks"])
        if "calls" in tables and "stack_id" in tables["calls"].schema.names:
            self._take_calls(tables["calls"])
        if "losses" in tables:
            for name, count in zip(*(tables["losses"][each].to_pylist() for each in ("counter", "count")), strict=True):
                self.losses[name] += count

    def _take_calls(self, rows: "pa.RecordBatch") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        value: Any = pa.array(np.ones(rows.num_rows, np.int64))
        if self.weight.column is not None:
            value = rows[self.weight.column].cast(pa.int64())
        value = pc.if_else(pc.greater_equal(value, 0), value, None)
        columns = {name: rows[name] for name in ("service", "comm", "stack_id")} | {"value": value}
        wanted: list[tuple[Any, str]] = [([], "count_all"), ("value", "sum"), ("value", "count")]
        found = pa.table(columns).group_by(["service", "comm", "stack_id"]).aggregate(wanted)
        for row in found.to_pylist():
            process = row["service"] or row["comm"] or "?"
            self.add(process, row["stack_id"], row["count_all"], row["value_sum"] or 0, row["value_count"])

    def add(self, process: str, stack_id: int | None, rows: int, weight: int, weighed: int) -> None:
        """Take rows of one process and stack; `weighed`: those of them that have a weight."""
        if stack_id is None:
            self.without_stack += rows
            return
        self.without_weight += rows - weighed
        key: tuple[str, int | None] = (process, stack_id)
        if len(self._rows) >= STACKS_MAX and key not in self._rows:
            key = (process, None)
        self._rows[key] += rows
        self._weights[key] += weight

    def take_stacks(self, rows: "pa.RecordBatch") -> None:
        """Take rows of `stacks`; one that is known already is passed over, as are those above `STACKS_MAX`."""
        import pyarrow as pa

        ids = rows["stack_id"].to_pylist()
        new = [at for at, number in enumerate(ids) if number not in self._frames]
        del new[max(STACKS_MAX - len(self._frames), 0) :]
        if not new:
            return
        rows = rows.take(pa.array(new))
        frames = rows["frames"].fill_null([])
        sizes = np.diff(frames.offsets.to_numpy())
        ends = np.cumsum(sizes)
        places = self._numbers(frames.flatten())
        statuses = rows["status"].to_pylist()
        for at, end, size, status in zip(new, ends.tolist(), sizes.tolist(), statuses, strict=True):
            self._frames[ids[at]] = status or "?", places[end - size : end].copy()

    def _numbers(self, frames: "pa.StructArray") -> Int32s:
        """Return the number in `places` of each frame."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {name: frames.field(name) for name in _KEY}
        known = pc.is_valid(columns["file_offset"])
        columns["address"] = pc.if_else(known, pa.scalar(None, columns["address"].type), columns["address"])
        codes: Int64s = np.zeros(len(frames), np.int64)
        for column in columns.values():
            encoded = column.dictionary_encode()
            indices = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
            mixed = pa.array(codes * (len(encoded.dictionary) + 1) + indices)
            codes = mixed.dictionary_encode().indices.to_numpy().astype(np.int64)
        _, first = np.unique(codes, return_index=True)
        distinct = pa.table(columns).take(pa.array(first)).to_pylist()
        return np.array([self._place(each) for each in distinct], np.int32)[codes]

    def _place(self, frame: Mapping[str, Any]) -> int:
        function = _function(frame)
        number = self._functions.setdefault(function, len(self._functions))
        build_id = frame["build_id"] or ""
        address = frame["file_offset"] if frame["file_offset"] is not None else frame["address"]
        text = build_id.hex() if isinstance(build_id, bytes) else build_id
        place = Place(number, text, (address or 0) & (1 << 64) - 1, frame["line"] or 0)
        return self._places.setdefault(place, len(self._places))

    @property
    def is_empty(self) -> bool:
        """Whether no row of `calls` had a stack."""
        return not self._rows

    def profile(self, facts: "Facts") -> Profile:
        """Return what was collected, heaviest first; `facts`: of the trace."""
        nothing = np.empty(0, np.int32)
        stacks = []
        for (process, number), weight in self._weights.items():
            status, frames = self._frames.get(number, (NOT_KEPT if number is None else NO_ROW, nothing))
            stacks.append(Stack(process, status, frames, self._rows[process, number], weight))
        stacks.sort(key=lambda stack: (-stack.weight, -stack.rows, stack.process))
        return Profile(list(self._functions), list(self._places), stacks, self._about(facts))

    def _about(self, facts: "Facts") -> About:
        notes = []
        if self.without_stack:
            notes.append(f"calls without a stack: {self.without_stack:,}")
        if self.without_weight:
            notes.append(f"calls without {self.weight.name}, which weigh nothing: {self.without_weight:,}")
        started_ns = facts.clock_anchors[0][1] if facts.clock_anchors else 0
        command, name, unit = printable(" ".join(facts.command)), self.weight.name, self.weight.unit
        about = (command, printable(facts.host), facts.kernel, facts.version, started_ns)
        return About(*about, dict(self.losses), name, unit, tuple(notes))


def _function(frame: Mapping[str, Any]) -> Function:
    """Return the function of a frame; without a symbol it is named for its place."""
    file, offset, address = frame["file"] or "", frame["file_offset"], frame["address"]
    name = frame["symbol"]
    if not name and file and offset is not None:
        name = f"{PurePosixPath(file).name}+{offset:#x}"
    elif not name:
        name = f"[{(address or 0) & (1 << 64) - 1:#x}]"
    name, kind, file, source = map(printable, (name, frame["kind"] or "native", file, frame["source"] or ""))
    return Function(name, kind, file, source, bool(frame["inlined"]))


def outermost_first(profile: Profile, stack: Stack) -> list[Function]:
    """Return a stack as functions: its process, a mark if the outermost frames are missing, then from the root on."""
    marks = [] if stack.status in WHOLE else [Function(f"[{stack.status}]", STATUS)]
    frames = (profile.functions[profile.places[place].function] for place in reversed(stack.frames.tolist()))
    return [Function(printable(stack.process), PROCESS), *marks, *frames]
