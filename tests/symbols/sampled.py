"""Stopped threads through the whole way of stacks: record, memory as it is followed, decode, rows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.decode.stack_records import MS, add_stack, writer
from tests.symbols.stopped import Captured, capture, gdb_stack

from tracehound.batch import Batch, split
from tracehound.btf import wire_layout
from tracehound.decode.stacks import StackDecoder
from tracehound.mappings import Mappings
from tracehound.symbols.module_store import ModuleStore


@dataclass
class Sampled:
    """A row of `stacks`, the addresses that gdb has (empty if it was not asked), and what was captured."""

    row: dict[str, Any]
    gdb: list[int]
    captured: Captured

    @property
    def addresses(self) -> list[int]:
        return [frame["address"] for frame in self.row["frames"]]

    @property
    def symbols(self) -> list[str | None]:
        return [frame["symbol"] for frame in self.row["frames"]]


def sample(
    pid: int,
    tid: int,
    stack_bytes: int = 65536,
    with_gdb: bool = True,
    before_listing: Callable[[], object] = lambda: None,
    before_decode: Callable[[], object] = lambda: None,
) -> Sampled:
    """Sample a thread that stands still.

    `before_listing` is called when gdb, who reads files by their names, has been asked, and before anything else reads
    one; `before_decode` when the files are open, and before one is read.
    """
    layout, facts, made = wire_layout(), writer(), writer()
    captured = capture(pid, tid, stack_bytes, with_files=False)
    expected = gdb_stack(pid, tid) if with_gdb else []
    ip, sp, bp = (int(captured.samples[name][0]) for name in ("ip", "sp", "bp"))
    add_stack(made, 1, pid, (ip, sp, bp), captured.stack)
    drained = split(made.take(), layout)
    with Mappings(facts, layout) as mappings:
        before_listing()
        mappings.look_at([drained])
        before_decode()
        told = split(facts.take(), layout)
        decoder = StackDecoder(layout, ModuleStore(mappings.files.module_of))
        rows = decoder.take(Batch(drained.records | told.records, 9 * MS))
        assert rows is not None
        (stack_id,) = decoder.stack_of(np.array([1], np.uint64)).to_pylist()
    (row,) = rows.to_pylist()
    assert row["stack_id"] == stack_id
    return Sampled(row, expected, captured)


def is_gone(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:  # newer kernels: no such process, once its memory is gone
        return True
