"""Layouts of other versions, made by editing the BTF: a member removed, a kind or an enumerator added or renumbered."""

import struct
from collections.abc import Callable

import numpy as np

from tracehound.btf import ENUM, EXTRA_WORDS, MEMBER_WORDS, STRUCT, Btf, Layout


class Editor:
    """The types of a BTF as lists of words, to be changed and written again."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        header = struct.unpack_from("<HBBIIIII", btf.data)
        _, _, _, size, types_at, types_size, strings_at, strings_size = header
        self.strings = btf.data[size + strings_at : size + strings_at + strings_size]
        self.types: list[list[int]] = []
        at, end = size + types_at, size + types_at + types_size
        while at < end:
            _, info, _ = struct.unpack_from("<III", btf.data, at)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            words = 3 + EXTRA_WORDS.get(kind, 0) + MEMBER_WORDS.get(kind, 0) * count
            self.types.append(list(struct.unpack_from(f"<{words}I", btf.data, at)))
            at += 4 * words

    def name(self, at: int) -> str:
        return self.strings[at : self.strings.index(b"\0", at)].decode()

    def add_name(self, name: str) -> int:
        self.strings += name.encode() + b"\0"
        return len(self.strings) - len(name) - 1

    def find(self, kind: int, name: str) -> list[int]:
        return next(found for found in self.types if found[1] >> 24 & 0x1F == kind and self.name(found[0]) == name)

    def remove_member(self, struct_name: str, member: str, size: int) -> None:
        """Remove a member of `size` bytes; what stands behind it moves up."""
        found = self.find(STRUCT, struct_name)
        at = next(at for at in range(3, len(found), 3) if self.name(found[at]) == member)
        offset = found[at + 2]
        del found[at : at + 3]
        for behind in range(5, len(found), 3):
            found[behind] -= 8 * size if found[behind] > offset else 0
        found[1] -= 1
        found[2] -= size

    def add_kind(self, name: str, number: int, like: str) -> None:
        """Add a kind of record whose struct is that of another one."""
        copy = list(self.find(STRUCT, f"{like}_record"))
        copy[0] = self.add_name(f"{name}_record")
        self.types.append(copy)
        self.add_enumerator("record_kind", f"RECORD_{name.upper()}", number)

    def remove_kind(self, name: str) -> None:
        found = self.find(ENUM, "record_kind")
        at = next(at for at in range(3, len(found), 2) if self.name(found[at]) == f"RECORD_{name.upper()}")
        del found[at : at + 2]
        found[1] -= 1

    def add_enumerator(self, enum: str, name: str, number: int) -> None:
        found = self.find(ENUM, enum)
        found += [self.add_name(name), number]
        found[1] += 1

    def renumber(self, enum: str, change: Callable[[int], int]) -> None:
        found = self.find(ENUM, enum)
        for at in range(4, len(found), 2):
            found[at] = change(found[at])

    def layout(self) -> Layout:
        types = b"".join(struct.pack(f"<{len(words)}I", *words) for words in self.types)
        header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(self.strings))
        return Layout(Btf(header + types + self.strings))


def rewritten(record: bytes, ours: Layout, theirs: Layout) -> bytes | None:
    """Return one of our records as the other version would have written it, None for a kind it does not have."""
    number = int.from_bytes(record[20:22], "little")
    name = ours.kinds[number]
    if name not in theirs.dtypes:
        return None
    old, new = np.frombuffer(record, ours.dtypes[name], 1)[0], np.zeros(1, theirs.dtypes[name])
    for member in new.dtype.names or ():
        new[member] = old[member]
    size = int.from_bytes(record[16:20], "little")
    tail = record[ours.dtypes[name].itemsize : size]
    new["size"] = new.itemsize + len(tail)
    new["kind"] = next(number for number, kind in theirs.kinds.items() if kind == name)
    raw = new.tobytes() + tail
    return raw + bytes(-len(raw) % 8)
