"""The file of a tape: what is written is read again, whatever happens to its writer or to the file."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.taped import FACTS, frame_ends, make_tape, traffic

from tracehound.btf import wire_layout
from tracehound.errors import RecordingError, SinkError
from tracehound.protocols import load_protocols
from tracehound.recording import Owner
from tracehound.sources import tape as tapes
from tracehound.sources.tape import Tape, TapeWriter, is_tape, pack


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.tape"


def writer_of(path: Path, cap_bytes: int = 1 << 20) -> TapeWriter:
    return TapeWriter(path, FACTS, wire_layout(), cap_bytes)


def test_what_is_written_is_read(path: Path) -> None:
    writer = writer_of(path)
    raw = 4 * b"".join(traffic().raw)  # much more than the layout, which a tape has too
    writer.put(writer.pack(raw, 3), 9)
    writer.put_counts(7, {("drain", "damaged"): 2})
    writer.put_finish(8)
    writer.ending = {"outcome": "exit 0"}
    writer.close()
    writer.close()
    with Tape(path) as tape:
        assert (tape.facts, tape.redacted) == (FACTS, False)
        assert tape.layout.btf.data == wire_layout().btf.data
        frames = [(frame.type, frame.ring, frame.data) for frame in tape.frames()]
        assert frames == [
            (tapes.RECORDS, 3, raw),
            (tapes.COUNTS, 0, b'{"time_ns": 7, "counters": [["drain", "damaged", 2]]}'),
            (tapes.FINISH, 0, b'{"time_ns": 8}'),
            (tapes.END, 0, b'{"outcome": "exit 0", "lost": {}, "stopped": ""}'),
        ]
        assert tape.cut is None
        assert len(list(tape.frames())) == 4  # again from the beginning
    assert path.stat().st_size < len(raw) / 2


def test_only_its_owner_may_read_it_and_nothing_is_overwritten(path: Path) -> None:
    before = os.umask(0)
    try:
        writer_of(path).close()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SinkError, match=r"x\.tape is there already"):
        writer_of(path)
    link = path.with_name("link.tape")
    link.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(SinkError):
        writer_of(link)
    assert not link.exists()
    with pytest.raises(SinkError, match="No such file"):
        writer_of(path / "y.tape" if not path.is_file() else path.parent / "no" / "y.tape")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_it_belongs_to_the_user_of_sudo(path: Path) -> None:
    TapeWriter(path, FACTS, wire_layout(), 1 << 20, Owner(65534, 65534)).close()
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (65534, 0o600)


def losses_of(writer: TapeWriter) -> list[tuple[str, str, int, int]]:
    rows: pa.RecordBatch | None = writer.take_losses()
    return [] if rows is None else [(r["stage"], r["counter"], r["count"], r["last_ns"]) for r in rows.to_pylist()]


def test_a_full_tape_ends_in_order_and_counts_what_it_has_not(path: Path) -> None:
    writer = writer_of(path, 20_000)
    big = os.urandom(30_000)
    writer.put(writer.pack(b"\0" * 64, 2), 4)
    assert losses_of(writer) == []
    writer.put(writer.pack(big, 5), 5)
    writer.put(writer.pack(b"\0" * 64, 2), 6)
    assert losses_of(writer) == [("tape", "tape_full", 7, 6)]
    assert losses_of(writer) == []
    writer.close()
    assert path.stat().st_size < 21_000
    with Tape(path) as tape:
        frames = list(tape.frames())
    assert [frame.type for frame in frames] == [tapes.RECORDS, tapes.END]
    assert frames[-1].data == b'{"lost": {"tape_full": 7}, "stopped": "tape_full"}'


def test_a_full_disk_is_counted_and_raises_nothing(path: Path) -> None:
    writer = writer_of(path)
    kept = os.dup(writer._descriptor)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._descriptor)
    writer.put(writer.pack(b"\0" * 64, 2), 4)
    writer.put(writer.pack(b"\0" * 64, 3), 6)
    assert losses_of(writer) == [("tape", "disk_full", 5, 6)]
    writer.close()
    os.close(full)
    os.close(kept)
    with Tape(path) as tape:
        assert list(tape.frames()) == []
        assert tape.cut is not None and "its end is missing" in tape.cut.reason


def test_a_trace_that_did_not_begin_leaves_no_tape(path: Path) -> None:
    writer = writer_of(path)
    writer.discard()
    assert not path.exists()


def test_a_killed_writer_leaves_every_frame(path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.sources.test_tape import writer_of\n"
        "writer = writer_of(Path(sys.argv[1]))\n"
        "for n in range(100): writer.put(writer.pack(bytes([n]) * 64, 1), n)\n"
        "print('written', flush=True)\nsys.stdin.read()\n"
    )
    command, root = [sys.executable, "-c", code, str(path)], Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with Tape(path) as tape:
        assert [frame.data for frame in tape.frames()] == [bytes([n]) * 64 for n in range(100)]
        assert tape.cut is not None and "killed" in tape.cut.reason


def test_a_cut_tape_gives_all_frames_before_the_cut(path: Path, tmp_path: Path) -> None:
    make_tape(path, traffic(), [10, 30, 50])
    data = path.read_bytes()
    ends = frame_ends(data)
    cut = tmp_path / "cut.tape"
    for size in [*range(0, len(data), 61), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])]:
        cut.write_bytes(data[:size])
        if size < ends[1]:
            with pytest.raises(RecordingError, match=r"cut\.tape"):
                Tape(cut)
            continue
        with Tape(cut) as tape:
            assert len(list(tape.frames())) == sum(end <= size for end in ends) - 2
            assert (tape.cut is None) == (size == len(data))
            if tape.cut is not None:
                assert tape.cut.position == max(end for end in ends if end <= size)


WRONG = {
    "empty": (b"", "is not a tape"),
    "other": (b"%PDF-1.7 and more than twenty bytes", "is not a tape"),
    "begun": (tapes.MAGIC, "is cut within its first"),
    "newer": (tapes.START.pack(tapes.MAGIC, 9, 0), "of version 9; this tracehound reads up to 1"),
    "no header": (tapes.START.pack(tapes.MAGIC, 1, 0), "has lost its header"),
    "bad header": (tapes.START.pack(tapes.MAGIC, 1, 0) + pack(tapes.HEADER, b"[]"), "its header is damaged"),
    "no BTF": (tapes.start_of(FACTS, False, b"BTF")[:-1], "has lost its layout"),
    "bad BTF": (tapes.start_of(FACTS, False, b"\x9f\xeb" + bytes(50)), "layout"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_clear_line(name: str, path: Path) -> None:
    content, message = WRONG[name]
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=message) as error:
        Tape(path)
    assert "\n" not in str(error.value) and "x.tape" in str(error.value)
    assert is_tape(path) == (name not in ("empty", "other"))


class Whole(NamedTuple):
    """A tape that is not damaged."""

    path: Path
    data: bytes
    frames: list[bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    path = tmp_path_factory.mktemp("tapes") / "whole.tape"
    make_tape(path, traffic(), [10, 30, 50])
    with Tape(path) as tape:
        return Whole(path, path.read_bytes(), [frame.data for frame in tape.frames()])


@given(flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3))
def test_damage_is_found_and_never_raises(whole: Whole, flips: list[tuple[int, int]]) -> None:
    raw = bytearray(whole.data)
    for at, change in flips:
        raw[at % len(raw)] ^= change
    path = whole.path.with_name("damaged.tape")
    path.write_bytes(raw)
    try:
        tape = Tape(path)
    except RecordingError:
        return
    with tape:
        found = [frame.data for frame in tape.frames()]
        assert tape.cut is not None or found == whole.frames
        assert found == whole.frames[: len(found)]


def test_the_page_of_the_format_says_what_is_so() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tape.md").read_text()
    rows = re.findall(r"^\| (\d) \| ([A-Z]+) \|", page, re.MULTILINE)
    names = ("HEADER", "BTF", "RECORDS", "PROBES", "COUNTS", "FINISH", "END")
    assert [(int(number), name) for number, name in rows] == [(getattr(tapes, name), name) for name in names]
    assert f"Version {tapes.VERSION}, little-endian" in page
    assert (tapes.START.size, tapes.FRAME.size, tapes.LONGEST, tapes.ZSTD) == (16, 16, 256 << 20, 1)
    assert tapes.MAGIC == b"\x89TAPE\r\n\x1a" and r"`\x89TAPE\r\n\x1a`" in page
    scrubbed = set(re.findall(r"^\| (\w+) \| [^|]+ \|$", page.split("| protocol | scrubbed |")[1], re.MULTILINE))
    assert {protocol.name for protocol in load_protocols() if protocol.scrub is not None} <= scrubbed
