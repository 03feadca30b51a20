"""Modules: functions by place and name from every source, what is kept of them, and damaged files."""

import lzma
import os
import random
import shutil
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.symbols.conftest import build
from tests.symbols.damage import NO_FOLDER, damage, read_everything
from tests.symbols.stopped import compile_program

from tracehound.errors import TargetError
from tracehound.symbols import module as module_file
from tracehound.symbols.ehframe import Rows, build_rows
from tracehound.symbols.elf import Elf
from tracehound.symbols.functions import GLOBAL_FUNCTION, SYMBOL
from tracehound.symbols.go import GoTable
from tracehound.symbols.go_rows import unwind_rows
from tracehound.symbols.module import Module, Modules

pytestmark = pytest.mark.skipif(not shutil.which("objcopy"), reason="binutils are not installed")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("module"), "calls.c", "-O2", "-Wl,--build-id")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where modules of a test are kept."""
    return tmp_path / "cache"


@contextmanager
def most_memory() -> Iterator[Callable[[], int]]:
    """Measure what Python takes; yields what says the most of it that was held at a time, in bytes."""
    found = 0
    tracemalloc.start()
    try:
        yield lambda: found
        found = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def strip(program: Path, target: Path, *options: str) -> Path:
    build("objcopy", "--strip-all", *options, program, target)
    return target


def test_places(program: Path, folder: Path) -> None:
    module = Module.open(program, cache=folder)
    function = module.function("with_alloca")
    assert module.offset_of(function.address) == function.offset
    assert module.address_of(function.offset) == function.address
    assert module.function_at(function.offset + 3) == function
    assert module.symbol_at(function.offset + 3) == ("with_alloca", 3)
    end = function.offset + function.size
    offsets = np.array([function.offset, end - 1, end, 1 << 40, 0], dtype="u8")
    found, within = module.symbols_at(offsets)
    one_by_one = [module.symbol_at(int(offset)) for offset in offsets]
    many = [(module.symbols.name(at), int(far)) if at >= 0 else None for at, far in zip(found, within, strict=True)]
    assert many == one_by_one
    assert one_by_one[:2] == [("with_alloca", 0), ("with_alloca", function.size - 1)]
    assert one_by_one[3:] == [None, None]


def test_load_bias() -> None:
    """The functions of libc, as this process has them, lie where its mappings say."""
    import ctypes

    libc = ctypes.CDLL(None)
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    path = next(line[5] for line in lines if len(line) > 5 and "/libc.so" in line[5])
    module = Module.open(path, cache=NO_FOLDER)
    code = next(line for line in lines if len(line) > 5 and line[5] == path and "x" in line[1])
    bias = module.load_bias(int(code[0].partition("-")[0], 16), int(code[2], 16))
    assert bias is not None
    known = ctypes.cast(libc.qsort, ctypes.c_void_p).value
    assert bias + module.function("qsort").address == known
    assert module.load_bias(4096, 1 << 40) is None


def test_names(program: Path, folder: Path) -> None:
    module = Module.open(program, cache=folder)
    assert [one.name for one in module.functions("*alloca")] == ["with_alloca"]
    assert [one.name for one in module.functions("recurs?")] == ["recurse"]
    assert module.functions("recurs") == module.functions("zz*") == []
    with pytest.raises(TargetError, match=r"has no function recurze: near are recurse$"):
        module.function("recurze")
    with pytest.raises(TargetError, match=r"has no function alloca: near are with_alloca$"):
        module.function("alloca")
    with pytest.raises(TargetError, match=r"has no function 0123456789$"):
        module.function("0123456789")


def test_cpp_names(cpp_library: Path, folder: Path) -> None:
    module = Module.open(cpp_library, cache=folder)
    total = module.function("_ZNK4shop4Cart5totalEiPKc")
    for name in ("shop::Cart::total", "shop::Cart::total(int, char const*) const"):
        assert module.functions(name) == [total]
    assert module.symbol_at(total.offset) == ("shop::Cart::total(int, char const*) const", 0)
    assert module.functions("shop::Cart::*tal") == [total]
    assert len(module.functions("shop::Cart::*")) == 3
    assert len(module.functions("shop::twice<*>")) == 2
    assert len(module.functions("shop::twice<int>")) == 1
    assert module.functions("shop::(anonymous namespace)::hidden") == module.functions("*hidden")
    assert module.function("shop::Cart::operator()").size > 0
    assert module.function("shop::Cart::operator bool").size > 0
    for name in ("Cart::total", "totl"):
        with pytest.raises(TargetError, match=f"has no function {name}: near are shop::Cart::total"):
            module.function(name)


@pytest.mark.parametrize("scheme", ["v0", "legacy"])
def test_rust_names(rust_library: Callable[[str], Path], folder: Path, scheme: str) -> None:
    module = Module.open(rust_library(scheme), cache=folder)
    total = "<names::Cart>::total" if scheme == "v0" else "names::Cart::total"
    for name in (total, "<names::Cart as names::Priced>::price", "names::twice", "run"):
        (found,) = module.functions(name)
        shown = module.symbol_at(found.offset)
        assert shown is not None
        assert shown == (name if "twice" not in name or scheme == "legacy" else "names::twice::<u64>", 0)
        assert name == "run" or found.name.startswith("_R" if scheme == "v0" else "_ZN")
    assert len(module.functions("*names::Cart*")) == 2


def test_go_names_of_a_stripped_program(go_program: Callable[..., Path], folder: Path) -> None:
    whole, bare = (Module.open(go_program(*options), cache=folder) for options in ((), ("-ldflags=-s -w",)))
    assert whole.elf.has_symtab
    assert not bare.elf.has_symtab
    for name in ("main.main", "main.(*cart).total", "fmt.Fprintln", "runtime.mallocgc"):
        (one,), (other,) = whole.functions(name), bare.functions(name)
        assert other.name == one.name == name
        code = [each.elf.bytes_at(at.offset, one.size) for each, at in ((whole, one), (bare, other))]
        assert name != "main.(*cart).total" or code[0] == code[1]
    assert len(bare.functions("main.twice*")) == 2
    assert len(bare.functions("main.*")) == len([one for one in whole.functions("main.*") if "dict" not in one.name])


def test_symbols_from_every_source(
    program: Path, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_file, "debug_file", lambda elf, folder: find(elf, folder, tmp_path / "debug"))
    from tracehound.symbols.elf import debug_file as find

    wanted = Module.open(program, cache=folder).function("recurse")
    bare = Module.open(strip(program, tmp_path / "bare"), cache=folder)
    assert not bare.functions("recurse")
    assert bare.identity == Module.open(program, cache=folder).identity

    packed = tmp_path / "packed.xz"
    packed.write_bytes(lzma.compress(program.read_bytes()))
    mini = strip(program, tmp_path / "mini", f"--add-section=.gnu_debugdata={packed}")
    assert Module.open(mini, cache=folder).function("recurse") == wanted

    # Found as soon as it is installed, though it was not there when the same content was kept
    assert bare.build_id
    debug = tmp_path / "debug" / ".build-id" / bare.build_id.hex()[:2] / f"{bare.build_id.hex()[2:]}.debug"
    debug.parent.mkdir(parents=True)
    build("objcopy", "--only-keep-debug", program, debug)
    assert Module.open(tmp_path / "bare", cache=folder).function("recurse") == wanted
    with (tmp_path / "bare").open("rb") as file:
        (tmp_path / "bare").unlink()
        assert Module.open(file.fileno(), "bare (deleted)", cache=folder).function("recurse") == wanted

    # One of another build is not taken
    other = compile_program(tmp_path, "calls.c", "-O1", "-Wl,--build-id")
    build("objcopy", "--only-keep-debug", other, debug)
    assert not Module.open(strip(program, tmp_path / "again"), cache=folder).functions("recurse")

    linked = tmp_path / "linked.debug"
    build("objcopy", "--only-keep-debug", program, linked)
    strip(program, tmp_path / "link", "--remove-section=.note.gnu.build-id", f"--add-gnu-debuglink={linked}")
    module = Module.open(tmp_path / "link", cache=folder)
    assert module.build_id is None
    assert module.identity.count("-") == 4
    assert module.function("recurse") == wanted


def test_musl_static(tmp_path: Path, folder: Path) -> None:
    if not shutil.which("musl-gcc"):
        pytest.skip("musl-tools are not installed")
    source = tmp_path / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n')
    build("musl-gcc", "-static", "-O2", "-o", tmp_path / "hello", source)
    module = Module.open(tmp_path / "hello", cache=folder)
    assert module.build_id is None or len(module.build_id) == 20
    assert {one.name for one in module.functions("put*")} >= {"puts"}
    puts = module.function("puts")
    assert module.symbol_at(puts.offset + 1) == ("puts", 1)
    assert [one.name for one in module.functions("main")] == ["main"]


def test_vdso(folder: Path) -> None:
    module = Module.vdso(folder)
    function = module.function("__vdso_clock_gettime")
    name, far = module.symbol_at(function.offset + 4) or ("", 0)
    assert name in ("clock_gettime", "__vdso_clock_gettime")
    assert far == 4
    assert len(module.rows) > 4
    assert Modules(cache=folder).vdso().identity == module.identity


def test_rows_and_symbols_are_kept(program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Module.open(program, cache=folder)
    assert np.array_equal(first.rows, build_rows(Elf.open(program)))
    assert len(first.symbols) > 10
    built: list[str] = []

    def rebuild(elf: Elf, go: GoTable | None) -> Rows:
        built.append(elf.name)
        return unwind_rows(elf, go)

    monkeypatch.setattr(module_file, "unwind_rows", rebuild)
    monkeypatch.setattr(Module, "_read_symbols", lambda module: built.append("symbols"))
    second = Module.open(program, cache=folder)
    assert np.array_equal(second.rows, first.rows)
    assert second.symbols.strings == first.symbols.strings
    for name in ("addresses", "sizes", "names", "kinds"):
        assert np.array_equal(getattr(second.symbols, name), getattr(first.symbols, name))
    assert second.functions("*") == first.functions("*")
    assert not built
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert np.array_equal(Module.open(program, cache=folder).rows, first.rows)
    assert built == [str(program)]


def test_a_build_id_is_not_believed(program: Path, tmp_path: Path, folder: Path) -> None:
    """A file that claims another's build id gets nothing of the other's, and leaves nothing for it."""
    content = program.read_bytes()
    build_id = Elf(content).build_id
    other = compile_program(tmp_path, "calls.c", "-O1", "-Wl,--build-id")
    other_id = Elf.open(other).build_id
    assert build_id and other_id
    false = tmp_path / "false"
    false.write_bytes(content.replace(build_id, other_id))
    claims, truth = Module.open(false, cache=folder), Module.open(other, cache=folder)
    assert claims.identity == truth.identity
    assert claims.function("recurse") == Module.open(program, cache=folder).function("recurse")
    assert np.array_equal(claims.rows, build_rows(Elf.open(program)))
    assert np.array_equal(truth.rows, build_rows(Elf.open(other)))
    (wanted,) = Elf.open(other).symbols.named("recurse")
    assert truth.function("recurse").address == wanted.address


def test_modules_are_bounded(program: Path, tmp_path: Path, folder: Path) -> None:
    copies = [shutil.copy(program, tmp_path / f"copy{at}") for at in range(4)]
    modules = Modules(limit=3, cache=folder)
    held = [modules.open(copy) for copy in copies]
    assert len(modules) == 3
    assert modules.open(copies[3]) is held[3]
    assert modules.open(copies[1]) is held[1]
    assert modules.open(copies[0]) is not held[0]
    assert held[0].function("recurse").size > 0  # who holds one goes on with it
    with open(copies[1], "rb") as file:
        assert modules.open(file.fileno()) is held[1]
    os.utime(copies[1])
    assert modules.open(copies[1]) is not held[1]

    small = Modules(limit_bytes=held[0].size_bytes + 5000, cache=folder)
    for copy in copies:
        assert len(small.open(copy).symbols)
    small.open(program)
    assert len(small) <= 2
    with pytest.raises(TargetError, match="No such file"):
        modules.open(tmp_path / "none")


@pytest.mark.parametrize("kind", ["c", "mini", "c++", "go"])
def test_damaged_files(kind: str, request: pytest.FixtureRequest, program: Path, tmp_path: Path) -> None:
    """Whatever is wrong with a file, it is told as one kind of error, in time and memory that do not depend on it."""
    if kind == "c":
        path = program
    elif kind == "c++":
        path = request.getfixturevalue("cpp_library")
    elif kind == "go":
        path = request.getfixturevalue("go_program")("-ldflags=-s -w")
    else:
        packed = tmp_path / "packed.xz"
        packed.write_bytes(lzma.compress(program.read_bytes()))
        path = strip(program, tmp_path / "mini", f"--add-section=.gnu_debugdata={packed}")
    content, rolls = path.read_bytes(), random.Random(kind)
    began = time.monotonic()
    with most_memory() as peak:
        was_read = [read_everything(damage(content, rolls)) for _ in range(40 if kind == "go" else 120)]
    assert set(was_read) == {True, False}
    assert peak() < 20 * len(content) + (64 << 20)
    assert time.monotonic() - began < 120


def test_bombs(program: Path, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would unpack to more than is taken for whole is cut."""
    monkeypatch.setattr("tracehound.symbols.elf.MINI_DEBUG_LIMIT", 32 << 20)
    packed = tmp_path / "packed.xz"
    packed.write_bytes(lzma.compress(program.read_bytes() + bytes(200 << 20), preset=0))
    bomb = strip(program, tmp_path / "bomb", f"--add-section=.gnu_debugdata={packed}")
    with most_memory() as peak:
        Module.open(bomb, cache=folder).functions("main*")
    assert peak() < 100 << 20


def elf_of_names(count: int, strings: bytes) -> Elf:
    """Return a file whose symbols each have the name that begins one byte further on."""
    table = np.zeros(count, dtype=SYMBOL)
    table["name"], table["info"], table["section"] = np.arange(1, count + 1), GLOBAL_FUNCTION, 1
    table["value"], table["size"] = 0x1000 + np.arange(count), 1
    names = b"\0.symtab\0.strtab\0.shstrtab\0"
    parts, at, rows = b"", 4096, b""
    for name, kind, content, link in ((1, 2, table.tobytes(), 2), (9, 3, strings, 0), (17, 3, names, 0)):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at + len(parts), len(content), link, 0, 1, 24)
        parts += content
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, at + len(parts), 0, 64, 56, 1, 64, 4, 3)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 22, 1 << 22, 4096)
    return Elf((head + segment).ljust(at, b"\0") + parts + bytes(64) + rows, "crafted")


def test_names_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 names of up to 64 KiB in a file of 5 MB: they are not all looked at."""
    module = Module(elf_of_names(200_000, b"\0" + b"a" * 270_000), None, folder)
    with most_memory() as peak, pytest.raises(TargetError, match="names of more characters than"):
        module.functions("zz*")
    assert peak() < 100 << 20
    assert module.symbol_at(0x1000) == ("a" * 65536, 0)

    monkeypatch.setattr("tracehound.symbols.names.FORMS_KEPT", 10)
    many = Module(elf_of_names(100, b"\0" + b"ab" * 50 + b"\0"), None, folder)
    assert len(many.functions("b*")) == 50
    assert len(many.functions("a*")) == 50
    assert many.near("abc") == ["ab"]


def test_no_module(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be read: No such file"):
        Module.open(tmp_path / "none")
    with pytest.raises(TargetError, match="no regular file"):
        Module.open(tmp_path)
