"""Stacks of real programs through the whole way, equal to gdb's: compilers, libraries, and files that are gone."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.symbols.conftest import GO, build
from tests.symbols.sampled import Sampled, is_gone, sample
from tests.symbols.stopped import FOLDER, FUTEX, compile_program, needs_gdb, needs_x86, waiting

pytestmark = [needs_x86, needs_gdb]

PYTHON = Path("/usr/bin/python3")
SCRIPT = """
import ctypes, functools, signal, threading
ctypes.CDLL(None).prctl(0x59616d61, -1)
def stop(value):
    if value == 7:
        print(threading.get_native_id(), flush=True)
        signal.pause()
    return value
class Holder:
    def __getattr__(self, name):
        return functools.reduce(lambda total, value: total + stop(value), [1, 7, 3])
def steps():
    yield sorted([4, 1, 9], key=lambda value: Holder().anything)
def run():
    return [list(each) for each in steps()]
"""
JAVASCRIPT = """
function innermost(value) {
    console.log(process.pid);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    return value + 1;
}
function outer(value) { return innermost(value) + 1; }
outer(1);
"""
ENDS = {"main": "run()", "thread": "t = threading.Thread(target=run); t.start(); t.join()"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("real"), "calls.c", "-O2", "-fomit-frame-pointer")


def assert_as_gdb(found: Sampled, status: str = "complete") -> None:
    assert found.addresses == found.gdb
    assert found.row["status"] == status


def test_rust(tmp_path: Path) -> None:
    if not shutil.which("rustc"):
        pytest.skip("rustc is not installed")
    target = tmp_path / "stacks"
    build("rustc", "-O", "--edition=2021", "-o", target, FOLDER / "stacks.rs")
    with waiting(target) as (pid, tid):
        found = sample(pid, tid)
    assert_as_gdb(found)
    assert "stacks::stop" in str(found.symbols[1])
    assert len(found.addresses) >= 7


@pytest.mark.parametrize("options", [(), ("-ldflags=-s -w",), ("-buildmode=pie",)], ids=["plain", "stripped", "pie"])
def test_go(tmp_path: Path, options: tuple[str, ...]) -> None:
    if not GO:
        pytest.skip("Go is not installed")
    target = tmp_path / "stacks"
    build(GO, "build", *options, "-o", target, FOLDER / "stacks.go")
    with waiting(target) as (pid, tid):
        found = sample(pid, tid, with_gdb="-s" not in "".join(options))
    if found.gdb:  # which shows the return address of the outermost function, that is 0
        assert found.addresses == [address for address in found.gdb if address]
    assert found.row["status"] == "complete"
    assert found.symbols[2:8] == ["syscall.RawSyscall", "main.stop", *["main.recurse"] * 4]
    assert found.symbols[-2:] == ["runtime.main", "runtime.goexit"] or found.symbols[-1] == "runtime.goexit.abi0"


def test_musl(tmp_path: Path) -> None:
    """A static program whose libc has no unwind tables: exact where there are some, and told where there are none."""
    if not shutil.which("musl-gcc"):
        pytest.skip("musl-gcc is not installed")
    target = tmp_path / "calls"
    build("musl-gcc", "-static", "-g", "-O2", "-DBARE", "-o", target, FOLDER / "calls.c")
    with waiting(target, "recursion") as (pid, tid):
        found = sample(pid, tid)
    assert found.symbols[:8] == ["stop", *["recurse"] * 6, "main"]
    assert found.addresses[:9] == found.gdb[:9]
    assert found.row["status"] != "complete"
    assert not any(frame["guessed"] for frame in found.row["frames"][:9])


@pytest.mark.skipif(not PYTHON.exists(), reason="python3 is not installed")
@pytest.mark.parametrize("way", ENDS)
def test_native_frames_of_cpython(way: str) -> None:
    with waiting(PYTHON, "-c", SCRIPT + ENDS[way]) as (pid, tid):
        found = sample(pid, tid)
    assert_as_gdb(found)
    assert len(found.addresses) > 20


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_code_that_node_made(tmp_path: Path) -> None:
    """gdb has no names there: functions of JavaScript stand between V8's, from the first frame to _start."""
    options = ("--perf-basic-prof", "--interpreted-frames-native-stack", f"--logfile={tmp_path}/v8.log")
    with waiting(Path("node"), *options, "-e", JAVASCRIPT, call=FUTEX) as (pid, tid):
        try:
            found = sample(pid, tid, with_gdb=False)
        finally:
            Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
    made = [str(frame["symbol"]) for frame in found.row["frames"] if frame["kind"] == "jit"]
    assert any("innermost" in name for name in made), found.symbols
    assert found.row["status"] == "fp_used"
    assert found.symbols[-1] == "_start"
    assert {frame["file"] is None for frame in found.row["frames"] if frame["kind"] == "native"} == {False}


@pytest.mark.parametrize("way", ["qsort", "signal", "thread", "fault"])
def test_through_libc(program: Path, way: str) -> None:
    with waiting(program, way) as (pid, tid):
        found = sample(pid, tid)
    assert_as_gdb(found)
    assert found.symbols[1:3] == ["stop", "recurse"]


def test_an_alternate_stack_is_told(program: Path) -> None:
    with waiting(program, "other_stack") as (pid, tid):
        found = sample(pid, tid)
    assert found.row["status"] == "truncated"
    assert found.addresses == found.gdb[: len(found.addresses)]
    assert found.symbols[1:3] == ["stop", "recurse"]


def gone(pid: int) -> Callable[[], None]:
    def end() -> None:
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while not is_gone(pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert is_gone(pid)

    return end


def copied(program: Path, folder: Path) -> Path:
    """Return a copy of a program whose tables nobody has read."""
    target = folder / "copy"
    shutil.copy(program, target)
    return target


def test_a_process_that_is_dead(program: Path) -> None:
    with waiting(program, "qsort") as (pid, tid):
        found = sample(pid, tid, before_decode=gone(pid))
    assert_as_gdb(found)
    assert found.symbols[1:3] == ["stop", "recurse"]


def test_a_binary_that_was_deleted(program: Path, tmp_path: Path) -> None:
    target = copied(program, tmp_path)
    with waiting(target, "qsort") as (pid, tid):
        found = sample(pid, tid, before_listing=target.unlink)
    assert_as_gdb(found)
    assert found.symbols[1:3] == ["stop", "recurse"]
    assert found.row["frames"][1]["file"] == str(target)


def test_a_binary_that_was_deleted_and_its_process_is_dead(program: Path, tmp_path: Path) -> None:
    target = copied(program, tmp_path)
    with waiting(target, "recursion") as (pid, tid):
        found = sample(pid, tid, before_listing=target.unlink, before_decode=gone(pid))
    assert_as_gdb(found)
    assert found.symbols[1:3] == ["stop", "recurse"]


def test_a_binary_that_was_replaced(program: Path, tmp_path: Path) -> None:
    target = copied(program, tmp_path)
    other = compile_program(tmp_path, "calls.c", "-O0")
    with waiting(target, "qsort") as (pid, tid):
        found = sample(pid, tid, before_listing=lambda: os.replace(other, target))
    assert_as_gdb(found)
    assert found.symbols[1:3] == ["stop", "recurse"]


def test_a_binary_without_symbols_and_build_id(program: Path, tmp_path: Path) -> None:
    target = copied(program, tmp_path)
    subprocess.run(["strip", "--remove-section=.note.gnu.build-id", str(target)], check=True)
    with waiting(target, "qsort") as (pid, tid):
        found = sample(pid, tid)
    assert_as_gdb(found)
    frame = found.row["frames"][1]
    assert (frame["symbol"], frame["build_id"], frame["file"]) == (None, None, str(target))
    assert frame["file_offset"] > 0
