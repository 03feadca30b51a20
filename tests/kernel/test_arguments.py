"""Arguments and filters of points: texts in, operations out, and one line for what cannot be."""

import os
from typing import Any

import pytest

from tracehound.btf import wire_layout
from tracehound.errors import UsageError
from tracehound.kernel.arguments import REGISTERS, Location, parse_arguments, parse_location
from tracehound.kernel.filters import parse_filter
from tracehound.kernel.operations import Operation, constants, limit
from tracehound.kernel.plans import Plan, PointOptions, check_filters, make_plan

IS_X86 = os.uname().machine == "x86_64"


def steps(text: str, *filters: str, **options: Any) -> list[tuple[Any, ...]]:
    plan = make_plan(parse_arguments(text), PointOptions(tuple(map(parse_filter, filters)), **options))
    return [(each.kind, each.phase, each.base, each.offset, each.size, each.max) for each in plan.operations]


def test_what_is_in_a_register_needs_no_operation() -> None:
    plan = make_plan(parse_arguments("int,size_t,n=uint8x"))
    assert plan.operations == () and plan.pieces == (0, 0)
    assert [(each["name"], each["type"], each["register"], each["hex"]) for each in plan.arguments] == [
        ("arg0", "int32", 0, False),
        ("arg1", "uint64", 1, False),
        ("n", "uint8", 2, True),
    ]


def test_operations() -> None:
    first = 64  # OPERAND_RESULT
    assert steps("str") == [("STRING", 0, 0, 0, 1, 256)]
    assert steps("int,buf:16") == [("BUFFER", 0, 1, 0, 1, 16)]
    assert steps("*int") == [("BUFFER", 0, 0, 0, 1, 4)]
    assert steps("**int") == [("LOAD", 0, 0, 0, 8, 0), ("BUFFER", 0, first, 0, 1, 4)]
    assert steps("*str") == [("LOAD", 0, 0, 0, 8, 0), ("STRING", 0, first, 0, 1, 256)]
    assert steps("buf:4:sp+0x20-0x8.+8.-4+0x16") == [
        ("LOAD", 0, 7, 0x18, 8, 0),
        ("LOAD", 0, first, 8, 8, 0),
        ("BUFFER", 0, first + 1, 0x12, 1, 4),
    ]
    assert steps("iovec[arg1]") == [("BUFFER", 0, 0, 0, 16, 32768)]
    assert steps("buf:n@exit,n=*uint") == [
        ("LOAD", 1, 1, 0, 4, 0),
        ("BUFFER", 1, 0, 0, 1, 32768),
        ("BUFFER", 0, 1, 0, 1, 4),
    ]
    assert steps("str[2]") == [("STRINGS", 0, 0, 0, 2, 256)]
    assert steps("int:ret") == [("VALUE", 1, 6, 0, 0, 8)]


def test_filters_stand_behind_what_they_look_at() -> None:
    plan = make_plan(
        parse_arguments("fd=int,path=str:3"),
        PointOptions(tuple(map(parse_filter, ("fd > 2", "fd < 9", "path ^= /etc", "path == /x", "path !^= /etc/p")))),
    )
    found = [(each.kind, each.group, each.flags, each.text or each.constant) for each in plan.operations]
    assert found == [
        ("SET", 0, ("OPERATION_SIGNED",), 0),
        ("MATCH_NUMBER", 0, ("MATCH_GREATER", "OPERATION_SIGNED"), 2),
        ("SET", 0, ("OPERATION_SIGNED",), 0),
        ("MATCH_NUMBER", 1, ("MATCH_LESS", "OPERATION_SIGNED"), 9),
        ("STRING", 0, (), 0),
        ("MATCH_BYTES", 2, (), b"/etc"),
        ("MATCH_BYTES", 2, ("MATCH_WHOLE",), b"/x"),
        ("MATCH_BYTES", 0, ("MATCH_BLACK",), b"/etc/p"),
    ]
    assert plan.operations[4].max == 6  # of the text, as much as is compared


def test_counting() -> None:
    assert make_plan(parse_arguments("int"), PointOptions(by=())) == Plan((), (0, 0), ("QUIET",))
    assert steps("n=int", by=("n",)) == [("SET", 0, 0, 0, 4, 0), ("KEY_NUMBER", 0, 64, 0, 0, 0)]
    plan = make_plan(parse_arguments("s=str"), PointOptions(by=("return", "comm")))
    assert [(each.kind, each.phase) for each in plan.operations] == [("KEY_COMM", 0), ("SET", 1), ("KEY_NUMBER", 1)]
    assert plan.flags == ("QUIET", "AT_EXIT") and [key["name"] for key in plan.keys] == ["comm", "return"]
    assert make_plan((), PointOptions(by=(), histogram="duration")).flags == ("QUIET", "AT_EXIT")


def test_what_the_kernel_side_is_told() -> None:
    operation = Operation("BUFFER", 1, 2, 65, 16, ("OPERATION_SIGNED",), 3, 0, -8, 4096)
    packed = operation.packed()
    assert packed.hex() == "05010241" + "10010300" + "f8ffffff" + "00100000" + "00" * 8
    assert len(packed) == wire_layout().btf.dtype("call_operation").itemsize
    point = Plan((operation,), (0, 4), ("QUIET",), 7, 9).packed(5, ("HAS_RETURN",), 2)
    flags = constants("call_point_flag")
    expected = [5, 1, flags["POINT_QUIET"] | flags["POINT_HAS_RETURN"], 7, 9, 4 << 8, 0, 2]
    assert [int.from_bytes(point[at : at + 4], "little") for at in range(0, len(point), 4)] == expected


def test_locations() -> None:
    assert parse_location("arg3", "") == Location(3)
    assert parse_location("sp+0x30-0x2c", "") == Location(7, (4,), False)
    assert parse_location("arg0.", "") == Location(0, (0, 0), False)
    names = ("rdi", "r9", "rax", "rsp", "r15") if IS_X86 else ("x0", "x5", "x0", "sp", "x10")
    assert REGISTERS[names[0]] == 0 and REGISTERS[names[1]] == 5 and REGISTERS["ret"] == 6 and REGISTERS[names[3]] == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizet", "no type 'sizet'. Near: size_t, ssize_t"),
        ("timespek", "no type 'timespek'. Near: timespec"),
        ("buf", "buf: buf takes a length"),
        ("buf:0", "buf takes a length in bytes, 1 to 32768"),
        ("buf:size", "arg0: no register or argument 'size'"),
        ("buf:s,s=str", "s is a str, no length"),
        ("str:40000", "str takes a length in bytes, 1 to 32767"),
        ("int:4", "int32 takes no length"),
        ("int:rqx", "no register 'rqx'. Near:"),
        ("int:sp+", "'.' is no offset"),
        ("int:arg1+0x100000000", "an offset of more than 31 bits"),
        ("str@late", "behind @ stands exit or both, not 'late'"),
        ("int@exit", "is looked at when the call begins. Write \\*int32, or int32:ret"),
        ("str:ret@both", "there is no return value at the entry"),
        ("double", "vector registers, which have such arguments, are not read"),
        ("a=int,a=int", "two arguments are named a"),
        ("int[0]", "an array of 1 to 8192 such members"),
        ("str[100]", "a number of texts, 1 to 64"),
        ("utsname[arg1]", "members of 390 bytes are read only in a constant number"),
        ("int_arr", "int_arr takes the number of its members"),
        ("str:8:arg0:arg1", "too many parts"),
        ("buf:n,n=*int@exit", "n is known at the exit only"),
        (",".join(["str:arg0"] * 65), "a point does at most 64 operations"),
    ],
)
def test_what_cannot_be(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(parse_arguments(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fd", "is no filter"),
        ("fd = 3", "= is no operator. Write == or \\^="),
        ("fd ^= 3", "\\^= is not for int32"),
        ("fd == 0x1ffffffff", "is no int32: -2147483648 to 2147483647"),
        ("path < 3", "< is for numbers, path is str"),
        ("data ^= 0x123", "is no even number of hexadecimal digits"),
        ("to == 1.2.3", "is no address"),
        ("late == 3", "filters are asked when a call begins, late is known at its end"),
        ("path ^= " + "x" * 300, "a value of 1 to 256 bytes"),
        ("pat == x", "no point has an argument 'pat'. Near: path"),
        ("other*:path == x", "no point has an argument 'path'"),
    ],
)
def test_filters_that_cannot_be(text: str, message: str) -> None:
    arguments = parse_arguments("fd=int,path=str,data=buf:9,to=sockaddr,late=*int:arg0@exit")
    with pytest.raises(UsageError, match=message):
        asked = (parse_filter(text),)
        make_plan(arguments, PointOptions(asked), ("f", None))
        check_filters(asked, [(arguments, ("f", None))])


def test_limits_are_those_of_the_kernel_side() -> None:
    assert (limit("OPERATIONS_MAX"), limit("PIECE_MAX"), limit("ARGUMENTS")) == (64, 32768, 6)
