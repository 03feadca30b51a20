"""Raw records of stacks and memory, as the perf reader and `mappings` make them, and a small file to walk over."""

import random
import struct
from collections.abc import Sequence

import numpy as np

from tracehound.batch import Batch, split
from tracehound.btf import wire_layout
from tracehound.mappings import add_mapping, add_module
from tracehound.procfs import FactWriter
from tracehound.symbols import ehframe
from tracehound.symbols.address_space import FileKey, Mapped
from tracehound.symbols.ehframe import ROW
from tracehound.symbols.functions import Symbols
from tracehound.symbols.stack_module import StackModule
from tracehound.symbols.unwind import Table

MASK = 0xFF0FFF  # what perf gives on x86-64: all but the segment registers
MS = 1_000_000
USER = (1 << 64) - 512
KERNEL = (1 << 64) - 128


def writer() -> FactWriter:
    return FactWriter(wire_layout())


def batch_of(facts: FactWriter, watermark_ns: int = 0) -> Batch:
    """Return what was queued as a batch that went through the merge."""
    found = split(facts.take(), wire_layout())
    return Batch(found.records, watermark_ns)


def add_stack(
    facts: FactWriter,
    call: int,
    pid: int,
    registers: tuple[int, int, int],
    stack: bytes,
    *,
    time_ns: int = MS,
    chain: Sequence[int] = (),
    slots: Sequence[tuple[int, int]] = (),
    asked: int = 65536,
    **fields: int,
) -> None:
    """Queue a call_stack record; `registers`: ip, sp, bp; `fields` replace what follows from the rest."""
    ip, sp, bp = registers
    bits = [bit for bit in range(64) if MASK >> bit & 1]
    values = [{8: ip, 7: sp, 6: bp}.get(bit, 0xDEAD0000 + bit) for bit in bits]
    words = [*values, *chain, *(word for pair in slots for word in pair)]
    known = {
        "pid": pid,
        "tid": pid,
        "call": call,
        "abi_registers": MASK,
        "abi": 2,
        "register_count": len(bits),
        "chain_count": len(chain),
        "slot_count": len(slots),
        "stack_size": len(stack),
        "stack_asked": asked,
    }
    facts.add("call_stack", time_ns, known | fields, struct.pack(f"<{len(words)}Q", *words) + stack)


# A file of four functions: a leaf, one with a frame of 32 bytes, the outermost one, and one that no row covers
ROWS = np.array(
    [
        (0x100, 8, ehframe.RSP, 0),
        (0x200, 40, ehframe.RSP, 0),
        (0x300, 0, ehframe.END, 0),
        (0x400, 0, ehframe.GAP, 0),
    ],
    ROW,
)
SYMBOLS = Symbols(
    np.array([0x1100, 0x1200, 0x1300, 0x1400], np.uint64),
    np.full(4, 0x100, np.uint64),
    np.array([1, 6, 13, 19], np.uint32),
    np.full(4, 2, np.uint8),
    b"\0leaf\0middle\0outer\0bare\0",
)
BUILD_ID = bytes(range(20))
FILE = FileKey(BUILD_ID, (8, 1), 77, b"/bin/work")
MODULE = StackModule(BUILD_ID, 0x1000, [(0, 0x1000, 0x800)], Table(ROWS), SYMBOLS)
LISTED, FIRST = 1, 2
TEXT, OWN, SP = 0x7F0000000000, 0x7E0000000000, 0x7FFD00001000
LEAF, MIDDLE, OUTER, BARE = (TEXT + at for at in (0x110, 0x210, 0x310, 0x410))


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


WHOLE = words(MIDDLE, 1, 2, 3, 4, OUTER, 9)


def known(file: FileKey = FILE, start: int = TEXT, time_ns: int = 0) -> FactWriter:
    """Return a queue that tells of process 5 and its file."""
    facts = writer()
    add_module(facts, file, MODULE, 0)
    add_mapping(facts, 5, time_ns, Mapped(start, start + 0x1000, 0, file), LISTED | FIRST)
    add_mapping(facts, 5, time_ns, Mapped(OWN, OWN + 0x1000, 0, None), LISTED)
    return facts


def timeline(seed: int) -> bytes:
    """Return records of three processes over 400 ms, their order that of time, with a tick each 10 ms."""
    order = random.Random(seed)
    facts = known()
    for pid in (6, 7):
        add_mapping(facts, pid, 0, Mapped(TEXT, TEXT + 0x1000, 0, FILE), LISTED | FIRST)
    for call in range(400):
        time_ns, pid = (1 + call) * MS, order.choice((5, 6, 7))
        what = order.random()
        if what < 0.1:
            facts.add("exec", time_ns, {"pid": pid, "start_ns": 1})
        elif what < 0.2:
            add_mapping(facts, pid, time_ns, Mapped(TEXT, TEXT + 0x1000, 0, FILE), 0)
        else:
            registers = (order.choice((LEAF, MIDDLE, BARE)) + order.randrange(4), SP, SP)
            add_stack(facts, call, pid, registers, WHOLE[: order.choice((16, 40, 56))], time_ns=time_ns)
        if call % 10 == 9:
            facts.add("fact_tick", time_ns, {})
    return facts.take()
