"""Mappings as /proc has them, the files behind them by whichever way is open, and perf maps that count."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.symbols.stopped import compile_program, needs_x86, waiting

from tracehound.symbols import mapped_files
from tracehound.symbols.address_space import FileKey, Mapped
from tracehound.symbols.mapped_files import MappedFiles, open_local, own_vdso
from tracehound.symbols.module import Module

pytestmark = needs_x86


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("mapped"), "calls.c", "-O2")


@pytest.fixture
def files() -> Iterator[MappedFiles]:
    with MappedFiles() as found:
        yield found


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make map_files refuse, as it does without its capability."""
    real = os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if "/map_files/" in str(path):
            raise PermissionError(1, "no capability", path)
        return real(path, **options)

    monkeypatch.setattr("tracehound.symbols.mapped_files.os.stat", refused)


def key_of(mapped: list[Mapped], name: str) -> FileKey:
    (found,) = {one.file for one in mapped if one.file is not None and one.file.path.endswith(name.encode())}
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_lists_code_with_its_files(program: Path, files: MappedFiles) -> None:
    before = descriptors()
    with waiting(program, "recursion") as (pid, _):
        found = files.list(pid)
        lines = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "x" in line.split()[1]]
    assert [f"{one.start:x}-{one.end:x}" for one in found] == [line.split()[0].lstrip("0") for line in lines]
    key = key_of(found, program.name)
    assert key.inode == program.stat().st_ino
    assert key.build_id == Module.open(program).build_id
    assert key_of(found, "[vdso]").build_id == own_vdso().build_id
    assert descriptors() > before
    module = files.module_of(key)
    assert module is not None
    assert module.function("recurse").size > 0
    files.close()
    del module
    assert descriptors() == before


def test_of_a_process_that_is_gone(files: MappedFiles) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert files.list(process.pid) == []
    assert files.perf_map_piece(process.pid) == b""


@pytest.mark.usefixtures("by_name")
def test_by_name_only_the_same_file_counts(program: Path, tmp_path: Path, files: MappedFiles) -> None:
    target = Path(shutil.copy(program, tmp_path / "copy"))
    with waiting(target, "recursion") as (pid, _):
        known = key_of(files.list(pid), "/copy")
        assert known.build_id
        os.replace(compile_program(tmp_path, "calls.c", "-O0"), target)
        with MappedFiles() as late:
            assert key_of(late.list(pid), "/copy (deleted)").build_id == b""  # what has its name now is another
    module = files.module_of(known)
    assert module is not None  # it was held
    assert module.build_id == known.build_id
    assert files.module_of(known) is None  # and its name leads to another


@pytest.mark.usefixtures("by_name")
def test_a_copy_counts_if_its_build_id_is_the_one_that_was_told(program: Path, files: MappedFiles) -> None:
    build_id = Module.open(program).build_id or b""
    path = str(program).encode()
    elsewhere = FileKey(build_id, (0, 0), 7, path)
    assert files.hold(os.getpid(), 0, 1, elsewhere).build_id == build_id
    assert files.hold(os.getpid(), 0, 1, elsewhere._replace(build_id=b"\1" * 20)).build_id == b"\1" * 20
    assert files.module_of(elsewhere._replace(build_id=b"\1" * 20)) is None


def test_few_descriptors_are_held(program: Path, files: MappedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_files, "HELD_LIMIT", 1)
    before = descriptors()
    with waiting(program, "recursion") as (pid, _):
        found = files.list(pid)
    assert descriptors() == before + 1
    module = files.module_of(key_of(found, program.name))  # opened by its name again
    assert module is not None
    assert module.build_id == Module.open(program).build_id


def test_of_another_machine_by_build_id(program: Path) -> None:
    build_id = Module.open(program).build_id or b""
    key = FileKey(build_id, (9, 9), 123456, str(program).encode() + b" (deleted)")
    module = open_local(key)
    assert module is not None
    assert module.build_id == build_id
    assert open_local(key._replace(build_id=b"\1" * 20)) is None
    assert open_local(key._replace(build_id=b"")) is None
    assert open_local(key._replace(path=b"/nothing\0there")) is None
    assert open_local(FileKey(own_vdso().build_id or b"", (0, 0), 0, b"[vdso]")) is own_vdso()
    assert open_local(FileKey(b"\1" * 20, (0, 0), 0, b"[vdso]")) is None


def test_no_pipe_is_opened(tmp_path: Path, files: MappedFiles) -> None:
    os.mkfifo(tmp_path / "pipe")
    path, status = str(tmp_path / "pipe").encode(), os.stat(tmp_path / "pipe")
    key = FileKey(b"", (os.major(status.st_dev), os.minor(status.st_dev)), status.st_ino, path)
    assert files.hold(os.getpid(), 0, 1, key) == key
    assert files.module_of(key) is None


@pytest.fixture
def perf_map() -> Iterator[Path]:
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    yield path
    path.unlink(missing_ok=True)


def test_a_perf_map_is_read_as_it_grows(perf_map: Path, files: MappedFiles) -> None:
    pid = os.getpid()
    assert files.perf_map_piece(pid) == b""
    perf_map.write_bytes(b"1000 10 one\n20")
    perf_map.chmod(0o644)
    assert files.perf_map_piece(pid) == b"1000 10 one\n20"
    with perf_map.open("ab") as file:
        file.write(b"00 10 two\n")
    assert files.perf_map_piece(pid) == b"00 10 two\n"
    assert files.perf_map_piece(pid) == b""
    perf_map.write_bytes(b"1 1 new\n")  # shorter: written anew
    assert files.perf_map_piece(pid) == b"1 1 new\n"
    files.forget(pid)
    assert files.perf_map_piece(pid) == b"1 1 new\n"


def test_a_perf_map_of_others_does_not_count(perf_map: Path, tmp_path: Path, files: MappedFiles) -> None:
    pid = os.getpid()
    perf_map.write_bytes(b"1000 10 one\n")
    perf_map.chmod(0o666)
    assert files.perf_map_piece(pid) == b""
    perf_map.unlink()
    (tmp_path / "real").write_bytes(b"1000 10 one\n")
    perf_map.symlink_to(tmp_path / "real")
    assert files.perf_map_piece(pid) == b""
    perf_map.unlink()
    os.mkfifo(perf_map)
    assert files.perf_map_piece(pid) == b""
    perf_map.unlink()
    if os.geteuid() == 0:
        perf_map.write_bytes(b"1000 10 one\n")
        perf_map.chmod(0o644)
        os.chown(perf_map, 12345, -1)
        assert files.perf_map_piece(pid) == b""
