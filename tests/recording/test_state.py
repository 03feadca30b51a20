"""The recordings that nobody named: where they are, which is `last`, how many are kept."""

import fcntl
import os
import pwd
from pathlib import Path

import pytest
from tests.recording.rows import FACTS, SCHEMAS

from tracehound.errors import SinkError, TargetError
from tracehound.recording import Owner, RecordingWriter, new_state_recording, resolve, state, state_folder


def recorded(environ: dict[str, str], size_bytes: int = 0) -> Path:
    """Make a state recording, closed, with a file of `size_bytes` (a hole) in it."""
    directory, owner, cap_bytes = new_state_recording(environ)
    RecordingWriter(directory, SCHEMAS, FACTS, cap_bytes=cap_bytes, owner=owner).close()
    with (directory / "rows").open("wb") as file:
        file.truncate(size_bytes)
    return directory


def test_the_folder_is_where_the_xdg_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert state_folder({"HOME": "/home/ann"}) == (Path("/home/ann/.local/state/tracehound"), None)
    assert state_folder({"HOME": "/home/ann", "XDG_STATE_HOME": "/var/s"}) == (Path("/var/s/tracehound"), None)
    assert state_folder({"HOME": "/home/ann", "XDG_STATE_HOME": "s"}) == (
        Path("/home/ann/.local/state/tracehound"),
        None,
    )
    assert state_folder({"HOME": "/home/ann", "SUDO_UID": "7"})[1] is None, "only root acts for another"


def test_under_sudo_it_is_the_folder_of_who_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("ann", "x", 1000, 1001, "", "/home/ann", "/bin/sh"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", {1000: entry}.__getitem__)
    environ = {"HOME": "/root", "SUDO_UID": "1000"}
    assert state_folder(environ) == (Path("/home/ann/.local/state/tracehound"), Owner(1000, 1001))
    environ["XDG_STATE_HOME"] = "/var/s"
    assert state_folder(environ) == (Path("/var/s/tracehound"), Owner(1000, 1001))
    for nobody in ("4242", "0", "", "x"):
        assert state_folder({"HOME": "/root", "SUDO_UID": nobody}) == (Path("/root/.local/state/tracehound"), None)


def test_last_is_the_newest_and_only_ten_are_kept(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    made = [recorded(environ) for _ in range(13)]
    assert resolve("last", environ) == made[-1]
    left = sorted((tmp_path / "tracehound").iterdir())
    assert left == made[-state.KEPT :]
    assert (tmp_path / "tracehound").stat().st_mode & 0o777 == 0o700


def test_a_recording_that_never_began_is_not_last(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    whole = recorded(environ)
    new_state_recording(environ)
    assert resolve("last", environ) == whole


def test_no_more_than_two_gib_are_kept_the_new_one_at_its_cap_included(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    made = [recorded(environ, 800 << 20) for _ in range(3)]
    new = new_state_recording(environ).directory
    assert sorted((tmp_path / "tracehound").iterdir()) == [made[1], made[2], new]


def test_what_is_being_written_is_never_dropped(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    directory, owner, _ = new_state_recording(environ)
    with RecordingWriter(directory, SCHEMAS, FACTS, owner=owner):
        for _ in range(12):
            recorded(environ)
        assert directory.exists()
    recorded(environ)
    assert not directory.exists()


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "tracehound" / "notes"
    other.mkdir(parents=True)
    for _ in range(12):
        recorded({"XDG_STATE_HOME": str(tmp_path)})
    assert other.exists()


def test_names_go_on_where_they_were(tmp_path: Path) -> None:
    (tmp_path / "tracehound" / "000999").mkdir(parents=True)
    assert new_state_recording({"XDG_STATE_HOME": str(tmp_path)}).directory.name == "001000"


def test_a_state_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tracehound").touch()
    with pytest.raises(SinkError, match=r"cannot keep a recording in .*tracehound: .*Use --record DIR, or --no-record"):
        new_state_recording({"XDG_STATE_HOME": str(tmp_path)})


def test_the_folder_of_a_writer_is_locked(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path, SCHEMAS, FACTS):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_resolving_a_path(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "shop-1", SCHEMAS, FACTS).close()
    (tmp_path / "shop-2").mkdir()
    assert resolve(str(tmp_path / "shop-1")) == tmp_path / "shop-1"
    with pytest.raises(TargetError, match=r"no recording .*/shop\. Near: shop-1"):
        resolve(tmp_path / "shop")
    with pytest.raises(TargetError, match=r"shop-2 is not a recording: it has no manifest.json. Near: shop-1"):
        resolve(tmp_path / "shop-2")
    with pytest.raises(TargetError, match=r"no recording .*xyz\. `last` is"):
        resolve(tmp_path / "xyz")
    with pytest.raises(TargetError, match=r"no recording is kept in .*Make one: tracehound run"):
        resolve("last", {"XDG_STATE_HOME": str(tmp_path)})
