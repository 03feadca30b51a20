"""Tables on disk: what was stored comes back; what is damaged, another's or open to others does not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tracehound.symbols import cache
from tracehound.symbols.cache import cache_folder, load, store

KEY = bytes(range(20)).hex()
PARTS = {"rows": bytes(range(24)), "of": b"five5", "none": b""}
FILE = f"{KEY}.tables"


def test_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert load(KEY, "tables", folder) is None
    assert store(KEY, "tables", PARTS, folder)
    assert {name: bytes(part) for name, part in (load(KEY, "tables", folder) or {}).items()} == PARTS
    assert load(KEY, "code", folder) is None
    (file,) = folder.iterdir()
    assert file.name == FILE
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert store(KEY, "tables", {}, folder)
    assert load(KEY, "tables", folder) == {}


def _flip(at: int) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[at] ^= 1
        file.write_bytes(content)

    return change


def _link(file: Path) -> None:
    real = file.rename(file.with_suffix(".real"))
    file.symlink_to(real)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(_flip(at), id=f"byte {at}") for at in (0, 8, 12, 16, 32, 56, 128, 150, -1)),
        pytest.param(lambda file: os.truncate(file, 70), id="cut off"),
        pytest.param(lambda file: os.truncate(file, 20), id="header cut off"),
        pytest.param(lambda file: file.write_bytes(file.read_bytes() + bytes(8)), id="longer"),
        pytest.param(lambda file: file.chmod(0o666), id="others may write"),
        pytest.param(lambda file: file.parent.chmod(0o777), id="others may write the folder"),
        pytest.param(_link, id="link"),
        pytest.param(_pipe, id="pipe"),
        pytest.param(
            lambda file: os.chown(file, 12345, -1),
            id="another's",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
    ],
)  # fmt: skip
def test_distrusts(tmp_path: Path, change: Callable[[Path], object]) -> None:
    store(KEY, "tables", PARTS, tmp_path)
    change(tmp_path / FILE)
    assert load(KEY, "tables", tmp_path) is None


def test_of_another_build(tmp_path: Path) -> None:
    store(KEY, "tables", PARTS, tmp_path)
    (tmp_path / FILE).rename(tmp_path / f"{KEY[::-1]}.tables")
    assert load(KEY[::-1], "tables", tmp_path) is None


def test_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not store(KEY, "tables", PARTS, tmp_path / "file")
    for key in ("", "../x", "A", ".x", "a" * 300):
        assert not store(key, "tables", PARTS, tmp_path)
        assert load(key, "tables", tmp_path) is None
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not store(KEY, "tables", PARTS, tmp_path / "open")
    assert not list((tmp_path / "open").iterdir())


def test_the_oldest_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, key in enumerate(("c", "b", "a")):
        store(key, "tables", {"x": bytes(1000)}, tmp_path)
        os.utime(tmp_path / f"{key}.tables", (1000 - age, 1000 - age))
    monkeypatch.setattr(cache, "FOLDER_LIMIT", 3500)
    store("d", "tables", {"x": bytes(1000)}, tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"b.tables", "c.tables", "d.tables"}


@pytest.mark.parametrize(("home", "is_used"), [("/x/cache", True), ("relative", False), ("", False)])
def test_folder(monkeypatch: pytest.MonkeyPatch, home: str, is_used: bool) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setenv("HOME", "/home/one")
    root = Path(home if is_used else "/home/one/.cache")
    assert cache_folder() == root / "tracehound" / "symbols" / "v2"
