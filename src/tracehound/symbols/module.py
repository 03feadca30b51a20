"""One file of code: its functions by place and by name, its unwind rows, what is known of it kept by build id.

A place is an offset in the file, which is the same in every process, or an address as linked; `load_bias` leads from
there to a process. Symbols come from .symtab, else the debug file, else .dynsym, .gnu_debugdata and Go's own table.
Left out: fetching debug files from servers.
"""

import hashlib
import os
from collections import OrderedDict
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tracehound.errors import TargetError
from tracehound.symbols import cache
from tracehound.symbols.demangle import demangle
from tracehound.symbols.ehframe import ROW, Rows
from tracehound.symbols.elf import PAGE, PT_LOAD, Elf, FileBytes, Segment, debug_file
from tracehound.symbols.functions import Symbols
from tracehound.symbols.go import GoTable, go_table
from tracehound.symbols.go_rows import unwind_rows
from tracehound.symbols.names import Names

PF_X: Final = 1
NOWHERE: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
VDSO: Final = "[vdso]"
MODULES_BYTES: Final = 256 << 20
MODULES: Final = 256  # each holds a descriptor
SHORTEST_BUILD_ID: Final = 8

Offsets = npt.NDArray[np.uint64]


class Function(NamedTuple):
    """A function: its symbol's name, `address` as linked, `offset` in the file, `size` in bytes, 0 if not known.

    `is_resolver`: it chooses the function of this name when the program is loaded (GNU indirect function).
    """

    name: str
    address: int
    offset: int
    size: int
    is_resolver: bool = False


class Module:
    """What tracing needs of one file; read when asked for. The file stays open, so it may be deleted meanwhile."""

    def __init__(self, elf: Elf, folder: Path | None = None, cache_folder: Path | None = None) -> None:
        """Take over `elf`; `folder` is where a debug file may be that the file names, None: nowhere."""
        self.elf, self.name = elf, elf.name
        self.build_id = elf.build_id
        self._folder, self.cache_folder = folder, cache_folder
        self.notes: dict[str, Any] = {}  # what lines.py and instructions.py keep by it, about `notes_bytes` of memory
        self.notes_bytes = 0

    @classmethod
    def open(cls, source: str | os.PathLike[str] | int, name: str | None = None, cache: Path | None = None) -> "Module":
        """Open a file by path or a descriptor's file again; raises TargetError if it is no ELF file.

        A descriptor stays the caller's; `name` is what the file is called then. `cache`: None for the user's folder.
        """
        folder = None if isinstance(source, int) else Path(os.path.realpath(source)).parent
        return cls(Elf.open(source, name), folder, cache)

    @classmethod
    def vdso(cls, cache: Path | None = None) -> "Module":
        """Return the code that the kernel maps into every process, as it is in this one; raises TargetError."""
        with suppress(OSError, ValueError), open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps:
                if line.rstrip().endswith(VDSO):
                    start, end = (int(part, 16) for part in line.split()[0].split("-"))
                    memory.seek(start)
                    return cls(Elf(memory.read(end - start), VDSO), None, cache)
        raise TargetError(f"{VDSO} cannot be read: this process has none")

    @cached_property
    def identity(self) -> str:
        """Return what names the content: the build id in hexadecimal, else device, inode, time and size of the file."""
        if self.build_id and len(self.build_id) >= SHORTEST_BUILD_ID:
            return self.build_id.hex()
        return self.file_identity

    @cached_property
    def file_identity(self) -> str:
        """Return what names the file itself, as long as it is not changed."""
        data = self.elf.data
        if isinstance(data, FileBytes):
            return status_identity(data.status)
        return f"bytes-{hashlib.blake2b(data, digest_size=20).hexdigest()}"

    def close(self) -> None:
        """Close the file; what was read of it stays."""
        if isinstance(self.elf.data, FileBytes):
            self.elf.data.close()

    # Places

    def address_of(self, offset: int) -> int | None:
        """Return the address as linked of a byte of the file, None if no segment loads it."""
        for segment in self._loads:
            if segment.offset <= offset < segment.offset + segment.file_size:
                return segment.address + offset - segment.offset
        return self.elf.address_of(offset)

    def offset_of(self, address: int) -> int | None:
        """Return where in the file the byte of an address as linked is, None if it is not there."""
        for segment in self._loads:
            if segment.address <= address < segment.address + segment.file_size:
                return segment.offset + address - segment.address
        return None

    def load_bias(self, start: int, offset: int) -> int | None:
        """Return what to add to addresses as linked in a process that has code from `offset` on mapped at `start`.

        None if no segment is loaded from there. Another segment may share the first page of one of code.
        """
        page = PAGE - 1
        for segment in self._loads:
            first = segment.offset & ~page
            if first <= offset < segment.offset + segment.file_size:
                return start - (segment.address - segment.offset + offset)
        return None

    @cached_property
    def _loads(self) -> list[Segment]:
        """The loaded segments, those of code first: at a border one page of the file may belong to two."""
        loads = [one for one in self.elf.segments if one.kind == PT_LOAD and one.file_size]
        return sorted(loads, key=lambda one: not one.flags & PF_X)

    def addresses_of(self, offsets: Offsets) -> Offsets:
        """Return the address as linked of each byte of the file, uint64[n], 2**64 - 1 where no segment loads it."""
        offsets = np.asarray(offsets, dtype=np.uint64)
        found = np.full(len(offsets), NOWHERE, dtype=np.uint64)
        for segment in reversed(self._loads):  # what comes first counts
            with np.errstate(over="ignore"):
                distance = offsets - np.uint64(segment.offset)
            holds = distance < segment.file_size
            found[holds] = distance[holds] + np.uint64(segment.address)
        return found

    # Functions by place

    def function_at(self, offset: int) -> Function | None:
        """Return the function that holds a byte of the file, None if no symbol says so."""
        address = self.address_of(offset)
        return None if address is None else self.function_of_address(address)

    def function_of_address(self, address: int) -> Function | None:
        """Return the function that holds an address as linked, None if no symbol says so."""
        index = self.symbols.index_at(address)
        return self._function(index) if index >= 0 else None

    def symbol_at(self, offset: int) -> tuple[str, int] | None:
        """Return the demangled name of the function that holds a byte of the file, and how far in it the byte is."""
        address = self.address_of(offset)
        index = -1 if address is None else self.symbols.index_at(address)
        if address is None or index < 0:
            return None
        return demangle(self.symbols.name(index)), address - int(self.symbols.addresses[index])

    def symbols_at(self, offsets: Offsets) -> tuple[npt.NDArray[np.int64], Offsets]:
        """Return for bytes of the file the functions' places in `symbols`, int64[n], and how far in them, uint64[n].

        -1 and 0 where no symbol says so.
        """
        addresses = self.addresses_of(offsets)
        found = np.where(addresses == NOWHERE, -1, self.symbols.indices_at(addresses))
        within = np.zeros(len(found), dtype=np.uint64)
        within[found >= 0] = addresses[found >= 0] - self.symbols.addresses[found[found >= 0]]
        return found, within

    # Functions by name

    def function(self, name: str) -> Function:
        """Return the first function of a name, in any of its forms; raises TargetError with near matches."""
        for index in self.names.exactly(name):
            if found := self._function(index):
                return found
        near = self.near(name)
        raise TargetError(f"{self.name} has no function {name}" + (f": near are {', '.join(near)}" if near else ""))

    def functions(self, pattern: str) -> list[Function]:
        """Return the functions of a name or glob (`*`, `?`), by address; a name that is there is no glob.

        A name is a symbol's own, or demangled, with its parameters or without.
        """
        found = [one for one in map(self._function, self.names.matching(pattern)) if one]
        return list({(one.offset, one.name): one for one in found}.values())

    def near(self, name: str) -> list[str]:
        """Return up to three names that are like one that the file has not."""
        return self.names.near(name)

    @cached_property
    def names(self) -> Names:
        """Return the functions by name."""
        return Names(self.symbols, self.name)

    def aliases(self, function: Function) -> list[str]:
        """Return every name that the file has for a function."""
        first, last = (np.searchsorted(self.symbols.addresses, np.uint64(function.address), at) for at in _SIDES)
        return list(dict.fromkeys([function.name, *map(self.symbols.name, range(int(first), int(last)))]))

    def _function(self, index: int) -> Function | None:
        symbol = self.symbols[index]
        offset = self.offset_of(symbol.address)
        if offset is None:
            return None
        return Function(symbol.name, symbol.address, offset, symbol.size, symbol.is_resolver)

    # What is kept

    @cached_property
    def symbols(self) -> Symbols:
        """Return the functions, from the cache if they are there."""
        source = f"{self.file_identity} {self._debug[1]}".encode()
        kept = self._kept
        if kept.get("symbols of") == source:
            columns: dict[str, Any] = {name: np.frombuffer(kept[name], kind) for name, kind in _COLUMNS.items()}
            return Symbols(**columns, strings=bytes(kept["strings"]))
        found = self._read_symbols()
        parts = {name: np.ascontiguousarray(getattr(found, name), kind).tobytes() for name, kind in _COLUMNS.items()}
        self._keep({"symbols of": source, **parts, "strings": found.strings})
        return found

    def _read_symbols(self) -> Symbols:
        tables = []
        with suppress(TargetError):
            debug = self.debug
            if not self.elf.has_symtab and debug is not None and debug.has_symtab:
                return debug.symbols
            tables = self.elf.symbol_tables()
            if not self.elf.has_symtab and (found := self.go) is not None:
                tables.append(found.symbols())
        return Symbols.of(tables)

    @cached_property
    def go(self) -> GoTable | None:
        """Return the table that a Go program carries, None of others."""
        return go_table(self.elf)

    @cached_property
    def debug(self) -> Elf | None:
        """Return the separate debug file, None if there is none that belongs to this content."""
        path = self._debug[0]
        with suppress(TargetError):
            found = Elf.open(path) if path else None
            if found and (not found.build_id or not self.build_id or found.build_id == self.build_id):
                return found
        return None

    @cached_property
    def _debug(self) -> tuple[Path | None, str]:
        """The debug file's path and what names its content."""
        with suppress(TargetError, OSError):
            if path := debug_file(self.elf, self._folder):
                return path, status_identity(path.stat())
        return None, ""

    @cached_property
    def rows(self) -> Rows:
        """Return the unwind rows, ROW[n], from the cache if they are there; raises TargetError for another machine."""
        source = self._eh_frame_identity().encode()
        if self._kept.get("rows of") == source:
            return np.frombuffer(self._kept["rows"], dtype=ROW)
        found = unwind_rows(self.elf, self.go)
        self._keep({"rows of": source, "rows": found.tobytes()})
        return found

    def _eh_frame_identity(self) -> str:
        """Rows may be shared by copies of a file, but a build id is only what the file says of itself."""
        section = self.elf.sections.get(".eh_frame")
        data = self.elf.section(".eh_frame") if section else None
        if not section or not data:
            return self.file_identity
        place = f"{self.elf.machine} {self.elf.base} {section.address}"
        return f"{place} {hashlib.blake2b(data, digest_size=20).hexdigest()}"

    @cached_property
    def _kept(self) -> dict[str, Any]:
        return dict(cache.load(self.identity, "tables", self.cache_folder) or {})

    def _keep(self, parts: dict[str, bytes]) -> None:
        self._kept.update(parts)
        cache.store(self.identity, "tables", self._kept, self.cache_folder)

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held for the file."""
        held = self.__dict__
        rows = held["rows"].nbytes if "rows" in held else 0
        symbols = held["symbols"].size_bytes if "symbols" in held else 0
        forms = held["names"].size_bytes if "names" in held else 0
        return rows + 2 * symbols + forms + self.notes_bytes + 4096


_SIDES: Final = ("left", "right")
_COLUMNS: Final = {"addresses": "<u8", "sizes": "<u8", "names": "<u4", "kinds": "u1"}


class Modules:
    """Modules by the file they are of; those not asked for longest give way when they hold too much."""

    def __init__(self, limit_bytes: int = MODULES_BYTES, limit: int = MODULES, cache: Path | None = None) -> None:
        """Hold at most `limit` modules and about `limit_bytes`."""
        self.limit_bytes, self.limit, self._cache = limit_bytes, limit, cache
        self._held: OrderedDict[str, Module] = OrderedDict()
        self._vdso: Module | None = None
        self._lock = Lock()

    def open(self, source: str | os.PathLike[str] | int, name: str | None = None) -> Module:
        """Return the module of a file by path or descriptor, the same one as long as it is held; raises TargetError.

        It is read as it is now: a file replaced or changed is another one.
        """
        try:
            key = status_identity(os.stat(source))
        except OSError as error:
            raise TargetError(f"{name or source} cannot be read: {error.strerror}") from error
        with self._lock:
            module = self._held.get(key)
            if module is None:
                module = Module.open(source, name, self._cache)  # what is there now may be another than a moment ago
                self._held[module.file_identity] = module
                self._make_room()
            self._held.move_to_end(module.file_identity)
            return module

    def vdso(self) -> Module:
        """Return the module of the kernel's own code in every process; raises TargetError."""
        with self._lock:
            self._vdso = self._vdso or Module.vdso(self._cache)
            return self._vdso

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held for all."""
        return sum(module.size_bytes for module in self._held.values())

    def _make_room(self) -> None:
        """Let go of modules, but the newest; who holds one may go on with it, and it closes when none does."""
        held = self.size_bytes
        while len(self._held) > 1 and (len(self._held) > self.limit or held > self.limit_bytes):
            _, module = self._held.popitem(last=False)
            held -= module.size_bytes


def status_identity(status: os.stat_result) -> str:
    """Return what names a file's content as long as it is not changed."""
    return f"{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_size:x}"
