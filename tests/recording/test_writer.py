"""Writing a recording: flush, parts, Parquet, joining, caps, trouble, sudden death."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.recording.rows import FACTS, SCHEMAS, listens, losses, requests

from tracehound.errors import SinkError, UsageError
from tracehound.recording import Recording, RecordingWriter, writer
from tracehound.recording.files import Files
from tracehound.recording.parquet import compact

ROOT = Path(__file__).parents[2]


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def numbers(directory: Path) -> list[int]:
    """Return the column `request` as it is read."""
    found: list[int] = Recording(directory).table("requests")["request"].to_pylist()
    return found


def wait_for(condition: object, seconds: float = 20.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_rows_are_readable_after_flush_and_not_before(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as recording:
        recording.append("requests", requests(0, 3))
        assert numbers(tmp_path) == []
        recording.flush()
        assert numbers(tmp_path) == [0, 1, 2]
        recording.append("requests", requests(3, 2))
        recording.append("requests", requests(5, 1))
        recording.flush()
        assert files(tmp_path) == ["manifest.json", "requests/1.arrows"]
        assert numbers(tmp_path) == [0, 1, 2, 3, 4, 5]
        assert Recording(tmp_path).manifest.ended is None


def test_close_leaves_one_parquet_file_a_table_with_rows_and_notes_the_end(tmp_path: Path) -> None:
    recording = RecordingWriter(tmp_path / "deep" / "er", SCHEMAS, FACTS)
    recording.append("requests", requests(0, 3))
    recording.append("listens", listens(0, 1))
    recording.append("files", _empty("files"))
    recording.close()
    recording.close()
    directory = tmp_path / "deep" / "er"
    assert files(directory) == ["listens/1.parquet", "manifest.json", "requests/1.parquet"]
    assert numbers(directory) == [0, 1, 2]
    manifest = Recording(directory).manifest
    assert manifest.ended is not None and manifest.ended > manifest.started
    assert manifest.facts == FACTS
    with pytest.raises(SinkError, match="closed"):
        recording.append("requests", requests(3, 1))


def _empty(table: str) -> object:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=SCHEMAS[table])


def test_a_part_ends_by_size_and_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 10_000)
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as recording:
        recording.append("requests", requests(0, 100))
        recording.flush()
        wait_for(lambda: files(tmp_path) == ["manifest.json", "requests/1.parquet"])
        recording.append("listens", listens(0, 1))
        recording.flush()
        monkeypatch.setattr(writer, "PART_SECONDS", -1.0)
        recording.flush()
        wait_for(lambda: "listens/1.parquet" in files(tmp_path))
        recording.append("requests", requests(100, 1))
        recording.flush()
        wait_for(lambda: "requests/2.parquet" in files(tmp_path))
        assert numbers(tmp_path) == list(range(101))
    assert files(tmp_path) == ["listens/1.parquet", "manifest.json", "requests/1-2.parquet"]
    assert numbers(tmp_path) == list(range(101))


def test_small_files_are_not_joined_when_there_is_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_SECONDS", -1.0)
    recording = RecordingWriter(tmp_path, SCHEMAS, FACTS)
    for first in range(3):
        recording.append("requests", requests(first, 1))
        recording.flush()
    recording.close(compaction=False)
    assert files(tmp_path) == ["manifest.json", *(f"requests/{number}.parquet" for number in (1, 2, 3))]


def test_a_crash_while_joining_shows_no_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_SECONDS", -1.0)
    recording = RecordingWriter(tmp_path, SCHEMAS, FACTS)
    for first in range(3):
        recording.append("requests", requests(first, 1))
        recording.flush()
    recording.close(compaction=False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self: (_ for _ in ()).throw(OSError(errno.EIO, "crash")))
        with pytest.raises(OSError, match="crash"):
            compact(Files(), tmp_path / "requests", SCHEMAS["requests"])
    assert "requests/1-3.parquet" in files(tmp_path) and "requests/2.parquet" in files(tmp_path)
    assert numbers(tmp_path) == [0, 1, 2]
    assert Recording(tmp_path).sql("select count(*) as n from requests").to_pylist() == [{"n": 3}]


def test_parquet_is_compressed_with_dictionaries_and_keeps_the_schema(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as recording:
        recording.append("requests", requests(0, 50, protocol=["http1"] * 50, exchange=[b"x" * 16] * 50))
    path = tmp_path / "requests" / "1.parquet"
    assert pq.read_schema(path).equals(SCHEMAS["requests"])
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    assert columns["protocol"].compression == "ZSTD"
    assert "RLE_DICTIONARY" in columns["protocol"].encodings
    assert "DELTA_BINARY_PACKED" in columns["time_ns"].encodings


def test_rows_with_another_schema_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as recording, pytest.raises(ValueError, match="schema"):
        recording.append("requests", listens(0, 1))


def test_a_folder_with_a_recording_is_not_written_over(tmp_path: Path) -> None:
    RecordingWriter(tmp_path, SCHEMAS, FACTS).close()
    with pytest.raises(UsageError, match="already holds a recording"):
        RecordingWriter(tmp_path, SCHEMAS, FACTS)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match=r"cannot write a recording to .*Not a directory"):
        RecordingWriter(tmp_path / "file" / "shop", SCHEMAS, FACTS)


def test_losses_are_summed_in_the_manifest(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as recording:
        recording.append("losses", losses("ring_full", 3))
        recording.append("losses", losses("ring_full", 4))
        recording.append("losses", losses("gap", 10))
        recording.flush()
        assert json.loads((tmp_path / "manifest.json").read_text())["losses"] == {"ring": {"ring_full": 7, "gap": 10}}


def test_rows_beyond_the_cap_are_counted_and_the_files_stay_below_it(tmp_path: Path) -> None:
    cap = 1 << 20
    recording = RecordingWriter(tmp_path, SCHEMAS, FACTS, cap_bytes=cap)
    noise = [os.urandom(500).hex() for _ in range(100)]
    written = 0
    lost = 0
    while lost == 0:
        recording.append("requests", requests(written, 100, statement=noise))
        recording.flush()
        noise = [os.urandom(500).hex() for _ in range(100)]
        written += 100
        assert written < 1_000_000
        rows = recording.take_losses()
        lost += 0 if rows is None else rows["count"][0].as_py()
    recording.append("requests", requests(written, 7))
    recording.close()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.*") if path.is_file()) < cap * 1.05
    kept = numbers(tmp_path)
    assert kept == list(range(len(kept))) and len(kept) + lost == written
    assert len(kept) > 1000, "1 MiB of Parquet holds more than 1 MiB of Arrow does"
    own = Recording(tmp_path).table("losses").to_pylist()
    assert [(row["stage"], row["counter"], row["count"]) for row in own] == [("recording", "recording_full", 7)]
    assert (own[0]["first_ns"], own[0]["last_ns"]) == (written, written + 6)
    told = recording.take_losses()
    assert told is not None and told["count"].to_pylist() == [7], "others are still to be told"
    assert recording.take_losses() is None


def test_a_full_disk_costs_rows_which_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = RecordingWriter(tmp_path, SCHEMAS, FACTS)
    recording.append("requests", requests(0, 2))
    recording.flush()
    real, left = os.write, [1000]

    def write(descriptor: int, data: memoryview) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        recording.append("requests", requests(2, 5))
        recording.flush()
    rows = recording.take_losses()
    assert rows is not None
    assert rows.select(["counter", "count", "first_ns", "last_ns"]).to_pylist() == [
        {"counter": "disk_full", "count": 5, "first_ns": 2, "last_ns": 6}
    ]
    assert recording.take_losses() is None
    recording.append("requests", requests(7, 1))
    recording.flush()
    assert numbers(tmp_path) == [0, 1, 7]
    recording.close()
    assert numbers(tmp_path) == [0, 1, 7]


def test_a_disk_too_full_for_parquet_leaves_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = RecordingWriter(tmp_path, SCHEMAS, FACTS)
    recording.append("requests", requests(0, 2))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    recording.close()
    monkeypatch.undo()
    assert files(tmp_path) == ["manifest.json", "requests/1.arrows"]
    assert numbers(tmp_path) == [0, 1]


@pytest.mark.parametrize("trouble", [MemoryError(), RuntimeError("unforeseen")])
def test_whatever_goes_wrong_in_making_parquet_neither_hangs_nor_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def fail(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(writer, "PART_SECONDS", -1.0)
    monkeypatch.setattr(writer, "convert", fail)
    recording = RecordingWriter(tmp_path, SCHEMAS, FACTS)
    for first in range(3):
        recording.append("requests", requests(first, 1))
        recording.flush()
    recording.close()
    assert numbers(tmp_path) == [0, 1, 2]


def test_an_anchor_is_added_to_the_manifest(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS) as recording:
        recording.anchor(2, 1_700_000_000_000_000_001)
        recording.flush()
        assert Recording(tmp_path).manifest.facts.clock_anchors[-1] == (2, 1_700_000_000_000_000_001)


WRITER = """
import sys
from tests.recording.rows import FACTS, SCHEMAS, requests
from tracehound.recording import RecordingWriter, writer
writer.PART_BYTES = int(sys.argv[2])
recording = RecordingWriter(sys.argv[1], SCHEMAS, FACTS)
first = 0
while True:
    recording.append("requests", requests(first, 10))
    first += 10
    recording.flush()
    print(first, flush=True)
"""


@pytest.mark.parametrize("rows", [10, 200, 700, 1500])
def test_killed_at_any_moment_it_is_readable_up_to_the_last_flush(tmp_path: Path, rows: int) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-c", WRITER, str(tmp_path), "20000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        flushed = 0
        while flushed < rows:
            flushed = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
    flushed = int(rest[-1]) if rest and rest[-1].isdecimal() else flushed
    found = numbers(tmp_path)
    assert found == list(range(len(found))) and len(found) >= flushed - 10
    assert Recording(tmp_path).sql("select count(*) as n from requests").to_pylist() == [{"n": len(found)}]
    assert Recording(tmp_path).manifest.ended is None


def test_a_reader_sees_each_row_once_while_another_process_writes(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-c", WRITER, str(tmp_path), "200000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        flushed = [10]

        def follow(lines: object = process.stdout) -> None:
            for line in lines:  # type: ignore[attr-defined]
                flushed[0] = int(line) if line.endswith("\n") else flushed[0]

        reader = threading.Thread(target=follow)
        reader.start()
        recording = Recording(tmp_path)
        end = time.monotonic() + 3
        looks = 0
        while time.monotonic() < end and process.poll() is None:
            before = flushed[0]
            found = recording.table("requests")["request"].to_pylist()
            assert found == list(range(len(found))) and len(found) >= before
            before = flushed[0]
            [row] = recording.sql("select count(*) as n, count(distinct request) as d from requests").to_pylist()
            assert row["n"] == row["d"] >= before
            looks += 1
        assert process.poll() is None
        process.kill()
        reader.join()
    assert looks >= 2
