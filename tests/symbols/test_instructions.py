"""Instructions: where they begin is as objdump says, returns of every kind are found, what is no code has none."""

import platform
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.symbols.conftest import build
from tests.symbols.damage import NO_FOLDER
from tests.symbols.stopped import FOLDER

from tracehound.errors import NotSupported
from tracehound.symbols import instructions
from tracehound.symbols.elf import Elf
from tracehound.symbols.instructions import analyse, emulated, returns, starts
from tracehound.symbols.module import Function, Module

pytestmark = [
    pytest.mark.skipif(not shutil.which("objdump"), reason="binutils are not installed"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is for x86-64"),
]
LINE = re.compile(r"\s+([0-9a-f]+):\t(.*)")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("leaves") / "leaves"
    build("gcc", "-g", "-O2", "-fcf-protection=branch", "-o", target, FOLDER / "leaves.c")
    return target


@pytest.fixture
def module(program: Path, tmp_path: Path) -> Module:
    return Module.open(program, cache=tmp_path / "cache")


def listed(program: Path) -> dict[str, list[tuple[int, str]]]:
    """Return objdump's instructions of each function: address and text."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(program)]
    found: dict[str, list[tuple[int, str]]] = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.endswith(">:"):
            rows = found.setdefault(line.partition("<")[2][:-2], [])
        elif match := LINE.match(line):
            rows.append((int(match[1], 16), match[2]))
    return found


COMPILED = (
    "one_return",
    "many_returns",
    "only_a_tail_jump",
    "through_a_pointer",
    "switches",
    "rare",
    "unlikely",
    "main",
)


@pytest.mark.parametrize("name", [*COMPILED, "without_size", "after_it"])
def test_as_objdump_says(program: Path, module: Module, name: str) -> None:
    function = module.function(name)
    rows = [(at, text) for at, text in listed(program)[name] if at < function.address + function.size]
    assert [at + function.address - function.offset for at in starts(module, function).tolist()] == [
        at for at, _ in rows
    ]
    (code,) = analyse(module, [function])
    assert not code.refusal
    wanted = {at - function.address + function.offset for at, text in rows if "ret" in text.split()}
    for part in module.functions(f"{name}.cold*"):
        rest = listed(program)[part.name]
        wanted |= {at - part.address + part.offset for at, text in rest if "ret" in text.split()}
    assert set(code.returns) == wanted
    assert returns(module, function) == code.returns
    for place in code.returns:
        assert module.elf.bytes_at(place, 1) in (b"\xc3", b"\xf3")


def test_how_functions_leave(module: Module) -> None:
    def leaves(name: str) -> tuple[bool, bool, bool]:
        (code,) = analyse(module, [module.function(name)])
        return bool(code.returns), bool(code.tail_jumps), code.has_indirect_jumps

    wanted = {
        "one_return": (True, False, False),
        "only_a_tail_jump": (False, True, False),
        "through_a_pointer": (False, False, True),
        "calls_unlikely": (True, False, False),
        "over_the_prefix": (True, False, False),
    }
    assert {name: leaves(name) for name in wanted} == wanted
    assert leaves("switches")[0::2] == (True, True)


def test_cold_parts(module: Module) -> None:
    """What a compiler moved out of a function is of it, so its way back is no way out."""
    part = next(iter(module.functions("calls_unlikely.cold*")), None)
    if part is None:
        pytest.skip("this compiler moves nothing away")
    (whole,) = analyse(module, [module.function("calls_unlikely")])
    (alone,) = analyse(module, [part])
    assert set(alone.returns) <= set(whole.returns)
    assert not whole.tail_jumps


@pytest.mark.parametrize(
    ("name", "why", "surely"),
    [
        ("with_table", r"may have a jump table at \+0x10", 4),
        ("with_constant", r"has data at \+0x8", 2),
        ("overlaps", r"a jump leads to \+0x5, between two instructions", 5),
        ("says_something", "is no (instruction|code of a program)", 2),
    ],
)
def test_what_is_not_wholly_code(module: Module, name: str, why: str, surely: int) -> None:
    function = module.function(name)
    (code,) = analyse(module, [function])
    assert re.search(why, code.refusal)
    assert code.returns == code.tail_jumps == ()
    assert len(starts(module, function)) == surely


def test_every_function_of_libc(tmp_path: Path) -> None:
    """The places of all functions are those that objdump finds; what is refused is little."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    path = Path(next(line.split()[-1] for line in lines if "/libc.so" in line))
    module = Module.open(path, cache=tmp_path)
    functions = [one for one in module.functions("*") if one.name.startswith(("str", "mem", "q", "fopen", "_IO"))]
    codes = analyse(module, functions)
    assert len(functions) > 100
    assert sum(bool(code.refusal) for code in codes) < len(functions) / 20
    some = [one for one, code in zip(functions, codes, strict=True) if not code.refusal and 0 < one.size < 2000][::9]
    for function in some[:12]:
        span = (f"--start-address={function.address}", f"--stop-address={function.address + function.size}")
        command = ["objdump", "-d", "--no-show-raw-insn", *span, str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        wanted = [int(match[1], 16) for line in text.splitlines() if (match := LINE.match(line))]
        found = starts(module, function).tolist()
        assert [at - function.offset + function.address for at in found] == wanted


def test_emulated(module: Module) -> None:
    function = module.function("rare")
    code = module.elf.bytes_at(function.offset, function.size)
    places = set(emulated(module, function).tolist())
    assert places < set(starts(module, function).tolist())
    assert code.startswith(b"\xf3\x0f\x1e\xfa")  # endbr64 is not
    assert function.offset not in places
    for place in places:
        first = code[place - function.offset]
        assert first in (0x0F, 0x41, 0x90, 0xE8, 0xE9, 0xEB) or 0x50 <= first < 0x58 or 0x70 <= first < 0x80
    calls = [at for at in range(function.size) if code[at] == 0xE8 and at + function.offset in places]
    assert calls


def test_kept(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "KEPT_FROM", 5)
    first = Module.open(program, cache=tmp_path)
    functions = first.functions("*")
    wanted = analyse(first, functions)
    read: list[str] = []

    def read_part(reader: object, code: bytes, function: Function) -> instructions.Part:
        read.append(function.name)
        return instructions.Part(refusal="again")

    monkeypatch.setattr(instructions, "_read_part", read_part)
    assert analyse(Module.open(program, cache=tmp_path), functions) == wanted
    assert not read

    # One byte of code is another: what was kept of that function does not count
    function = first.function("one_return")
    content = bytearray(program.read_bytes())
    content[function.offset + function.size - 1] = 0x90
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    other = Module.open(copy, cache=tmp_path)
    assert other.identity == first.identity
    assert [code.refusal for code in analyse(other, [other.function("one_return")])] == ["again"]
    assert read == ["one_return"]


def elf_of(code: bytes, machine: int) -> Module:
    """Return a module of one segment of code."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 4096, 0x1000, 0x1000, len(code), len(code), 4096)
    return Module(Elf((head + segment).ljust(4096, b"\0") + code, "code"), None, NO_FOLDER)


def function_of(code: bytes) -> Function:
    return Function("f", 0x1000, 4096, len(code))


def test_arm64() -> None:
    # cbz x0, +12; mov w0, #1; ret; mov w0, #2; retaa
    code = b"".join(word.to_bytes(4, "little") for word in (0xB4000060, 0x52800020, 0xD65F03C0, 0x52800040, 0xD65F0BFF))
    module = elf_of(code, 183)
    assert returns(module, function_of(code)) == (4104, 4112)
    assert starts(module, function_of(code)).tolist() == [4096, 4100, 4104, 4108, 4112]
    assert not len(emulated(module, function_of(code)))
    # ldr x0, #8; ret; .quad
    code = struct.pack("<IIQ", 0x58000040, 0xD65F03C0, 0x5280002052800020)
    assert "data at +0x8" in analyse(elf_of(code, 183), [function_of(code)])[0].refusal
    # b to another function
    code = struct.pack("<I", 0x14000400)
    assert analyse(elf_of(code, 183), [function_of(code)])[0].tail_jumps == (4096,)


def test_limits() -> None:
    code = b"\x90" * ((1 << 20) + 1)
    assert "more than" in analyse(elf_of(code, 62), [function_of(code)])[0].refusal
    assert "not known" in analyse(elf_of(b"\xc3", 62), [Function("f", 0x1000, 4096, 0)])[0].refusal
    with pytest.raises(NotSupported, match="machine 8 are not read"):
        analyse(elf_of(b"\xc3", 8), [function_of(b"\xc3")])


def test_any_bytes() -> None:
    """Whatever the bytes are, each return found is one where reading from the start comes by."""
    chosen = np.random.default_rng(4)
    for size in (1, 7, 40, 300):
        for _ in range(25):
            code = chosen.integers(0, 256, size, dtype=np.uint8).tobytes()
            module, function = elf_of(code, 62), function_of(code)
            (found,) = analyse(module, [function])
            assert set(found.returns) <= set(starts(module, function).tolist())
