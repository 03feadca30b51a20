"""libdw as a second oracle: the same frames, through C and through ctypes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.symbols.libdw import HEADER, ByCallbacks, Shim
from tests.symbols.stopped import Captured, capture, compile_program, needs_x86, waiting

from tracehound.symbols.unwind import Status, unwind

pytestmark = [
    needs_x86,
    pytest.mark.skipif(not HEADER.exists() or not shutil.which("gcc"), reason="libdw-dev or gcc is not installed"),
]

BUILDS = {
    "no_frame_pointer": ("calls.c", "-O2", "-fomit-frame-pointer"),
    "frame_pointer": ("calls.c", "-O1", "-fno-omit-frame-pointer"),
    "exceptions": ("exceptions.cpp", "-O2"),
}
CASES = [
    *((build, way) for build in ("no_frame_pointer", "frame_pointer") for way in ("recursion", "alloca", "realigned")),
    *(("no_frame_pointer", way) for way in ("tail_call", "qsort", "thread", "signal", "fault")),
    ("exceptions", "destructor"),
    ("exceptions", "terminate"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("libdw")
    yield {name: compile_program(folder, *source) for name, source in BUILDS.items()}


def walked(captured: Captured) -> list[int]:
    found = unwind(captured.tables, captured.ranges, captured.samples, captured.stack)
    assert found.statuses[0] == Status.COMPLETE
    chain: list[int] = found.addresses[0, : found.depths[0]].tolist()
    return chain


@pytest.mark.parametrize(("build", "way"), CASES)
def test_equal_to_libdw(programs: dict[str, Path], build: str, way: str) -> None:
    folder = programs[build].parent
    with waiting(programs[build], way) as (pid, tid):
        captured = capture(pid, tid)
        shim = Shim(folder, captured, pid)
        expected = shim.walk(captured.stack, len(captured.stack))
        shim.close()
    assert walked(captured) == expected


def test_by_callbacks_it_is_the_same(programs: dict[str, Path]) -> None:
    with waiting(programs["no_frame_pointer"], "qsort") as (pid, tid):
        captured = capture(pid, tid)
        callbacks = ByCallbacks(captured, pid)
        expected = callbacks.walk(captured.stack)
        callbacks.close()
    assert walked(captured) == expected
