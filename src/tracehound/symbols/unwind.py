"""From registers and a copied stack to a chain of calls, over the rows of ehframe.py; x86-64.

`unwind` is native/unwind.c; `unwind_slowly` says the same in Python, for reading and to check the other. Where no row
covers an address, the caller's frame is taken from the frame pointer, and the frame is marked. Left out: registers
other than RIP, RSP, RBP; rules for interpreters' and compilers' own code.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound.native import ffi, lib
from tracehound.symbols import ehframe
from tracehound.symbols.ehframe import Rows
from tracehound.symbols.elf import PAGE, PT_LOAD, Elf

MAX_DEPTH: Final = 256
SAMPLE_NO_REGISTERS: Final = 1
SAMPLE_PATCHED: Final = 2
FRAME_RETURN: Final = 1  # the address is a return address, one past what it names
FRAME_GUESSED: Final = 2  # found by frame pointer alone
FRAME_CHAIN: Final = 4  # from the kernel's call chain
PF_X: Final = 1
TABLE_UNKNOWN: Final = -1  # of a range: frame pointers only
TABLE_WANTED: Final = -2  # a walk that comes there ends with NEEDS_TABLE

RANGE: Final = np.dtype([("start", "<u8"), ("end", "<u8"), ("bias", "<u8"), ("table", "<i8")])
SAMPLE: Final = np.dtype(
    [("ip", "<u8"), ("sp", "<u8"), ("bp", "<u8"), ("stack_at", "<u8")]
    + [(name, "<u4") for name in ("stack_size", "first_range", "ranges", "flags")]
)
CHAIN: Final = np.dtype([("at", "<u8"), ("count", "<u8")])
_MASK: Final = (1 << 64) - 1
_WORD: Final = struct.Struct("<Q")
_GAP: Final = (ehframe.GAP, 0, 0)


class Status(IntEnum):
    """How a walk ended: `enum unwind_status`."""

    COMPLETE = 0
    TRUNCATED = 1  # the rest of the stack was not copied
    NO_MAPPING = 2  # the last address is in no executable memory that is known
    BAD_CFI = 3  # what is said of the last frame cannot be, or cannot be followed
    MAX_DEPTH = 4
    FP_USED = 5  # complete, with frames found by frame pointer alone
    PATCHED = 6  # complete, with return addresses that a uretprobe had replaced put back
    NO_USER_REGS = 7
    NEEDS_TABLE = 8  # no end: the last frame is where the table is not there yet


class Table:
    """The rows of one file, ready to be walked."""

    def __init__(self, rows: Rows) -> None:
        self.rows = np.ascontiguousarray(rows, dtype=ehframe.ROW)

    @cached_property
    def _columns(self) -> tuple[list[int], list[tuple[int, int, int]]]:
        rows = self.rows
        meanings = zip(rows["rule"].tolist(), rows["cfa_offset"].tolist(), rows["rbp"].tolist(), strict=True)
        return rows["pc"].tolist(), list(meanings)

    def at(self, pc: int) -> tuple[int, int, int]:
        """Return (rule, cfa_offset, rbp) for an address from the file's base; GAP before the first row."""
        pcs, meanings = self._columns
        index = bisect_right(pcs, pc)
        return meanings[index - 1] if index else _GAP


class Mapping(NamedTuple):
    """Executable memory of a process: addresses, where in the file it begins, `table` its number or -1."""

    start: int
    end: int
    offset: int
    table: int
    elf: Elf | None


@dataclass(frozen=True, slots=True)
class Stacks:
    """What was found, a row a sample.

    `addresses`: uint64[n, max_depth], innermost first, and `kinds`: uint8[n, max_depth], FRAME_* flags, of which
    `depths` (uint32[n]) say how many hold; `statuses`: uint8[n], of Status.
    """

    addresses: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    depths: npt.NDArray[np.uint32]
    statuses: npt.NDArray[np.uint8]

    def first(self, count: int) -> "Stacks":
        """Return the first ones, in the same memory."""
        return Stacks(self.addresses[:count], self.kinds[:count], self.depths[:count], self.statuses[:count])

    @classmethod
    def empty(cls, count: int, max_depth: int) -> "Stacks":
        """Return room for `count` stacks."""
        return cls(
            np.zeros((count, max_depth), dtype=np.uint64),
            np.zeros((count, max_depth), dtype=np.uint8),
            np.zeros(count, dtype=np.uint32),
            np.zeros(count, dtype=np.uint8),
        )


def make_ranges(mappings: Iterable[Mapping]) -> npt.NDArray[np.void]:
    """Return the mappings of one process as RANGE[n], sorted by start; those that no segment loads get no table."""
    found = []
    for start, end, offset, table, elf in sorted(mappings, key=lambda one: one.start):
        address = _code_address(elf, offset) if elf and table >= 0 else None
        if elf is None or address is None:
            found.append((start, end, 0, -1))
        else:
            found.append((start, end, start - (address - elf.base) & _MASK, table))
    return np.array(found, dtype=RANGE)


def _code_address(elf: Elf, offset: int) -> int | None:
    """Return the address as linked of the code at the file's `offset`, where a mapping begins: at a page."""
    for one in elf.segments:
        if one.kind == PT_LOAD and one.flags & PF_X and one.offset & ~(PAGE - 1) <= offset < one.offset + one.file_size:
            return one.address + offset - one.offset
    return None


def repair_stack(stack: bytearray, sp: int, pairs: Iterable[tuple[int, int]]) -> int:
    """Put return addresses back that uretprobes replaced, in place; return how many.

    `pairs`: (address of the slot, what was there), as in the kernel's struct return_instance; slots outside the copy
    are left out.
    """
    repaired = 0
    for slot, address in pairs:
        if 0 <= slot - sp <= len(stack) - 8:
            _WORD.pack_into(stack, slot - sp, address)
            repaired += 1
    return repaired


def unwind(
    tables: Sequence[Table],
    ranges: npt.NDArray[np.void],
    samples: npt.NDArray[np.void],
    stacks: bytes | npt.NDArray[np.uint8],
    max_depth: int = MAX_DEPTH,
    room: Stacks | None = None,
) -> Stacks:
    """Walk a batch of stacks in C, without the GIL.

    `ranges`: RANGE[m], those of each process side by side and sorted (`first_range`, `ranges` of a sample); `samples`:
    SAMPLE[n]; `stacks`: uint8[bytes], all copies. Nothing is kept. ValueError where one points out of another.

    `room`: what an earlier walk returned, or Stacks.empty made, for as many samples or more: it is used again, so
    that no new memory has to be touched; `max_depth` is then its own.
    """
    content, ranges, samples = _checked(tables, ranges, samples, stacks)
    if room is not None and len(room.depths) < len(samples):
        raise ValueError(f"there is room for {len(room.depths)} stacks, not for {len(samples)}")
    found = Stacks.empty(len(samples), max_depth) if room is None else room.first(len(samples))
    max_depth = found.addresses.shape[1]
    native_tables = ffi.new("struct unwind_table[]", max(len(tables), 1))
    for index, table in enumerate(tables):
        native_tables[index].rows = _pointer("struct unwind_row *", table.rows)
        native_tables[index].count = len(table.rows)
    lib.unwind_stacks(
        native_tables,
        _pointer("struct unwind_range *", ranges),
        _pointer("uint8_t *", content),
        _pointer("struct unwind_sample *", samples),
        len(samples),
        max_depth,
        _pointer("uint64_t *", found.addresses),
        _pointer("uint8_t *", found.kinds),
        _pointer("uint32_t *", found.depths),
        _pointer("uint8_t *", found.statuses),
    )
    return found


def unwind_slowly(
    tables: Sequence[Table],
    ranges: npt.NDArray[np.void],
    samples: npt.NDArray[np.void],
    stacks: bytes | npt.NDArray[np.uint8],
    max_depth: int = MAX_DEPTH,
) -> Stacks:
    """Walk a batch of stacks in Python: the same as `unwind`."""
    content, ranges, samples = _checked(tables, ranges, samples, stacks)
    found = Stacks.empty(len(samples), max_depth)
    rows = ranges.tolist()
    for index, (ip, sp, bp, at, size, first, count, flags) in enumerate(samples.tolist()):
        if flags & SAMPLE_NO_REGISTERS:
            found.statuses[index] = Status.NO_USER_REGS
            continue
        walk = _Walk(tables, rows[first : first + count], content[at : at + size].tobytes(), ip, sp, bp)
        status = walk.run(max_depth)
        if status == Status.COMPLETE and walk.was_guessed:
            status = Status.FP_USED
        elif status == Status.COMPLETE and flags & SAMPLE_PATCHED:
            status = Status.PATCHED
        depth = len(walk.addresses)
        found.addresses[index, :depth] = walk.addresses
        found.kinds[index, :depth] = walk.kinds
        found.depths[index], found.statuses[index] = depth, status
    return found


def splice(found: Stacks, chains: npt.NDArray[np.void], content: npt.NDArray[np.uint8]) -> None:
    """Let truncated stacks go on with the frames of the kernel's call chain that follow the last common one, in place.

    `chains`: CHAIN[n], where in `content` (uint8[bytes]) the user side of each stack's chain is; count 0 without one.
    The new frames are FRAME_CHAIN. ValueError where one points out of `content`.
    """
    chains, content = np.ascontiguousarray(chains, dtype=CHAIN), np.ascontiguousarray(content)
    words = np.uint64(len(content) // 8)
    if len(chains) != len(found.depths):
        raise ValueError(f"there are {len(found.depths)} stacks and {len(chains)} chains")
    room = np.uint64(len(content)) - np.minimum(chains["at"], np.uint64(len(content)))
    if ((chains["count"] > words) | (chains["count"] * np.uint64(8) > room)).any():
        raise ValueError(f"a chain lies beyond the {len(content)} bytes there are")
    lib.unwind_splice(
        _pointer("uint8_t *", content),
        _pointer("struct unwind_chain *", chains),
        len(chains),
        found.addresses.shape[1],
        _pointer("uint64_t *", found.addresses),
        _pointer("uint8_t *", found.kinds),
        _pointer("uint32_t *", found.depths),
        _pointer("uint8_t *", found.statuses),
    )


class _Ended(Exception):  # noqa: N818 - no error
    """A walk has ended; its argument is the status."""


class _Walk:
    """One stack; registers are those of the frame that was reached."""

    def __init__(
        self, tables: Sequence[Table], ranges: list[tuple[int, ...]], stack: bytes, ip: int, sp: int, bp: int
    ) -> None:
        self.tables, self.ranges, self.stack = tables, ranges, stack
        self.starts = [one[0] for one in ranges]
        self.ip, self.sp, self.bp, self.bottom = ip, sp, bp, sp
        self.is_return = self.is_guessed = self.was_guessed = self.was_signalled = False
        self.addresses: list[int] = []
        self.kinds: list[int] = []

    def run(self, max_depth: int) -> Status:
        """Walk to the end; returns why it is one."""
        try:
            while len(self.addresses) < max_depth:
                self.addresses.append(self.ip)
                self.kinds.append(FRAME_RETURN * self.is_return | FRAME_GUESSED * self.is_guessed)
                self._step(*self._rule(self.ip - self.is_return & _MASK))
        except _Ended as end:
            return Status(end.args[0])
        return Status.MAX_DEPTH

    def _rule(self, named: int) -> tuple[int, int, int]:
        index = bisect_right(self.starts, named) - 1
        if index < 0 or named >= self.ranges[index][1]:
            raise _Ended(Status.NO_MAPPING)
        _, _, bias, table = self.ranges[index]
        if table == TABLE_WANTED:
            raise _Ended(Status.NEEDS_TABLE)
        return _GAP if table < 0 else self.tables[table].at(named - bias & _MASK)

    def _step(self, rule: int, offset: int, rbp: int) -> None:
        self.is_guessed, bp = False, self.bp
        if rule == ehframe.RSP:
            cfa = self.sp + offset & _MASK
        elif rule == ehframe.RBP:
            cfa = self.bp + offset & _MASK
        elif rule == ehframe.GAP:
            return self._step_frame_pointer()
        elif rule == ehframe.SIGNAL:
            return self._step_signal()
        elif rule == ehframe.END:
            raise _Ended(Status.COMPLETE)
        elif rule == ehframe.PLT:
            cfa = self.sp + (16 if self.ip & 15 >= 11 else 8) & _MASK
        elif rule == ehframe.DEREF_RBP:
            cfa = self._read(self.bp + offset & _MASK)
            bp = self._read(self.bp)
        else:
            raise _Ended(Status.BAD_CFI)
        if cfa <= self.sp:
            raise _Ended(Status.BAD_CFI)
        if rbp == ehframe.RBP_LOST:
            bp = 0
        elif rbp:
            bp = self._read(cfa + 8 * rbp & _MASK)
        return self._return_to(cfa, bp)

    def _step_frame_pointer(self) -> None:
        self.is_guessed = self.was_guessed = True
        if not self.bp:
            raise _Ended(Status.COMPLETE)
        if self.bp % 8 or self.bp < self.sp or self.bp > _MASK - 16:
            raise _Ended(Status.BAD_CFI)
        bp = self._read(self.bp)
        self._return_to(self.bp + 16, bp)

    def _step_signal(self) -> None:
        ip, sp, bp = (self._read(self.sp + at & _MASK) for at in (168, 160, 120))  # struct ucontext
        self.ip, self.sp, self.bp, self.is_return, self.was_signalled = ip, sp, bp, False, True
        if not ip:
            raise _Ended(Status.COMPLETE)

    def _return_to(self, cfa: int, bp: int) -> None:
        self.ip = self._read(cfa - 8 & _MASK)
        self.sp, self.bp, self.is_return = cfa, bp, True
        if not self.ip:
            raise _Ended(Status.COMPLETE)

    def _read(self, address: int) -> int:
        at = address - self.bottom
        if at < 0:  # an interrupted frame may be on another stack
            raise _Ended(Status.TRUNCATED if self.was_signalled else Status.BAD_CFI)
        if at > len(self.stack) - 8:
            raise _Ended(Status.TRUNCATED)
        value: int = _WORD.unpack_from(self.stack, at)[0]
        return value


def _checked(
    tables: Sequence[Table],
    ranges: npt.NDArray[np.void],
    samples: npt.NDArray[np.void],
    stacks: bytes | npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Return (stacks, ranges, samples) as C reads them; ValueError where one points out of another."""
    content = np.frombuffer(stacks, dtype=np.uint8) if isinstance(stacks, bytes) else np.ascontiguousarray(stacks)
    ranges, samples = np.ascontiguousarray(ranges, dtype=RANGE), np.ascontiguousarray(samples, dtype=SAMPLE)
    if len(ranges) and int(ranges["table"].max()) >= len(tables):
        raise ValueError(f"a range has table {ranges['table'].max()}, there are {len(tables)}")
    if (samples["first_range"].astype("u8") + samples["ranges"] > len(ranges)).any():
        raise ValueError(f"a sample has ranges beyond the {len(ranges)} there are")
    size = np.uint64(len(content))
    if ((samples["stack_size"] > size) | (samples["stack_at"] > size - samples["stack_size"])).any():
        raise ValueError(f"a sample has its stack beyond the {size} bytes there are")
    return content, ranges, samples


def _pointer(kind: str, array: npt.NDArray[Any]) -> Any:
    return ffi.cast(kind, array.ctypes.data)
