"""The manifest: what is written is what is read; damage is one line that names the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.recording.rows import FACTS, SCHEMAS

from tracehound.errors import RecordingError
from tracehound.recording import manifest as manifests
from tracehound.recording.manifest import Manifest

MANIFEST = Manifest(FACTS, SCHEMAS, "2026-01-02T03:04:05.000006Z", None, {"ring": {"ring_full": 12}})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifests.write(tmp_path, MANIFEST)
    assert manifests.read(tmp_path) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_it_can_be_read_by_people_and_by_other_programs(tmp_path: Path) -> None:
    manifests.write(tmp_path, MANIFEST)
    content = json.loads((tmp_path / "manifest.json").read_text())
    assert content["losses"] == {"ring": {"ring_full": 12}}
    assert content["host"] == "box" and content["command"] == ["python", "shop.py"] and content["ended"] is None
    assert content["tables"]["requests"]["exchange"] == "exchange"
    assert content["clock_anchors"] == [[1, 1_700_000_000_000_000_000]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "is of version 2; this tracehound reads up to 1"),
        ({"format": "tape"}, "its format is 'tape'"),
        ({"tables": {"calls": {"args": "structs"}}}, "column types structs are unknown"),
        ({"host": ...}, "'host'"),
        ({"tables": 7}, "damaged"),
        ({"clock_anchors": [[1]]}, "damaged"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = json.loads(MANIFEST.to_json()) | change
    content = {key: value for key, value in content.items() if value is not ...}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(RecordingError, match=message) as raised:
        manifests.read(tmp_path)
    assert str(tmp_path / "manifest.json") in str(raised.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": "tracehound recording"}'])
def test_bytes_that_are_no_manifest(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(RecordingError, match=r"manifest\.json"):
        manifests.read(tmp_path)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        manifests.read(tmp_path)
