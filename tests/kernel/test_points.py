"""Points: texts in, places out, by every name that a function has, and one line for what cannot be."""

import lzma
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.symbols.conftest import GO, build

from tracehound.errors import TargetError, UsageError
from tracehound.kernel.filters import parse_filter
from tracehound.kernel.plans import PointOptions
from tracehound.kernel.points import Point, find_file, find_points
from tracehound.symbols import cache, instructions, module
from tracehound.symbols import elf as elf_files
from tracehound.symbols.module import Module

pytest.importorskip("capstone")

TARGETS = Path(__file__).parents[1] / "live" / "targets"


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("points") / "calls"
    subprocess.run(["cc", "-O1", "-pthread", "-o", path, TARGETS / "calls.c"], check=True, timeout=60)
    return str(path)


def test_functions_and_their_returns(binary: str) -> None:
    (tick,) = find_points([f"{binary}:tick[long]"])
    assert (tick.path, tick.symbol, len(tick.plan.arguments)) == (os.path.realpath(binary), "tick", 1)
    if platform.machine() == "x86_64":
        code = Path(binary).read_bytes()
        assert tick.returns and all(code[at] in (0xC3, 0xC2) for at in tick.returns)
    names = {point.symbol for point in find_points([f"{binary}:take_*"])}
    assert names == {"take_numbers", "take_text", "take_bad"}
    inner = find_points([f"{binary}:{tick.returns[0]:#x}"])[0]
    assert (inner.symbol, inner.offset, inner.returns) == ("tick", tick.returns[0], ())


def test_what_is_returned(binary: str) -> None:
    (point,) = find_points([f"{binary}:tick[long]->int"])
    assert point.return_type == "int32" and point.facts()["return"] == "int32"
    for text, message in (("->sizet", "not sizet. Near: size_t"), ("->double", "a type of whole numbers, not double")):
        with pytest.raises(UsageError, match=message):
            find_points([f"{binary}:tick{text}"])


def test_each_instruction_and_nothing_between(binary: str) -> None:
    held = Module.open(binary)
    function = held.function("take_text")
    starts = instructions.starts(held, function).tolist()
    assert starts[0] == function.offset and len(starts) > 5
    for at in range(function.offset, function.offset + function.size):
        text = f"{binary}:take_text+{at - function.offset:#x}" if at > function.offset else f"{binary}:{at:#x}"
        if at in starts:
            assert find_points([text])[0].offset == at
        else:
            with pytest.raises(TargetError, match=r"no instruction begins there\. Near: 0x"):
                find_points([text])


def test_what_is_not_there(binary: str, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, binary], check=True, timeout=60)
    text = tmp_path / "text"
    text.write_text("no program")
    cut = tmp_path / "cut"
    cut.write_bytes(Path(binary).read_bytes()[:5000])
    foreign = tmp_path / "foreign"
    content = bytearray(Path(binary).read_bytes())
    content[18:20] = (8).to_bytes(2, "little")  # MIPS
    foreign.write_bytes(content)
    for point, message in (
        (f"{binary}:tik", "no function tik. Near: tick"),
        (f"{stripped}:tick", "it has no symbols of functions, and no debug file of it is here|no function tick"),
        (f"{binary}:0x1", "lies in no function that has a symbol"),
        (f"{text}:tick", "is not a 64-bit little-endian ELF file"),
        (f"{cut}:tick", "is cut off"),
        (f"{foreign}:tick", "is no program of this machine"),
        (f"{tmp_path}/none:tick", "no such file"),
        ("libpthreat:tick", "nothing named libpthreat is known"),
    ):
        with pytest.raises(TargetError, match=message):
            find_points([point])
    for wrong in ("tick", "lib:", ":tick", "lib:f[int"):
        with pytest.raises(UsageError, match="is no point"):
            find_points([wrong])


def test_libraries_by_name() -> None:
    mine = find_file("libc", (os.getpid(),))
    assert Path(mine).name.startswith("libc.so") and find_file("c", (os.getpid(),)) == mine
    assert find_file("libc.so.6", (), "/bin/true").endswith("libc.so.6")


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return what compiles a target, or skips the test where there is no such compiler."""
    folder, done = tmp_path_factory.mktemp("names"), dict[tuple[str, ...], Path]()
    compilers = {"c": ("cc", "-O1"), "cpp": ("g++", "-O1"), "rs": ("rustc", "-O", "--edition=2021"),
                 "go": (GO or "go", "build")}  # fmt: skip

    def make(name: str, *options: str) -> Path:
        compiler = compilers[name.partition(".")[2]]
        if not shutil.which(compiler[0]):
            pytest.skip(f"{compiler[0]} is not installed")
        if (name, *options) not in done:
            done[name, *options] = folder / f"{name.replace('.', '_')}{len(done)}"
            build(*compiler, *options, "-o", done[name, *options], TARGETS / name)
        return done[name, *options]

    return make


def names(points: list[Point]) -> list[str]:
    """Return what the points are called, LIB left out."""
    return [each.name.partition(":")[2] for each in points]


def test_cpp_names(made: Callable[..., Path]) -> None:
    shop = made("shop.cpp", "-Wl,--build-id")
    both = ["shop::Cart::add(int)", "shop::Cart::add(char const*)"]
    for text, expected in (
        ("shop::Cart::add", both),
        ("shop::Cart::add[ptr,n=int]", both),
        ("shop::Cart::add(int)", both[:1]),
        ("shop::Cart::add(char const*)[ptr,str]->int", both[1:]),
        ("_ZN4shop4Cart3addEi", both[:1]),
        ("_ZN4shop4Cart3*", both),
        ("*Cart::add(ch*", both[1:]),
        ("shop::twice<*>", ["long shop::twice<long>(long)"]),
        ("shop::twice<long>", ["long shop::twice<long>(long)"]),
        ("main", ["main"]),
    ):
        points = find_points([f"{shop}:{text}"])
        assert names(points) == expected, text
        assert all(each.returns and each.is_function and not each.why_no_return for each in points)
        assert [each.facts()["symbol"] for each in points] == expected
    (add,) = find_points([f"{shop}:shop::Cart::add(int)"])
    distance = f"+{add.returns[0] - add.offset:#x}"
    for text in (f"{add.returns[0]:#x}", f"shop::Cart::add(int){distance}"):
        (inner,) = find_points([f"{shop}:{text}"])
        assert names([inner]) == [f"shop::Cart::add(int){distance}"] and not inner.returns
    for wrong in ("Cart::add", "ad"):
        with pytest.raises(TargetError, match=rf"no function {wrong}\. Near: shop::Cart::add$"):
            find_points([f"{shop}:{wrong}"])


def test_filters_by_any_form_of_a_name(made: Callable[..., Path]) -> None:
    shop = made("shop.cpp", "-Wl,--build-id")
    for of_it, count in (
        ("shop::Cart::add", 2),
        (f"{shop}:shop::Cart::add", 2),
        ("*add(int)", 1),
        ("_ZN4shop4Cart3addEi", 1),
        ("*twice*", 0),
    ):
        options = PointOptions((parse_filter(f"{of_it}:n > 3"), parse_filter("n < 9")))
        if count:
            points = find_points([f"{shop}:shop::Cart::add[ptr,n=int]"], options=options)
            matches = [sum(op.kind == "MATCH_NUMBER" for op in each.plan.operations) for each in points]
            assert sorted(matches) == [1] * (2 - count) + [2] * count, of_it
        else:
            with pytest.raises(UsageError, match="no point has an argument 'n'"):
                find_points([f"{shop}:shop::Cart::add[ptr,n=int]"], options=options)


def test_rust_names(made: Callable[..., Path]) -> None:
    shop = made("shop.rs")
    (point,) = find_points([f"{shop}:*shop::Cart*::add[ptr,n=ulong]"])
    assert names([point])[0] in ("shop::Cart::add", "<shop::Cart>::add") and point.returns
    (same,) = find_points([f"{shop}:{names([point])[0]}"])
    assert same.offset == point.offset
    mangled = Module.open(shop).function(names([point])[0]).name
    assert mangled.startswith(("_R", "_ZN")) and find_points([f"{shop}:{mangled}"])[0].name == same.name
    assert find_points([f"{shop}:shop::twice"])[0].returns


@pytest.mark.parametrize("options", [(), ("-ldflags=-s -w",), ("-ldflags=-s -w", "-buildmode=pie")])
def test_go_names(made: Callable[..., Path], options: tuple[str, ...]) -> None:
    shop = made("shop.go", *options)
    for name in ("main.work", "main.(*cart).Total", "main.main", "main.twice[go.shape.int]"):
        (point,) = find_points([f"{shop}:{name}{'[]' * name.endswith(']')}"])
        assert (names([point]), point.is_function, point.why_no_return) == ([name], True, "")
        code = shop.read_bytes()
        assert point.returns and (platform.machine() != "x86_64" or all(code[at] == 0xC3 for at in point.returns))
    assert set(names(find_points([f"{shop}:main.*"]))) >= {"main.work", "main.(*cart).Total", "main.main"}
    with pytest.raises(TargetError, match=r"no function main\.wrk\. Near: main\.work"):
        find_points([f"{shop}:main.wrk"])


def test_names_from_debug_files(made: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, debug = made("shop.cpp", "-Wl,--build-id"), tmp_path / "debug"
    (wanted,) = find_points([f"{shop}:shop::Cart::add(int)"])

    def is_found(path: Path) -> bool:
        try:
            (point,) = find_points([f"{path}:shop::Cart::add(int)"])
        except TargetError:
            return False
        return (point.offset, point.returns) == (wanted.offset, wanted.returns)

    monkeypatch.setattr(module, "debug_file", lambda elf, folder: elf_files.debug_file(elf, folder, debug))
    build("strip", "-o", tmp_path / "bare", shop)
    assert not is_found(tmp_path / "bare")
    build("objcopy", "--only-keep-debug", shop, tmp_path / "linked.debug")
    build("objcopy", f"--add-gnu-debuglink={tmp_path / 'linked.debug'}", tmp_path / "bare", tmp_path / "link")
    assert is_found(tmp_path / "link")
    (tmp_path / "packed.xz").write_bytes(lzma.compress(shop.read_bytes()))
    packed = f"--add-section=.gnu_debugdata={tmp_path / 'packed.xz'}"
    build("objcopy", packed, tmp_path / "bare", tmp_path / "mini")
    assert is_found(tmp_path / "mini")
    build_id = (Module.open(shop).build_id or b"").hex()
    by_id = debug / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    by_id.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "linked.debug", by_id)
    assert is_found(tmp_path / "bare")


def test_functions_whose_end_is_not_seen(made: Callable[..., Path]) -> None:
    odd = made("odd.c")
    found = {each.symbol: each for each in find_points([f"{odd}:{name}" for name in ("plain", "odd", "jumps")])}
    assert {name: bool(each.returns) for name, each in found.items()} == {"plain": True, "odd": False, "jumps": False}
    assert found["odd"].why_no_return.startswith("at +0x") and not found["plain"].why_no_return
    assert found["jumps"].why_no_return == "it ends in jumps to other functions only"
    with pytest.raises(UsageError, match=r"odd: arg0 is known at the exit only, and that is not seen: at \+0x"):
        find_points([f"{odd}:odd[int:ret@exit]"])
    with pytest.raises(UsageError, match=r"arg0 is known at the exit only, .*: it is a place within a function"):
        find_points([f"{odd}:{found['plain'].returns[0]:#x}[int:ret@exit]"])
    quiet = find_points([f"{odd}:odd"], options=PointOptions(by=()))
    assert [(each.returns, each.why_no_return) for each in quiet] == [((), "")]


def test_what_is_no_function_to_call(made: Callable[..., Path]) -> None:
    odd = made("odd.c")
    with pytest.raises(
        TargetError, match=r"chosen is one of several functions, chosen when a program starts.* Near: chosen_one$"
    ):
        find_points([f"{odd}:chosen"])
    assert names(find_points([f"{odd}:chos*"])) == ["chosen_one"]
    assert names(find_points([f"{odd}:odd*"])) == ["odd"]  # odd.cold is only jumped to
    assert names(find_points([f"{odd}:odd.cold"])) == ["odd.cold"]


def test_versions(tmp_path: Path) -> None:
    names_of = (
        'asm(".symver old_f, pick@V1\\n.symver new_f, pick@@V2\\n.symver both, grab@V1\\n.symver same, grab@@V2");'
    )
    source, versions, library = tmp_path / "f.c", tmp_path / "f.map", tmp_path / "libf.so"
    source.write_text(
        f"{names_of}\nint old_f(int n) {{ return n; }}\nint new_f(int n) {{ return n + 1; }}\n"
        'int both(int n) { return n + 2; }\nint same(int) __attribute__((alias("both")));\n'
    )
    versions.write_text("V1 { local: *; };\nV2 { } V1;\n")
    build("cc", "-O1", "-shared", "-fPIC", f"-Wl,--version-script={versions}", "-o", library, source)
    (new,), (old,) = find_points([f"{library}:pick"]), find_points([f"{library}:pick@V1"])
    assert (names([new]), names([old])) == (["pick"], ["pick@V1"]) and new.offset != old.offset
    assert sorted(names(find_points([f"{library}:pick*"]))) == ["pick", "pick@V1"]
    assert names(find_points([f"{library}:grab"])) == names(find_points([f"{library}:grab*"])) == ["grab"]


def test_nothing_is_loaded_before_it_is_needed(binary: str, made: Callable[..., Path], tmp_path: Path) -> None:
    shop = made("shop.cpp", "-Wl,--build-id")
    script = (
        "import sys\nfrom tracehound.kernel.points import find_points\n"
        "wanted = ['tracehound.symbols', 'capstone', 'pycxxfilt']\n"
        "print(*[each in sys.modules for each in wanted])\n"
        "for text in sys.argv[1:]:\n    find_points([text])\n    print(*[each in sys.modules for each in wanted])\n"
    )
    command = [sys.executable, "-c", script, f"{binary}:tick", f"{shop}:shop::Cart::add"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.splitlines() == ["False False False", "True True False", "True True True"]
