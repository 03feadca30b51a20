"""The functions of one file that a point may name, and the places in them, by what `symbols` knows of the file.

A function has a point where it begins and, if all of it is known to be instructions, at those that return. Left out:
functions that are chosen when a program is loaded, and parts that a compiler moved out of their function.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tracehound.errors import TargetError
from tracehound.symbols import instructions
from tracehound.symbols.demangle import demangle, names_of
from tracehound.symbols.elf import EM_AARCH64, EM_X86_64, PT_LOAD
from tracehound.symbols.instructions import Code
from tracehound.symbols.module import PF_X, Function, Module

MACHINES: Final = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}
SHOWN: Final = 3  # names that are offered
_OLD: Final = re.compile(r"[^@]@[^@]")  # of a version: programs that were linked long ago call it
_COLD: Final = re.compile(r"\.cold(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: `shown` is its name, `forms` are all names of its function, demangled and not.

    `returns`: where the function returns that begins there; without any, `why_no_return` says why.
    """

    shown: str
    symbol: str
    forms: tuple[str, ...]
    offset: int
    returns: tuple[int, ...] = ()
    is_function: bool = False
    why_no_return: str = "it is a place within a function"


class FilePlaces:
    """The places of one file; raises TargetError for what is no ELF file of this machine, or has no functions."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.path = module.name
        if module.elf.machine != MACHINES.get(os.uname().machine):
            raise TargetError(f"{self.path} is no program of this machine: it is for machine {module.elf.machine}")
        segments = [one for one in module.elf.segments if one.kind == PT_LOAD and one.flags & PF_X]
        self._code = [range(one.offset, one.offset + one.file_size) for one in segments]

    @property
    def string_kind(self) -> str:
        """Which std::string the file's code has: that of libc++ if it needs it, else that of libstdc++."""
        return "CXX_STRING" if b"libc++.so" in (self._module.elf.section(".dynstr") or b"") else "STD_STRING"

    def named(self, name: str) -> list[Place]:
        """Return where the functions of a name or glob begin; raises TargetError for none, with near matches."""
        return self._beginnings(self._functions(name))

    def within(self, name: str, distance: int) -> list[Place]:
        """Return the places so far behind where the functions of a name or glob begin; raises TargetError."""
        return [self.at(each.offset + distance, each) for each in self._functions(name)]

    def at(self, offset: int, asked: Function | None = None) -> Place:
        """Return the place at a file offset; one that may not be an instruction's beginning would harm the program.

        `asked`: the function that is meant; one place may have several names.
        """
        function = self._module.function_at(offset) if self._is_code(offset) else None
        if asked is not None and asked.offset <= offset < asked.offset + asked.size:
            function = asked
        if function is None:
            raise TargetError(
                f"{self.path}:{offset:#x} lies in no function that has a symbol: "
                "whether an instruction begins there cannot be told"
            )
        if offset == function.offset:
            return self._beginnings([function])[0]
        symbol = _shown(function)
        shown = f"{symbol}+{offset - function.offset:#x}"
        starts = instructions.starts(self._module, function).tolist()
        if offset not in starts:
            nearest = sorted(sorted(starts, key=lambda at: abs(at - offset))[:2])
            raise TargetError(
                f"{self.path}:{offset:#x} ({shown}): no instruction begins there. "
                f"Near: {', '.join(f'{at:#x}' for at in nearest)}"
            )
        return Place(shown, symbol, names_of(function.name), offset)

    def _is_code(self, offset: int) -> bool:
        return any(offset in each for each in self._code)

    def _functions(self, name: str) -> list[Function]:
        """The functions of a name, one for each place: of its names the one that stacks show.

        Of a name of several versions only the one that programs are linked with now, unless it is a glob.
        """
        found = [one for one in self._module.functions(name) if self._is_code(one.offset)]
        current = [one for one in found if not _OLD.search(one.name)]
        if current and not set(name) & set("*?"):
            found = current
        by_place = [*found, *current]  # the last one counts
        places = {one.offset: one for one in by_place if not one.is_resolver and not _is_moved(one.name, name)}
        if places:
            return list(places.values())
        if not len(self._module.symbols):
            _ = self._module.elf.sections  # says if the file is damaged
            raise TargetError(f"{self.path}: it has no symbols of functions, and no debug file of it is here")
        is_choice = bool(found) and found[0].is_resolver
        near = self._choices(name) if is_choice else self._module.near(name)
        end = f". Near: {', '.join(near)}" if near else ""
        if is_choice:
            raise TargetError(
                f"{self.path}: {name} is one of several functions, chosen when a program starts: name that one{end}"
            )
        raise TargetError(f"{self.path}: no function {name}{end}")

    def _choices(self, name: str) -> list[str]:
        """Return some functions of which one may be chosen: by custom they begin or end with the name."""
        found = [*self._module.functions(f"*{name}_*"), *self._module.functions(f"{name}*")]
        names = {_shown(one) for one in found if not one.is_resolver and not one.name.endswith("_ifunc")}
        return sorted(names, key=lambda one: (not one.lstrip("_").startswith(name), len(one), one))[:SHOWN]

    def _beginnings(self, functions: list[Function]) -> list[Place]:
        return [
            Place(_shown(one), _shown(one), names_of(one.name), one.offset, code.returns, True, _why(code))
            for one, code in zip(functions, self._codes(functions), strict=True)
        ]

    def _codes(self, functions: list[Function]) -> Iterable[Code]:
        try:
            return instructions.analyse(self._module, functions)
        except TargetError as error:
            if len(functions) == 1:
                return [Code(refusal=str(error))]
            return [code for one in functions for code in self._codes([one])]


def _shown(function: Function) -> str:
    """Return the demangled name; of versions only an old one is part of it."""
    return demangle(function.name.partition("@@")[0])


def _is_moved(name: str, asked: str) -> bool:
    """Tell a part that only its own function jumps to from a function; who names it so is right to."""
    return bool(_COLD.search(name.partition("@")[0])) and ".cold" not in asked


def _why(code: Code) -> str:
    if code.returns or code.refusal:
        return code.refusal
    if code.tail_jumps or code.has_indirect_jumps:
        return "it ends in jumps to other functions only"
    return "it has no return instruction"
