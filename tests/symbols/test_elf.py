"""ELF files: functions as readelf has them, ids, segments, where debug files are; damage is one kind of error."""

import lzma
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.symbols.stopped import compile_program

from tracehound.errors import TargetError
from tracehound.symbols.elf import PT_LOAD, Elf, debug_file
from tracehound.symbols.functions import SYMBOL, Symbols, read_table

pytestmark = pytest.mark.skipif(not shutil.which("objcopy"), reason="binutils are not installed")


def run(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def functions(elf: Elf) -> set[tuple[int, str]]:
    return {(one.address, one.name) for one in (elf.symbols[at] for at in range(len(elf.symbols)))}


def listed_functions(path: Path, *options: str) -> set[tuple[int, str]]:
    """Return the defined functions that readelf lists, without their versions."""
    found = set()
    for line in run("readelf", "-W", "--symbols", *options, path).splitlines():
        parts = line.split()
        if len(parts) >= 8 and parts[3] in ("FUNC", "IFUNC") and parts[6] != "UND":
            found.add((int(parts[1], 16), parts[7].partition("@")[0]))
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("elf"), "calls.c", "-O2", "-Wl,--build-id")


def stripped(program: Path, folder: Path, *sections: str) -> Path:
    """Return a copy without symbols, with sections of the given NAME=FILE."""
    target = folder / "stripped"
    run("objcopy", "--strip-all", *(f"--add-section={one}" for one in sections), program, target)
    return target


def test_functions(program: Path) -> None:
    elf = Elf.open(program)
    assert functions(elf) == listed_functions(program)
    (recurse,) = elf.symbols.named("recurse")
    assert recurse.size > 10
    assert elf.symbols.at(recurse.address) == elf.symbols.at(recurse.address + recurse.size - 1) == recurse
    assert elf.symbols.at(recurse.address + recurse.size) != recurse
    assert elf.symbols.at(0) is None
    assert elf.symbols.named("recurs") == elf.symbols.named("ecurse") == []


def test_dynamic_functions() -> None:
    path = next(
        Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line
    )
    elf = Elf.open(path)
    assert {name for _, name in functions(elf)} >= {name for _, name in listed_functions(path, "--dyn-syms")}
    address = elf.symbols.named("qsort")[0].address
    found = elf.symbols.at(address)
    assert found is not None
    assert found.address == address


def test_segments_and_build_id(program: Path) -> None:
    elf = Elf.open(program)
    assert elf.build_id is not None
    assert f"Build ID: {elf.build_id.hex()}" in run("readelf", "-n", program)
    for segment in elf.segments:
        if segment.kind == PT_LOAD and segment.file_size:
            for distance in (0, segment.file_size - 1):
                assert elf.address_of(segment.offset + distance) == segment.address + distance
                assert elf.offset_of(segment.address + distance) == segment.offset + distance
    assert elf.offset_of(1 << 40) is elf.address_of(1 << 40) is None


def test_packed_symbols(program: Path, tmp_path: Path) -> None:
    assert not {name for _, name in functions(Elf.open(stripped(program, tmp_path)))} & {"recurse"}
    packed = tmp_path / "packed.xz"
    packed.write_bytes(lzma.compress(program.read_bytes()))
    elf = Elf.open(stripped(program, tmp_path, f".gnu_debugdata={packed}"))
    assert functions(elf) == listed_functions(program)
    packed.write_bytes(packed.read_bytes()[:-200])
    packed.write_bytes(b"no archive" + packed.read_bytes())
    assert not Elf.open(stripped(program, tmp_path, f".gnu_debugdata={packed}")).symbols.named("recurse")


def test_debug_files(program: Path, tmp_path: Path) -> None:
    bare = stripped(program, tmp_path)
    elf, root = Elf.open(bare), tmp_path / "debug"
    assert elf.build_id is not None
    assert debug_file(elf, tmp_path, root) is None
    named = root / ".build-id" / elf.build_id.hex()[:2] / f"{elf.build_id.hex()[2:]}.debug"
    named.parent.mkdir(parents=True)
    run("objcopy", "--only-keep-debug", program, named)
    assert debug_file(elf, tmp_path, root) == named
    assert functions(Elf.open(named)) == listed_functions(program)

    linked = tmp_path / "program.debug"
    named.rename(linked)
    run("objcopy", f"--add-gnu-debuglink={linked}", bare)
    elf = Elf.open(bare)
    assert debug_file(elf, tmp_path, root) == linked
    hidden = tmp_path / ".debug" / linked.name
    hidden.parent.mkdir()
    linked.rename(hidden)
    assert debug_file(elf, tmp_path, root) == hidden
    hidden.write_bytes(hidden.read_bytes() + b"x")
    assert debug_file(elf, tmp_path, root) is None


def test_endless_debug_files(program: Path, tmp_path: Path) -> None:
    """What a link names may be put there by the program's user: a pipe or a device ends no look-up."""
    linked = tmp_path / "program.debug"
    run("objcopy", "--only-keep-debug", program, linked)
    bare = stripped(program, tmp_path)
    run("objcopy", f"--add-gnu-debuglink={linked}", bare)
    linked.unlink()
    os.mkfifo(linked)
    assert debug_file(Elf.open(bare), tmp_path, tmp_path / "debug") is None
    linked.unlink()
    linked.symlink_to("/dev/zero")
    assert debug_file(Elf.open(bare), tmp_path, tmp_path / "debug") is None
    with pytest.raises(TargetError, match="no regular file"):
        Elf.open("/dev/zero")


def test_descriptor_and_shrunken_file(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(program.read_bytes())
    with copy.open("rb") as file:
        elf = Elf.open(file.fileno(), "copy")
    copy.unlink()
    assert len(elf.symbols.named("recurse")) == 1
    copy.write_bytes(program.read_bytes())
    elf = Elf.open(copy)
    assert elf.sections
    os.truncate(copy, 5000)  # a mapping of it would end this process
    with pytest.raises(TargetError, match="cut off"):
        elf.section(".symtab")
    assert len(elf.symbols) == 0


def test_functions_inside_functions() -> None:
    table = np.zeros(4, dtype=SYMBOL)
    table["value"], table["size"], table["name"] = [100, 120, 400, 500], [200, 8, 0, 10], [1, 7, 13, 18]
    table["info"], table["section"] = [2, 10, 2, 2], 1
    symbols = Symbols.of([read_table(table.tobytes(), b"\0outer\0inner\0open\0last@V1\0")])
    wanted = {99: None, 100: "outer", 120: "inner", 127: "inner", 128: "outer", 299: "outer", 300: None, 499: "open"}
    wanted |= {500: "last@V1", 510: None}
    assert {at: one and one.name for at in wanted for one in [symbols.at(at)]} == wanted
    indices = symbols.indices_at(np.array(list(wanted), dtype="u8"))
    assert [None if at < 0 else symbols.name(at) for at in indices] == list(wanted.values())
    assert [one.size for one in symbols] == [200, 8, 100, 10]
    assert [one.is_resolver for one in symbols] == [False, True, False, False]
    assert [one.name for one in symbols.named("last")] == ["last@V1"]
    assert symbols.named("") == symbols.named("ast@V1\0") == symbols.named("ner") == []


def test_compressed_sections(program: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    run("objcopy", "--compress-debug-sections=zlib-gabi", program, packed)
    assert Elf.open(packed).section(".debug_info") == Elf.open(program).section(".debug_info")
    content = bytearray(packed.read_bytes())
    place = Elf.open(packed).sections[".debug_info"]
    content[place.offset + 24] ^= 0xFF
    with pytest.raises(TargetError, match="damaged"):
        Elf(bytes(content)).section(".debug_info")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not a 64-bit little-endian ELF"),
        (b"#!/bin/sh\n" * 20, "not a 64-bit little-endian ELF"),
        (b"\x7fELF\x01\x01" + bytes(100), "not a 64-bit little-endian ELF"),
        (b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF"),
    ],
)
def test_no_elf(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TargetError, match=text):
        Elf.open(path)
    with pytest.raises(TargetError, match="cannot be read"):
        Elf.open(tmp_path / "none")


def test_cut_off(program: Path) -> None:
    content = program.read_bytes()
    with pytest.raises(TargetError, match="cut off"):
        Elf(content[:100]).segments  # noqa: B018
    with pytest.raises(TargetError, match="cut off"):
        Elf(content[:-100]).sections  # noqa: B018
