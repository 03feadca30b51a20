"""A replay gives the rows of the trace: as they were, however the tape is cut into pieces, and up to where it ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.records import STEP_NS, Recorder
from tests.sources.taped import (
    FACTS,
    Counted,
    Recut,
    Rows,
    assert_cut,
    frame_ends,
    make_tape,
    records_of,
    replayed,
    traffic,
    write_tape,
)

import tracehound
from tracehound.batch import MERGE_LAG_NS, Batch, split
from tracehound.btf import Layout, wire_layout
from tracehound.config import Filter, Settings
from tracehound.errors import RecordingError, TargetError, UsageError
from tracehound.replay import CAPTURE, TAPE, TapeReplay, kind_of, open_replay, survey
from tracehound.sources import tape as tapes
from tracehound.sources.tape import RECORDS, Tape, TapeWriter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tapes")


@pytest.fixture(scope="module")
def live(folder: Path) -> Rows:
    return make_tape(folder / "whole.tape", traffic(), [10, 20, 21, 40, 60])


def assert_same(found: Rows, wanted: Rows) -> None:
    assert found.keys() == wanted.keys()
    for name, rows in wanted.items():
        assert found[name].equals(rows), (name, found[name].to_pylist(), rows.to_pylist())


def test_a_replay_gives_the_rows_of_the_trace(folder: Path, live: Rows) -> None:
    found, notes = replayed(folder / "whole.tape")
    assert_same(found, live)
    assert notes == ()
    assert {name: rows.num_rows for name, rows in live.items()} == {
        "probes": 2, "processes": 3, "files": 1, "listens": 1, "connections": 6, "retransmits": 1, "requests": 20,
        "losses": 5,
    }  # fmt: skip
    counters = set(live["losses"]["counter"].to_pylist())
    assert counters == {"fault", "ring_full", "uncaptured", "damaged"} or "gap" in counters


@settings(max_examples=60)
@given(pieces=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_cut_into_other_pieces_it_gives_the_same_rows(folder: Path, live: Rows, pieces: list[int]) -> None:
    with Tape(folder / "whole.tape") as tape:
        found, notes = replayed(Recut(tape, pieces))
    assert_same(found, live)
    assert notes == ()


@pytest.fixture(scope="module")
def counted(folder: Path, live: Rows) -> Counted:
    """The rows of the whole tape, and how many there were before each frame."""
    kept = Counted()
    with TapeReplay(kept.watch(Tape(folder / "whole.tape"))) as replay:
        replay.run([kept])
    return kept


@settings(max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True))
def test_cut_at_any_byte_it_gives_the_rows_up_to_there(
    folder: Path, live: Rows, counted: Counted, share: float
) -> None:
    whole = (folder / "whole.tape").read_bytes()
    ends = frame_ends(whole)
    size = ends[1] + int(share * (len(whole) - ends[1]))
    cut = folder / "cut.tape"
    cut.write_bytes(whole[:size])
    found, notes = replayed(cut)
    position = max(end for end in ends if end <= size)
    (note,) = notes
    assert f"cut.tape is cut at byte {position:,}: " in note
    has_finish = size >= ends[-2]
    assert note.endswith("all rows are there" if has_finish else "rows end there")
    if has_finish:
        assert_same(found, live)
        return
    assert_cut(found, live, counted.before[ends.index(position) - 1])
    ours = {row["counter"]: row["count"] for row in found["losses"].to_pylist() if row["stage"] == "tape"}
    assert ours.pop("tape_cut") == 1 and ours.keys() <= {"incomplete"}


def test_records_that_are_not_complete_are_left_out_and_counted(tmp_path: Path) -> None:
    """What came within the last 20 ms may lack others that were stamped before it."""
    recorder = Recorder()
    recorder.add("fork", pid=1, tid=1, child_pid=100, start_ns=5)
    recorder.add("fact_tick", time_ns=recorder.time_ns + MERGE_LAG_NS)
    recorder.add("fork", pid=1, tid=1, child_pid=101, start_ns=6)
    recorder.add("fork", pid=1, tid=1, child_pid=102, start_ns=7)
    last_ns = recorder.time_ns
    path = tmp_path / "x.tape"
    write_tape(path, recorder, recorder.layout)
    data = path.read_bytes()
    path.write_bytes(data[: frame_ends(data)[4]])  # header, layout, two records, probes, the rest of the records
    found, _ = replayed(path)
    assert [row["pid"] for row in found["processes"].to_pylist()] == [100]
    losses = {row["counter"]: (row["count"], row["first_ns"], row["last_ns"]) for row in found["losses"].to_pylist()}
    first_ns = last_ns - MERGE_LAG_NS - 2 * STEP_NS
    assert losses == {"tape_cut": (1, last_ns, last_ns), "incomplete": (2, first_ns, last_ns)}


def test_a_tape_that_was_full_says_so(folder: Path) -> None:
    path = folder / "full.tape"
    start = len(tapes.start_of(FACTS, False, wire_layout().btf.data))
    rows = make_tape(path, traffic(), range(10, 120, 10), cap_bytes=start + 3000)
    found, notes = replayed(path)
    assert notes == ("the tape stopped before the trace ended (tape full); rows end there",)
    live = {row["counter"]: row["count"] for row in rows["losses"].to_pylist() if row["stage"] == "tape"}
    kept = {row["counter"]: row["count"] for row in found["losses"].to_pylist() if row["stage"] == "tape"}
    assert 0 <= kept.pop("incomplete", 0) < 50  # of those that are on it
    assert live == kept and live["tape_full"] > 20
    assert 0 < found["requests"].num_rows < 20


def test_settings_that_change_rows_are_those_of_the_trace(folder: Path, live: Rows) -> None:
    with TapeReplay(Tape(folder / "whole.tape")) as replay:
        assert replay.settings == Settings(response_timeout_s=2.0)
        assert replay.command == "shop --port 1"
        assert replay.source.facts == FACTS
    filters = (Filter("protocol", True, "http1"), Filter("tid", False, 7))
    text = Settings(memory_mib=16, files=True, nat=True, filters=filters).to_text()
    wanted = Settings(memory_mib=16, files=True, nat=True, filters=filters, redact=False)
    assert Settings.from_text(text, redact=False) == wanted
    newer = text[:-1] + ', "colour": "red"}'
    assert Settings.from_text(newer).memory_mib == 16
    for wrong in ("", "[]", '{"memory_mib": "x"}', '{"memory_mib": 0}', '{"filters": [1]}'):
        with pytest.raises(UsageError):
            Settings.from_text(wrong)


def test_secrets_are_redacted_unless_told_otherwise(folder: Path, live: Rows) -> None:
    found, _ = replayed(folder / "whole.tape", redact=False)
    assert "qsecretq" in str(found["requests"].to_pylist())
    assert "qsecretq" not in str(live["requests"].to_pylist())


def test_a_frame_that_says_something_else_is_an_error_of_one_line(folder: Path) -> None:
    path = folder / "odd.tape"
    writer = TapeWriter(path, FACTS, wire_layout(), 1 << 20)
    writer.put_counts(1, {})
    writer._write(tapes.pack_json(99, {}), 0)
    writer.close()
    _, notes = replayed(path)
    assert notes == ("this tape has 1 parts that this version does not know; they were left out",)
    for type_ in (tapes.COUNTS, tapes.FINISH, tapes.PROBES, tapes.END):
        path.unlink()
        writer = TapeWriter(path, FACTS, wire_layout(), 1 << 20)
        writer._write(tapes.pack_json(type_, 7), 0)
        writer.close()
        with pytest.raises(RecordingError, match=r"odd\.tape: a frame cannot be understood"):
            replayed(path)


@given(flips=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6))
@settings(max_examples=60)
def test_records_that_no_kernel_writes_are_an_error_at_worst(
    folder: Path, live: Rows, flips: list[tuple[int, int]]
) -> None:
    path = folder / "hostile.tape"
    with Tape(folder / "whole.tape") as tape:
        parts = [tapes.start_of(tape.facts, False, tape.layout.btf.data)]
        frames = list(tape.frames())
    records = next(number for number, frame in enumerate(frames) if frame.type == RECORDS and number)
    for number, frame in enumerate(frames):
        data = bytearray(frame.data)
        for at, value in flips if number == records else ():
            data[at % len(data)] = value
        parts.append(tapes.pack(frame.type, bytes(data)))
    path.write_bytes(b"".join(parts))
    try:
        found, _ = replayed(path)
    except RecordingError as error:
        assert "hostile.tape: its records cannot be decoded: " in str(error) and "\n" not in str(error)
        return
    assert found["probes"].equals(live["probes"])


def test_files_of_other_kinds_are_told(folder: Path, live: Rows, tmp_path: Path) -> None:
    assert kind_of(folder / "whole.tape") == TAPE
    text = tmp_path / "x.txt"
    text.write_text("no tape")
    for path, message in ((text, "is neither a tape"), (tmp_path / "no", "no file"), (tmp_path, "is a folder")):
        with pytest.raises(TargetError, match=message):
            open_replay(path)


def test_nothing_of_this_machine_is_read(folder: Path, live: Rows) -> None:
    """A replay in a process that may open neither /proc nor /sys gives the same rows."""
    code = (
        "import builtins, io, os, sys\n"
        "from tests.sources.taped import replayed\n"
        "import tracehound.replay, tracehound.decode, tracehound.enrich, pyarrow.compute\n"
        "replayed(sys.argv[1])\n"  # whatever is imported late
        "def audit(event, arguments):\n"
        "    names = [os.fsdecode(a) for a in arguments if isinstance(a, (str, bytes))]\n"
        "    if any(n.startswith(('/proc', '/sys')) for n in names): raise SystemExit(f'{event} {names}')\n"
        "sys.addaudithook(audit)\n"
        "rows, _ = replayed(sys.argv[1])\n"
        "print({name: table.num_rows for name, table in rows.items()})\n"
    )
    command = [sys.executable, "-c", code, str(folder / "whole.tape")]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert (run.stdout, run.returncode) == (f"{ {name: rows.num_rows for name, rows in live.items()} }\n", 0), (
        run.stderr
    )


def test_a_survey_counts_what_a_tape_holds(folder: Path, live: Rows) -> None:
    with Tape(folder / "whole.tape") as tape:
        found = survey(tape)
        raw = [frame.data for frame in tape.frames() if frame.type == RECORDS]
    records = [record for each in raw for record in records_of(each)]
    assert sum(found.records.values()) == len(records) - 1 == len(traffic().raw)
    assert (found.unreadable, found.record_bytes) == (1, sum(map(len, raw)))


def test_a_capture_goes_through_the_same_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reader of captures gives is replayed, opened and asked as a tape is; the reader here is the test's."""

    def read_capture(path: Path, layout: Layout) -> Iterator[Batch]:
        raw = traffic().raw
        for start in range(0, len(raw), 25):
            yield split(b"".join(raw[start : start + 25]), layout)

    module = ModuleType("tracehound.sources.pcap")
    module.__dict__.update(read_capture=read_capture, is_capture=lambda path: path.read_bytes()[:4] == b"CAPT")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = tmp_path / "web.pcap"
    path.write_bytes(b"CAPTURE")
    assert kind_of(path) == CAPTURE
    kept = tracehound.open(path)
    assert (len(kept.requests), kept.notes, kept.recording.manifest.facts.host) == (20, (), "")
    assert kept.summary(width=200).startswith(f" tracehound  ·  {path}  ·  1.08 s")
    with open_replay(path) as replay:
        end = replay.run([])
    assert (replay.command, end.notes) == ("web.pcap", ())
    assert end.elapsed_ns > 1_000_000_000 and end.events > 50
