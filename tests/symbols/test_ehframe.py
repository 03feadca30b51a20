"""Tables: the same rows as readelf's for real files, and no error but TargetError for damaged ones."""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.symbols.stopped import compile_program

from tracehound.errors import TargetError
from tracehound.symbols import ehframe
from tracehound.symbols.ehframe import build_rows
from tracehound.symbols.elf import Elf
from tracehound.symbols.unwind import Table

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="stacks are walked on x86-64 only"),
    pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is not installed"),
]
KNOWN = {"exp": {ehframe.PLT, ehframe.SIGNAL, ehframe.DEREF_RBP, ehframe.UNSUPPORTED}, "vexp": {ehframe.UNSUPPORTED}}


def mapped(name: str) -> Path:
    """Return a library that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in lines if name in line.rpartition("/")[2])


def readelf_rows(path: Path) -> Iterator[dict[int, dict[str, str]]]:
    """Return for each function what readelf says at each address, of one that is said twice the last."""
    command = ["readelf", "-W", "--debug-dump=frames-interp", str(path)]
    # exit code 1 where a debug file is missing
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for block in re.split(r"\n(?=[0-9a-f]{8} )", text):
        lines = re.sub(r" \(\w+\)", "", block).splitlines()  # a register's name after its number
        if " FDE " not in lines[0] or len(lines) < 3 or "LOC" not in lines[1]:
            continue  # one that only repeats its CIE is not spelled out
        start, end = (int(part, 16) for part in lines[0].rpartition("pc=")[2].split(".."))
        header = lines[1].split()
        rows = [dict(zip(header, line.split(), strict=True)) for line in lines[2:] if re.match("[0-9a-f]{16} ", line)]
        yield {int(row["LOC"], 16): row for row in rows if start <= int(row["LOC"], 16) < end}


def says(row: dict[str, str], rule: int, offset: int, rbp: int) -> bool:
    """Tell whether a row of ours is readelf's."""
    cfa, ra = row["CFA"], row.get("ra", "u")
    if ra == "u":
        return rule == ehframe.END
    if cfa in KNOWN:
        return rule in KNOWN[cfa]
    register, _, distance = cfa.partition("+")
    if ra != "c-8" or register not in ("rsp", "rbp") or int(distance) > 32767:
        return rule == ehframe.UNSUPPORTED
    saved = row.get("rbp", "u")
    expected = {"u": ehframe.RBP_SAME, "s": ehframe.RBP_SAME}.get(saved, ehframe.RBP_LOST)
    if saved.startswith("c") and saved[1:]:
        expected = int(saved[1:]) // 8
    is_same = (rule, offset) == (ehframe.RSP if register == "rsp" else ehframe.RBP, int(distance))
    return is_same and rbp == expected


@pytest.mark.parametrize("name", ["libc.so", "ld-linux", "libstdc++", "calls.c"])
def test_equal_to_readelf(tmp_path: Path, name: str) -> None:
    if name == "calls.c":
        path = compile_program(tmp_path, name, "-O2", "-fomit-frame-pointer")
    elif name == "libstdc++":
        asked = subprocess.run(["g++", "-print-file-name=libstdc++.so"], capture_output=True, text=True, check=True)
        path = Path(asked.stdout.strip()).resolve()
    else:
        path = mapped(name)
    elf = Elf.open(path)
    table = Table(build_rows(elf))
    compared, different = 0, []
    for function in readelf_rows(path):
        for address, row in function.items():
            found = table.at(address - elf.base)
            compared += 1
            if not says(row, *found):
                different.append((hex(address), row, found))
    assert not different
    assert compared > (20 if name == "calls.c" else 1000)
    assert (np.diff(table.rows["pc"].astype(np.int64)) > 0).all()


def test_without_sections(tmp_path: Path) -> None:
    """The table of the program headers is enough: the section headers are cut off."""
    path = compile_program(tmp_path, "calls.c", "-O2")
    content = bytearray(path.read_bytes())
    whole = build_rows(Elf(bytes(content)))
    content[40:48], content[58:64] = bytes(8), bytes(6)
    assert np.array_equal(build_rows(Elf(bytes(content))), whole)


def test_another_machine() -> None:
    content = bytearray(Path("/proc/self/exe").read_bytes())
    content[18] = 183
    with pytest.raises(TargetError, match="machine 183"):
        build_rows(Elf(bytes(content)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_program(tmp_path_factory.mktemp("small"), "calls.c", "-O2", "-s").read_bytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged(small: bytes, data: st.DataObject) -> None:
    content = bytearray(small)
    frames = Elf(small).sections[".eh_frame"]
    places = st.one_of(st.integers(0, len(small) - 1), st.integers(frames.offset, frames.offset + frames.size - 1))
    for at, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=20)):
        content[at] = byte
    del content[data.draw(st.integers(0, len(content))) if data.draw(st.booleans()) else len(content) :]
    try:
        elf = Elf(bytes(content))
        rows = build_rows(elf)
        assert elf.symbols is not None
    except TargetError:
        return
    assert (np.diff(rows["pc"].astype(np.int64)) > 0).all()
