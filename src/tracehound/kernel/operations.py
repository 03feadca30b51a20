"""What is done at a point: the operations of bpf/include/call_point.h, made here and packed as they stand there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np

from tracehound.btf import wire_layout
from tracehound.errors import UsageError

ENTRY, EXIT = 0, 1
CONSTANT: Final = 0xFF  # OPERAND_CONSTANT
SP, RETURN, DURATION = 7, 6, 60  # of enum call_operand


@cache
def constants(enum: str) -> Mapping[str, int]:
    """Return the enumerators of one enum of call_point.h."""
    return wire_layout().enum(enum)


def limit(name: str) -> int:
    """Return one of the limits of call_point.h."""
    return constants("call_limit")[f"CALL_{name}"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: struct call_operation; `text`: what a MATCH_BYTES compares with."""

    kind: str
    phase: int = ENTRY
    base: int = CONSTANT
    length: int = CONSTANT
    size: int = 0
    flags: tuple[str, ...] = ()
    piece: int = 0
    group: int = 0
    offset: int = 0
    max: int = 0
    constant: int = 0
    text: bytes | None = None

    def packed(self, text_number: int = 0) -> bytes:
        """Return it as it stands in the table of operations; `text_number`: where its text is."""
        row = np.zeros(1, wire_layout().btf.dtype("call_operation"))
        row["kind"] = constants("call_operation_kind")[f"OPERATION_{self.kind}"]
        row["flags"] = sum(constants("call_operation_flag")[name] for name in self.flags)
        for name in ("phase", "base", "length", "size", "piece", "group", "offset", "max"):
            row[name] = getattr(self, name)
        row["constant"] = (self.constant if self.text is None else text_number) & (1 << 64) - 1
        return row.tobytes()


def packed_text(text: bytes) -> bytes:
    """Return a text as struct call_text."""
    row = np.zeros(1, wire_layout().btf.dtype("call_text"))
    row["size"] = len(text)
    row["bytes"][0, : len(text)] = np.frombuffer(text, np.uint8)
    return row.tobytes()


@dataclass(slots=True)
class Operations:
    """A list of operations that grows; raises UsageError when it is longer than the kernel side runs."""

    listed: list[Operation] = field(default_factory=list)
    pieces: list[int] = field(default_factory=lambda: [0, 0])  # of an entry record, of a return record
    groups: int = 0

    def add(self, operation: Operation) -> int:
        """Add one; return the operand that its result is."""
        if len(self.listed) >= limit("OPERATIONS_MAX"):
            raise UsageError(
                f"a point does at most {limit('OPERATIONS_MAX')} operations: name fewer arguments or filters"
            )
        self.listed.append(operation)
        return constants("call_operand")["OPERAND_RESULT"] + len(self.listed) - 1

    def next_piece(self, phase: int) -> int:
        """Return the number of the next piece of a record."""
        self.pieces[phase] += 1
        return self.pieces[phase] - 1

    def next_group(self) -> int:
        """Return a group of filters that is new."""
        if self.groups >= 64:
            raise UsageError("a point has at most 64 filters that must match")
        self.groups += 1
        return self.groups - 1
