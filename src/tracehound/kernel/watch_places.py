"""Watches of `call`: what the user wrote -> an address in a process, what is watched of it, and its name.

A watch is ADDR[:ACCESS][:LENGTH]. ADDR is 0xADDRESS, LIB:SYMBOL, or LIB+0xOFFSET (an address as linked, as nm shows
it); ACCESS is r, w, rw or x (default: w, of functions x); LENGTH is 1, 2, 4 or 8 bytes (default: the symbol's, or 4).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tracehound.errors import TargetError, UsageError
from tracehound.kernel.process_maps import Mapping, mappings
from tracehound.symbols.elf import Elf

ACCESS: Final = {"r": 1, "w": 2, "rw": 3, "x": 4}  # enum watch_access
LENGTHS: Final = (8, 4, 2, 1)
LENGTH_DEFAULT: Final = 4
RUN_LENGTH: Final = 8  # what the kernel wants for code
KERNEL_HALF: Final = 1 << 63
STT_FUNCTION: Final = (2, 10)
STT_TLS: Final = 6
PT_LOAD: Final = 1
SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_TEXT: Final = re.compile(r"(?P<place>.+?)(:(?P<access>r|w|rw|x))?(:(?P<length>\d+))?")
_LIBRARY: Final = re.compile(r"(?P<library>(?!0x[0-9a-fA-F]+:)[^:]+?)(:(?P<symbol>[^:]+)|\+(?P<offset>0x[0-9a-fA-F]+))")


@dataclass(frozen=True, slots=True)
class Watch:
    """One address of one process; `access` is r, w, rw or x, `size_bytes` 1, 2, 4 or 8."""

    name: str
    pid: int
    address: int
    access: str
    size_bytes: int
    module: str | None = None
    symbol: str | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether it is an address of the kernel."""
        return self.address >= KERNEL_HALF

    def facts(self) -> dict[str, object]:
        """Return what its rows say of it."""
        return {"point": self.name, "module": self.module, "symbol": self.symbol, "file_offset": None,
                "has_return": False, "arguments": []}  # fmt: skip


class Datum(NamedTuple):
    """A symbol of any kind, its address as linked."""

    address: int
    size: int
    kind: int


def find_watches(texts: Sequence[str], pid: int, allows_kernel: bool = False) -> tuple[Watch, ...]:
    """Return what the texts name in a process.

    Raises UsageError for a text that is none, TargetError for a library or symbol that is not there.
    """
    found: dict[int, Watch] = {}
    for text in texts:
        watch = _find(text, pid)
        if watch.is_kernel and not allows_kernel:
            raise UsageError(f"{text} is an address of the kernel: --allow-kernel-address permits it, and it may hang "
                             "the machine")  # fmt: skip
        if watch.address in found:
            raise UsageError(f"{text} is watched already, as {found[watch.address].name}: write rw for both")
        found[watch.address] = watch
    return tuple(found.values())


def _find(text: str, pid: int) -> Watch:
    match = _TEXT.fullmatch(text)
    place = match["place"] if match else ""
    number = re.fullmatch(r"0x[0-9a-fA-F]{1,16}", place)
    library = _LIBRARY.fullmatch(place)
    if match is None or not (number or library):
        raise UsageError(f"{text} is no watch. Write 0xADDRESS, LIB:SYMBOL or LIB+0xOFFSET, then :r, :w, :rw or :x, "
                         "then :LENGTH")  # fmt: skip
    module, symbol, size, is_code = None, None, 0, False
    if library is None:
        address = int(place, 16)
    else:
        module, bias, elf = _library(pid, library["library"])
        symbol = library["symbol"]
        datum = Datum(int(library["offset"], 16), 0, 0) if symbol is None else _datum(elf, symbol, module)
        address, size, is_code = bias + datum.address, datum.size, datum.kind in STT_FUNCTION
    access = match["access"] or ("x" if is_code else "w")
    return Watch(text, pid, address, access, _length(text, access, match["length"], address, size), module, symbol)


def _length(text: str, access: str, given: str | None, address: int, size: int) -> int:
    if access == "x":
        if given is not None:
            raise UsageError(f"{text}: what is run has no length")
        return RUN_LENGTH
    if given is None:
        most = min(size, 8) or LENGTH_DEFAULT
        return next(each for each in LENGTHS if each <= most and address % each == 0)
    length = int(given)
    if length not in LENGTHS:
        raise UsageError(f"{text}: a length is 1, 2, 4 or 8 bytes, not {given}")
    if address % length:
        raise UsageError(f"{text}: {address:#x} is no multiple of {length}: name a length of "
                         f"{next(each for each in LENGTHS if address % each == 0)} or less")  # fmt: skip
    return length


def _library(pid: int, name: str) -> tuple[str, int, Elf]:
    """Return the path of a mapped file, by how much its addresses are moved, and the file."""
    paths: dict[str, Mapping] = {}
    for each in mappings(pid):
        if each.inode:
            paths.setdefault(each.path, each)
    known = {alias: path for path in paths for alias in _aliases(path)}
    if name not in known:
        near = get_close_matches(name, known, 3, 0.5)
        raise TargetError(
            f"nothing named {name} is mapped by pid {pid}" + (f". Near: {', '.join(near)}" if near else "")
        )
    mapping = paths[known[name]]
    elf = Elf.open(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}")  # the file itself, also a deleted one
    for segment in elf.segments:
        if segment.kind == PT_LOAD and segment.offset & ~0xFFF == mapping.offset:
            return mapping.path, mapping.start - (segment.address & ~0xFFF), elf
    raise TargetError(f"{mapping.path} is not mapped by pid {pid} as its headers say")


def _aliases(path: str) -> set[str]:
    """Return what people call a file: libc and c for libc.so.6, and its name and path."""
    whole = path.removesuffix(" (deleted)")
    name = Path(whole).name
    stem = re.split(r"\.so\b", name)[0]
    return {whole, name, stem, stem.removeprefix("lib") if ".so" in name else name}


def _datum(elf: Elf, name: str, path: str) -> Datum:
    names: list[str] = []
    for table, strings in ((".symtab", ".strtab"), (".dynsym", ".dynstr")):
        raw, texts = elf.section(table) or b"", elf.section(strings) or b""
        symbols = np.frombuffer(raw, SYMBOL, len(raw) // SYMBOL.itemsize)
        for symbol in symbols[(symbols["section"] != 0) & (symbols["name"] != 0)]:
            start = int(symbol["name"])
            found = texts[start : texts.find(b"\0", start)].decode(errors="backslashreplace")
            kind = int(symbol["info"]) & 15
            if found.split("@")[0] == name and kind == STT_TLS:
                raise TargetError(f"{path}: {name} is another one in each thread: watch its address")
            if found.split("@")[0] == name:
                return Datum(int(symbol["value"]), int(symbol["size"]), kind)
            names.append(found)
    near = get_close_matches(name, names, 3, 0.7)
    raise TargetError(f"{path}: no symbol {name}" + (f". Near: {', '.join(near)}" if near else ""))
