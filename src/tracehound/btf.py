"""Reads the BPF Type Format: structs as numpy dtypes, enums as dicts, variables with their offsets.

Source: the kernel's Documentation/bpf/btf.rst. Pure Python; needs neither root nor a kernel. Leaves out functions,
tags and everything a record may not have (bit fields, unions, pointers), which is a LayoutError when asked for.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import numpy as np

from tracehound.errors import LayoutError

MAGIC: Final = 0xEB9F
INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT = range(1, 12)
FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(12, 20)
QUALIFIERS: Final = {VOLATILE, CONST, RESTRICT, TYPE_TAG}
# 32-bit words that follow the three of every type: a constant, or that many for each of its vlen members
EXTRA_WORDS: Final = {INT: 1, ARRAY: 3, VAR: 1, DECL_TAG: 1}
MEMBER_WORDS: Final = {STRUCT: 3, UNION: 3, ENUM: 2, FUNC_PROTO: 2, DATASEC: 3, ENUM64: 3}
INT_SIGNED, INT_CHAR, INT_BOOL = 1, 2, 4


TYPEDEFS_DEEP: Final = 32  # a chain of typedefs and qualifiers longer than this is a loop


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what damaged bytes lead to into a LayoutError that names what was read."""
    try:
        yield
    except (struct.error, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LayoutError(f"damaged: {what} ({error})") from error


@dataclass(frozen=True, slots=True)
class BtfType:
    """One type as it stands in the section: `words` are its kind-specific data."""

    name: str
    kind: int
    size_or_type: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class Btf:
    """The types of one `.BTF` section, or of several records' worth of them."""

    data: bytes = field(repr=False)

    @classmethod
    def of_object(cls, path: Path) -> "Btf":
        """Read the `.BTF` section of a 64-bit little-endian ELF file; raises LayoutError if there is none."""
        return cls(elf_section(path.read_bytes(), ".BTF", str(path)))

    @cached_property
    def types(self) -> list[BtfType]:
        """All types; index 0 is void."""
        with reading("the BTF"):
            return self._read_types()

    def _read_types(self) -> list[BtfType]:
        magic, _version, _flags, header_size, types_at, types_size, strings_at, strings_size = struct.unpack_from(
            "<HBBIIIII", self.data
        )
        if magic != MAGIC:
            raise LayoutError(f"no BTF: it begins with {magic:#06x}, not {MAGIC:#06x}")
        position, end = header_size + types_at, header_size + types_at + types_size
        if max(end, header_size + strings_at + strings_size) > len(self.data):
            raise LayoutError(f"damaged: the BTF is longer than its {len(self.data)} bytes")
        found = [BtfType("void", 0, 0, ())]
        while position < end:
            name_at, info, size_or_type = struct.unpack_from("<III", self.data, position)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            words = EXTRA_WORDS.get(kind, 0) + MEMBER_WORDS.get(kind, 0) * count
            found.append(
                BtfType(
                    self._name(name_at), kind, size_or_type, struct.unpack_from(f"<{words}I", self.data, position + 12)
                )
            )
            position += 12 + 4 * words
        return found

    @cached_property
    def _strings(self) -> bytes:
        header_size, strings_at, strings_size = (struct.unpack_from("<I", self.data, at)[0] for at in (4, 16, 20))
        return self.data[header_size + strings_at : header_size + strings_at + strings_size]

    def _name(self, offset: int) -> str:
        return self._strings[offset : self._strings.index(b"\0", offset)].decode()

    @cached_property
    def _by_name(self) -> dict[tuple[int, str], BtfType]:
        return {(found.kind, found.name): found for found in self.types if found.name}

    def struct_names(self) -> list[str]:
        """Names of all structs, in the order of the section."""
        return [found.name for found in self.types if found.kind == STRUCT and found.name]

    def enum(self, name: str) -> dict[str, int]:
        """Return the enumerators of `enum name`; raises LayoutError if there is no such enum."""
        found = self._by_name.get((ENUM, name))
        if found is None:
            raise LayoutError(f"the BTF has no enum {name}")
        pairs = zip(found.words[::2], found.words[1::2], strict=True)
        with reading(f"enum {name}"):
            return {self._name(at): value - (1 << 32 if value >> 31 else 0) for at, value in pairs}

    def dtype(self, name: str) -> np.dtype[np.void]:
        """Return `struct name` as a numpy dtype of the same offsets and size; a flexible tail is left out.

        Raises LayoutError for a missing struct and for members that a record may not have.
        """
        found = self._by_name.get((STRUCT, name))
        if found is None:
            raise LayoutError(f"the BTF has no struct {name}")
        with reading(f"struct {name}"):
            return self._struct_dtype(found)

    def has_tail(self, name: str) -> bool:
        """Tell whether `struct name` ends in a flexible array."""
        with reading(f"struct {name}"):
            members = self._by_name[STRUCT, name].words
            last = self.types[members[-2]] if members else None
        return last is not None and last.kind == ARRAY and last.words[2] == 0

    def _struct_dtype(self, found: BtfType) -> np.dtype[np.void]:
        names: list[str] = []
        formats: list[np.dtype[np.generic]] = []
        offsets: list[int] = []
        words = iter(found.words)
        for name_at, type_id, bit_offset in zip(words, words, words, strict=True):
            name = self._name(name_at)
            if bit_offset % 8 or bit_offset >> 24:  # the high byte is the size in bits
                raise LayoutError(f"struct {found.name}.{name} is a bit field")
            member = self._format(type_id, f"struct {found.name}.{name}")
            if member is not None:
                names.append(name)
                formats.append(member)
                offsets.append(bit_offset // 8)
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": found.size_or_type})

    def _format(self, type_id: int, where: str) -> np.dtype[np.generic] | None:
        """Return the dtype of a member, None for a flexible tail."""
        found = self.types[type_id]
        for _ in range(TYPEDEFS_DEEP):
            if found.kind not in QUALIFIERS and found.kind != TYPEDEF:
                break
            if found.name in ("__be16", "__be32", "__be64"):
                return np.dtype(f">u{int(found.name[4:]) // 8}")
            found = self.types[found.size_or_type]
        if found.kind == INT:
            signed = found.words[0] >> 24 & INT_SIGNED
            return np.dtype(f"<{'i' if signed else 'u'}{found.size_or_type}")
        if found.kind == ENUM:
            return np.dtype(f"<u{found.size_or_type}")
        if found.kind == STRUCT:
            return self._struct_dtype(found)
        if found.kind == ARRAY:
            element, _index, count = found.words
            if count == 0:
                return None
            inner = self.types[element]
            if inner.kind == INT and inner.name == "char":
                return np.dtype(f"S{count}")
            one = self._format(element, where)
            if one is not None:
                return np.dtype((one, (count,)))
        raise LayoutError(f"{where} has a type that a record may not have (kind {found.kind})")

    def variables(self, section: str) -> dict[str, tuple[int, int]]:
        """Return (offset, size) of each variable of a data section such as `.rodata`; empty if there is none."""
        found = self._by_name.get((DATASEC, section))
        if found is None:
            return {}
        words = iter(found.words)
        with reading(f"section {section}"):
            return {self.types[of].name: (offset, size) for of, offset, size in zip(words, words, words, strict=True)}


def elf_section(image: bytes, name: str, where: str) -> bytes:
    """Return the bytes of one section of a 64-bit little-endian ELF image; raises LayoutError."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise LayoutError(f"{where} is not a 64-bit little-endian ELF file")
    with reading(where):
        sections_at, entry_size, count, names_index = struct.unpack_from("<40xQ10xHHH", image)
        headers = [struct.unpack_from("<IIQQQQ", image, sections_at + entry_size * n) for n in range(count)]
        names_at = headers[names_index][4]
        for name_at, _type, _flags, _address, offset, size in headers:
            start = names_at + name_at
            if image[start : image.index(b"\0", start)] == name.encode():
                return image[offset : offset + size]
    raise LayoutError(f"{where} has no section {name}")


@dataclass(frozen=True)
class Layout:
    """The records of wire.h: their dtypes by name, their kinds by number, and the enums beside them.

    `other`: the records of another version; kinds that `btf` lacks are there too, as that version has them.
    """

    btf: Btf
    other: Btf | None = None

    @cached_property
    def kinds(self) -> dict[int, str]:
        """Kind number -> record name (`exec`, `data`, ...)."""
        found = _kinds(self.btf)
        names = set(found.values())
        for number, name in _kinds(self.other).items() if self.other else ():
            if name not in names:
                while number in found:
                    number += 1  # of the same ring
                found[number] = name
        return found

    @cached_property
    def dtypes(self) -> dict[str, np.dtype[np.void]]:
        """Record name -> dtype of its fixed part, the header's members as its first fields."""
        return {name: flatten(self._home(name).dtype(f"{name}_record")) for name in self.kinds.values()}

    def has_tail(self, name: str) -> bool:
        """Tell whether records of this name have a tail."""
        return self._home(name).has_tail(f"{name}_record")

    def _home(self, name: str) -> Btf:
        is_other = self.other is not None and name not in _kinds(self.btf).values()
        return self.other if is_other else self.btf  # type: ignore[return-value]

    def enum(self, name: str) -> dict[str, int]:
        """Return the enumerators of an enum of wire.h."""
        return self.btf.enum(name)


def _kinds(btf: Btf) -> dict[int, str]:
    return {number: name.removeprefix("RECORD_").lower() for name, number in btf.enum("record_kind").items()}


def flatten(dtype: np.dtype[np.void]) -> np.dtype[np.void]:
    """Return the same layout with the members of its `header` as fields of their own."""
    names: list[str] = []
    formats: list[np.dtype[np.generic]] = []
    offsets: list[int] = []
    assert dtype.fields is not None and dtype.names is not None
    for name in dtype.names:
        inner, offset = dtype.fields[name][:2]
        if name == "header" and inner.fields is not None:
            for sub, (sub_type, sub_offset, *_) in inner.fields.items():
                names.append(sub)
                formats.append(sub_type)
                offsets.append(offset + sub_offset)
        else:
            names.append(name)
            formats.append(inner)
            offsets.append(offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize})


OBJECTS: Final = Path(__file__).parent / "bpf"


@cache
def wire_layout() -> Layout:
    """Return the layout of the records of this build."""
    return Layout(Btf.of_object(OBJECTS / "wire.bpf.o"))
