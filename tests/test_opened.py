"""`tracehound.open`: the tables of what was kept, whatever keeps them."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from tests.sources.taped import FACTS, make_tape, replayed, traffic

import tracehound
from tracehound.errors import QueryError, RecordingError, TargetError
from tracehound.replay import open_replay
from tracehound.sinks import kind


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "shop.tape"
    make_tape(path, traffic(), [10, 30, 60])
    return path


def test_a_tape_has_the_faces_of_a_trace_that_ended(tape: Path) -> None:
    kept = tracehound.open(tape)
    rows, _ = replayed(tape)
    assert kept.requests.to_arrow().equals(rows["requests"].combine_chunks()) or len(kept.requests) == 20
    assert len(kept.requests.to_pandas()) == len(kept.requests.to_polars()) == 20
    assert kept.sql("select count(*) as n from processes")["n"].to_pylist() == [3]
    assert len(kept.payloads) == 0
    assert kept.recording.manifest.facts.command == FACTS.command
    assert repr(kept) == "<tracehound: shop --port 1>" and kept.notes == ()
    assert kept._repr_html_().startswith("<p>1 processes, 20 requests, lost 7 ")
    with pytest.raises(QueryError):
        kept.sql("select")
    with pytest.raises(AttributeError, match="no table or attribute 'nothing'"):
        _ = kept.nothing


def test_its_summary_is_that_of_the_run(tape: Path) -> None:
    text = tracehound.open(tape).summary(width=80)
    assert text.startswith(" tracehound · shop --port 1 · 4.20 s · exit 0 · 1 process\n lost 7 of ")
    assert "GET /orders/{id}" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_recording_is_opened_as_it_is(tape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    with open_replay(tape) as replay:
        sink = kind("parquet").open(str(folder), replay.source)
        replay.run([sink])
        sink.close()
    kept = tracehound.open(folder)
    assert len(kept.requests) == 20 and "20" not in kept.notes
    assert "shop --port 1" in kept.summary()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(TargetError, match="no recording is kept"):
        tracehound.open("last")
    (tmp_path / "state" / "tracehound").mkdir(parents=True)
    folder.rename(tmp_path / "state" / "tracehound" / "000001")
    assert len(tracehound.open("last").requests) == 20


def test_the_temporary_recording_goes_with_the_object(
    tape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    kept = tracehound.open(tape)
    view = kept.requests
    assert len(os.listdir(folder)) == 1 and len(view) == 20
    del kept, view
    gc.collect()
    assert os.listdir(folder) == []
    tape.write_bytes(tape.read_bytes()[:100])
    with pytest.raises(RecordingError):
        tracehound.open(tape)
    assert os.listdir(folder) == []


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no recording, tape or capture"):
        tracehound.open(tmp_path / "no")
    with pytest.raises(TargetError, match="is not a recording"):
        tracehound.open(tmp_path)
    (tmp_path / "x").write_text("x")
    with pytest.raises(TargetError, match="neither a tape nor a packet capture"):
        tracehound.open(tmp_path / "x")
