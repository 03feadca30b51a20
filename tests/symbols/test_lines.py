"""Source lines and inlined functions: as addr2line has them, from every kind of file; damage is no line."""

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.symbols.conftest import build
from tests.symbols.stopped import FOLDER

from tracehound.symbols import lines
from tracehound.symbols.elf import Elf
from tracehound.symbols.lines import Line, lines_of
from tracehound.symbols.module import Module

pytestmark = pytest.mark.skipif(not shutil.which("addr2line"), reason="binutils are not installed")
SOURCE = """\
static int volatile sink;
static inline __attribute__((always_inline)) int inner(int x)
{
	sink = x;
	return sink * 3;
}
static inline __attribute__((always_inline)) int outer(int x)
{
	return inner(x) + 1;
}
__attribute__((noinline)) int whole(int x)
{
	return outer(x) ^ 7;
}
int main(int argc, char **argv)
{
	(void)argv;
	return whole(argc);
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "inlined.c"
    path.write_text(SOURCE)
    return path


def addr2line(path: Path, addresses: list[int]) -> list[list[tuple[str, str]]]:
    """Return (function, file:line) of each address, the innermost first."""
    command = ["addr2line", "-aifCe", str(path), *map(hex, addresses)]
    found: list[list[str]] = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("0x"):
            found.append([])
        else:
            found[-1].append(line.partition(" (discriminator")[0])
    return [list(zip(one[::2], one[1::2], strict=True)) for one in found]


@pytest.mark.parametrize("options", [("-gdwarf-4",), ("-gdwarf-5", "-no-pie"), ("-gdwarf-5", "-gz=zlib")])
def test_inlined(source: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    build("gcc", "-O2", *options, "-o", tmp_path / "program", source)
    module = Module.open(tmp_path / "program", cache=tmp_path / "cache")
    function = module.function("whole")
    offsets = range(function.offset, function.offset + function.size)
    wanted = addr2line(tmp_path / "program", [function.address + at for at in range(function.size)])
    found = [lines_of(module, offset) for offset in offsets]
    assert [[(one.function, f"{one.file}:{one.line}") for one in each] for each in found] == wanted
    assert {len(each) for each in found} == {1, 2, 3}
    for each in found:
        assert [one.is_inlined for one in each] == [True] * (len(each) - 1) + [False]
    place = next(each for each in found if len(each) == 3)
    assert [one.function for one in place] == ["inner", "outer", "whole"]
    assert place[1:] == [Line("outer", str(source), 9, True), Line("whole", str(source), 13, False)]


def test_debug_file(source: Path, tmp_path: Path) -> None:
    build("gcc", "-O2", "-g", "-Wl,--build-id", "-o", tmp_path / "program", source)
    build("objcopy", "--only-keep-debug", tmp_path / "program", tmp_path / "program.debug")
    link = f"--add-gnu-debuglink={tmp_path / 'program.debug'}"
    build("objcopy", "--strip-all", link, tmp_path / "program", tmp_path / "bare")
    whole, bare = (Module.open(tmp_path / name, cache=tmp_path / f"cache-{name}") for name in ("program", "bare"))
    offset = whole.function("whole").offset + 4
    assert lines_of(bare, offset) == lines_of(whole, offset) != []
    build("objcopy", "--strip-all", "--remove-section=.gnu_debuglink", tmp_path / "program", tmp_path / "none")
    assert lines_of(Module.open(tmp_path / "none", cache=tmp_path / "cache-none"), offset) == []


def test_cpp(cpp_library: Path, tmp_path: Path) -> None:
    module = Module.open(cpp_library, cache=tmp_path)
    function = module.function("shop::Cart::total")
    (line,) = lines_of(module, function.offset)
    text = (FOLDER / "names.cpp").read_text().splitlines()
    assert line == Line("shop::Cart::total(int, char const*) const", str(FOLDER / "names.cpp"), line.line, False)
    assert "Cart::total" in text[line.line - 1]


def test_rust(rust_library: Callable[[str], Path], tmp_path: Path) -> None:
    module = Module.open(rust_library("v0"), cache=tmp_path)
    found = lines_of(module, module.function("<names::Cart>::total").offset + 3)
    assert found[-1].function == "<names::Cart>::total"
    assert found[-1].file.endswith("programs/names.rs")
    assert "wrapping_mul" in found[0].function
    assert found[0].is_inlined


@pytest.mark.parametrize("options", [(), ("-ldflags=-s -w",)], ids=["whole", "stripped"])
def test_go(go_program: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]) -> None:
    module = Module.open(go_program(*options), cache=tmp_path)
    text = (FOLDER / "calls.go").read_text().splitlines()
    (line,) = lines_of(module, module.function("main.(*cart).total").offset)
    assert (line.function, line.is_inlined) == ("main.(*cart).total", False)
    assert line.file.endswith("programs/calls.go")
    assert "total(count int)" in text[line.line - 1] or "c.sum * count" in text[line.line - 1]


def test_without_lines(tmp_path: Path) -> None:
    module = Module.vdso(tmp_path)
    function = module.function("__vdso_getcpu")
    (line,) = lines_of(module, function.offset + 1)
    assert line[1:] == ("", 0, False)
    assert line.function in module.aliases(function)
    assert lines_of(module, 1 << 40) == []


def test_kept(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build("gcc", "-O2", "-g", "-Wl,--build-id", "-o", tmp_path / "program", source)
    cache = tmp_path / "cache"
    first = Module.open(tmp_path / "program", cache=cache)
    offset = first.function("whole").offset
    held = first.size_bytes
    wanted = lines_of(first, offset)
    assert first.size_bytes > held
    made: list[Elf] = []

    def make(elf: Elf) -> bytes:
        made.append(elf)
        raise ValueError("not again")

    monkeypatch.setattr(lines, "_make_table", make)
    assert lines_of(Module.open(tmp_path / "program", cache=cache), offset) == wanted
    assert not made
    (tmp_path / "program").touch()  # another file, for all that is known
    assert lines_of(Module.open(tmp_path / "program", cache=cache), offset) == [Line("whole", "", 0, False)]
    assert len(made) == 1


def test_damage(cpp_library: Path, tmp_path: Path) -> None:
    content = cpp_library.read_bytes()
    elf = Elf(content)
    places = [one for name, one in elf.sections.items() if name.startswith(".debug_")]
    function = Module(elf, None, tmp_path).function("run")
    chosen, began, read = random.Random(5), time.monotonic(), 0
    for _ in range(150):
        broken = bytearray(content)
        for _ in range(chosen.choice((1, 4, 64))):
            place = chosen.choice(places)
            at = place.offset + chosen.randrange(place.size)
            broken[at : at + 4] = chosen.choice((b"\xff" * 4, bytes(4), chosen.randbytes(4), b"\xff\xff\xff\x7f"))
        module = Module(Elf(bytes(broken)), None, tmp_path / "none")
        found = lines_of(module, function.offset + 9)
        assert all(isinstance(one, Line) for one in found)
        read += bool(found and found[0].line)
    assert 0 < read < 150
    assert time.monotonic() - began < 120
