"""What stacks need of one file: its unwind rows, where its segments are, its functions; also packed, for a tape.

The packed form is read from tapes that others made, so nothing in it is trusted: what does not fit is TargetError.
Left out: inlined functions and lines, which need the file itself.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np

from tracehound.errors import TargetError
from tracehound.symbols.demangle import demangle
from tracehound.symbols.ehframe import ROW, Rows
from tracehound.symbols.elf import PAGE, PT_LOAD
from tracehound.symbols.functions import Symbols
from tracehound.symbols.module import PF_X, Module
from tracehound.symbols.unwind import Table

MAGIC: Final = b"THMODUL1"
UNPACKED_LIMIT: Final = 1 << 30  # bytes
_HEADER: Final = struct.Struct("<8sQIIIIQ")  # magic, base, segments, rows, functions, build id's, names' bytes
_SEGMENT: Final = np.dtype([("offset", "<u8"), ("address", "<u8"), ("size", "<u8")])
_COLUMNS: Final = (("addresses", "<u8"), ("sizes", "<u8"), ("names", "<u4"), ("kinds", "u1"))  # of Symbols


@dataclass(frozen=True)
class StackModule:
    """One file. `segments`: (offset, address as linked, bytes) of its code; rows count from `base`.

    Of other segments one may share a page of the file with code, and be linked elsewhere.
    """

    build_id: bytes
    base: int
    segments: Sequence[tuple[int, int, int]]
    table: Table
    symbols: Symbols = field(repr=False)

    @classmethod
    def of(cls, module: Module) -> "StackModule":
        """Read a file; raises TargetError for one that is damaged, or of another machine."""
        code = [one for one in module.elf.segments if one.kind == PT_LOAD and one.flags & PF_X]
        segments = [(one.offset, one.address, one.file_size) for one in code]
        table = Table(module.rows)
        try:
            symbols = module.symbols
        except TargetError:  # damaged ones are no reason to lose the way
            symbols = Symbols.of([])
        return cls((module.build_id or b"")[:20], module.elf.base, segments, table, symbols)

    def address_of(self, offset: int) -> int | None:
        """Return the address as linked of a byte of the file, None if it is no code.

        A mapping begins at a page, so the page that a segment begins in belongs to it.
        """
        for start, address, size in self.segments:
            if start - (address & (PAGE - 1)) <= offset < start + size:
                return address + offset - start
        return None

    def symbol_at(self, offset: int) -> tuple[str, int] | None:
        """Return (demangled function, bytes from its start) of a byte of the file, or None."""
        address = self.address_of(offset)
        index = -1 if address is None else self.symbols.index_at(address)
        if address is None or index < 0:
            return None
        return demangle(self.symbols.name(index)), address - int(self.symbols.addresses[index])

    def pack(self) -> bytes:
        """Return all of it as bytes, compressed; `unpack` reads them on another machine."""
        rows, symbols = self.table.rows, self.symbols
        header = _HEADER.pack(
            MAGIC, self.base, len(self.segments), len(rows), len(symbols), len(self.build_id), len(symbols.strings)
        )
        segments = np.array([tuple(one) for one in self.segments], _SEGMENT)
        columns = [np.ascontiguousarray(getattr(symbols, name), kind).tobytes() for name, kind in _COLUMNS]
        parts = (header, self.build_id, segments.tobytes(), rows.tobytes(), *columns, symbols.strings)
        return zlib.compress(b"".join(parts), 1)

    @classmethod
    def unpack(cls, packed: bytes) -> "StackModule":
        """Return what `pack` made; raises TargetError for anything else."""
        try:
            data = zlib.decompressobj().decompress(packed, UNPACKED_LIMIT)
        except zlib.error as error:
            raise TargetError(f"a module of a tape is damaged: {error}") from error
        if len(data) < _HEADER.size or data[:8] != MAGIC:
            raise TargetError("a module of a tape is damaged, or of another version")
        _, base, segment_count, row_count, count, id_size, strings_size = _HEADER.unpack_from(data)
        sizes = [id_size, segment_count * _SEGMENT.itemsize, row_count * ROW.itemsize]
        sizes += [*(count * np.dtype(kind).itemsize for _, kind in _COLUMNS), strings_size]
        if _HEADER.size + sum(sizes) != len(data):
            raise TargetError(f"a module of a tape says that it has {_HEADER.size + sum(sizes)} bytes, not {len(data)}")
        ends = [_HEADER.size, *(_HEADER.size + end for end in accumulate(sizes))]
        build_id, segments, rows_bytes, *columns, strings = (data[start:end] for start, end in pairwise(ends))
        rows: Rows = np.frombuffer(rows_bytes, ROW)
        found: dict[str, Any] = {
            name: np.frombuffer(part, kind) for part, (name, kind) in zip(columns, _COLUMNS, strict=True)
        }
        symbols = Symbols(**found, strings=strings)
        if (rows["pc"][1:] <= rows["pc"][:-1]).any() or (symbols.addresses[1:] < symbols.addresses[:-1]).any():
            raise TargetError("a module of a tape has rows or functions that are not sorted")
        return cls(build_id, base, np.frombuffer(segments, _SEGMENT).tolist(), Table(rows), symbols)
