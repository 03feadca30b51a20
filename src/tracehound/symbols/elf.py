"""What of an ELF file tracing needs: segments, sections, build id, function symbols, where its debug file is.

64-bit little-endian files only. Sources: System V gABI chapters 4 and 5; GNU notes; gdb's manual, "Debugging
Information in Separate Files" and "MiniDebugInfo". Left out: relocations, versions, DWARF.
"""

import lzma
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tracehound.errors import TargetError

EM_X86_64: Final = 62
PT_LOAD: Final = 1
PT_NOTE: Final = 4
PT_GNU_EH_FRAME: Final = 0x6474E550
SHF_COMPRESSED: Final = 1 << 11
ELFCOMPRESS_ZLIB: Final = 1
SHT_NOBITS: Final = 8
SHN_UNDEF: Final = 0
NT_GNU_BUILD_ID: Final = 3
MINI_DEBUG_LIMIT: Final = 256 << 20  # bytes after decompression; more is taken for damage
DEBUG_FOLDER: Final = Path("/usr/lib/debug")

_EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR: Final = struct.Struct("<IIQQQQQQ")
_SHDR: Final = struct.Struct("<IIQQQQIIQQ")
_CHDR: Final = struct.Struct("<IIQ8x")
_SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION_TYPES: Final = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_RANK: Final = np.array([2, 0, 1, *[3] * 13], dtype="u1")  # of aliases the global one is named, then the weak one


class Segment(NamedTuple):
    """A program header: bytes of the file and their addresses as linked."""

    kind: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int


class Section(NamedTuple):
    """A section header."""

    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    """A function as a symbol table has it: `address` as linked, `size` in bytes, 0 if not said."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Symbols:
    """The functions of a file, sorted by address; names are decoded when asked for.

    `addresses`, `sizes` (bytes): uint64[n]; `names`: uint32[n], offsets into `strings`, zero-terminated.
    """

    addresses: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]
    names: npt.NDArray[np.uint32]
    strings: bytes

    def __len__(self) -> int:
        return len(self.addresses)

    def __getitem__(self, index: int) -> Symbol:
        return Symbol(self._name(index), int(self.addresses[index]), int(self.sizes[index]))

    def at(self, address: int) -> Symbol | None:
        """Return the function that holds `address`, or None. One without a size reaches to the next function."""
        index = int(np.searchsorted(self.addresses, np.uint64(address), "right")) - 1
        if index < 0:
            return None
        found = self[index]
        return found if not found.size or address < found.address + found.size else None

    def named(self, name: str) -> list[Symbol]:
        """Return every function of exactly this name, by address."""
        needle = name.encode() + b"\0"
        return [self[index] for index in range(len(self)) if self.strings.startswith(needle, self.names[index])]

    def _name(self, index: int) -> str:
        start = int(self.names[index])
        return self.strings[start : self.strings.index(b"\0", start)].decode("utf-8", "backslashreplace")


class Elf:
    """An ELF file, of which only what is asked for is read; `data` is the file's bytes.

    Raises TargetError where the bytes are not a 64-bit little-endian ELF file, or point out of themselves.
    """

    def __init__(self, data: bytes | mmap.mmap, name: str = "ELF file") -> None:
        self.data, self.name = data, name
        if len(data) < _EHDR.size or data[:6] != b"\x7fELF\x02\x01":
            raise TargetError(f"{name} is not a 64-bit little-endian ELF file")
        fields = _EHDR.unpack_from(data)
        self.type, self.machine, self.entry = fields[1], fields[2], fields[4]
        self._headers = fields[5:7]
        self._counts = fields[9:14]  # phentsize, phnum, shentsize, shnum, shstrndx

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file into memory; raises TargetError if it cannot be read or is no ELF file."""
        try:
            with open(path, "rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise TargetError(f"{os.fspath(path)} cannot be read: {error}") from error
        return cls(data, os.fspath(path))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Return the program headers."""
        found = []
        for kind, flags, offset, address, _, file_size, memory_size, _ in self._table(
            _PHDR, self._headers[0], self._counts[0], self._counts[1]
        ):
            found.append(Segment(kind, flags, offset, address, file_size, memory_size))
        return tuple(found)

    @cached_property
    def sections(self) -> dict[str, Section]:
        """Return the section headers by name; of two with one name the first."""
        shentsize, count, names_index = self._counts[2:]
        rows = list(self._table(_SHDR, self._headers[1], shentsize, count))
        if names_index >= len(rows):
            return {}
        names = self._bytes(rows[names_index][4], rows[names_index][5])
        found: dict[str, Section] = {}
        for name, kind, flags, address, offset, size, link, *_ in rows:
            text = names[name : max(names.find(b"\0", name), name)].decode("utf-8", "backslashreplace")
            found.setdefault(text, Section(kind, flags, address, offset, size, link))
        return found

    def section(self, name: str) -> bytes | None:
        """Return the bytes of a section, decompressed; None if the file has no such section or not its bytes."""
        found = self.sections.get(name)
        if found is None or found.kind == SHT_NOBITS:
            return None
        data = self._bytes(found.offset, found.size)
        if found.flags & SHF_COMPRESSED:
            data = self._decompress(name, data)
        return data

    @property
    def base(self) -> int:
        """Return the address as linked of the file's first loaded page."""
        addresses = [segment.address for segment in self.segments if segment.kind == PT_LOAD]
        return min(addresses, default=0) & ~(mmap.PAGESIZE - 1)

    def address_of(self, offset: int) -> int | None:
        """Return the address as linked of a byte of the file, None if no segment loads it.

        A mapping begins at a page, so the page that a segment begins in belongs to it.
        """
        for segment in self.segments:
            before = segment.address & (mmap.PAGESIZE - 1)
            if segment.kind == PT_LOAD and segment.offset - before <= offset < segment.offset + segment.file_size:
                return segment.address + offset - segment.offset
        return None

    def offset_of(self, address: int) -> int | None:
        """Return where in the file the byte of an address as linked is, None if it is not there."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.file_size:
                return segment.offset + address - segment.address
        return None

    @cached_property
    def build_id(self) -> bytes | None:
        """Return the build id that the linker has left, usually 20 bytes; None without one."""
        notes = [self._bytes(one.offset, one.file_size) for one in self.segments if one.kind == PT_NOTE]
        if not notes and (note := self.section(".note.gnu.build-id")):
            notes = [note]
        for data in notes:
            for kind, name, content in _notes(data):
                if kind == NT_GNU_BUILD_ID and name == b"GNU\0":
                    return content
        return None

    @cached_property
    def symbols(self) -> Symbols:
        """Return the functions of .symtab, or else of .dynsym and the symbols packed in .gnu_debugdata."""
        if ".symtab" in self.sections and self.sections[".symtab"].kind != SHT_NOBITS:
            return _read_symbols([self._symbol_table(".symtab")])
        tables = [self._symbol_table(".dynsym")]
        packed = self.section(".gnu_debugdata")
        if packed:
            with suppress(lzma.LZMAError, TargetError):  # damaged extra symbols leave the others
                unpacked = lzma.LZMADecompressor().decompress(packed, MINI_DEBUG_LIMIT)
                tables.append(Elf(unpacked, f"{self.name} .gnu_debugdata")._symbol_table(".symtab"))
        return _read_symbols(tables)

    def _decompress(self, name: str, data: bytes) -> bytes:
        kind, _, size = _CHDR.unpack_from(data) if len(data) >= _CHDR.size else (0, 0, 0)
        if kind != ELFCOMPRESS_ZLIB:
            raise TargetError(f"{self.name}: section {name} is compressed in a way not known here ({kind})")
        try:
            return zlib.decompressobj().decompress(data[_CHDR.size :], size) if size else b""
        except (zlib.error, OverflowError) as error:
            raise TargetError(f"{self.name}: section {name} is damaged: {error}") from error

    def _symbol_table(self, name: str) -> tuple[bytes, bytes]:
        symbols, found = self.section(name), self.sections.get(name)
        sections = list(self.sections.values())
        if not symbols or found is None:
            return b"", b"\0"
        strings = self.section(".strtab" if name == ".symtab" else ".dynstr")
        if strings is None and found.link < len(sections):
            strings = self._bytes(sections[found.link].offset, sections[found.link].size)
        return symbols, (strings or b"") + b"\0"

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            raise TargetError(f"{self.name} is cut off: {size} bytes at {offset} are not there")
        return self.data[offset : offset + size]

    def _table(self, row: struct.Struct, offset: int, row_size: int, rows: int) -> Iterator[tuple[int, ...]]:
        if rows and row_size < row.size:
            raise TargetError(f"{self.name} has headers of {row_size} bytes, not {row.size}")
        data = self._bytes(offset, row_size * rows)
        return (row.unpack_from(data, at * row_size) for at in range(rows))


def debug_file(elf: Elf, folder: Path | None = None, root: Path = DEBUG_FOLDER) -> Path | None:
    """Return where the separate debug file of `elf` is, None if there is none.

    Looked for by build id under `root`, then by .gnu_debuglink beside the file (its `folder`), in its `.debug`, and
    under `root`; one that is found by its name must have the checksum that the link states.
    """
    if elf.build_id and len(elf.build_id) > 1:
        text = elf.build_id.hex()
        path = root / ".build-id" / text[:2] / f"{text[2:]}.debug"
        if path.is_file():
            return path
    link = elf.section(".gnu_debuglink")
    if not link or len(link) < 8 or folder is None:
        return None
    name = link[: link.index(b"\0")].decode("utf-8", "surrogateescape") if b"\0" in link else ""
    if not name or "/" in name:
        return None
    for candidate in (folder / name, folder / ".debug" / name, root / str(folder.absolute()).lstrip("/") / name):
        with suppress(OSError):
            if zlib.crc32(candidate.read_bytes()) == struct.unpack_from("<I", link, len(link) - 4)[0]:
                return candidate
    return None


def _notes(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name_size + 3 & ~3)
        yield kind, data[at + 12 : at + 12 + name_size], data[start : start + size]
        at = start + (size + 3 & ~3)


def _read_symbols(tables: list[tuple[bytes, bytes]]) -> Symbols:
    rows, strings, at = [], [], 0
    for data, names in tables:
        table = np.frombuffer(data, dtype=_SYMBOL, count=len(data) // _SYMBOL.itemsize)
        is_function = np.isin(table["info"] & 15, _FUNCTION_TYPES) & (table["section"] != SHN_UNDEF)
        table = table[is_function & (table["name"] < len(names)) & (table["name"] != 0)].copy()
        table["name"] += at
        rows.append(table)
        strings.append(names)
        at += len(names)
    table = np.concatenate(rows)
    table = table[np.lexsort((table["name"], _RANK[table["info"] >> 4], table["value"]))]
    is_first = np.ones(len(table), dtype=bool)  # one name an address is enough to name a frame, the others are kept
    is_first[1:] = table["value"][1:] != table["value"][:-1]
    order = np.lexsort((is_first, table["value"]))  # the one that names frames comes last: look-up is "right"
    table = table[order]
    return Symbols(table["value"].copy(), table["size"].copy(), table["name"].copy(), b"".join(strings))
