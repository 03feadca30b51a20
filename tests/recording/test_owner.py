"""Writing as another user. As root the real thing; as somebody else, that it is refused."""

import os
from pathlib import Path

import pytest
from tests.recording.rows import FACTS, SCHEMAS, requests

from tracehound.recording import Owner, Recording, RecordingWriter, writer
from tracehound.recording.owner import acting_as

NOBODY = Owner(65534, 65534)


def made_as_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_SECONDS", -1.0)
    with RecordingWriter(folder / "shop", SCHEMAS, FACTS, owner=NOBODY) as recording:
        for first in range(3):
            recording.append("requests", requests(first, 1))
            recording.flush()


def test_all_files_belong_to_the_owner_or_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    tmp_path.chmod(0o777)
    if os.geteuid() != 0:
        with pytest.raises(PermissionError, match="cannot act as user 65534"), acting_as(NOBODY):
            pass
        return
    made_as_nobody(tmp_path, monkeypatch)
    found = list((tmp_path / "shop").rglob("*"))
    assert {(path.stat().st_uid, path.stat().st_gid) for path in [tmp_path / "shop", *found]} == {NOBODY}
    assert Recording(tmp_path / "shop").table("requests").num_rows == 3
    probe = tmp_path / "ours"
    probe.touch()
    assert probe.stat().st_uid == 0, "the ids are ours again"


def test_a_link_of_the_owner_leads_only_where_the_owner_may_go(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    (public / "link").symlink_to(private)
    if os.geteuid() == 0:
        with acting_as(NOBODY), pytest.raises(PermissionError):
            (public / "link" / "planted").touch()
    assert list(private.iterdir()) == []


def test_no_owner_and_our_own_ids_change_nothing(tmp_path: Path) -> None:
    for owner in (None, Owner(os.geteuid(), os.getegid())):
        with acting_as(owner):
            (tmp_path / f"{owner is None}").touch()
    assert {path.stat().st_uid for path in tmp_path.iterdir()} == {os.geteuid()}


def test_threads_that_writing_starts_keep_our_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    tmp_path.chmod(0o777)
    if os.geteuid() == 0:
        made_as_nobody(tmp_path, monkeypatch)
    for status in Path("/proc/self/task").glob("*/status"):
        [line] = [line for line in status.read_text().splitlines() if line.startswith("Uid:")]
        assert line.split()[1:] == [str(os.geteuid())] * 4, status
