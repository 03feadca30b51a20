"""Filters of arguments, as NAME OP VALUE: text -> operations that the kernel side runs before anything is sent.

`==` and `^=` (begins with) let through what matches one of them, of the same argument; `!=` and `!^=` leave out what
matches; `<`, `>`, `<=`, `>=` are of numbers, each must be so. VALUE is a number, text, 0x with hexadecimal digits for
bytes, or an address of a sockaddr: 1.2.3.4, 1.2.3.4:80, ::1, [::1]:80.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracehound.call_types import NUMBERS
from tracehound.errors import UsageError
from tracehound.kernel.arguments import Argument, Compiler
from tracehound.kernel.operations import ENTRY, Operation, limit

_FILTER: Final = re.compile(
    r"((?P<point>[^\s=<>!^]+):)?(?P<name>[A-Za-z_]\w*)\s*(?P<op>==|!=|!\^=|\^=|<=|>=|<|>|=)\s*(?P<value>.*)", re.DOTALL
)
OPERATORS: Final = ("==", "!=", "^=", "!^=", "<", ">", "<=", ">=")
_NUMBER_FLAGS: Final = {
    "==": ("MATCH_EQUAL",), "!=": ("MATCH_EQUAL", "MATCH_BLACK"), "<": ("MATCH_LESS",), ">": ("MATCH_GREATER",),
    "<=": ("MATCH_LESS", "MATCH_EQUAL"), ">=": ("MATCH_GREATER", "MATCH_EQUAL"),
}  # fmt: skip
_AT_ADDRESS: Final = {4: 4, 16: 8}  # of a sockaddr: where addresses of so many bytes are


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter; `point`: only of points whose name or symbol is like this."""

    text: str
    name: str
    operator: str
    value: str
    point: str | None = None

    def is_of(self, names: Sequence[str | None]) -> bool:
        """Tell whether it is for a point with these names."""
        return self.point is None or any(name and fnmatch.fnmatchcase(name, self.point) for name in names)


def parse_filter(text: str) -> Filter:
    """Return the filter that a text is; raises UsageError."""
    match = _FILTER.fullmatch(text.strip())
    if not match or not match["value"]:
        raise UsageError(
            f"{text!r} is no filter. Write NAME OP VALUE, OP one of {' '.join(OPERATORS)}: --filter 'arg0 > 3'"
        )
    if match["op"] == "=":
        raise UsageError(f"{text!r}: = is no operator. Write == or ^=")
    return Filter(text, match["name"], match["op"], match["value"], match["point"])


def add_filters(compiler: Compiler, argument: Argument, filters: Sequence[Filter]) -> None:
    """Add what matches an argument, whose piece was just read; raises UsageError."""
    groups: dict[str, int] = {}
    for each in filters:
        if argument.phase != ENTRY:
            raise UsageError(f"{each.text}: filters are asked when a call begins, {argument.name} is known at its end")
        kind = "equal" if each.operator in ("==", "^=") else each.text
        is_black = each.operator.startswith("!")
        group = 0 if is_black else groups.setdefault(kind, -1)
        if group < 0:
            group = groups[kind] = compiler.operations.next_group()
        for operation in _operations(compiler, argument, each, group):
            compiler.operations.add(operation)


def _operations(compiler: Compiler, argument: Argument, given: Filter, group: int) -> list[Operation]:
    if argument.form == "number":
        return [_match_number(compiler, argument, given, group)]
    if given.operator not in ("==", "!=", "^=", "!^="):
        raise UsageError(f"{given.text}: {given.operator} is for numbers, {argument.name} is {argument.shown_type}")
    flags: tuple[str, ...] = ("MATCH_BLACK",) if given.operator.startswith("!") else ()
    if argument.type == "sockaddr":
        text, offset = _address(given)
    else:
        text, offset = _bytes(argument, given), 0
        flags += ("MATCH_WHOLE",) if given.operator in ("==", "!=") else ()
    if not 0 < len(text) <= limit("TEXT_SIZE"):
        raise UsageError(f"{given.text}: a value of 1 to {limit('TEXT_SIZE')} bytes can be looked for")
    return [Operation("MATCH_BYTES", ENTRY, flags=flags, group=group, offset=offset, text=text)]


def _match_number(compiler: Compiler, argument: Argument, given: Filter, group: int) -> Operation:
    flags = _NUMBER_FLAGS.get(given.operator)
    if flags is None or argument.type in ("float", "double"):
        raise UsageError(f"{given.text}: {given.operator} is not for {argument.shown_type}")
    try:
        number = int(given.value, 0)
    except ValueError:
        raise UsageError(f"{given.text}: {given.value!r} is no number") from None
    signed = NUMBERS[argument.type][0] == "i"
    bits = 8 * argument.size
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise UsageError(f"{given.text}: {number} is no {argument.type}: {low} to {high}")
    base = compiler.number(argument, ENTRY)
    flags += ("OPERATION_SIGNED",) * signed
    return Operation("MATCH_NUMBER", ENTRY, base, size=argument.size, flags=flags, group=group, constant=number)


def _bytes(argument: Argument, given: Filter) -> bytes:
    if given.value.startswith("0x") and argument.form != "str":
        try:
            return bytes.fromhex(given.value[2:])
        except ValueError:
            raise UsageError(f"{given.text}: {given.value} is no even number of hexadecimal digits") from None
    return given.value.encode()


def _address(given: Filter) -> tuple[bytes, int]:
    """Return the bytes of an address, with the port in front if it is given, and where in a sockaddr they are."""
    match = re.fullmatch(r"\[?(?P<host>[0-9a-fA-F:.]+?)\]?(:(?P<port>\d+))?", given.value)
    is_plain = given.value.count(":") > 1 and not given.value.startswith("[")
    host, port = (given.value, None) if is_plain else (match["host"], match["port"]) if match else ("", None)
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        raise UsageError(f"{given.text}: {given.value!r} is no address: 1.2.3.4, 1.2.3.4:80, ::1 or [::1]:80") from None
    if port is None:
        return packed, _AT_ADDRESS[len(packed)]
    if len(packed) == 16:
        raise UsageError(f"{given.text}: an IPv6 address is looked for without its port")
    return int(port).to_bytes(2, "big") + packed, 2


def describe(filters: Sequence[Filter], callers: Sequence[str] = ()) -> list[str]:
    """Return a line for each filter, to be shown at the start."""
    return [f"filter: {each.text}" for each in filters] + [f"filter: called from {each}" for each in callers]
