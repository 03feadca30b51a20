"""The build steps: the dispatcher over the detectors, and BPF objects that are whole or absent."""

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILD: dict[str, Any] = runpy.run_path(str(ROOT / "src" / "tracehound" / "native" / "build.py"))

# each answers with its own byte of the head
DETECTOR = """
static inline unsigned int detect_{name}(const __u8 *head, __u32 size, __u32 direction, __u32 transport, __u32 port)
{{
	return head[{place}];
}}
"""

Detect = Callable[[int, int, int], tuple[int, int]]


@pytest.fixture(scope="module")
def detect(tmp_path_factory: pytest.TempPathFactory) -> Detect:
    """Compile a dispatcher over three detectors and return it: what each says -> (verdict, strength)."""
    folder = tmp_path_factory.mktemp("l7")
    for place, name in enumerate(("alpha", "beta", "gamma")):
        (folder / f"{name}.h").write_text(DETECTOR.format(name=name, place=place))
    (folder / "generated.inc").write_text(BUILD["generate_l7_header"](folder))
    (folder / "main.c").write_text(
        '#include <stdio.h>\n#include <stdlib.h>\n#include "generated.inc"\n'
        "int main(int argc, char **argv)\n{\n"
        "\t__u8 head[3] = { atoi(argv[1]), atoi(argv[2]), atoi(argv[3]) };\n"
        '\tprintf("%u", detect_l7(head, 3, 0, 6, 80));\n\treturn 0;\n}\n'
    )
    subprocess.run(["gcc", "-I", str(folder), "-o", str(folder / "main"), str(folder / "main.c")], check=True)

    def run(*said: int) -> tuple[int, int]:
        command = [str(folder / "main"), *map(str, said)]
        found = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return found >> 8, found & 0xFF

    return run


NONE, AMBIGUOUS, ALPHA, BETA, GAMMA = range(5)


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ((0, 0, 0), (NONE, 0)),
        ((1, 0, 0), (ALPHA, 1)),
        ((0, 0, 2), (GAMMA, 2)),
        ((1, 2, 0), (BETA, 2)),
        ((2, 1, 1), (ALPHA, 2)),
        ((1, 1, 0), (AMBIGUOUS, 1)),
        ((2, 0, 2), (AMBIGUOUS, 2)),
        ((1, 1, 2), (GAMMA, 2)),
        ((2, 2, 2), (AMBIGUOUS, 2)),
    ],
)
def test_the_strongest_verdict_wins_and_equal_ones_are_ambiguous(
    detect: Detect, said: tuple[int, int, int], verdict: tuple[int, int]
) -> None:
    assert detect(*said) == verdict


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder like bpf/ with one good program file."""
    (tmp_path / "bpf").mkdir()
    (tmp_path / "bpf" / "good.bpf.c").write_text("int good;\n")
    return tmp_path / "bpf"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_objects_without_a_source_are_removed(sources: Path, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    (objects / "gone.bpf.o").write_bytes(b"")
    BUILD["compile_bpf_objects"](sources, objects)
    assert names(objects) == ["good.bpf.o"]


def test_a_file_that_clang_refuses_is_named_and_the_old_object_stays(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    objects = tmp_path / "objects"
    BUILD["compile_bpf_objects"](sources, objects)
    before = (objects / "good.bpf.o").read_bytes()
    (sources / "good.bpf.c").write_text("struct hole { char a; int b; } hole;\n")
    with pytest.raises(SystemExit, match=r"good\.bpf\.c could not be compiled"):
        BUILD["compile_bpf_objects"](sources, objects)
    assert "padding" in capfd.readouterr().err
    assert names(objects) == ["good.bpf.o"] and (objects / "good.bpf.o").read_bytes() == before


def test_a_missing_compiler_is_one_line(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLANG", "clang-that-is-not-there")
    with pytest.raises(SystemExit, match=r"clang-that-is-not-there is missing; .* clang >= 14"):
        BUILD["compile_bpf_objects"](sources, tmp_path / "objects")
    assert names(tmp_path / "objects") == []
