"""Tables on disk: what was stored comes back; what is damaged, another's or open to others does not."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tracehound.symbols.cache import cache_folder, load_rows, store_rows
from tracehound.symbols.ehframe import ROW

BUILD_ID = bytes(range(20))
ROWS = np.array([(0, 8, 1, 0), (16, 16, 2, -2), (90, 0, 0, 0)], dtype=ROW)


def test_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert load_rows(BUILD_ID, folder) is None
    assert store_rows(BUILD_ID, ROWS, folder)
    found = load_rows(BUILD_ID, folder)
    assert found is not None
    assert np.array_equal(found, ROWS)
    (file,) = folder.iterdir()
    assert file.name == f"{BUILD_ID.hex()}.eh"
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert store_rows(BUILD_ID, ROWS[:0], folder)
    assert len(load_rows(BUILD_ID, folder)) == 0  # type: ignore[arg-type]


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
        *(pytest.param(_flip(at), id=f"byte {at}") for at in (0, 8, 12, 16, 40, 48, 64, -1)),
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
    store_rows(BUILD_ID, ROWS, tmp_path)
    change(tmp_path / f"{BUILD_ID.hex()}.eh")
    assert load_rows(BUILD_ID, tmp_path) is None


def test_of_another_build(tmp_path: Path) -> None:
    store_rows(BUILD_ID, ROWS, tmp_path)
    other = BUILD_ID[::-1]
    (tmp_path / f"{BUILD_ID.hex()}.eh").rename(tmp_path / f"{other.hex()}.eh")
    assert load_rows(other, tmp_path) is None


def test_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not store_rows(BUILD_ID, ROWS, tmp_path / "file")
    assert not store_rows(b"", ROWS, tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not store_rows(BUILD_ID, ROWS, tmp_path / "open")
    assert not list((tmp_path / "open").iterdir())


@pytest.mark.parametrize(("home", "is_used"), [("/x/cache", True), ("relative", False), ("", False)])
def test_folder(monkeypatch: pytest.MonkeyPatch, home: str, is_used: bool) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setenv("HOME", "/home/one")
    root = Path(home if is_used else "/home/one/.cache")
    assert cache_folder() == root / "tracehound" / "unwind" / "v1"
