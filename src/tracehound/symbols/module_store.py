"""Which modules there are, by number, each read when a stack first comes to it.

A module is looked for on the tape first, then handed to `source`, which opens files. One that cannot be had stays
without rows: its frames are left by frame pointer. Leaves out where files are: `mapped_files`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tracehound.errors import TargetError
from tracehound.symbols.address_space import FileKey
from tracehound.symbols.module import Module
from tracehound.symbols.stack_module import StackModule
from tracehound.symbols.unwind import TABLE_UNKNOWN, TABLE_WANTED, Table

PACKED_LIMIT: Final = 256 << 20  # bytes of modules of a tape that are kept
DELETED: Final = b" (deleted)"

Source = Callable[[FileKey], Module | None]
_Identity = bytes | tuple[tuple[int, int], int, int, bytes]


def plain_path(key: FileKey) -> bytes:
    """Return the path without the kernel's word that it is no longer there."""
    return key.path.removesuffix(DELETED)


def _identity(key: FileKey) -> _Identity:
    return key.build_id or (key.device, key.inode, key.generation, plain_path(key))


class ModuleStore:
    """Numbers files, and holds what was read of them."""

    def __init__(self, source: Source | None = None) -> None:
        """`source` opens a file, None if it cannot; without one only modules of the tape are there."""
        self.tables: list[Table] = []
        self._source = source
        self._numbers: dict[_Identity, int] = {}
        self._keys: list[FileKey] = []
        self._modules: list[StackModule | None] = []
        self._table_of: list[int] = []  # TABLE_WANTED: not looked for yet
        self._packed: dict[_Identity, bytes] = {}
        self._by_path: dict[bytes, bytes] = {}
        self._packed_bytes = 0
        self._loaded: list[tuple[FileKey, StackModule]] = []

    def number(self, key: FileKey) -> int:
        """Return the number of a file, given to it now if it is new."""
        number = self._numbers.setdefault(_identity(key), len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
            self._modules.append(None)
            self._table_of.append(TABLE_WANTED)
        return number

    def key(self, number: int) -> FileKey:
        """Return the file of a number."""
        return self._keys[number]

    def module(self, number: int) -> StackModule | None:
        """Return what was read of a file, None before `load` and where there is nothing."""
        return self._modules[number]

    def table_of(self, number: int) -> int:
        """Return the number of a file's table; TABLE_WANTED before `load`, TABLE_UNKNOWN where there is none."""
        return self._table_of[number]

    def learn(self, key: FileKey, packed: bytes) -> None:
        """Keep a packed module, if it is new; it is unpacked when a stack comes to it."""
        number = self._numbers.get(_identity(key))
        if _identity(key) in self._packed or (number is not None and self._modules[number] is not None):
            return
        if self._packed_bytes + len(packed) <= PACKED_LIMIT:
            self._packed_bytes += len(packed)
            self._packed[_identity(key)] = packed
            self._by_path[plain_path(key)] = packed

    def load(self, number: int) -> int:
        """Read a file, if that was not tried yet; return the number of its table, TABLE_UNKNOWN if there is none."""
        if self._table_of[number] != TABLE_WANTED:
            return self._table_of[number]
        self._table_of[number] = TABLE_UNKNOWN
        module = self._read(self._keys[number])
        if module is not None:
            self._modules[number] = module
            self._table_of[number] = len(self.tables)
            self.tables.append(module.table)
            self._loaded.append((self._keys[number], module))
        return self._table_of[number]

    def take_loaded(self) -> list[tuple[FileKey, StackModule]]:
        """Return the modules that stacks came to since the last time: what a tape needs."""
        taken, self._loaded = self._loaded, []
        return taken

    def _read(self, key: FileKey) -> StackModule | None:
        packed = self._packed.get(_identity(key)) or (None if key.build_id else self._by_path.get(plain_path(key)))
        with suppress(TargetError):
            if packed is not None:
                return StackModule.unpack(packed)
        with suppress(TargetError):
            module = self._source(key) if self._source is not None else None
            if module is not None:
                return StackModule.of(module)
        return None
