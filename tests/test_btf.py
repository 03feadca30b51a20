"""btf.py against the C compiler's own view of wire.h, against small C files, and against damaged sections."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracehound.btf import OBJECTS, Btf, elf_section, flatten, wire_layout
from tracehound.errors import LayoutError

ROOT = Path(__file__).parents[1]
IMAGE = (OBJECTS / "wire.bpf.o").read_bytes()
SECTION = elf_section(IMAGE, ".BTF", "wire.bpf.o")

Compile = Callable[[str], Btf]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """Compile C for BPF and read its BTF."""

    def compile_c(source: str) -> Btf:
        (tmp_path / "case.c").write_text(source)
        clang = ["clang", "-g", "-O2", "-target", "bpf", "-c", str(tmp_path / "case.c"), "-o", str(tmp_path / "case.o")]
        subprocess.run(clang, check=True, capture_output=True)
        return Btf.of_object(tmp_path / "case.o")

    return compile_c


def test_every_member_lies_where_gcc_puts_it(tmp_path: Path) -> None:
    btf = wire_layout().btf
    structs = [name for name in btf.struct_names() if name.endswith("_record") or name == "record_header"]
    lines = []
    for name in structs:
        lines.append(f'\tprintf("{name} %zu\\n", sizeof(struct {name}));')
        for member in btf.dtype(name).names or ():
            place = f"offsetof(struct {name}, {member}), sizeof(((struct {name} *)0)->{member})"
            lines.append(f'\tprintf("{name}.{member} %zu %zu\\n", {place});')
    text = '#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n#include "wire.h"\n'
    (tmp_path / "offsets.c").write_text(text + "int main(void)\n{\n" + "\n".join(lines) + "\n\treturn 0;\n}\n")
    include = f"-I{ROOT / 'bpf' / 'include'}"
    subprocess.run(["gcc", include, "-o", str(tmp_path / "offsets"), str(tmp_path / "offsets.c")], check=True)
    gcc = subprocess.run([str(tmp_path / "offsets")], check=True, capture_output=True, text=True).stdout.splitlines()

    ours = []
    for name in structs:
        dtype = btf.dtype(name)
        assert dtype.fields is not None and dtype.names is not None
        ours.append(f"{name} {dtype.itemsize}")
        ours += [
            f"{name}.{member} {dtype.fields[member][1]} {dtype.fields[member][0].itemsize}" for member in dtype.names
        ]
    assert len(structs) > 10
    assert ours == gcc


def test_types_become_the_dtypes_of_the_same_bytes(compiled: Compile) -> None:
    btf = compiled(
        """
        typedef unsigned short __be16;
        typedef unsigned int u32;
        enum colour { RED = -1, GREEN = 7 };
        struct inner { u32 a; u32 b; };
        struct case_record {
            const volatile u32 number;
            int negative;
            __be16 port;
            _Bool flag;
            unsigned char bytes[5];
            char text[16];
            enum colour colour;
            struct inner pair[2];
            unsigned char data[];
        };
        struct case_record *used;
        enum colour also_used;
        """
    )
    dtype = btf.dtype("case_record")
    assert dtype == np.dtype(
        {
            "names": ["number", "negative", "port", "flag", "bytes", "text", "colour", "pair"],
            "formats": [
                "<u4",
                "<i4",
                ">u2",
                "u1",
                ("u1", 5),
                "S16",
                "<u4",
                (np.dtype([("a", "<u4"), ("b", "<u4")]), 2),
            ],
            "offsets": [0, 4, 8, 10, 11, 16, 32, 36],
            "itemsize": 52,
        }
    )
    assert btf.has_tail("case_record") and not btf.has_tail("inner")
    assert btf.enum("colour") == {"RED": -1, "GREEN": 7}


@pytest.mark.parametrize(
    ("member", "named"),
    [
        ("unsigned int bits : 3;", "struct x.bits"),
        ("union { int a; float b; } either;", "struct x.either"),
        ("void *address;", "struct x.address"),
        ("unsigned int before : 4, bits : 3;", "struct x.b"),
        ("double real;", "struct x.real"),
        ("void *many[4];", "struct x.many"),
    ],
)
def test_a_member_that_a_record_may_not_have_is_named(compiled: Compile, member: str, named: str) -> None:
    btf = compiled(f"struct x {{ unsigned int first; {member} }}; struct x *used;")
    with pytest.raises(LayoutError) as caught:
        btf.dtype("x")
    assert named in str(caught.value)


def test_what_is_not_there_is_named() -> None:
    btf = wire_layout().btf
    with pytest.raises(LayoutError, match="no struct exex_record"):
        btf.dtype("exex_record")
    with pytest.raises(LayoutError, match="no enum colour"):
        btf.enum("colour")
    with pytest.raises(LayoutError, match=r"wire\.bpf\.o has no section \.rodata"):
        elf_section(IMAGE, ".rodata", "wire.bpf.o")
    with pytest.raises(LayoutError, match="not a 64-bit little-endian ELF"):
        elf_section(b"#!/bin/sh\n", ".BTF", "a script")
    assert btf.variables(".rodata") == {}


def test_variables_of_a_section_have_offset_and_size(compiled: Compile) -> None:
    btf = compiled("const volatile unsigned int first = 1; const volatile unsigned long second = 2;")
    # libbpf fills in the offsets of a section that clang leaves 0; sizes are clang's
    assert {name: size for name, (_offset, size) in btf.variables(".rodata").items()} == {"first": 4, "second": 8}


def test_flatten_keeps_every_byte_where_it_is() -> None:
    dtype = wire_layout().btf.dtype("fork_record")
    whole = np.frombuffer(bytes(range(dtype.itemsize)), dtype)
    flat = whole.view(flatten(dtype))
    assert flat.dtype.itemsize == dtype.itemsize
    assert flat["time_ns"] == whole["header"]["time_ns"] and flat["child_pid"] == whole["child_pid"]


def read_all(btf: Btf) -> None:
    """Ask for everything that a section says it has."""
    for name in btf.struct_names():
        btf.has_tail(name)
        try:
            btf.dtype(name)
        except LayoutError:
            continue
    btf.variables(".rodata")


@settings(max_examples=2000)
@given(st.integers(0, len(SECTION)))
def test_a_section_cut_anywhere_is_a_layout_error_or_reads(length: int) -> None:
    try:
        read_all(Btf(SECTION[:length]))
    except LayoutError:
        return
    assert length >= len(SECTION) - 1


@settings(max_examples=3000)
@given(st.lists(st.tuples(st.integers(0, len(SECTION) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_section_is_a_layout_error_or_reads(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(SECTION)
    for position, value in changes:
        damaged[position] = value
    try:
        read_all(Btf(bytes(damaged)))
    except LayoutError:
        return


@settings(max_examples=2000)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_layout_error_or_read(data: bytes) -> None:
    for section in (data, SECTION[:24] + data, b"\x9f\xeb\x01\x00\x18\x00\x00\x00" + data):
        try:
            read_all(Btf(section))
        except LayoutError:
            continue


@settings(max_examples=2000)
@given(st.integers(0, len(IMAGE)), st.integers(0, len(IMAGE) - 1), st.integers(0, 255))
def test_a_damaged_elf_file_is_a_layout_error_or_reads(length: int, position: int, value: int) -> None:
    damaged = bytearray(IMAGE)
    damaged[position] = value
    for image in (IMAGE[:length], bytes(damaged), b"\x7fELF\x02\x01" + IMAGE[length:]):
        try:
            elf_section(image, ".BTF", "damaged")
        except LayoutError:
            continue
