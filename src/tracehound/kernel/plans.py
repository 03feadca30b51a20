"""What is done at a point, compiled: arguments that are read, filters, what is counted in the kernel, limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tracehound.btf import wire_layout
from tracehound.call_types import NUMBERS
from tracehound.errors import UsageError
from tracehound.kernel.arguments import Argument, Compiler, Location, near
from tracehound.kernel.filters import Filter, add_filters
from tracehound.kernel.operations import DURATION, ENTRY, EXIT, RETURN, Operation, constants, limit

BY: Final = ("comm", "pid", "tid")


@dataclass(frozen=True, slots=True)
class PointOptions:
    """What is asked of points besides their arguments.

    `by`: what hits are counted by in the kernel, None: rows are wanted. `histogram`: duration, return or an argument.
    `returns`: type of the number that is returned. `callers`: (inode, size) of files of which one must be the
    caller. `rate`: records a second of one point at most;
    `ceiling`: hits a second that turn a point off; 0: no limit.
    """

    filters: tuple[Filter, ...] = ()
    callers: tuple[tuple[int, int], ...] = ()
    by: tuple[str, ...] | None = None
    histogram: str | None = None
    rate: int = 0
    ceiling: int = 0
    returns: str = "int64"

    @property
    def is_quiet(self) -> bool:
        """Whether hits are counted in the kernel and no records are sent."""
        return self.by is not None or self.histogram is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """Operations and what belongs to them; points with equal plans share their place in the kernel's table."""

    operations: tuple[Operation, ...] = ()
    pieces: tuple[int, int] = (0, 0)
    flags: tuple[str, ...] = ()
    rate: int = 0
    ceiling: int = 0
    arguments: tuple[dict[str, Any], ...] = field(default=(), hash=False, compare=False)
    keys: tuple[dict[str, Any], ...] = field(default=(), hash=False, compare=False)

    def packed(self, first: int, more_flags: Sequence[str] = (), generation: int = 0) -> bytes:
        """Return it as struct call_point; `first`: where its operations begin in the table."""
        row = np.zeros(1, wire_layout().btf.dtype("call_point"))
        values = constants("call_point_flag")
        flags = sum(values[f"POINT_{name}"] for name in {*self.flags, *more_flags})
        for name, value in (
            ("first", first),
            ("operations", len(self.operations)),
            ("flags", flags),
            ("generation", generation),
        ):
            row[name] = value
        row["rate"], row["ceiling"], row["pieces"] = self.rate, self.ceiling, self.pieces
        return row.tobytes()


def make_plan(
    arguments: Sequence[Argument],
    options: PointOptions = PointOptions(),
    names: Sequence[str | None] = (),
    string_kind: str = "STD_STRING",
) -> Plan:
    """Compile; `names`: what the point is called, for filters of some points. Raises UsageError."""
    filters = [each for each in options.filters if each.is_of(names)]
    wanted = _wanted(arguments, filters)
    compiler = Compiler(wanted, string_kind)
    _add_callers(compiler, options.callers)
    facts: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = []
    flags: list[str] = []
    if options.is_quiet:
        keys, flags = _add_counting(compiler, wanted, filters, options)
    else:
        for each in wanted:
            facts.append(compiler.read(each))
            add_filters(compiler, each, [one for one in filters if one.name == each.name])
    if options.callers:
        flags.append("HAS_CALLER")
    if compiler.has_others:
        flags.append("ALL_REGISTERS")
    listed = compiler.operations
    entry, leave = listed.pieces
    return Plan(
        tuple(listed.listed), (entry, leave), tuple(flags), options.rate, options.ceiling, tuple(facts), tuple(keys)
    )


def check_filters(filters: Sequence[Filter], points: Sequence[tuple[Sequence[Argument], Sequence[str | None]]]) -> None:
    """Raise UsageError for a filter that is of no argument of any point."""
    for each in filters:
        known = {argument.name for arguments, names in points if each.is_of(names) for argument in arguments}
        if each.name not in known:
            raise UsageError(
                f"{each.text}: no point has an argument {each.name!r}{near(each.name, known) or _known(known)}"
            )


def _known(names: set[str]) -> str:
    return f". There are: {', '.join(sorted(names))}" if names else ": name its types in brackets"


def _wanted(arguments: Sequence[Argument], filters: Sequence[Filter]) -> list[Argument]:
    """Return the arguments, of texts as much as filters compare."""
    found = []
    for each in arguments:
        most = max((len(one.value.encode()) for one in filters if one.name == each.name), default=0)
        is_text = each.form in ("str", "std")
        found.append(replace(each, max_bytes=max(each.max_bytes, most)) if is_text else each)
    return found


def _add_callers(compiler: Compiler, callers: Sequence[tuple[int, int]]) -> None:
    group = compiler.operations.next_group() if callers else 0
    for inode, size in callers:
        compiler.operations.add(Operation("MATCH_CALLER", ENTRY, group=group, max=size & 0xFFFFFFFF, constant=inode))


def _add_counting(
    compiler: Compiler, arguments: Sequence[Argument], filters: Sequence[Filter], options: PointOptions
) -> tuple[list[dict[str, Any]], list[str]]:
    """Add what counts in the kernel; return what its keys are, and flags of the point."""
    returned = Argument("return", options.returns, "number", 0, location=Location(RETURN), phase=EXIT)
    by_name = {each.name: each for each in (returned, *arguments)}
    for each in arguments:
        of_it = [one for one in filters if one.name == each.name]
        if of_it:
            compiler.read(each)
            add_filters(compiler, each, of_it)
    keys: list[dict[str, Any]] = []
    phases, room = [ENTRY], limit("KEY_SIZE")
    for name in sorted(options.by or (), key=lambda name: _phase(name, by_name)):
        key, phase = _add_key(compiler, name, by_name)
        room -= key["size"] or 1
        if room < 0 or (keys and not keys[-1]["size"]):
            raise UsageError(f"{limit('KEY_SIZE')} bytes are kept to count by, and a text only as the last")
        keys.append(key)
        phases.append(phase)
    if options.histogram is not None:
        phases.append(_add_measure(compiler, options.histogram, by_name))
    return keys, ["QUIET", *["AT_EXIT"] * (EXIT in phases)]


def _phase(name: str, by_name: Mapping[str, Argument]) -> int:
    return by_name[name].phase if name in by_name else ENTRY


def _argument(name: str, by_name: Mapping[str, Argument], others: Sequence[str]) -> Argument:
    if name not in by_name:
        known = [*by_name, *others]
        raise UsageError(
            f"nothing to count by is named {name!r}{near(name, known) or '. There are: ' + ', '.join(known)}"
        )
    return by_name[name]


def _add_key(compiler: Compiler, name: str, by_name: Mapping[str, Argument]) -> tuple[dict[str, Any], int]:
    add = compiler.operations.add
    if name == "comm":
        add(Operation("KEY_COMM"))
        return {"name": name, "size": 16, "type": "str"}, ENTRY
    if name in ("pid", "tid"):
        base = constants("call_operand")[f"OPERAND_{name.upper()}"]
        add(Operation("KEY_NUMBER", ENTRY, base))
        return {"name": name, "size": 8, "type": "int64", "hex": False}, ENTRY
    argument = _argument(name, by_name, BY)
    if argument.form == "number":
        add(Operation("KEY_NUMBER", argument.phase, compiler.number(argument, argument.phase)))
        return {"name": name, "size": 8, "type": argument.type, "hex": argument.is_hex}, argument.phase
    if argument.form not in ("str", "std", "buf"):
        raise UsageError(f"{name} is {argument.shown_type}: it cannot be counted by")
    compiler.read(replace(argument, max_bytes=min(argument.max_bytes, limit("KEY_SIZE"))))
    add(Operation("KEY_PIECE", argument.phase))
    return {"name": name, "size": 0, "type": argument.type}, argument.phase


def _add_measure(compiler: Compiler, name: str, by_name: Mapping[str, Argument]) -> int:
    add = compiler.operations.add
    if name == "duration":
        add(Operation("MEASURE", EXIT, DURATION, size=8))
        return EXIT
    argument = _argument(name, by_name, ("duration",))
    if argument.form != "number" or argument.type in ("float", "double"):
        raise UsageError(f"{name} is {argument.shown_type}: a histogram is of whole numbers")
    flags = ("OPERATION_SIGNED",) * (NUMBERS[argument.type][0] == "i")
    add(
        Operation("MEASURE", argument.phase, compiler.number(argument, argument.phase), size=argument.size, flags=flags)
    )
    return argument.phase
