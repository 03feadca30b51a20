"""Go's table of functions in every form it has had, with and without sections, files and lines; damage is no table."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.symbols.conftest import GO, build
from tests.symbols.stopped import FOLDER

from tracehound.symbols.elf import Elf
from tracehound.symbols.functions import Symbols
from tracehound.symbols.go import GO_1_2, GO_1_16, GO_1_18, GO_1_20, go_table

BARE = "-ldflags=-s -w"


def functions(elf: Elf) -> dict[str, int]:
    """Return the functions of the table by name."""
    table = go_table(elf)
    assert table
    symbols = Symbols.of([table.symbols()])
    return {one.name: one.address for one in symbols}


def without_sections(path: Path) -> Elf:
    content = bytearray(path.read_bytes())
    content[40:48], content[58:64] = bytes(8), bytes(6)  # e_shoff; e_shentsize, e_shnum, e_shstrndx
    return Elf(bytes(content))


def test_as_the_symbol_table_has_them(go_program: Callable[..., Path]) -> None:
    elf = Elf.open(go_program())
    named = {one.name.removesuffix(".abi0"): one.address for one in elf.symbols}
    found = functions(elf)
    assert len(found) > 1000
    assert {name: named.get(name) for name in found} == found | {
        name: named.get(name) for name in found if name.startswith("go:") or name not in named
    }
    assert len(found.keys() & named.keys()) > 0.95 * len(found)


@pytest.mark.parametrize("options", [(BARE,), (BARE, "-buildmode=pie")], ids=["static", "pie"])
def test_stripped(go_program: Callable[..., Path], options: tuple[str, ...]) -> None:
    path = go_program(*options)
    assert not Elf.open(path).has_symtab
    found = functions(Elf.open(path))
    assert {"main.main", "main.(*cart).total", "main.twice[go.shape.int]", "runtime.gopark"} <= found.keys()
    assert functions(without_sections(path)) == found


def test_linked_with_c(go_program: Callable[..., Path], tmp_path: Path) -> None:
    """Where C comes first in .text, functions do not count from its start."""
    source = tmp_path / "main.go"
    text = (
        (FOLDER / "calls.go")
        .read_text()
        .replace('import "fmt"', '// int one(int x) { return x + 1; }\nimport "C"\nimport "fmt"')
    )
    source.write_text(text.replace("twice(5)", "twice(int(C.one(4)))"))
    assert GO
    build(GO, "build", "-ldflags=-linkmode=external", "-o", tmp_path / "program", source)
    elf = Elf.open(tmp_path / "program")
    symbols = {one.name: one.address for one in elf.symbols}
    found = functions(elf)
    assert found["main.main"] == symbols["main.main"]
    assert symbols["runtime.text"] != elf.sections[".text"].address


def test_files_and_lines(go_program: Callable[..., Path]) -> None:
    elf = Elf.open(go_program(BARE))
    table, lines = go_table(elf), (FOLDER / "calls.go").read_text().splitlines()
    assert table
    address = functions(elf)["main.(*cart).total"]
    file, line = table.line_of(address) or ("", 0)
    assert file.endswith("programs/calls.go")
    assert "total(count int)" in lines[line - 1] or "c.sum * count" in lines[line - 1]
    assert table.line_of(0) is None
    assert table.line_of(1 << 60) is None


NAMES = b"\0main.a\0main.b\0"
STEPS = bytes([0, 14, 4, 2, 12, 0, 2, 127, 0, 4, 127, 0])  # at 1: line 6 for 4 bytes, then 7 for 12; at 6: 0; at 9: 1
TEXT = 0x401000


def old_table(version: int) -> bytes:
    """Return a table of main.a at TEXT and main.b behind it, 16 bytes each, of /x/main.go, as linkers laid it out."""
    is_first, is_narrow = version == GO_1_2, version in (GO_1_18, GO_1_20)
    head = struct.pack("<IHBB", version, 0, 1, 8)
    word, base = ("<I", 0) if is_narrow else ("<Q", TEXT)
    parts: dict[str, bytes] = {"names": NAMES, "units": struct.pack("<I", 0), "files": b"/x/main.go\0", "steps": STEPS}
    places, at = dict[str, int](), 128
    for name, content in parts.items():
        places[name] = at
        at += len(content) + -len(content) % 8
    functions_at = 16 if is_first else at
    rows_size = 5 * struct.calcsize(word) + 8
    # Name, lines and files count from their own tables since Go 1.16, before from the whole one's start
    own = {name: place if is_first else 0 for name, place in places.items()}
    at_fact = (256 if is_first else rows_size) + 8
    facts = b"".join(
        struct.pack(word, base + 16 * one)
        + struct.pack(
            "<8I", own["names"] + 1 + 7 * one, 0, 0, 0, own["steps"] + (9 if is_first else 6), own["steps"] + 1, 0, 0
        )
        for one in range(2)
    )
    fact_size = len(facts) // 2
    numbers = (base, at_fact, base + 16, at_fact + fact_size, base + 32)
    rows = b"".join(struct.pack(word, number) for number in numbers)
    if is_first:
        files_at = at_fact + len(facts)
        rows += struct.pack("<I", files_at)
        files = struct.pack("<3I", 2, places["files"], places["files"])
        body = (head + struct.pack("<Q", 2) + rows).ljust(places["names"], b"\0")
        return _with(body, parts).ljust(at_fact, b"\0") + facts + files
    start = (TEXT,) if is_narrow else ()
    header = head + struct.pack(f"<{7 + len(start)}Q", 2, 1, *start, *places.values(), functions_at)
    return _with(header.ljust(places["names"], b"\0"), parts) + rows.ljust(at_fact, b"\0") + facts


def _with(body: bytes, parts: dict[str, bytes]) -> bytes:
    return body + b"".join(content + bytes(-len(content) % 8) for content in parts.values())


@pytest.mark.parametrize("version", [GO_1_2, GO_1_16, GO_1_18, GO_1_20], ids=["1.2", "1.16", "1.18", "1.20"])
def test_every_form(version: int) -> None:
    table = old_table(version)
    size = 0x1000
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, TEXT, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    code = struct.pack("<IIQQQQQQ", 1, 5, 0, TEXT, TEXT, 64, 64, 4096)
    data = struct.pack("<IIQQQQQQ", 1, 4, 4096, 0x402000, 0, len(table), len(table), 4096)
    elf = Elf((head + code + data).ljust(size, b"\0") + table)
    assert functions(elf) == {"main.a": TEXT, "main.b": TEXT + 16}
    found = go_table(elf)
    assert found
    lines = [found.line_of(TEXT + at) for at in (-1, 0, 3, 4, 15, 16, 31, 32)]
    file = "/x/main.go"
    assert lines == [None, (file, 6), (file, 6), (file, 7), (file, 7), (file, 6), (file, 7), None]


def test_damage(go_program: Callable[..., Path]) -> None:
    content = go_program(BARE).read_bytes()
    place = Elf(content).sections[".gopclntab"]
    chosen = random.Random(1)
    for _ in range(60):
        broken = bytearray(content)
        at = place.offset + chosen.randrange(72 if chosen.random() < 0.7 else place.size)
        broken[at : at + 8] = chosen.choice((b"\xff" * 8, bytes(8), chosen.randbytes(8)))
        table = go_table(Elf(bytes(broken)))
        if table:
            Symbols.of([table.symbols()])
            for start in table.starts[:20].tolist():
                table.line_of(start)


def test_no_go(cpp_library: Path) -> None:
    assert go_table(Elf.open(cpp_library)) is None
    assert go_table(without_sections(cpp_library)) is None
