"""A tape without secrets, of the same lengths, that gives the same rows: `tracehound tape scrub`.

The tape is decoded once with parsers that are watched: each says what the bytes that it passed over become
(`Protocol.scrub`); answers of DNS keep what names addresses. Then it is written anew: bytes that no parser passed over
become `x`, and so do secret arguments of programs and all of a record of a kind that is not known; of copied stacks
only addresses stay. At the end both tapes are replayed and their rows compared.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracehound import scrub_calls
from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.decode.exchange import Connection
from tracehound.decode.space_records import PROT_EXEC
from tracehound.decode.stack_scrub import Code, without_values
from tracehound.enrich.fillers import FILLER, fill, fill_arguments
from tracehound.errors import ProtocolError, SinkError
from tracehound.protocols import Protocol, load_protocols
from tracehound.replay import TapeReplay
from tracehound.sources import tape as tapes
from tracehound.sources.tape import Tape
from tracehound.sources.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tracehound.protocols._buffer import StreamBuffer
    from tracehound.protocols._protocol import Request, Response

X: Final = FILLER.encode()
RECORD_START: Final = struct.Struct("<16xIH")  # size, kind
LEAST_RECORD: Final = 32
DIRECTION_RECEIVE: Final = 1
ARGUMENTS: Final = ("exec", "fact_process")
WATCHED: Final = ("old_value", "new_value", "known")  # what stood at a watched address


@dataclass(frozen=True, slots=True)
class Report:
    """What was done. `differs`: tables whose rows are not the same; `notes`: lines that the user should be told."""

    payload_bytes: int
    kept_bytes: int
    arguments: int
    differs: tuple[str, ...]
    notes: tuple[str, ...]


def scrub(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Report:
    """Write a scrubbed copy of a tape to a new file. Raises RecordingError, SinkError.

    A tape that is cut gives one that is cut at the same place.
    """
    with Tape(source) as tape:
        watched = _watch(tape)
        writer = _Writer(tape, watched)
        descriptor = tapes.create(target)
        try:
            with open(descriptor, "wb") as file:
                file.write(tapes.start_of(tape.facts, True, tape.layout.btf.data))
                for frame in tape.frames():
                    data = writer.scrubbed(frame.data) if frame.type == tapes.RECORDS else frame.data
                    file.write(tapes.pack(frame.type, data, frame.ring))
        except OSError as error:
            Path(target).unlink(missing_ok=True)
            raise SinkError(f"cannot write {target}: {error.strerror}") from error
        before = _digests(tape)
    with Tape(target) as made:
        after = _digests(made)
    differs = tuple(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    notes = []
    if differs:
        notes.append(f"not all rows stayed the same, in: {', '.join(sorted(differs))}")
    if watched.unable:
        notes.append(f"nothing is kept of {', '.join(sorted(watched.unable))}: it cannot be scrubbed yet")
    return Report(writer.payload_bytes, writer.kept_bytes, writer.arguments, differs, tuple(notes))


# ---- what parsers keep ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stream:
    """What the bytes of one direction become: pieces by position, later ones over earlier ones."""

    pieces: list[tuple[int, int, bytes]] = field(default_factory=list)  # position, number, bytes
    longest: int = 0
    is_sorted: bool = True

    def put(self, position: int, data: bytes) -> None:
        data = data.rstrip(X)
        if data:
            self.pieces.append((position, len(self.pieces), data))
            self.longest = max(self.longest, len(data))
            self.is_sorted = False

    def read(self, start: int, size: int) -> bytes:
        """Return `size` bytes from a position on, `x` where nothing is kept."""
        if not self.is_sorted:
            self.pieces.sort()
            self.is_sorted = True
        out = bytearray(X * size)
        first = bisect_left(self.pieces, (start - self.longest,))
        last = bisect_right(self.pieces, (start + size,))
        for position, _, data in sorted(self.pieces[first:last], key=lambda piece: piece[1]):
            at = max(position - start, 0)
            part = data[max(start - position, 0) :][: size - at] if position + len(data) > start else b""
            out[at : at + len(part)] = part
        return bytes(out)


class _Life:
    """One connection of one socket, and both its streams by direction."""

    __slots__ = ("began_ns", "connection", "streams")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.began_ns = connection.began_ns
        self.streams = (_Stream(), _Stream())


class _Known(dict[int, Connection]):
    """The connections that decode knows; keeps what becomes of their bytes when they are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: dict[int, list[_Life]] = {}
        self._newest: list[_Life] = []  # without a protocol so far

    def __setitem__(self, cookie: int, connection: Connection) -> None:
        super().__setitem__(cookie, connection)
        life = _Life(connection)
        self.lives.setdefault(cookie, []).append(life)
        self._newest.append(life)

    def life_of(self, state: object) -> _Life:
        """Return the connection that a parser's state is of."""
        for life in reversed(self._newest):
            if life.connection.state is state:
                self._newest.remove(life)
                return life
        every = (life for lives in self.lives.values() for life in lives)
        return next(life for life in every if life.connection.state is state)

    def at(self, cookie: int, time_ns: int) -> _Life | None:
        """Return the connection that a socket was at a time."""
        lives = self.lives.get(cookie, [])
        return next((life for life in reversed(lives) if life.began_ns <= time_ns), lives[0] if lives else None)

    def keep_answer(self, cookie: int, time_ns: int, position: int, data: bytes) -> None:
        """Keep what an answer of DNS needs."""
        life = self.at(cookie, time_ns)
        if life is not None:
            life.streams[DIRECTION_RECEIVE].put(position, data)


class _State:
    """A parser's state, and for each kind of message what its last window becomes if the parser goes no further."""

    __slots__ = ("inner", "life", "owner", "waiting")

    def __init__(self, owner: "_Watched", inner: Any) -> None:
        self.owner = owner
        self.inner = inner
        self.life: _Life | None = None
        self.waiting: dict[int, tuple[int, int, Callable[[int], bytes]]] = {}


class _Watched:
    """A protocol whose parser is watched."""

    def __init__(self, protocol: Protocol, known: _Known, states: list[_State]) -> None:
        self._protocol = protocol
        self._known = known
        self._states = states
        self.was_used = False

    def as_protocol(self) -> Protocol:
        bridge = None if self._protocol.bridge is None else self._bridge
        settle = None if self._protocol.settle is None else self._settle_parser
        return self._protocol._replace(
            new_state=self._new_state, parse=self._parse, reset=self._reset, bridge=bridge, settle=settle, is_fresh=None
        )  # a state stays while idle: what it holds for the scrubbed tape is needed at the end

    def _new_state(self) -> _State:
        self._states.append(_State(self, self._protocol.new_state()))
        return self._states[-1]

    def _parse(self, buffer: "StreamBuffer", kind: int, state: _State) -> "Request | Response | None":
        if self._protocol.scrub is None:
            self.was_used = True
            return self._protocol.parse(buffer, kind, state.inner)
        state.waiting.pop(kind, None)
        passed = self._protocol.scrub(buffer, kind, state.inner, fill)
        start, window = buffer.base + buffer.cursor, buffer.data[buffer.cursor :]
        try:
            message = self._protocol.parse(buffer, kind, state.inner)
        except ProtocolError:
            self._stream(state, kind).put(start, passed(len(window)))
            raise
        if message is None:
            state.waiting[kind] = start, len(window), passed
            if buffer.base + buffer.cursor > start:
                self.settle(state)
        else:
            size = min(buffer.base + buffer.cursor - start, len(window))
            self._stream(state, kind).put(start, passed(size))
        return message

    def _stream(self, state: _State, kind: int) -> _Stream:
        if state.life is None:
            state.life = self._known.life_of(state)
        streams = state.life.connection.streams
        assert streams is not None
        return state.life.streams[next(one.direction for one in streams if one.kind == kind)]

    def settle(self, state: _State) -> None:
        """Keep what waits: the parser stopped there for good, or passed over it."""
        for kind, (start, size, passed) in state.waiting.items():
            self._stream(state, kind).put(start, passed(size))
        state.waiting.clear()

    def _reset(self, state: _State) -> None:
        self.settle(state)
        self._protocol.reset(state.inner)

    def _settle_parser(self, state: _State) -> None:
        assert self._protocol.settle is not None
        self._protocol.settle(state.inner)

    def _bridge(self, buffer: "StreamBuffer", kind: int, state: _State) -> bool:
        self.settle(state)
        assert self._protocol.bridge is not None
        return self._protocol.bridge(buffer, kind, state.inner)


@dataclass(frozen=True, slots=True)
class _Kept:
    known: _Known
    unable: frozenset[str]  # protocols whose bytes are not kept


def _watch(tape: Tape) -> _Kept:
    """Decode a tape and keep what its parsers say of their bytes."""
    known, states = _Known(), list[_State]()
    watched = {one.name: _Watched(one, known, states) for one in load_protocols()}
    replay = TapeReplay(tape)
    protocols = [one.as_protocol() for one in watched.values()]
    replay.run([], protocols=protocols, connections=known, keep_names=known.keep_answer)
    for state in states:
        state.owner.settle(state)
    return _Kept(known, frozenset(name for name, one in watched.items() if one.was_used))


# ---- the new tape --------------------------------------------------------------------------------------------------


class _Writer:
    """Makes frames of records without what is not kept."""

    def __init__(self, tape: Tape, kept: _Kept) -> None:
        self.payload_bytes = self.kept_bytes = self.arguments = 0
        self._layout = tape.layout
        self._calls = scrub_calls.CallScrubber()
        self._known = kept.known
        self._kinds = tape.layout.kinds
        versions = Versions(tape.layout, wire_layout())
        self._unknown = frozenset(versions.unknown_kinds)
        self._peek = tape.layout.enum("data_flag").get("DATA_PEEK", 0)
        self._code = _code_of(tape)

    def scrubbed(self, raw: bytes) -> bytes:
        """Return a frame of records; from where it is damaged on it is all zero, which is damage, too."""
        out, at = bytearray(raw), 0
        while at + LEAST_RECORD <= len(raw):
            size, number = RECORD_START.unpack_from(raw, at)
            if size < LEAST_RECORD or at + size > len(raw):
                break
            kind = self._kinds.get(number)
            dtype = self._layout.dtypes.get(kind or "")
            if kind is None or dtype is None or kind in self._unknown or size < dtype.itemsize:
                out[at + LEAST_RECORD : at + size] = bytes(size - LEAST_RECORD)
            elif kind == "data":
                self._scrub_data(out, at, size, dtype)
            elif kind == "call_stack":
                record, first = np.frombuffer(out, dtype, 1, at)[0].copy(), at + dtype.itemsize
                out[first : at + size] = without_values(record, bytes(out[first : at + size]), self._code)
            elif kind in scrub_calls.KINDS:
                first = at + dtype.itemsize
                out[first : at + size] = self._calls.clean(
                    kind, np.frombuffer(out, dtype, 1, at), bytes(out[first : at + size])
                )
            elif kind == "call_watch":
                record = np.frombuffer(out, dtype, 1, at)
                for name in WATCHED:
                    record[name] = 0
            else:
                self._scrub_tail(out, at, size, dtype, kind in ARGUMENTS)
            if kind == "fact_point" and dtype is not None:
                self._calls.learn(np.frombuffer(out, dtype, 1, at)[0], bytes(out[at + dtype.itemsize : at + size]))
            padded = size + -size % 8
            out[at + size : at + padded] = bytes(min(padded, len(raw) - at) - size)
            at += padded
        out[at:] = bytes(max(len(raw) - at, 0))
        return bytes(out)

    def _scrub_data(self, out: bytearray, at: int, size: int, dtype: np.dtype[np.void]) -> None:
        record = np.frombuffer(out, dtype, 1, at)[0].copy()
        first, last = at + dtype.itemsize, at + size
        head, tail, end = int(record["head_size"]), int(record["tail_size"]), int(record["position_end"])
        head = min(head, last - first)
        tail = min(tail, last - first - head)
        start = end - int(record["call_size"]) + int(record["offset"])
        life = self._known.at(int(record["cookie"]), int(record["time_ns"]))
        if life is None or int(record["flags"]) & self._peek:
            made = X * (last - first)
        else:
            stream = life.streams[int(record["direction"]) & 1]
            made = stream.read(start, head) + stream.read(end - tail, tail)
            made += X * (last - first - len(made))
        self.payload_bytes += last - first
        self.kept_bytes += sum(a == b for a, b in zip(made, out[first:last], strict=True))
        out[first:last] = made

    def _scrub_tail(self, out: bytearray, at: int, size: int, dtype: np.dtype[np.void], has_arguments: bool) -> None:
        """Scrub arguments, and what is behind the pieces that the record speaks of."""
        record = np.frombuffer(out, dtype, 1, at)[0].copy()
        end, used = at + size, at + dtype.itemsize
        used += sum(int(record[name]) for name in dtype.names or () if name.endswith("_size"))
        out[min(used, end) : end] = bytes(max(end - used, 0))
        if has_arguments:
            first = min(at + dtype.itemsize + int(record["exe_size"]), end)
            self._scrub_arguments(out, first, min(first + int(record["argv_size"]), end))

    def _scrub_arguments(self, out: bytearray, first: int, last: int) -> None:
        before = bytes(out[first:last]).split(b"\0")
        after = [*fill_arguments(before[:-1]), before[-1]] if before[-1] == b"" else fill_arguments(before)
        self.arguments += sum(a != b for a, b in zip(before, after, strict=True))
        out[first:last] = b"\0".join(after)


def _code_of(tape: Tape) -> Code:
    """Return where the processes of a tape had code."""
    found = [np.empty((0, 2), np.uint64)]
    if "fact_mapping" in tape.layout.dtypes:
        for frame in tape.frames_of(tape.layout.enum("ring_id")["RING_FACT"]):
            records = split(frame.data, tape.layout).records.get("fact_mapping")
            if records is not None:
                fixed = records.fixed[(records.fixed["protection"] & PROT_EXEC) != 0]
                found.append(np.stack((fixed["start"], fixed["end"]), axis=1))
    ranges = np.concatenate(found)
    return Code(ranges[:, 0], ranges[:, 1])


# ---- proof ---------------------------------------------------------------------------------------------------------


class _Digests:
    """A sink that keeps one hash of the rows of each table, however they come."""

    def __init__(self) -> None:
        self.of_table: dict[str, Any] = {}

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        from tracehound.sinks._encode import json_lines

        for name, rows in tables.items():
            self.of_table.setdefault(name, blake2b(digest_size=16)).update(json_lines(name, rows))

    def flush(self) -> None: ...

    def take_losses(self) -> None: ...

    def close(self) -> None: ...


def _digests(tape: Tape) -> dict[str, bytes]:
    sink = _Digests()
    TapeReplay(tape).run([sink])
    return {name: found.digest() for name, found in sink.of_table.items()}
