"""Arguments of a point: the text between its brackets -> what is read where, as operations for the kernel side.

    [NAME=]TYPE[:LENGTH][:LOCATION][@exit | @both]

TYPE is a number, str, std::string, buf, a struct, T[N] or T[LENGTH] (an array), str[] (as argv), or *T. Without
LOCATION the first is the first argument of the function, and so on. LOCATION is a register, argN or ret, then offsets;
each `.` reads the pointer there: sp+0x20-0x8.+8. A bare register holds a number itself, and the address of all else;
with an offset or `.` it is the address of a number, too. LENGTH is a constant, a LOCATION, or another argument's NAME.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from tracehound.call_types import ALIASES, NUMBERS, STRUCTS, struct_size
from tracehound.errors import UsageError
from tracehound.kernel.operations import CONSTANT, ENTRY, EXIT, RETURN, SP, Operation, Operations, limit

STRING_DEFAULT: Final = 256
ARRAY_OF: Final = {"int_arr": "int", "uint_arr": "uint", "ptr_arr": "ptr"}
STD_STRINGS: Final = {
    "std": "",
    "std::string": "",
    "std::__cxx11::string": "STD_STRING",
    "std::__1::string": "CXX_STRING",
}
STRINGS: Final = ("string_array", "argv")
_X86: Final = (
    "rdi",
    "rsi",
    "rdx",
    "rcx",
    "r8",
    "r9",
    "rax",
    "rsp",
    "rbp",
    "rip",
    "",
    "rbx",
    *(f"r{n}" for n in range(10, 16)),
)
_ARM: Final = (*(f"x{n}" for n in range(6)), "", "sp", "fp", "pc", "", *(f"x{n}" for n in range(6, 31)))
REGISTERS: Final[dict[str, int]] = {
    **{name: slot for slot, name in enumerate(_X86 if os.uname().machine == "x86_64" else _ARM) if name},
    **{f"arg{n}": n for n in range(6)},
    "ret": RETURN, "sp": SP, "bp": SP + 1, "ip": SP + 2,
    **({"lr": 35} if os.uname().machine == "aarch64" else {}),
}  # fmt: skip
OTHERS: Final = 11  # OPERAND_OTHERS
_TYPE: Final = re.compile(r"(?P<stars>\**)(?P<type>std(::\w+)*|\w*)(?P<array>\[[^\]]*\])?")
_NAME: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<rest>.*)", re.DOTALL)
_OFFSETS: Final = re.compile(r"([+-](0x[0-9a-fA-F]+|\d+))*")
_OFFSET: Final = re.compile(r"[+-](?:0x[0-9a-fA-F]+|\d+)")


@dataclass(frozen=True, slots=True)
class Location:
    """A register, and offsets from it: one more than pointers that are read on the way.

    `is_return`: it was called `ret`; by its own name the register has an argument in other conventions, as in Go's.
    """

    base: int
    offsets: tuple[int, ...] = (0,)
    is_bare: bool = True
    is_return: bool = False

    def followed(self, times: int = 1) -> "Location":
        """Return where the pointer there leads to."""
        return replace(self, offsets=(*self.offsets, *[0] * times), is_bare=False)


@dataclass(frozen=True, slots=True)
class Extent:
    """How many bytes of a buf, how many members of an array: a constant, or a number that is found at the hit."""

    constant: int | None = None
    location: Location | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """One value of a hit: `form` is number, str, std, strings, buf, or array (of numbers or structs, also of one)."""

    name: str
    type: str
    form: str
    place: int
    is_hex: bool = False
    extent: Extent = Extent()
    max_bytes: int = 0
    location: Location | None = None
    stars: int = 0
    phase: int = ENTRY
    kind: str = ""  # of std: which operation

    @property
    def size(self) -> int:
        """Bytes of the number, or of one member."""
        return int(NUMBERS[self.type][1]) if self.type in NUMBERS else struct_size(self.type)

    @property
    def shown_type(self) -> str:
        """The type as rows have it."""
        if self.form == "array" and (self.extent.constant != 1 or self.extent.name):
            return f"{self.type}[{self.extent.constant or ''}]"
        return "*" * (self.form == "number" and self.stars) + self.type


def near(given: str, choices: Iterable[str]) -> str:
    """Return the end of a message: what is like what was given."""
    found = get_close_matches(given, list(choices), 3, 0.6)
    return f". Near: {', '.join(found)}" if found else ""


def types() -> list[str]:
    """Return the names of all types."""
    return sorted({*NUMBERS, *ALIASES, *STRUCTS, *ARRAY_OF, *STD_STRINGS, *STRINGS, "str", "buf"})


def parse_arguments(text: str) -> tuple[Argument, ...]:
    """Return the arguments of a point, as between its brackets; raises UsageError, with near matches."""
    found: list[Argument] = []
    for place, each in enumerate(split_outside(text, ",") if text.strip() else []):
        found += _argument(each.strip(), place)
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"[{text}]: two arguments are named {twice}")
    for argument in found:
        length = argument.extent.name
        if length and length not in names:
            known = [*names, *REGISTERS]
            raise UsageError(f"{argument.name}: no register or argument {length!r}{near(length, known)}")
    return tuple(found)


def split_outside(text: str, separator: str) -> list[str]:
    """Split where no bracket is open."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == separator and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _argument(text: str, place: int) -> list[Argument]:
    named = _NAME.fullmatch(text)
    name, rest = (named["name"], named["rest"].strip()) if named else (f"arg{place}", text)
    body, _, when = rest.partition("@")
    if when not in ("", "exit", "both") or rest.endswith("@"):
        raise UsageError(f"{text}: behind @ stands exit or both, not {when!r}")
    argument = _typed(body, text, Argument(name, "", "", place))
    from_return = argument.location is not None and argument.location.is_return
    if from_return and when == "both":
        raise UsageError(f"{text}: there is no return value at the entry")
    if not when and not from_return:
        return [argument]
    if argument.form == "number" and argument.stars == 0 and not from_return and _is_bare(argument):
        raise UsageError(
            f"{text}: an argument in a register is looked at when the call begins. "
            f"Write *{argument.type}, or {argument.type}:ret"
        )
    left = replace(argument, phase=EXIT)
    return [argument, replace(left, name=f"{name}@exit")] if when == "both" else [left]


def _is_bare(argument: Argument) -> bool:
    return argument.location is None or argument.location.is_bare


def _typed(body: str, text: str, argument: Argument) -> Argument:
    match = _TYPE.match(body)
    assert match is not None  # each part of it may be empty
    kind, rest = match["type"], body[match.end() :]
    parts = rest[1:].split(":") if rest else []
    if rest and not rest.startswith(":"):
        raise UsageError(f"{text!r}: behind the type stand :LENGTH and :LOCATION{near(kind, types())}")
    argument = replace(argument, stars=len(match["stars"]))
    if match["array"] is not None:
        return _array(kind, match["array"][1:-1], parts, text, argument)
    if kind in ARRAY_OF:
        if not parts:
            raise UsageError(f"{text}: {kind} takes the number of its members")
        return _array(ARRAY_OF[kind], parts[0], parts[1:], text, argument)
    if kind in STRINGS:
        return _array("str", "", parts, text, argument)
    if kind == "buf":
        if not parts:
            raise UsageError(f"{text}: buf takes a length: in bytes, a register, argN, or another argument's name")
        extent = _extent(parts[0], text)
        most = min(extent.constant or limit("PIECE_MAX"), limit("PIECE_MAX"))
        if extent.constant is not None and not 0 < extent.constant <= limit("PIECE_MAX"):
            raise UsageError(f"{text}: buf takes a length in bytes, 1 to {limit('PIECE_MAX')}")
        return replace(argument, type=kind, form=kind, extent=extent, max_bytes=most, location=_last(parts[1:], text))
    if kind == "str" or kind in STD_STRINGS:
        return _string(kind, parts, text, argument)
    return _number_or_struct(kind, parts, text, argument)


def _string(kind: str, parts: list[str], text: str, argument: Argument) -> Argument:
    most = STRING_DEFAULT
    if parts and parts[0].isdecimal():
        most, parts = int(parts[0]), parts[1:]
        if not 0 < most < limit("PIECE_MAX"):
            raise UsageError(f"{text}: {kind} takes a length in bytes, 1 to {limit('PIECE_MAX') - 1}")
    form = "str" if kind == "str" else "std"
    shown = "str" if kind == "str" else "std::string"
    return replace(
        argument, type=shown, form=form, max_bytes=most, location=_last(parts, text), kind=STD_STRINGS.get(kind, "")
    )


def _number_or_struct(kind: str, parts: list[str], text: str, argument: Argument) -> Argument:
    is_hex = kind.endswith("x") and (kind[:-1] in NUMBERS or kind[:-1] in ALIASES)
    kind = kind[:-1] if is_hex else kind
    kind = ALIASES.get(kind, kind)
    if kind in STRUCTS:
        return replace(argument, type=kind, form="array", extent=Extent(1), location=_last(parts, text))
    if kind not in NUMBERS:
        raise UsageError(f"no type {kind or text!r}{near(kind, types())}")
    if parts and parts[0].isdecimal():
        raise UsageError(f"{text}: {kind} takes no length")
    found = replace(argument, type=kind, form="number", is_hex=is_hex or kind == "ptr", location=_last(parts, text))
    if kind in ("float", "double") and not found.stars and _is_bare(found):
        raise UsageError(f"{text}: vector registers, which have such arguments, are not read. *{kind} is one in memory")
    return found


def _array(kind: str, extent: str, parts: list[str], text: str, argument: Argument) -> Argument:
    location = _last(parts, text)
    if kind == "str":
        most = limit("STRINGS_MAX")
        if extent and not (extent.isdecimal() and 0 < int(extent) <= most):
            raise UsageError(f"{text}: str[] takes a number of texts, 1 to {most}, or none: up to the null pointer")
        count = int(extent or most)
        return replace(
            argument, type="str[]", form="strings", extent=Extent(count), max_bytes=STRING_DEFAULT, location=location
        )
    member = _number_or_struct(kind, [], kind, replace(argument, stars=1))
    given = _extent(extent, text)
    if given.constant is not None and not 0 < given.constant * member.size <= limit("PIECE_MAX"):
        raise UsageError(f"{text}: an array of 1 to {limit('PIECE_MAX') // member.size} such members can be read")
    if given.constant is None and member.size > 255:
        raise UsageError(f"{text}: members of {member.size} bytes are read only in a constant number")
    return replace(member, form="array", extent=given, location=location, stars=argument.stars)


def _extent(text: str, whole: str) -> Extent:
    if re.fullmatch(r"\d+|0x[0-9a-fA-F]+", text):
        return Extent(int(text, 0))
    register = re.split(r"[+\-.]", text)[0]
    if register in REGISTERS:
        return Extent(location=parse_location(text, whole))
    if re.fullmatch(r"[A-Za-z_]\w*(@exit)?", text):
        return Extent(name=text)
    raise UsageError(f"{whole}: {text!r} is no length: a number, a register, argN, or another argument's name")


def _last(parts: Sequence[str], text: str) -> Location | None:
    if len(parts) > 1:
        raise UsageError(f"{text}: too many parts: {':'.join(parts)}")
    return parse_location(parts[0], text) if parts else None


def parse_location(text: str, whole: str) -> Location:
    """Return where a text such as sp+0x20-0x8.+8 leads; raises UsageError."""
    register = re.split(r"[+\-.]", text)[0]
    if register not in REGISTERS:
        raise UsageError(f"{whole}: no register {register!r}{near(register, REGISTERS)}")
    segments = text[len(register) :].split(".")
    wrong = next((each for each in segments if not _OFFSETS.fullmatch(each)), None)
    if wrong is not None:
        raise UsageError(f"{whole}: {wrong!r} is no offset: +N or -N, with 0x in hexadecimal")
    offsets = tuple(sum(int(one, 0) for one in _OFFSET.findall(each)) for each in segments)
    if any(not -(1 << 31) <= each < 1 << 31 for each in offsets):
        raise UsageError(f"{whole}: an offset of more than 31 bits")
    return Location(REGISTERS[register], offsets, text == register, register == "ret")


def default_location(argument: Argument) -> Location:
    """Return where the calling convention has an argument."""
    if argument.place < 6:
        return Location(argument.place)
    if os.uname().machine == "aarch64":
        found = Location(REGISTERS[f"x{argument.place}"]) if argument.place < 8 else _on_stack(8 * (argument.place - 8))
    else:
        found = _on_stack(8 * (argument.place - 5))
    return found if found.is_bare or argument.form == "number" else found.followed()


def _on_stack(offset: int) -> Location:
    return Location(SP, (offset,), False)


def address_of(argument: Argument) -> Location:
    """Return where the value is; a number in a register: that register, bare."""
    where = argument.location or default_location(argument)
    if argument.form != "number":
        return where.followed(argument.stars) if argument.stars else where
    if not argument.stars:
        return where
    if where.is_bare:
        where, stars = Location(where.base, where.offsets, False), argument.stars - 1
    else:
        stars = argument.stars
    return where.followed(stars) if stars else where


class Compiler:
    """Makes the operations of one point's arguments; keeps which are there already."""

    def __init__(self, arguments: Sequence[Argument], string_kind: str = "STD_STRING") -> None:
        self.operations = Operations()
        self._by_name: Mapping[str, Argument] = {each.name: each for each in arguments}
        self._string_kind = string_kind
        self.has_others = False

    def _follow(self, location: Location, phase: int) -> tuple[int, int]:
        """Return operand and offset of the end of a location."""
        self.has_others |= OTHERS <= location.base < 60
        base = location.base
        for offset in location.offsets[:-1]:
            base = self.operations.add(Operation("LOAD", phase, base, size=8, offset=offset))
        return base, location.offsets[-1]

    def number(self, argument: Argument, phase: int) -> int:
        """Return the operand that a number is, as wide as its type."""
        location = address_of(argument)
        base, offset = self._follow(location, phase)
        signed = ("SIGNED",) if NUMBERS[argument.type][0] == "i" else ()
        flags = tuple(f"OPERATION_{each}" for each in signed)
        kind = "SET" if location.is_bare else "LOAD"
        return self.operations.add(Operation(kind, phase, base, size=argument.size, flags=flags, offset=offset))

    def _length(self, extent: Extent, phase: int) -> int:
        """Return the operand of a length, CONSTANT if it is one."""
        if extent.name is not None:
            given = self._by_name[extent.name]
            if given.form != "number":
                raise UsageError(f"{extent.name} is a {given.type}, no length")
            if given.phase > phase:
                raise UsageError(f"{extent.name} is known at the exit only: what it is the length of cannot be before")
            return self.number(given, phase)
        if extent.location is None:
            return CONSTANT
        base, offset = self._follow(extent.location, phase)
        if extent.location.is_bare:
            return base
        return self.operations.add(Operation("LOAD", phase, base, size=8, offset=offset))

    def read(self, argument: Argument) -> dict[str, object]:
        """Add what reads an argument; return what decode is to know of it."""
        facts: dict[str, object] = {
            "name": argument.name,
            "type": argument.type,
            "form": argument.form,
            "shown": argument.shown_type,
            "hex": argument.is_hex,
            "exit": argument.phase == EXIT,
        }
        location = address_of(argument)
        if argument.form == "number" and location.is_bare and location.base < 6:
            return facts | {"register": location.base}
        phase = argument.phase
        length = self._length(argument.extent, phase)
        base, offset = self._follow(location, phase)
        piece = self.operations.next_piece(phase)
        kind, size, most = self._piece(argument, location)
        self.operations.add(Operation(kind, phase, base, length, size=size, piece=piece, offset=offset, max=most))
        return facts | {"piece": piece}

    def _piece(self, argument: Argument, location: Location) -> tuple[str, int, int]:
        """Return the kind of operation, its size and its max."""
        if argument.form == "number":
            return ("VALUE", 0, 8) if location.is_bare else ("BUFFER", 1, argument.size)
        if argument.form == "strings":
            return "STRINGS", argument.extent.constant or 0, argument.max_bytes
        if argument.form == "array":
            count = argument.extent.constant
            most = limit("PIECE_MAX") // argument.size if count is None else count
            return "BUFFER", argument.size if count is None else 1, most * argument.size
        if argument.form == "std":
            return argument.kind or self._string_kind, 0, argument.max_bytes
        return ("STRING" if argument.form == "str" else "BUFFER"), 1, argument.max_bytes
