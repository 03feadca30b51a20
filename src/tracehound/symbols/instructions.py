"""Where the instructions of a function are, which return and which leave it otherwise: where a probe may be.

A probe in the middle of an instruction, or in data, breaks the program it is in. So a function counts as wholly code
only if all of it are instructions, every jump within it meets one, and nothing in it is read as data; one that is not
has no return points. capstone reads; x86-64 and arm64. Left out: what other functions jump to in this one's middle.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound.errors import NotSupported
from tracehound.symbols import cache
from tracehound.symbols.elf import EM_AARCH64, EM_X86_64
from tracehound.symbols.module import Function, Module

LONGEST: Final = 1 << 20  # bytes of a function that is looked at
KEPT_FROM: Final = 64  # functions read anew that are worth a file
PART_BYTES: Final = 400  # what one takes, about, without what it lists
TARGET_NOT_SAID: Final = -1 << 62

_Row = tuple[int, int, str, str]  # address from the function's start, size, mnemonic, operands
_RETURN, _JUMP, _BRANCH, _NEVER, _ADDRESS = range(1, 6)
_X86: Final = {
    **dict.fromkeys(("ret", "repz ret", "rep ret", "bnd ret"), _RETURN),
    **dict.fromkeys(("jmp", "bnd jmp", "notrack jmp"), _JUMP),
    **dict.fromkeys(("loop", "loope", "loopne", "jrcxz", "jecxz", "xbegin"), _BRANCH),
    "lea": _ADDRESS,
    # Programs have no use for these: what looks like them is data
    **dict.fromkeys(("in", "out", "insb", "insd", "outsb", "outsd", "cli", "sti", "wrmsr", "lgdt", "lidt"), _NEVER),
    **dict.fromkeys(("iretd", "iretq", "sysret", "sysretq", "retf", "retfq", "lldt", "ltr"), _NEVER),
}
_ARM: Final = {
    **dict.fromkeys(("ret", "retaa", "retab"), _RETURN),
    **dict.fromkeys(("b", "br", "braa", "brab", "braaz", "brabz"), _JUMP),
    **dict.fromkeys(("cbz", "cbnz", "tbz", "tbnz"), _BRANCH),
    **dict.fromkeys(("adr",), _ADDRESS),
    **dict.fromkeys(("udf", "eret"), _NEVER),
}
_CONDITIONS: Final = re.compile(r"j(?!mp)[a-z]{1,3}|b\.[a-z]{2}|bc\.[a-z]{2}")
_NUMBER: Final = re.compile(r"#?(-?0x[0-9a-f]+|-?\d+)")
_FROM_RIP: Final = re.compile(r"\[rip(?: ([+-]) (0x[0-9a-f]+|\d+))?\]")
_FROM_TABLE: Final = re.compile(r"\*[1248] \+ (0x[0-9a-f]+)\]")
_PART: Final = np.dtype(
    [("offset", "<u8"), ("size", "<u8"), ("digest", "V16"), ("returns", "<u4"), ("jumps", "<u4"), ("flags", "<u4"),
     ("refusal", "<u4")]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Code:
    """What a function does, in offsets of the file, ascending.

    `returns`: its return instructions, those of its cold part too; none if `refusal` says why it is not wholly code.
    `tail_jumps`: where it leaves to another function, some only on a condition; that one returns in its place.
    `has_indirect_jumps`: jumps to where a register says, which are a switch's or leave it.
    """

    returns: tuple[int, ...] = ()
    tail_jumps: tuple[int, ...] = ()
    has_indirect_jumps: bool = False
    refusal: str = ""


class Part(NamedTuple):
    """What one stretch of code does, from its start: `jumps` are (place, target) of those that leave it."""

    returns: tuple[int, ...] = ()
    jumps: tuple[tuple[int, int], ...] = ()
    has_indirect_jumps: bool = False
    refusal: str = ""


PartKey = tuple[int, int, bytes]  # offset, size, digest of the bytes: anyone may copy a build id, not the code


@dataclass
class Parts:
    """The stretches of code of one module that have been read."""

    known: dict[PartKey, Part] = field(default_factory=dict)
    new: int = 0


def returns(module: Module, function: Function) -> tuple[int, ...]:
    """Return where in the file the return instructions of a function are; see `analyse`."""
    return analyse(module, [function])[0].returns


def starts(module: Module, function: Function) -> npt.NDArray[np.uint64]:
    """Return where in the file instructions of a function begin, uint64[n], ascending.

    Of one that is not wholly code only those that are reached from its first one, if what it calls returns. Raises as
    `analyse`.
    """
    reader = _reader(module)
    code = _bytes_of(module, function)
    sweep = _Sweep(reader, code, function.address)
    found = [row[0] for row in sweep.rows] if not sweep.refusal else sorted(_reached(reader, code, function.address))
    return np.array(found, dtype=np.uint64) + np.uint64(function.offset)


def emulated(module: Module, function: Function) -> npt.NDArray[np.uint64]:
    """Return those of `starts` that the kernel emulates, uint64[n]: a probe there costs one trap instead of two."""
    places = starts(module, function)
    if module.elf.machine != EM_X86_64:
        return places[:0]
    code = _bytes_of(module, function)
    return places[[_is_emulated(code[at : at + 2]) for at in (places - np.uint64(function.offset)).tolist()]]


def analyse(module: Module, functions: Sequence[Function]) -> list[Code]:
    """Return what functions of a module do, from the cache where the same bytes have been read before.

    Raises TargetError where the file has not their bytes, NotSupported for a machine that is not known.
    """
    reader, parts = _reader(module), _parts_of(module)
    found = [_join(module, function, lambda one: _part(module, reader, parts, one)) for function in functions]
    if parts.new >= KEPT_FROM:
        _keep(module, parts)
    return found


def _join(module: Module, function: Function, part_of: Callable[[Function], Part]) -> Code:
    """Put a function and the part of it that a compiler moved away, `NAME.cold`, together."""
    todo, seen = [function], {function.offset}
    names = tuple(f"{name}.cold" for name in module.aliases(function))
    ends, leaving, is_indirect = list[int](), list[int](), False
    while todo:
        one = todo.pop()
        part = part_of(one)
        if part.refusal:
            return Code(refusal=part.refusal if one is function else f"its part {one.name}: {part.refusal}")
        ends += [one.offset + at for at in part.returns]
        is_indirect |= part.has_indirect_jumps
        for at, target in part.jumps:
            other = None if target == TARGET_NOT_SAID else module.function_of_address(one.address + target)
            if other is not None and other.offset in seen:
                continue
            if other is None or not other.name.startswith(names):
                leaving.append(one.offset + at)
            else:
                seen.add(other.offset)
                todo.append(other)
    return Code(tuple(sorted(ends)), tuple(sorted(leaving)), is_indirect)


def _part(module: Module, reader: "_Reader", parts: Parts, function: Function) -> Part:
    code = _bytes_of(module, function)
    key = function.offset, function.size, blake2b(code, digest_size=16).digest()
    found = parts.known.get(key)
    if found is None:
        found = parts.known[key] = _read_part(reader, code, function)
        parts.new += 1
        module.notes_bytes += PART_BYTES + 40 * (len(found.returns) + 3 * len(found.jumps))
    return found


def _read_part(reader: "_Reader", code: bytes, function: Function) -> Part:
    if not function.size:
        return Part(refusal="its size is not known")
    if function.size > LONGEST:
        return Part(refusal=f"it has {function.size} bytes, more than {LONGEST}")
    sweep = _Sweep(reader, code, function.address)
    if sweep.refusal:
        return Part(refusal=sweep.refusal)
    return Part(tuple(sweep.returns), tuple(sweep.leaving), sweep.has_indirect_jumps)


class _Reader:
    """capstone for one machine."""

    def __init__(self, machine: int) -> None:
        try:
            import capstone
        except ImportError as error:
            raise NotSupported("points need the Python package capstone, which reads instructions") from error
        if machine == EM_X86_64:
            self.kinds, self._engine = dict(_X86), capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        elif machine == EM_AARCH64:
            architecture = getattr(capstone, "CS_ARCH_AARCH64", None) or capstone.CS_ARCH_ARM64
            self.kinds, self._engine = dict(_ARM), capstone.Cs(architecture, capstone.CS_MODE_LITTLE_ENDIAN)
        else:
            raise NotSupported(f"instructions of machine {machine} are not read here, only x86-64 and arm64")
        self.is_x86 = machine == EM_X86_64

    def rows(self, code: bytes, at: int = 0, count: int = 0) -> list[_Row]:
        """Return the instructions from `at` on, addresses from the start of `code`."""
        rows: list[_Row] = list(self._engine.disasm_lite(code[at:], at, count))
        return rows

    def kind(self, mnemonic: str) -> int:
        """Return what an instruction does, 0: it goes on to the next."""
        found = self.kinds.get(mnemonic)
        if found is None:
            found = self.kinds[mnemonic] = _BRANCH if _CONDITIONS.fullmatch(mnemonic) else 0
        return found


class _Sweep:
    """A function read from its first byte to its last, and what speaks against its being code."""

    def __init__(self, reader: _Reader, code: bytes, address: int) -> None:
        self.reader, self.size, self.address = reader, len(code), address
        self.rows = reader.rows(code)
        self.returns: list[int] = []
        self.leaving: list[tuple[int, int]] = []
        self.has_indirect_jumps = False
        self._targets: list[int] = []  # of jumps inside
        self._read: list[int] = []  # what is read as data
        self._taken: list[int] = []  # whose address is taken
        self.refusal = self._refuse(code)

    def _refuse(self, code: bytes) -> str:
        end = self.rows[-1][0] + self.rows[-1][1] if self.rows else 0
        if end != self.size:
            return f"at +{end:#x} is no instruction"
        for row in self.rows:
            if not self._take(*row):
                return f"at +{row[0]:#x} is no code of a program ({row[2]})"
        places = {row[0] for row in self.rows}
        # libc jumps over the prefix in programs with one thread
        places.update(row[0] + 1 for row in self.rows if row[2].startswith("lock "))
        for target in self._targets:
            if target not in places:
                return f"a jump leads to +{target:#x}, between two instructions"
        if self._read:
            return f"it has data at +{min(self._read):#x}"
        if self.has_indirect_jumps and self._taken:
            unreached = set(self._taken) - _reached(self.reader, code, self.address)
            if unreached:
                return f"it may have a jump table at +{min(unreached):#x}"
        return ""

    def _take(self, at: int, size: int, mnemonic: str, operands: str) -> bool:
        """Note what an instruction does; False if none of a program does it."""
        kind = self.reader.kind(mnemonic)
        if kind == _RETURN:
            self.returns.append(at)
        elif kind in (_JUMP, _BRANCH):
            self._jump(at, kind, operands)
        elif kind == _NEVER:
            return False
        if self.reader.is_x86:
            if "[rip" in operands:
                self._refer(kind, _rip_target(operands, at + size))
            elif self.has_table_base(operands):
                self._read.append(int(_FROM_TABLE.findall(operands)[0], 16) - self.address)
        elif kind == _ADDRESS or (mnemonic.startswith("ldr") and operands.rpartition(" ")[2].startswith("#")):
            target = _target(operands)
            self._refer(kind, TARGET_NOT_SAID if target is None else target)
        return True

    def has_table_base(self, operands: str) -> bool:
        """Tell whether an operand reads a table at a fixed address in this function."""
        found = _FROM_TABLE.search(operands) if "*" in operands else None
        return found is not None and 0 <= int(found[1], 16) - self.address < self.size

    def _jump(self, at: int, kind: int, operands: str) -> None:
        target = _target(operands)
        if target is None:
            if "[rip" in operands:  # through the table of other files' functions
                self.leaving.append((at, TARGET_NOT_SAID))
            else:
                self.has_indirect_jumps = True
        elif 0 <= target < self.size:
            self._targets.append(target)
        elif kind == _JUMP or target != self.size:
            self.leaving.append((at, target))

    def _refer(self, kind: int, target: int) -> None:
        if 0 <= target < self.size:
            (self._taken if kind == _ADDRESS else self._read).append(target)


def _reached(reader: _Reader, code: bytes, address: int) -> set[int]:
    """Return where instructions are that follow from the first one: no table is followed."""
    by_place = {row[0]: row for row in reader.rows(code)}
    found, todo = set[int](), [0]
    while todo:
        at = todo.pop()
        while 0 <= at < len(code) and at not in found:
            row = by_place.get(at) or next(iter(reader.rows(code, at, 1)), None)
            if row is None:
                break
            found.add(at)
            kind = reader.kind(row[2])
            if kind in (_JUMP, _BRANCH) and (target := _target(row[3])) is not None:
                todo.append(target)
            if kind in (_JUMP, _RETURN, _NEVER):
                break
            at += row[1]
    return found


def _target(operands: str) -> int | None:
    """Return where a jump leads, None where a register or memory says."""
    found = _NUMBER.fullmatch(operands.rpartition(", ")[2])
    if not found:
        return None
    number = int(found[1], 0)
    return number - (1 << 64) if number >= 1 << 63 else number


def _rip_target(operands: str, after: int) -> int:
    found = _FROM_RIP.search(operands)
    if not found:
        return TARGET_NOT_SAID
    distance = int(found[2], 0) if found[2] else 0
    return after + (-distance if found[1] == "-" else distance)


def _is_emulated(code: bytes) -> bool:
    """As the kernel's uprobes for x86 have it: near jumps and calls, the one-byte nop, the push of a register."""
    first, second = code[0], code[1] if len(code) > 1 else 0
    if first in (0xE8, 0xE9, 0xEB, 0x90) or first & 0xF0 == 0x70 or first & 0xF8 == 0x50:
        return True
    return (first == 0x0F and second & 0xF0 == 0x80) or (first == 0x41 and second & 0xF8 == 0x50)


def _reader(module: Module) -> _Reader:
    if "reader" not in module.notes:
        module.notes["reader"] = _Reader(module.elf.machine)
    reader: _Reader = module.notes["reader"]
    return reader


def _bytes_of(module: Module, function: Function) -> bytes:
    return module.elf.bytes_at(function.offset, min(function.size, LONGEST))


def _parts_of(module: Module) -> Parts:
    if "code" not in module.notes:
        module.notes["code"] = Parts(_load(module))
    parts: Parts = module.notes["code"]
    return parts


def _keep(module: Module, parts: Parts) -> None:
    rows, numbers, refusals = list[tuple[Any, ...]](), list[int](), {"": 0}
    for key, part in parts.known.items():
        refusal = refusals.setdefault(part.refusal, len(refusals))
        rows.append((*key, len(part.returns), len(part.jumps), part.has_indirect_jumps, refusal))
        numbers += [*part.returns, *(number for jump in part.jumps for number in jump)]
    content = {"parts": np.array(rows, dtype=_PART).tobytes(), "numbers": np.array(numbers, dtype="<i8").tobytes()}
    text = "\0".join(refusals).encode()
    if cache.store(module.identity, "code", {**content, "refusals": text}, module.cache_folder):
        parts.new = 0


def _load(module: Module) -> dict[PartKey, Part]:
    kept = cache.load(module.identity, "code", module.cache_folder)
    if not kept:
        return {}
    numbers, at = np.frombuffer(kept["numbers"], dtype="<i8").tolist(), 0
    refusals, found = bytes(kept["refusals"]).decode().split("\0"), {}
    for offset, size, digest, returning, jumping, is_indirect, refusal in np.frombuffer(kept["parts"], _PART).tolist():
        ends, jumps = numbers[at : at + returning], numbers[at + returning : at + returning + 2 * jumping]
        at += returning + 2 * jumping
        pairs = tuple(zip(jumps[::2], jumps[1::2], strict=True))
        found[offset, size, bytes(digest)] = Part(tuple(ends), pairs, bool(is_indirect), refusals[refusal])
    return found
