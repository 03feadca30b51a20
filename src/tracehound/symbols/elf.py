"""What of an ELF file tracing needs: segments, sections, build id, function symbols, where its debug file is.

64-bit little-endian files only. Sources: System V gABI chapters 4 and 5; GNU notes; gdb's manual, "Debugging
Information in Separate Files" and "MiniDebugInfo". Left out: relocations, versions, DWARF.
"""

import lzma
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tracehound.errors import TargetError
from tracehound.symbols.functions import Symbols, SymbolTable, read_table

EM_X86_64: Final = 62
EM_AARCH64: Final = 183
PT_LOAD: Final = 1
PT_NOTE: Final = 4
PT_GNU_EH_FRAME: Final = 0x6474E550
SHF_COMPRESSED: Final = 1 << 11
ELFCOMPRESS_ZLIB: Final = 1
SHT_NOBITS: Final = 8
NT_GNU_BUILD_ID: Final = 3
PAGE: Final = 4096
NAME_LIMIT: Final = 256  # bytes of a section's name that count
NOTES_LIMIT: Final = 1 << 16  # bytes of notes; more is taken for damage
BUILD_ID_LIMIT: Final = 64
SECTION_LIMIT: Final = 512 << 20  # bytes of one that is read, unpacked as well
MINI_DEBUG_LIMIT: Final = 256 << 20  # bytes after decompression; more is taken for damage
DEBUG_LINK_LIMIT: Final = 4 << 30  # bytes of a debug file that is checked by its sum
DEBUG_FOLDER: Final = Path("/usr/lib/debug")

_EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR: Final = struct.Struct("<IIQQQQQQ")
_SHDR: Final = struct.Struct("<IIQQQQIIQQ")
_CHDR: Final = struct.Struct("<IIQ8x")


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


class FileBytes:
    """The bytes of an open file, read when sliced; a file that shrinks gives fewer, where a mapping would kill."""

    def __init__(self, fd: int) -> None:
        """Take over `fd`, an open regular file; raises OSError for what is none."""
        self._fd = fd
        self.status = os.fstat(fd)
        if not stat.S_ISREG(self.status.st_mode):
            self.close()
            raise OSError(f"it is no regular file, its mode is {self.status.st_mode:#o}")

    def __len__(self) -> int:
        return self.status.st_size

    def __getitem__(self, span: slice) -> bytes:
        start, stop, _ = span.indices(len(self))
        return os.pread(self._fd, max(stop - start, 0), start)

    def fileno(self) -> int:
        """Return the descriptor, which stays this object's."""
        return self._fd

    def close(self) -> None:
        """Close the file; also done when nothing refers to it any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            self.close()


def open_regular(path: str | os.PathLike[str]) -> FileBytes:
    """Open a regular file; raises OSError for what is none, which is not opened: that alone may have effects."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(mode := os.fstat(place).st_mode):
            raise OSError(f"it is no regular file, its mode is {mode:#o}")
        return FileBytes(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC))
    finally:
        os.close(place)


class Elf:
    """An ELF file, of which only what is asked for is read; `data` is the file's bytes.

    Raises TargetError where the bytes are not a 64-bit little-endian ELF file, or point out of themselves.
    """

    def __init__(self, data: bytes | FileBytes, name: str = "ELF file") -> None:
        self.data, self.name = data, name
        if len(data) < _EHDR.size or data[:6] != b"\x7fELF\x02\x01":
            raise TargetError(f"{name} is not a 64-bit little-endian ELF file")
        fields = _EHDR.unpack(data[: _EHDR.size])
        self.type, self.machine, self.entry = fields[1], fields[2], fields[4]
        self._headers = fields[5:7]
        self._counts = fields[9:14]  # phentsize, phnum, shentsize, shnum, shstrndx

    @classmethod
    def open(cls, source: str | os.PathLike[str] | int, name: str | None = None) -> Self:
        """Open a file by path or a descriptor's file again; raises TargetError if it cannot be read or is no ELF file.

        A descriptor stays the caller's. `name` is what errors call the file.
        """
        name = name or (f"descriptor {source}" if isinstance(source, int) else os.fspath(source))
        try:
            data = FileBytes(os.dup(source)) if isinstance(source, int) else open_regular(source)
        except OSError as error:
            raise TargetError(f"{name} cannot be read: {error.strerror or error}") from error
        try:
            return cls(data, name)
        except TargetError:
            data.close()
            raise

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
    def _section_rows(self) -> list[tuple[int, ...]]:
        return list(self._table(_SHDR, self._headers[1], *self._counts[2:4]))

    @property
    def _section_ends(self) -> npt.NDArray[np.uint64]:
        """The address behind each section, 0 of those that are not loaded."""
        return np.array([(row[3] and row[3] + row[5]) & 0xFFFFFFFFFFFFFFFF for row in self._section_rows], dtype="u8")

    @cached_property
    def sections(self) -> dict[str, Section]:
        """Return the section headers by name; of two with one name the first."""
        rows, names_index = self._section_rows, self._counts[4]
        if names_index >= len(rows):
            return {}
        names = self.bytes_at(rows[names_index][4], rows[names_index][5])
        found: dict[str, Section] = {}
        for name, kind, flags, address, offset, size, link, *_ in rows:
            text = names[name : name + NAME_LIMIT].partition(b"\0")[0].decode("utf-8", "backslashreplace")
            found.setdefault(text, Section(kind, flags, address, offset, size, link))
        return found

    def section(self, name: str) -> bytes | None:
        """Return the bytes of a section, decompressed; None if the file has no such section or not its bytes."""
        found = self.sections.get(name)
        if found is None or found.kind == SHT_NOBITS:
            return None
        if found.size > SECTION_LIMIT:
            raise TargetError(f"{self.name}: section {name} has {found.size} bytes, more than {SECTION_LIMIT}")
        data = self.bytes_at(found.offset, found.size)
        if found.flags & SHF_COMPRESSED:
            data = self._decompress(name, data)
        return data

    @property
    def base(self) -> int:
        """Return the address as linked of the file's first loaded page."""
        addresses = [segment.address for segment in self.segments if segment.kind == PT_LOAD]
        return min(addresses, default=0) & ~(PAGE - 1)

    def address_of(self, offset: int) -> int | None:
        """Return the address as linked of a byte of the file, None if no segment loads it.

        A mapping begins at a page, so the page that a segment begins in belongs to it.
        """
        for segment in self.segments:
            before = segment.address & (PAGE - 1)
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
        places = [one for one in self.segments if one.kind == PT_NOTE and one.file_size <= NOTES_LIMIT]
        notes = [self.bytes_at(one.offset, one.file_size) for one in places[:16]]
        if not notes and (note := self.section(".note.gnu.build-id")):
            notes = [note]
        for data in notes:
            for kind, name, content in _notes(data):
                if kind == NT_GNU_BUILD_ID and name == b"GNU\0":
                    return content[:BUILD_ID_LIMIT]
        return None

    @cached_property
    def symbols(self) -> Symbols:
        """Return the functions of the file alone: of .symtab, or else of .dynsym and .gnu_debugdata."""
        return Symbols.of(self.symbol_tables())

    @property
    def has_symtab(self) -> bool:
        """Tell whether the file has the whole table of symbols."""
        found = self.sections.get(".symtab")
        return found is not None and found.kind != SHT_NOBITS

    def symbol_tables(self) -> list[SymbolTable]:
        """Return what `symbols` is made of; tables that are damaged are left out."""
        if self.has_symtab:
            return self._tables_of(self, ".symtab")
        tables = self._tables_of(self, ".dynsym")
        with suppress(lzma.LZMAError, TargetError):  # damaged extra symbols leave the others
            if packed := self.section(".gnu_debugdata"):
                unpacked = lzma.LZMADecompressor(memlimit=MINI_DEBUG_LIMIT).decompress(packed, MINI_DEBUG_LIMIT)
                tables += self._tables_of(Elf(unpacked, f"{self.name} .gnu_debugdata"), ".symtab")
        return tables

    @staticmethod
    def _tables_of(elf: "Elf", name: str) -> list[SymbolTable]:
        with suppress(TargetError):
            return [read_table(*elf._symbol_table(name), elf._section_ends)]
        return []

    def _decompress(self, name: str, data: bytes) -> bytes:
        kind, _, size = _CHDR.unpack_from(data) if len(data) >= _CHDR.size else (0, 0, 0)
        if kind != ELFCOMPRESS_ZLIB:
            raise TargetError(f"{self.name}: section {name} is compressed in a way not known here ({kind})")
        try:
            return zlib.decompressobj().decompress(data[_CHDR.size :], min(size, SECTION_LIMIT)) if size else b""
        except (zlib.error, OverflowError) as error:
            raise TargetError(f"{self.name}: section {name} is damaged: {error}") from error

    def _symbol_table(self, name: str) -> tuple[bytes, bytes]:
        symbols, found = self.section(name), self.sections.get(name)
        if not symbols or found is None:
            return b"", b"\0"
        strings = self.section(".strtab" if name == ".symtab" else ".dynstr")
        if strings is None and found.link < len(self._section_rows):
            strings = self.bytes_at(*self._section_rows[found.link][4:6])
        return symbols, (strings or b"") + b"\0"

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; raises TargetError where it has not all of them."""
        found = b""
        if 0 <= offset <= len(self.data) - size and size >= 0:
            with suppress(OSError):
                found = self.data[offset : offset + size]
        if len(found) != size:
            raise TargetError(f"{self.name} is cut off: {size} bytes at {offset} are not there")
        return found

    def _table(self, row: struct.Struct, offset: int, row_size: int, rows: int) -> Iterator[tuple[int, ...]]:
        if rows and row_size < row.size:
            raise TargetError(f"{self.name} has headers of {row_size} bytes, not {row.size}")
        data = self.bytes_at(offset, row_size * rows)
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
    wanted = struct.unpack_from("<I", link, len(link) - 4)[0]
    for candidate in (folder / name, folder / ".debug" / name, root / str(folder.absolute()).lstrip("/") / name):
        with suppress(OSError):
            if _checksum(candidate) == wanted:
                return candidate
    return None


def _checksum(path: Path) -> int | None:
    """Return the CRC of a regular file, None if it is too long; a pipe or device, which might not end, is refused."""
    data = open_regular(path)
    try:
        if len(data) > DEBUG_LINK_LIMIT:
            return None
        found = 0
        for at in range(0, len(data), 1 << 20):
            found = zlib.crc32(data[at : at + (1 << 20)], found)
        return found
    finally:
        data.close()


def _notes(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name_size + 3 & ~3)
        yield kind, data[at + 12 : at + 12 + name_size], data[start : start + size]
        at = start + (size + 3 & ~3)
