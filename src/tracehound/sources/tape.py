"""A tape: everything that entered the line of one trace, in one file that explains itself. docs/tape.md is its format.

It holds the records as they were drained, the facts beside them, the BTF of both, and what else became rows; so a
replay needs neither root nor the machine. Frames are written as they come, each with its length and checksum: whoever
ends the writer, all but the last frame is there. Leaves out decode: `replay` does that.
"""

import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from tracehound.batch import Raw
from tracehound.btf import Btf, Layout
from tracehound.errors import LayoutError, RecordingError, SinkError
from tracehound.recording import Facts, Owner, loss_counter
from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC: Final = b"\x89TAPE\r\n\x1a"
VERSION: Final = 1
START: Final = struct.Struct("<8sHH4x")  # magic, version, 0
FRAME: Final = struct.Struct("<IIBBHI")  # bytes stored, bytes, type, codec, ring, crc32 of the 12 before and the stored
LONGEST: Final = 256 << 20  # bytes of a frame
LEAST_PACKED: Final = 128  # fewer bytes are not worth it
MODE: Final = 0o600

# Types of frames; one that a reader does not know is passed over
HEADER: Final = 1  # JSON, the first frame
BTF: Final = 2  # the second
RECORDS: Final = 3  # whole records, each padded to 8 bytes
PROBES: Final = 4  # JSON: rows of `probes`
COUNTS: Final = 5  # JSON: time_ns, and what was counted outside of the records, from the beginning
FINISH: Final = 6  # JSON: time_ns of the end of decode
END: Final = 7  # JSON: how the trace ended; the last frame

PLAIN: Final = 0
ZSTD: Final = 1


class Packed(NamedTuple):
    """A frame that is ready to be written."""

    data: bytes
    records: int


class Frame(NamedTuple):
    """A frame that was read; `ring` is of the first record, 0 of other types."""

    type: int
    ring: int
    data: bytes


@cache
def _codec() -> Any:
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


def pack(type_: int, data: Raw, ring: int = 0) -> bytes:
    """Return one frame, compressed if that makes it smaller by a tenth."""
    view = memoryview(data)  # type: ignore[arg-type]
    codec, stored = PLAIN, view
    if len(view) >= LEAST_PACKED:
        smaller = _codec().compress(view, asbytes=True)
        if len(smaller) < 0.9 * len(view):
            codec, stored = ZSTD, memoryview(smaller)
    head = FRAME.pack(len(stored), len(view), type_, codec, ring, 0)
    crc = zlib.crc32(stored, zlib.crc32(head[:12]))
    return head[:12] + struct.pack("<I", crc) + stored


def pack_json(type_: int, content: Any) -> bytes:
    """Return a frame of JSON."""
    return pack(type_, json.dumps(content).encode())


def start_of(facts: Facts, redacted: bool, btf: bytes) -> bytes:
    """Return the beginning of a tape: magic, header, BTF."""
    header = {
        "redacted": redacted,
        "tracehound": facts.version,
        "host": facts.host,
        "boot_id": facts.boot_id,
        "kernel": facts.kernel,
        "command": list(facts.command),
        "switches": dict(facts.switches),
        "clock_anchors": [list(anchor) for anchor in facts.clock_anchors],
    }
    return START.pack(MAGIC, VERSION, 0) + pack_json(HEADER, header) + pack(BTF, btf)


def create(path: str | os.PathLike[str], owner: Owner | None = None) -> int:
    """Make the file of a tape, of mode 0600 and `owner`'s, and return its descriptor; raises SinkError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, MODE)
    except FileExistsError:
        raise SinkError(f"{path} is there already; a tape is a new file") from None
    except OSError as error:
        raise SinkError(f"cannot write {path}: {error.strerror}") from error
    if owner is not None and os.geteuid() == 0:
        os.fchown(descriptor, owner.uid, owner.gid)
    return descriptor


class TapeWriter:
    """A tape that is being written. Beside the line it is a sink, which takes no rows but tells what it lost."""

    def __init__(
        self, path: str | os.PathLike[str], facts: Facts, layout: Layout, cap_bytes: int, owner: Owner | None = None
    ) -> None:
        """Make the file and write its beginning. `cap_bytes`: it grows no larger, but for its end. Raises SinkError."""
        self.path = Path(path)
        self.ending: dict[str, Any] = {}  # what the end says beside what is known here
        self._left = cap_bytes
        self._lost: Counter[str] = Counter()
        self._all_lost: Counter[str] = Counter()
        self._last_ns: int | None = None
        self._stopped = ""  # the counter of all that comes from now on
        self._descriptor = create(path, owner)
        self._write(start_of(facts, False, layout.btf.data), 0)
        if self._stopped:
            self.discard()
            raise SinkError(f"cannot write {path}: {self._stopped.replace('_', ' ')}")

    def pack(self, raw: Raw, records: int) -> Packed:
        """Make a frame of raw records, to be put later; an empty one once the tape has stopped."""
        if self._stopped or not len(raw):
            return Packed(b"", records)
        ring = int.from_bytes(bytes(raw[20:22]), "little") >> 8
        return Packed(pack(RECORDS, raw, ring), records)

    def put(self, packed: Packed, newest_ns: int) -> None:
        """Write records that `pack` made; the order of these calls is the order of the tape."""
        self._last_ns = max(newest_ns, self._last_ns or 0)
        self._write(packed.data, packed.records)

    def put_probes(self, rows: "pa.RecordBatch") -> None:
        """Write rows of `probes`."""
        self._write(pack_json(PROBES, rows.drop_columns(["wall_time"]).to_pylist()), 0)

    def put_counts(self, time_ns: int, counters: Mapping[tuple[str, str], int]) -> None:
        """Write what had been counted outside of the records by `time_ns`: (stage, counter) -> how many."""
        content = {"time_ns": time_ns, "counters": [[*name, count] for name, count in counters.items()]}
        self._write(pack_json(COUNTS, content), 0)

    def put_finish(self, time_ns: int) -> None:
        """Write that nothing more comes."""
        self._write(pack_json(FINISH, {"time_ns": time_ns}), 0)

    def _write(self, data: bytes, records: int) -> None:
        if not self._stopped and len(data) > self._left:
            self._stopped = "tape_full"
        if self._stopped:
            self._lost[self._stopped] += records
            return
        self._left -= len(data)
        try:
            self._put_bytes(data)
        except OSError as error:
            self._stopped = loss_counter(error)
            self._lost[self._stopped] += records

    def _put_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Do nothing: rows are made anew in a replay."""

    def flush(self) -> None:
        """Do nothing: frames are out as soon as they are written."""

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return rows of `losses` for records that are not on the tape: it was full, or the disk was."""
        lost, self._lost = self._lost, Counter()
        self._all_lost += lost
        names = [name for name, count in lost.items() if count]
        if not names:
            return None
        values = {"stage": ["tape"] * len(names), "counter": names, "count": [lost[name] for name in names]}
        times = {name: [self._last_ns] * len(names) for name in ("time_ns", "last_ns")}
        return build(TABLES["losses"], len(names), values | times)

    def close(self) -> None:
        """Write how the trace ended, and close the file. Idempotent."""
        if self._descriptor < 0:
            return
        end = pack_json(END, self.ending | {"lost": dict(self._all_lost + self._lost), "stopped": self._stopped})
        try:
            if self._stopped in ("", "tape_full"):
                self._put_bytes(end)
        except OSError as error:
            self._stopped = loss_counter(error)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Close and remove the file: its trace did not begin."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a tape ends before its end, and why; `position` is a byte of the file."""

    position: int
    reason: str


class Tape:
    """A tape opened for reading. A context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the header and the layout; raises RecordingError for a file that is no tape, or damaged there."""
        self.path = Path(path)
        self.cut: Cut | None = None  # known once all frames were read
        try:
            self._file: BinaryIO = self.path.open("rb")
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror}") from error
        try:
            self._check_start()
            self._read_header(self._needed(HEADER, "header"))
            self.layout = Layout(Btf(self._needed(BTF, "layout")))
            self._check_layout()
        except BaseException:
            self._file.close()
            raise
        self._begin = self._file.tell()

    def _check_start(self) -> None:
        start = self._file.read(START.size)
        if start[: len(MAGIC)] != MAGIC[: len(start)] or not start:
            raise RecordingError(f"{self.path} is not a tape")
        if len(start) < START.size:
            raise RecordingError(f"{self.path} is cut within its first {START.size} bytes: nothing is left of it")
        _, version, _ = START.unpack(start)
        if version > VERSION:
            raise RecordingError(f"{self.path} is of version {version}; this tracehound reads up to {VERSION}")

    def _needed(self, type_: int, what: str) -> bytes:
        frame = self._next()
        if frame is None or frame.type != type_:
            reason = self.cut.reason if self.cut else "another frame stands there"
            raise RecordingError(f"{self.path} has lost its {what}: {reason}. Nothing can be read without it")
        return frame.data

    def _read_header(self, data: bytes) -> None:
        try:
            header = json.loads(data)
            self.redacted = bool(header["redacted"])
            self.facts = Facts(
                host=str(header["host"]),
                boot_id=str(header["boot_id"]),
                version=str(header["tracehound"]),
                command=tuple(map(str, header["command"])),
                switches={str(name): bool(value) for name, value in header["switches"].items()},
                clock_anchors=tuple((int(anchor[0]), int(anchor[1])) for anchor in header["clock_anchors"]),
                kernel=str(header["kernel"]),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise RecordingError(f"{self.path}: its header is damaged: {error!r}") from error

    def _check_layout(self) -> None:
        try:
            dtypes = self.layout.dtypes
            missing = {"fact_tick"} - dtypes.keys()
        except LayoutError as error:
            raise RecordingError(f"{self.path}: its layout is damaged: {error}") from error
        if missing:
            raise RecordingError(f"{self.path}: its layout has no records of {', '.join(missing)}")

    def frames_of(self, ring: int) -> Iterator[Frame]:
        """Yield the frames of records whose first one is of `ring`; the others are neither read nor checked."""
        self._file.seek(self._begin)
        while (frame := self._next(ring)) is not None:
            yield frame

    def frames(self) -> Iterator[Frame]:
        """Yield all frames behind the layout, from the first; afterwards `cut` tells whether the end was there."""
        self._file.seek(self._begin)
        self.cut = None
        type_ = 0
        while (frame := self._next()) is not None:
            type_ = frame.type
            yield frame
        if self.cut is None and type_ != END:
            self.cut = Cut(self._file.tell(), "its end is missing, as if the trace had been killed")

    def _next(self, only_ring: int | None = None) -> Frame | None:
        """Return the next frame; None at the end, and where nothing can be read any more, which `cut` then says."""
        position = self._file.tell()
        head = self._file.read(FRAME.size)
        while only_ring is not None and len(head) == FRAME.size:
            stored, _, type_, _, ring, _ = FRAME.unpack(head)
            if (type_, ring) == (RECORDS, only_ring):
                break
            self._file.seek(min(stored, LONGEST), os.SEEK_CUR)
            position, head = self._file.tell(), self._file.read(FRAME.size)
        if not head:
            return None
        if len(head) < FRAME.size:
            return self._end(position, "the file ends within a frame")
        stored, size, type_, codec, ring, crc = FRAME.unpack(head)
        if stored > LONGEST or size > LONGEST or codec not in (PLAIN, ZSTD):
            return self._end(position, "no frame begins there")
        data = self._file.read(stored)
        if len(data) < stored:
            return self._end(position, "the file ends within a frame")
        if zlib.crc32(data, zlib.crc32(head[:12])) != crc:
            return self._end(position, "the checksum of a frame is wrong")
        if codec == ZSTD:
            try:
                data = _codec().decompress(data, decompressed_size=size, asbytes=True)
            except (OSError, ValueError):
                return self._end(position, "a frame cannot be unpacked")
        if len(data) != size:
            return self._end(position, "a frame has another size than it says")
        return Frame(type_, ring, data)

    def _end(self, position: int, reason: str) -> Frame | None:
        self.cut = Cut(position, reason)
        return None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "Tape":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_tape(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file begins as a tape does; raises RecordingError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}") from error
