"""Functions of a file as sorted arrays: which one holds an address, which ones have a name.

Filled from ELF symbol tables (System V gABI chapter 4) and from Go's, which go.py brings into the same form.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
STT_FUNC: Final = 2
STT_GNU_IFUNC: Final = 10
GLOBAL_FUNCTION: Final = 1 << 4 | STT_FUNC  # of `info`
SHN_UNDEF: Final = 0
NAME_LIMIT: Final = 1 << 16  # bytes of a name that count
NESTING: Final = 8  # functions inside one another that a look-up sees through
_OPEN: Final = 0xFF  # of `other`, whose ELF meaning is not needed: the size is not said
_RANK: Final = np.array([2, 0, 1, *[3] * 13], dtype="u1")  # of aliases the global one is named, then the weak one

SymbolTable = tuple[npt.NDArray[np.void], bytes]  # SYMBOL[n], and the names it points into


class Symbol(NamedTuple):
    """A function as a symbol table has it: `address` as linked, `size` in bytes, 0 if not known.

    `is_resolver`: it chooses the function of this name when the program is loaded (GNU indirect function).
    """

    name: str
    address: int
    size: int
    is_resolver: bool = False


@dataclass(frozen=True)
class Symbols:
    """The functions of a file, sorted by address; names are decoded when asked for.

    `addresses`, `sizes` (bytes): uint64[n]; `names`: uint32[n], offsets into `strings`, zero-terminated; `kinds`:
    uint8[n], STT_*.
    """

    addresses: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]
    names: npt.NDArray[np.uint32]
    kinds: npt.NDArray[np.uint8]
    strings: bytes

    @classmethod
    def of(cls, tables: Sequence[SymbolTable]) -> "Symbols":
        """Return the functions of several tables as one."""
        rows, strings, at = [np.empty(0, dtype=SYMBOL)], [], 0
        for table, names in tables:
            table = table.copy()
            table["name"] += at
            rows.append(table)
            strings.append(names)
            at += len(names)
        table = np.concatenate(rows)
        table = table[np.lexsort((table["name"], _RANK[table["info"] >> 4], table["value"]))]
        is_first = np.ones(len(table), dtype=bool)  # one name an address is enough to name a frame, the others are kept
        is_first[1:] = table["value"][1:] != table["value"][:-1]
        # The one that names frames comes last: look-up is "right"
        table = table[np.lexsort((is_first, table["value"]))]
        _close(table)
        starts, sizes, places = (np.ascontiguousarray(table[name]) for name in ("value", "size", "name"))
        return cls(starts, sizes, places, (table["info"] & 15).astype(np.uint8), b"".join(strings))

    def __len__(self) -> int:
        return len(self.addresses)

    def __getitem__(self, index: int) -> Symbol:
        kind = int(self.kinds[index])
        return Symbol(self.name(index), int(self.addresses[index]), int(self.sizes[index]), kind == STT_GNU_IFUNC)

    def __iter__(self) -> Iterator[Symbol]:
        return (self[index] for index in range(len(self)))

    @property
    def size_bytes(self) -> int:
        """Return about how much memory they take, decoded names not counted."""
        return 21 * len(self) + len(self.strings)

    def name(self, index: int) -> str:
        """Return the name of a function by its place."""
        start = int(self.names[index])
        end = self.strings.find(b"\0", start, start + NAME_LIMIT)
        return self.strings[start : end if end >= 0 else start + NAME_LIMIT].decode("utf-8", "backslashreplace")

    def at(self, address: int) -> Symbol | None:
        """Return the function that holds `address`, or None."""
        index = self.index_at(address)
        return None if index < 0 else self[index]

    def index_at(self, address: int) -> int:
        """Return the place of the function that holds `address`, -1 if none does."""
        last = bisect_right(self._starts, address) - 1
        for index in range(last, max(last - NESTING, -1), -1):
            if address < self._starts[index] + int(self.sizes[index]):
                return index
        return -1

    def indices_at(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the place of the function that holds each address, int64[n], -1 where none does."""
        last = np.searchsorted(self.addresses, addresses, "right") - 1
        found = np.full(len(addresses), -1, dtype=np.int64)
        for step in range(NESTING):
            index = last - step
            open_ = np.flatnonzero((found < 0) & (index >= 0))
            if not len(open_):
                break
            places = index[open_]
            holds = addresses[open_] - self.addresses[places] < self.sizes[places]
            found[open_[holds]] = places[holds]
        return found

    def named(self, name: str) -> list[Symbol]:
        """Return every function of exactly this name, by address; a version (`@...`) behind it is no part of it."""
        return [self[index] for index in self.indices_named(name)]

    def indices_named(self, name: str) -> list[int]:
        """Return the places of every function of exactly this name."""
        needle = name.encode("utf-8", "surrogateescape")
        if not needle or b"\0" in needle:
            return []
        starts, at = [], self.strings.find(needle)
        while at >= 0:
            if self.strings[at + len(needle) : at + len(needle) + 1] in (b"\0", b"@"):
                starts.append(at)
            at = self.strings.find(needle, at + 1)
        found: list[int] = np.flatnonzero(np.isin(self.names, np.array(starts, dtype=np.uint32))).tolist()
        return found

    @cached_property
    def _starts(self) -> Sequence[int]:
        return self.addresses.data  # ten times faster to bisect than the array


def read_table(data: bytes, names: bytes, ends: npt.NDArray[np.uint64] | None = None) -> SymbolTable:
    """Return the defined functions of an ELF symbol table; rows that point out of `names` are left out.

    `ends` (uint64[sections]): the address behind each section.
    """
    table = np.frombuffer(data, dtype=SYMBOL, count=len(data) // SYMBOL.itemsize)
    is_function = np.isin(table["info"] & 15, (STT_FUNC, STT_GNU_IFUNC)) & (table["section"] != SHN_UNDEF)
    table = table[is_function & (table["name"] < len(names)) & (table["name"] != 0)].copy()
    table["other"] = np.where(table["size"] == 0, _OPEN, 0)
    if ends is not None:
        is_within = (table["other"] == _OPEN) & (table["section"] < len(ends))
        limit = ends[table["section"][is_within]]
        start = table["value"][is_within]
        table["size"][is_within] = np.where(limit > start, limit - start, 0)
    return table, names


def _close(table: npt.NDArray[np.void]) -> None:
    """Give functions without a size, in a sorted table, all up to the next one, or to the end of their section."""
    is_open = table["other"] == _OPEN
    start = table["value"]
    after = np.searchsorted(start, start, "right")
    room = np.zeros(len(table), dtype=np.uint64)
    has_next = after < len(table)
    room[has_next] = start[after[has_next]] - start[has_next]
    size = table["size"]
    table["size"] = np.where(is_open & has_next & ((size == 0) | (room < size)), room, size)
