"""Points of `call`: what the user wrote -> places in files, with what is to be copied there.

A point is LIB:SYMBOL, LIB:SYMBOL+0xOFFSET or LIB:0xOFFSET (of the file), with argument types in brackets behind it;
SYMBOL is as the file has it or demangled, with parameters or without, `*` and `?` in it name several. LIB is a path, or
the name of what the target runs or has loaded. `point_places` finds the places.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracehound.call_types import ALIASES, NUMBERS
from tracehound.errors import TargetError, UsageError
from tracehound.kernel.arguments import Argument, near, parse_arguments
from tracehound.kernel.plans import Plan, PointOptions, check_filters, make_plan
from tracehound.kernel.process_maps import mappings

if TYPE_CHECKING:
    from tracehound.kernel.point_places import FilePlaces, Place

POINTS_MAX: Final = 16384  # CALL_POINTS_MAX of bpf/include/call_point.h
LIBRARY_FOLDERS: Final = (f"/lib/{os.uname().machine}-linux-gnu", f"/usr/lib/{os.uname().machine}-linux-gnu",
                          "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")  # fmt: skip
_POINT: Final = re.compile(r"(?P<library>\[[\w:]+\]|[^:\[]+):(?P<place>.+)")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")
_PLACE: Final = re.compile(r"(?P<at>0x[0-9a-fA-F]+)|(?P<symbol>.+?)(\+(?P<offset>0x[0-9a-fA-F]+))?")
_OF_A_NAME: Final = re.compile(r".*(operator\[\]|\[abi:\w+\])")  # whose brackets hold no types
NO_PLAN: Final = Plan()
NOT_FILES: Final = ("/memfd:", "/dev/zero", "/SYSV")  # of memory that has only a name
NO_FILE: Final = "no code of a file is there, and points stand in files. A hardware breakpoint can: --watch ADDRESS:x"


@dataclass(frozen=True, slots=True)
class Point:
    """One place in a file; `returns`: file offsets of the RET instructions of the function that begins there.

    `name` and `symbol` are demangled; `names`: LIB and each form of the function's name. `why_no_return`: also of a
    function whose end is not seen.
    """

    name: str
    path: str
    symbol: str | None
    offset: int
    plan: Plan = NO_PLAN
    returns: tuple[int, ...] = ()
    is_function: bool = False
    asked: str = ""  # the text that named it
    return_type: str = "int64"
    names: tuple[str, ...] = ()
    why_no_return: str = ""

    @property
    def all_names(self) -> tuple[str | None, ...]:
        """Return what it may be called, with LIB and without."""
        return (self.name, self.symbol, *self.names, *(each.partition(":")[2] for each in self.names))

    def packed(self, first: int, generation: int = 0) -> bytes:
        """Return it as struct call_point; `first`: where its operations are."""
        return self.plan.packed(first, ("HAS_RETURN", "HAS_CALLER") if self.returns else (), generation)

    def facts(self) -> dict[str, object]:
        """Return what the rows of its calls say of it."""
        return {
            "point": self.name,
            "module": self.path,
            "symbol": self.symbol,
            "file_offset": self.offset,
            "has_return": bool(self.returns),
            "return": self.return_type,
            "arguments": list(self.plan.arguments),
        }


def split_return(text: str) -> tuple[str, str]:
    """Return what stands before `->TYPE` at a point's end, and the type of number that it names."""
    match = re.fullmatch(r"(.+)->(\w+)", text)
    if not match:
        return text, "int64"
    kind = ALIASES.get(match[2], match[2])
    if kind not in NUMBERS or kind in ("float", "double"):
        known = sorted({*NUMBERS, *ALIASES} - {"float", "double"})
        raise UsageError(f"{text}: behind -> stands a type of whole numbers, not {match[2]}{near(match[2], known)}")
    return match[1], kind


def split_point(text: str) -> tuple[str, str]:
    """Return what stands before the brackets at a point's end, and what is in them."""
    if not text.endswith("]") or _OF_A_NAME.fullmatch(text):
        return text, ""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == "]") - (text[at] == "[")
        if not depth:
            return text[:at], text[at + 1 : -1]
    raise UsageError(f"{text}: a bracket is closed that was not opened")


def find_points(
    texts: Iterable[str],
    pids: Sequence[int] = (),
    program: str | None = None,
    options: PointOptions = PointOptions(),  # noqa: B008 it is frozen
) -> list[Point]:
    """Return the points that the texts name, for processes or for a program that is to be started.

    Raises UsageError for a text that is none, TargetError for a file, function or offset that is not there.
    """
    from tracehound.kernel.point_places import FilePlaces
    from tracehound.symbols.module import Modules

    found: list[Point] = []
    asked: list[tuple[tuple[Argument, ...], tuple[str | None, ...]]] = []
    modules = Modules()
    for text in texts:
        library, place, given, return_type = _parts(text, pids)
        arguments = parse_arguments(given)
        file = FilePlaces(modules.open(find_file(library, pids, program)))
        for each in _places(file, place):
            names = tuple(f"{library}:{form}" for form in each.forms)
            point = Point(f"{library}:{each.shown}", file.path, each.symbol, each.offset, is_function=each.is_function,
                          asked=text, return_type=return_type, names=names)  # fmt: skip
            plan = _plan(point, each, arguments, replace(options, returns=return_type), file)
            is_seen = not options.is_quiet or "AT_EXIT" in plan.flags  # the target pays for each
            returns, why = (each.returns, each.why_no_return) if is_seen else ((), "")
            found.append(replace(point, plan=plan, returns=returns, why_no_return=why))
            asked.append((arguments, point.all_names))
    if len(found) > POINTS_MAX:
        raise UsageError(f"{len(found)} points are more than {POINTS_MAX}")
    check_filters(options.filters, asked)
    return found


def _parts(text: str, pids: Sequence[int]) -> tuple[str, re.Match[str], str, str]:
    """Return LIB, the place in it, the types between the brackets and the type that is returned."""
    before, return_type = split_return(text)
    whole, given = split_point(before)
    if _ADDRESS.fullmatch(whole):
        whole = _in_file(whole, pids)
    match = _POINT.fullmatch(whole)
    place = match and _PLACE.fullmatch(match["place"])
    if not match or not place or match["place"].count("[") != match["place"].count("]"):
        raise UsageError(f"{text} is no point. Write LIB:SYMBOL, LIB:SYMBOL+0xOFFSET or LIB:0xOFFSET, [types] behind")
    return match["library"], place, given, return_type


def _places(file: "FilePlaces", place: re.Match[str]) -> "list[Place]":
    if place["at"]:
        return [file.at(int(place["at"], 16))]
    distance = int(place["offset"] or "0", 16)
    return file.within(place["symbol"], distance) if distance else file.named(place["symbol"])


def _in_file(address: str, pids: Sequence[int]) -> str:
    """Return LIB:0xOFFSET of an address of a process; raises TargetError where no file is mapped."""
    for pid in pids:
        for each in mappings(pid):
            is_file = each.is_code and each.path.startswith("/") and not each.path.startswith(NOT_FILES)
            if is_file and each.start <= int(address, 16) < each.end:
                return f"{each.path.removesuffix(' (deleted)')}:{int(address, 16) - each.start + each.offset:#x}"
    if not pids:
        raise UsageError(f"{address} is an address: it needs --pid. Else write LIB:0xOFFSET")
    raise TargetError(f"{address}: {NO_FILE}")


def _plan(
    point: Point, place: "Place", arguments: tuple[Argument, ...], options: PointOptions, file: "FilePlaces"
) -> Plan:
    """Return what is done at a point; raises UsageError for what cannot be seen there."""
    kind = file.string_kind if any(each.form == "std" for each in arguments) else ""
    plan = make_plan(arguments, options, point.all_names, kind)
    if place.returns:
        return plan
    late = next((str(each["name"]) for each in plan.arguments if each["exit"]), None)
    if late or "AT_EXIT" in plan.flags:
        raise UsageError(
            f"{point.name}: {late or 'what is counted'} is known at the exit only, and that is not seen: "
            f"{place.why_no_return}"
        )
    if options.callers and not point.is_function:
        raise UsageError(f"{point.name}: --caller is for places where a function begins")
    return plan


def find_file(library: str, pids: Sequence[int] = (), program: str | None = None) -> str:
    """Return the file that LIB names; raises TargetError, with near matches, also if it was replaced meanwhile."""
    if library.startswith(("[", "//anon")):
        raise TargetError(f"{library}: {NO_FILE}")
    seen: dict[str, str] = {}
    for pid in pids:
        for path, inode in {each.path: each.inode for each in mappings(pid) if each.is_code and each.inode}.items():
            if path in (library, os.path.realpath(library)) or _is_named(path.removesuffix(" (deleted)"), library):
                return _same_file(pid, path, inode)
            seen.setdefault(_stem(Path(path).name), path)
    if "/" in library:
        if not Path(library).is_file():
            raise TargetError(f"no such file: {library}{near(library, seen.values())}")
        return str(Path(library).resolve())
    if program is not None:
        executable = shutil.which(program)
        if executable and _is_named(executable, library):
            return str(Path(executable).resolve())
    for folder in map(Path, LIBRARY_FOLDERS if not pids else ()):
        for each in sorted(folder.glob("*.so*")):
            if _is_named(str(each), library) and _is_elf(each):
                return str(each.resolve())
            seen.setdefault(_stem(each.name), str(each))
    raise TargetError(f"nothing named {library} is {'mapped there' if pids else 'known'}{near(library, seen)}")


def _is_named(path: str, library: str) -> bool:
    """Tell whether a path is what people call it: libc and c for libc.so.6, and the whole name or path."""
    name = Path(path).name
    stem = _stem(name)
    return library in (path, name, stem, stem.removeprefix("lib") if ".so" in name else name)


def _stem(name: str) -> str:
    return re.split(r"\.so\b", name)[0]


def _is_elf(path: Path) -> bool:
    """Tell it from a linker's script, which has such a name too."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _same_file(pid: int, path: str, inode: int) -> str:
    for candidate in (path, f"/proc/{pid}/root{path}"):
        try:
            if os.stat(candidate).st_ino == inode:
                return candidate
        except OSError:
            continue
    shown = path.removesuffix(" (deleted)")
    raise TargetError(f"{shown} was replaced since pid {pid} mapped it: points of it cannot be placed. Start it again")
