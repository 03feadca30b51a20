"""How to leave a frame, for every instruction of a file: its .eh_frame as a sorted table of 8-byte rows.

A row holds from its address to the next row's. C walks the same rows (native/unwind.h). Only what x86-64 needs to walk
is kept: the canonical frame address (CFA), and where the caller's RBP is; the return address is at CFA - 8. What a row
cannot say is UNSUPPORTED, what no entry covers is GAP. Sources: DWARF 5 section 6.4; LSB 5 section 10.6 (.eh_frame);
System V x86-64 psABI. Left out: .debug_frame, other machines.
"""

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tracehound.errors import TargetError
from tracehound.symbols.elf import EM_X86_64, PT_GNU_EH_FRAME, PT_LOAD, SHT_NOBITS, Elf

# Rules of a row: what the CFA is (enum unwind_rule)
GAP: Final = 0  # not said: try the frame pointer
RSP: Final = 1  # RSP + cfa_offset
RBP: Final = 2  # RBP + cfa_offset
PLT: Final = 3  # RSP + 8, and 8 more from the 11th byte of 16 on
SIGNAL: Final = 4  # the kernel's ucontext is at RSP: all registers are in it
END: Final = 5  # the outermost frame
DEREF_RBP: Final = 6  # the word at RBP + cfa_offset; the caller's RBP is at RBP
UNSUPPORTED: Final = 7

RBP_SAME: Final = 0
RBP_LOST: Final = -128  # else: at CFA + 8 * rbp

ROW: Final = np.dtype([("pc", "<u4"), ("cfa_offset", "<i2"), ("rule", "u1"), ("rbp", "i1")])
Rows = npt.NDArray[np.void]

_Step = tuple[int, int, int, int]  # pc from the function's start, rule, cfa_offset, rbp
_LOST: Final = (UNSUPPORTED, 0, RBP_SAME)

DW_RBP, DW_RSP, DW_RA = 6, 7, 16
# DWARF expressions that compilers, linkers and libc really write
_PLT_EXPRESSION: Final = bytes.fromhex(
    "770880003f1a3b2a332422"
)  # breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
_UCONTEXT_CFA: Final = bytes.fromhex("77a00106")  # breg7 160; deref
_ADVANCES: Final = {0x02: 1, 0x03: 2, 0x04: 4}  # advance_loc1, _loc2, _loc4: bytes of their operand
_AT_RBP: Final = b"\x76\x00"  # breg6 0


@dataclass(slots=True)
class _Cie:
    """What entries share; `initial` is the state after its program."""

    code_align: int
    data_align: int
    encoding: int
    is_signal: bool
    has_augmentation: bool
    initial: "_State"


@dataclass(slots=True)
class _State:
    """The rules while a program runs: CFA = (register, offset) or an expression; register rules of RBP and RA."""

    register: int = -1
    offset: int = 0
    expression: bytes | None = None
    rbp: tuple[int, int | bytes] | None = None  # (1, offset from CFA), (2, expression), (0, 0) lost
    ra: tuple[int, int | bytes] | None = None

    def copy(self) -> "_State":
        return _State(self.register, self.offset, self.expression, self.rbp, self.ra)


def build_rows(elf: Elf) -> Rows:
    """Return the rows of a file, ROW[n], `pc` from `elf.base`, sorted; empty if it has no .eh_frame.

    Entries that are damaged are left out: their functions are gaps. Raises TargetError for another machine.
    """
    if elf.machine != EM_X86_64:
        raise TargetError(f"{elf.name} is for machine {elf.machine}: stacks are walked on x86-64 only")
    data, address = _find_eh_frame(elf)
    return _Builder(data, address, elf.base).build()


def _find_eh_frame(elf: Elf) -> tuple[bytes, int]:
    section = elf.sections.get(".eh_frame")
    if section and section.kind != SHT_NOBITS and (data := elf.section(".eh_frame")):
        return data, section.address
    for header in elf.segments:
        if header.kind == PT_GNU_EH_FRAME and (start := elf.offset_of(header.address)) is not None:
            head = elf.data[start : start + 8]
            if len(head) < 8 or head[:2] != b"\x01\x1b":  # version; pc-relative in 4 signed bytes
                continue
            address = header.address + 4 + struct.unpack_from("<i", head, 4)[0]
            for load in elf.segments:
                if load.kind == PT_LOAD and load.address <= address < load.address + load.file_size:
                    return elf.data[elf.offset_of(address) : load.offset + load.file_size], address
    return b"", 0


class _Builder:
    """Reads one .eh_frame; `memo` keeps the steps of programs, which are the same for many functions."""

    def __init__(self, data: bytes, address: int, base: int) -> None:
        self.data, self.address, self.base = data, address, base
        self.cies: dict[int, _Cie | None] = {}
        self.memo: dict[tuple[int, bytes], tuple[_Step, ...]] = {}

    def build(self) -> Rows:
        """Return the rows; see build_rows."""
        starts, sizes, counts = [], [], []
        steps: list[_Step] = []
        for start, size, program in self._entries():
            if size and 0 <= start < 1 << 32:
                starts.append(start)
                sizes.append(size)
                counts.append(len(program))
                steps += program
        if not starts:
            return np.empty(0, dtype=ROW)
        return _lay_out(np.array(starts), np.array(sizes), np.array(counts), np.array(steps, dtype=np.int64))

    def _entries(self) -> list[tuple[int, int, tuple[_Step, ...]]]:
        """Return (start from base, size, steps) of each function, in the order of the section."""
        data, at, found = self.data, 0, []
        while at + 8 <= len(data):
            size, cie_distance = struct.unpack_from("<II", data, at)
            end = at + 4 + size
            if size == 0 or size == 0xFFFFFFFF or end > len(data):  # the terminator, or sizes that no linker writes
                break
            if cie_distance:
                with suppress(IndexError, struct.error, ValueError):  # damaged: a gap
                    found.append(self._entry(at + 4, at + 4 - cie_distance, end))
            at = end
        return found

    def _entry(self, at: int, cie_at: int, end: int) -> tuple[int, int, tuple[_Step, ...]]:
        if cie_at not in self.cies:
            self.cies[cie_at] = None  # also where it is damaged
            self.cies[cie_at] = _read_cie(self.data, cie_at)
        cie = self.cies[cie_at]
        if cie is None:
            raise ValueError("unknown CIE")
        data, at = self.data, at + 4
        if cie.encoding == 0x1B:  # nearly always
            start, size = struct.unpack_from("<iI", data, at)
            start += self.address + at
            at += 8
        else:
            start, width = _read_encoded(data, at, cie.encoding, self.address + at)
            size, _ = _read_encoded(data, at + width, cie.encoding & 7, 0)
            at += 2 * width
        if cie.has_augmentation:
            skip, at = _uleb(data, at)
            at += skip
        key = (cie_at, data[at:end])
        steps = self.memo.get(key)
        if steps is None:
            steps = self.memo[key] = _run(cie, key[1])
        return start - self.base, size, steps


def _lay_out(
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    steps: npt.NDArray[np.int64],
) -> Rows:
    """Make the sorted table of functions (starts, sizes, how many of `steps` each has), with a gap after each."""
    rows = np.zeros(len(steps) + len(starts), dtype=ROW)
    pcs = np.zeros(len(rows), dtype=np.int64)
    pcs[: len(steps)] = steps[:, 0] + np.repeat(starts, counts)
    rows["rule"][: len(steps)] = steps[:, 1]
    rows["cfa_offset"][: len(steps)] = steps[:, 2]
    rows["rbp"][: len(steps)] = steps[:, 3]
    ends = starts + sizes
    pcs[len(steps) :] = ends  # rule GAP
    limits = np.concatenate([np.repeat(ends, counts), ends + 1])
    is_gap = np.zeros(len(rows), dtype=bool)
    is_gap[len(steps) :] = True
    # By address; at one address the gap first, then steps in their order: the last one counts
    order = np.lexsort((np.arange(len(rows)), ~is_gap, pcs))
    order = order[(pcs[order] < limits[order]) & (pcs[order] < 1 << 32)]
    rows["pc"] = pcs & 0xFFFFFFFF
    rows = rows[order]
    is_last = np.ones(len(rows), dtype=bool)
    is_last[:-1] = rows["pc"][1:] != rows["pc"][:-1]
    rows = rows[is_last]
    meanings = rows.view("<u8") >> 32
    differs = np.ones(len(rows), dtype=bool)
    differs[1:] = meanings[1:] != meanings[:-1]
    # PLT rows count bytes of 16 from the address itself, so that they may be joined as well
    return rows[differs]


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _sleb(data: bytes, at: int) -> tuple[int, int]:
    start = at
    value, at = _uleb(data, at)
    bits = 7 * (at - start)
    return (value - (1 << bits) if data[at - 1] & 0x40 else value), at


_ENCODED: Final = {0: "<Q", 2: "<H", 3: "<I", 4: "<Q", 10: "<h", 11: "<i", 12: "<q"}


def _read_encoded(data: bytes, at: int, encoding: int, address: int) -> tuple[int, int]:
    """Return the pointer at `at`, whose own address is `address`, and its width; ValueError for other encodings."""
    layout = _ENCODED.get(encoding & 0x0F)
    if layout is None or encoding & 0xF0 not in (0, 0x10):
        raise ValueError(f"encoding {encoding:#x}")
    value = struct.unpack_from(layout, data, at)[0]
    return value + (address if encoding & 0x10 else 0), struct.calcsize(layout)


def _read_cie(data: bytes, at: int) -> _Cie | None:
    """Return a CIE, None if it is of a kind that is not known."""
    size, mark, version = struct.unpack_from("<IIB", data, at)
    if at < 0 or mark or version not in (1, 3):
        return None
    end = at + 4 + size
    text_end = data.index(b"\0", at + 9)
    augmentation, at = data[at + 9 : text_end].decode("latin-1"), text_end + 1
    code_align, at = _uleb(data, at)
    data_align, at = _sleb(data, at)
    ra, at = (data[at], at + 1) if version == 1 else _uleb(data, at)
    encoding, has_augmentation = 0, augmentation.startswith("z")
    if ra != DW_RA or (augmentation and not has_augmentation):
        return None
    if has_augmentation:
        length, at = _uleb(data, at)
        next_at = at + length
        for letter in augmentation[1:]:
            if letter == "R":
                encoding, at = data[at], at + 1
            elif letter == "P":
                at += 1 + struct.calcsize(_ENCODED.get(data[at] & 0x0F, "<Q"))
            elif letter == "L":
                at += 1
            elif letter != "S":
                break  # what is not known comes last, and its size is
        at = next_at
    cie = _Cie(code_align, data_align, encoding, "S" in augmentation, has_augmentation, _State())
    _execute(cie, data[at:end], cie.initial, _State(), [])
    return cie


def _run(cie: _Cie, program: bytes) -> tuple[_Step, ...]:
    """Return the steps of a function, which begins with what its CIE says."""
    steps: list[_Step] = []
    state = cie.initial.copy()
    pc = _execute(cie, program, state, cie.initial, steps)
    steps.append((pc, *_express(cie, state)))
    return tuple(steps)


def _execute(cie: _Cie, program: bytes, state: _State, initial: _State, steps: list[_Step]) -> int:
    """Run call frame instructions over `state`; every advance adds a step. Returns the last address reached."""
    at, pc, stack = 0, 0, list[_State]()
    while at < len(program):
        code = program[at]
        at += 1
        low = code & 0x3F
        kind = code & 0xC0
        if kind == 0x40:  # advance_loc
            steps.append((pc, *_express(cie, state)))
            pc += low * cie.code_align
        elif code == 0x0E and program[at] < 0x80:  # def_cfa_offset, the other one that is everywhere
            state.offset = program[at]
            at += 1
        elif code in _ADVANCES:
            width = _ADVANCES[code]
            steps.append((pc, *_express(cie, state)))
            pc += int.from_bytes(program[at : at + width], "little") * cie.code_align
            at += width
        elif kind == 0x80:  # offset
            value, at = _uleb(program, at)
            _set(state, low, (1, value * cie.data_align))
        elif kind == 0xC0:  # restore
            _restore(state, initial, low)
        elif code == 0x0A:
            stack.append(state.copy())
        elif code == 0x0B:
            _take(state, stack.pop())
        elif code:
            at = _execute_long(cie, code, program, at, state, initial)
    return pc


def _execute_long(cie: _Cie, code: int, program: bytes, at: int, state: _State, initial: _State) -> int:
    """Run one of the instructions that have operands of their own; returns where the next is."""
    if code in (0x0E, 0x2E):  # def_cfa_offset, GNU_args_size
        value, at = _uleb(program, at)
        if code == 0x0E:
            state.offset = value
        return at
    if code == 0x13:  # def_cfa_offset_sf
        value, at = _sleb(program, at)
        state.offset = value * cie.data_align
        return at
    if code == 0x0F:  # def_cfa_expression
        size, at = _uleb(program, at)
        state.expression = program[at : at + size]
        return at + size
    register, at = _uleb(program, at)
    if code in (0x0C, 0x12, 0x0D):  # def_cfa, def_cfa_sf, def_cfa_register
        state.register, state.expression = register, None
        if code == 0x0C:
            state.offset, at = _uleb(program, at)
        elif code == 0x12:
            value, at = _sleb(program, at)
            state.offset = value * cie.data_align
    elif code in (0x05, 0x11, 0x2F):  # offset_extended, _sf, GNU_negative_offset_extended
        value, at = _sleb(program, at) if code == 0x11 else _uleb(program, at)
        _set(state, register, (1, value * cie.data_align * (-1 if code == 0x2F else 1)))
    elif code in (0x10, 0x16):  # expression, val_expression
        size, at = _uleb(program, at)
        _set(state, register, (2, program[at : at + size]) if code == 0x10 else (0, 0))
        at += size
    elif code == 0x06:
        _restore(state, initial, register)
    elif code == 0x07:  # undefined
        _set(state, register, (0, 0))
    elif code == 0x08:  # same_value
        _set(state, register, None)
    elif code in (0x09, 0x14, 0x15):  # register, val_offset, val_offset_sf
        _, at = _uleb(program, at)
        _set(state, register, (3, 0))
    else:
        raise ValueError(f"instruction {code:#x}")
    return at


def _set(state: _State, register: int, rule: tuple[int, int | bytes] | None) -> None:
    if register == DW_RBP:
        state.rbp = rule
    elif register == DW_RA:
        state.ra = rule


def _restore(state: _State, initial: _State, register: int) -> None:
    _set(state, register, initial.rbp if register == DW_RBP else initial.ra)


def _take(state: _State, saved: _State) -> None:
    state.register, state.offset, state.expression = saved.register, saved.offset, saved.expression
    state.rbp, state.ra = saved.rbp, saved.ra


def _express(cie: _Cie, state: _State) -> tuple[int, int, int]:
    """Return (rule, cfa_offset, rbp) of a state."""
    if state.ra == (0, 0):
        return END, 0, RBP_SAME
    if cie.is_signal:
        return (SIGNAL, 0, RBP_SAME) if state.expression == _UCONTEXT_CFA else _LOST
    if state.ra != (1, -8):
        return _LOST
    if state.expression is not None:
        return _express_expression(state)
    if state.register not in (DW_RSP, DW_RBP) or not -32768 <= state.offset <= 32767:
        return _LOST
    return (RSP if state.register == DW_RSP else RBP), state.offset, _express_rbp(state)


def _express_expression(state: _State) -> tuple[int, int, int]:
    expression = state.expression or b""
    if expression == _PLT_EXPRESSION:
        return PLT, 0, _express_rbp(state)
    if len(expression) > 2 and expression[0] == 0x76 and expression[-1] == 0x06:  # breg6 N; deref
        offset, end = _sleb(expression, 1)
        if end == len(expression) - 1 and state.rbp == (2, _AT_RBP) and -32768 <= offset <= 32767:
            return DEREF_RBP, offset, RBP_SAME
    return _LOST


def _express_rbp(state: _State) -> int:
    if state.rbp is None:
        return RBP_SAME
    kind, value = state.rbp
    if kind == 1 and isinstance(value, int) and value % 8 == 0 and -127 <= value // 8 <= 127 and value:
        return value // 8
    return RBP_LOST
