"""Functions, files and lines of Go programs from the table that their own runtime needs: it is there when stripped.

Sources: Go's debug/gosym/pclntab.go and runtime/symtab.go; the forms of Go 1.2, 1.16, 1.18 and 1.20 (to 1.26), 64-bit
little-endian. Left out: which functions were inlined, arguments.
"""

import struct
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tracehound.errors import TargetError
from tracehound.symbols.elf import PT_LOAD, Elf, Segment
from tracehound.symbols.functions import GLOBAL_FUNCTION, NAME_LIMIT, SYMBOL, SymbolTable

SECTIONS: Final = (".gopclntab", ".data.rel.ro.gopclntab", "__gopclntab")
GO_1_2, GO_1_16, GO_1_18, GO_1_20 = 0xFFFFFFFB, 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
VERSIONS: Final = (GO_1_2, GO_1_16, GO_1_18, GO_1_20)
FUNCTIONS_LIMIT: Final = 1 << 23
SCAN_LIMIT: Final = 256 << 20  # bytes of a segment that are searched for the table, or for who points to it
STEPS_LIMIT: Final = 1 << 16  # of one function's lines
PF_X: Final = 1
R_RELATIVE: Final = (8, 1027)  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_RELA: Final = np.dtype([("place", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<u8")])
_MODULE_WORDS: Final = 64  # of runtime.moduledata, which begins with a pointer to the table

Entries = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class GoTable:
    """A pclntab: `starts` (uint64[n + 1]) are addresses as linked, the last one is the end; `places` (int64[n]) are
    where in `functions` each function's facts are. The rest are the tables they point into."""

    version: int
    quantum: int
    starts: Entries
    places: npt.NDArray[np.int64]
    functions: bytes
    names: bytes
    files: bytes
    units: bytes
    steps: bytes

    def symbols(self) -> SymbolTable:
        """Return the functions as an ELF symbol table would have them."""
        table = np.zeros(len(self.places), dtype=SYMBOL)
        fact = np.frombuffer(self.functions, dtype="u1")
        at = self.places + (4 if self.version in (GO_1_18, GO_1_20) else 8)
        is_whole = (at >= 0) & (at <= len(fact) - 4)
        table["name"][is_whole] = sum(fact[at[is_whole] + byte].astype("u4") << 8 * byte for byte in range(4))
        table["info"], table["section"] = GLOBAL_FUNCTION, 1
        table["value"], table["size"] = self.starts[:-1], self.starts[1:] - self.starts[:-1]
        return table[is_whole & (table["name"] < len(self.names)) & (table["size"] < 1 << 32)], self.names + b"\0"

    def line_of(self, address: int) -> tuple[str, int] | None:
        """Return (file, line) of an address as linked, None where the table does not say."""
        index = bisect_right(self.starts.data, address) - 1
        if not 0 <= index < len(self.places):
            return None
        with suppress(struct.error, IndexError, ValueError):
            width = 4 if self.version in (GO_1_18, GO_1_20) else 8
            # entry, name, arguments, deferreturn, then steps of stack size, file, line; their number; the unit
            place = int(self.places[index]) + width + 16
            files_at, lines_at, _, unit = struct.unpack_from("<4I", self.functions, place)
            start = int(self.starts[index])
            line, file = self._value_at(lines_at, start, address), self._value_at(files_at, start, address)
            if line >= 0 and file >= 0:
                return self._file(file, unit), line
        return None

    def _value_at(self, at: int, pc: int, address: int) -> int:
        value = -1
        for step in range(STEPS_LIMIT):
            change, at = uvarint(self.steps, at)
            if step and not change:
                break
            value += -(change + 1 >> 1) if change & 1 else change >> 1
            distance, at = uvarint(self.steps, at)
            pc += distance * self.quantum
            if address < pc:
                return value
        return -1

    def _file(self, number: int, unit: int) -> str:
        if self.version == GO_1_2:
            at = struct.unpack_from("<I", self.files, 4 * number)[0]
            return _text(self.functions, at)
        at = struct.unpack_from("<I", self.units, 4 * (unit + number))[0]
        if at == 0xFFFFFFFF:
            raise ValueError("no file")
        return _text(self.files, at)


def go_table(elf: Elf) -> GoTable | None:
    """Return the table of a Go program, None if the file has none, or a damaged one."""
    with suppress(TargetError, struct.error, ValueError, OverflowError):
        for data, address in _candidates(elf):
            if (found := _read(elf, data, address)) is not None:
                return found
    return None


def _candidates(elf: Elf) -> list[tuple[bytes, int]]:
    for name in SECTIONS:
        if name in elf.sections and (data := elf.section(name)):
            return [(data, elf.sections[name].address)]
    if elf.sections:  # what has sections and none of these is not Go's
        return []
    found = []
    for segment in elf.segments:
        if segment.kind == PT_LOAD and segment.file_size <= SCAN_LIMIT:
            found += [(data, segment.address + at) for data, at in _scan(elf, segment)]
    return found


def _scan(elf: Elf, segment: Segment) -> list[tuple[bytes, int]]:
    data, found = elf.bytes_at(segment.offset, segment.file_size), []
    for version in VERSIONS:
        for quantum in (b"\1", b"\4"):
            at = data.find(struct.pack("<I", version) + b"\0\0" + quantum + b"\x08")
            if at >= 0 and not at % 8:
                found.append((data[at:], at))
    return found


def _read(elf: Elf, data: bytes, address: int) -> GoTable | None:
    if len(data) < 72 or data[4:6] != b"\0\0" or data[6] not in (1, 2, 4) or data[7] != 8:
        return None
    version = int.from_bytes(data[:4], "little")
    words = struct.unpack_from("<8Q", data, 8)
    count = words[0]
    if version not in VERSIONS or not 0 < count <= FUNCTIONS_LIMIT:
        return None
    if version == GO_1_2:
        pairs = _pairs(data, 16, count, "<u8")
        file_at = struct.unpack_from("<I", data, 16 + 16 * count + 8)[0]
        parts = (data, data, data[file_at:], b"", data)
    else:
        at = 3 if version in (GO_1_18, GO_1_20) else 2
        names, units, files, steps, functions = (_from(data, offset) for offset in words[at : at + 5])
        pairs = _pairs(functions, 0, count, "<u4" if version in (GO_1_18, GO_1_20) else "<u8")
        parts = (functions, names[: max(words[at + 1] - words[at], 0)], files, units, steps)
    starts, places = pairs[::2].astype("u8"), pairs[1::2].astype("i8")
    if (starts[1:] < starts[:-1]).any():
        return None
    if version in (GO_1_18, GO_1_20):
        starts = starts + np.uint64(_text_start(elf, address, words[2], int(starts[0]), int(starts[-1])))
    return GoTable(version, data[6], starts, places, *parts)


def _from(data: bytes, offset: int) -> bytes:
    if not 0 < offset < len(data):
        raise ValueError(f"a table at {offset} of {len(data)} bytes")
    return data[offset:]


def _pairs(data: bytes, at: int, count: int, kind: str) -> npt.NDArray[np.void]:
    return np.frombuffer(data, dtype=kind, count=2 * count + 1, offset=at)


def _text_start(elf: Elf, table: int, stated: int, first: int, last: int) -> int:
    """Return the address that functions count from: what the header states until Go 1.25 if it was not left to the
    loader, else what the runtime's own module record says, else where the code begins."""
    if stated and elf.offset_of(stated) is not None:
        return stated
    for words in _module_records(elf, table):
        # minpc, maxpc, text stand side by side, and the table tells how far they are from each other
        for low, high, text in zip(words, words[1:], words[2:], strict=False):
            if text and low == text + first and high == text + last:
                return text
    if (section := elf.sections.get(".text")) is not None:
        return section.address
    return min((one.address for one in elf.segments if one.kind == PT_LOAD and one.flags & PF_X), default=0)


def _module_records(elf: Elf, table: int) -> list[list[int]]:
    """Return the words that follow each pointer to the table: as they are in the file, or as relocations make them."""
    found = []
    needle = struct.pack("<Q", table)
    for segment in elf.segments:
        if segment.kind == PT_LOAD and not segment.flags & PF_X and segment.file_size <= SCAN_LIMIT:
            data = elf.bytes_at(segment.offset, segment.file_size)
            at = data.find(needle)
            while at >= 0:
                words = data[at : at + 8 * _MODULE_WORDS]
                found.append([int(word) for word in np.frombuffer(words, dtype="<u8", count=len(words) // 8)])
                at = data.find(needle, at + 8) if len(found) < 64 else -1
    for name in (".rela.dyn", ".rela", ".rela.go"):
        rows = np.frombuffer(elf.section(name) or b"", dtype="u1")
        moves = rows[: len(rows) // 24 * 24].view(_RELA)
        moves = moves[np.isin(moves["kind"], R_RELATIVE)]
        for place in moves["place"][moves["addend"] == table][:64]:
            words = moves[(moves["place"] >= place) & (moves["place"] < place + 8 * _MODULE_WORDS)]
            found.append(words["addend"][np.argsort(words["place"])].tolist())
    return found


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and where it ends; raises IndexError, ValueError."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 35:
            raise ValueError("a number of more than 32 bits")


def _text(data: bytes, at: int) -> str:
    if at >= len(data):
        raise ValueError("a name beyond its table")
    return data[at : at + NAME_LIMIT].partition(b"\0")[0].decode("utf-8", "backslashreplace")
