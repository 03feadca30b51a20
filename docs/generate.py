"""Writes the pages that follow from the source: docs/tables.md from tables.py, docs/wire.md from the BTF of wire.bpf.o.

    .venv/bin/python docs/generate.py [--check | --golden]

With --check nothing is written and the exit code says whether a page is out of date. With --golden it writes
tests/golden/wire.txt instead: do that when a record was meant to change, never to make a test pass.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from tracehound.btf import Layout, wire_layout
from tracehound.protocols import load_protocols
from tracehound.tables import TABLES, Column, requests_columns

ROOT: Final = Path(__file__).parents[1]
WIRE_H: Final = ROOT / "bpf" / "include" / "wire.h"

ROWS: Final[Mapping[str, str]] = {
    "processes": "one event of a process: start (fork), exec, exit (its last thread is gone)",
    "connections": "one event of a socket: open and accept (established), error (never was), close (the socket's end)",
    "listens": "a listening socket opened or closed",
    "retransmits": "one segment that was sent again",
    "files": "one open or creat that ended",
    "requests": "one request, written once: at the last byte of its answer, at the timeout or at close",
    "payloads": "one piece of a stream; off by default",
    "calls": "one call of a function, or one visit of a place, that `tracehound call` names",
    "stacks": "one distinct stack; calls have its stack_id",
    "probes": "one BPF program: whether it is attached, and what is missing without it",
    "losses": "one counter of what was lost, over one interval",
}
# events of coroot-node-agent's ebpftracer (and of forks of it) that a table has
COVERS: Final[Mapping[str, str]] = {
    "processes": "ProcessStart, ProcessExit (with its reason oom_kill)",
    "connections": "ConnectionOpen, ConnectionError, ConnectionClose; AcceptOpen, AcceptClose",
    "listens": "ListenOpen, ListenClose",
    "retransmits": "TCPRetransmit",
    "files": "FileOpen",
    "requests": "L7Request, of client and server",
    "payloads": "SocketData",
    "calls": "none: upstream has no probes of functions",
    "stacks": "none",
    "probes": "none: upstream logs it",
    "losses": "none: upstream logs lost samples",
}
NOT_IN_GOLDEN: Final = "l7_protocol"  # its numbers follow from the names in bpf/l7 and mean nothing


def tables_page() -> str:
    """Return docs/tables.md."""
    lines = [
        "# Tables",
        "",
        "Generated from `src/tracehound/tables.py` by `docs/generate.py`; change it there.",
        "",
        "Every row that Tracehound keeps or shows is a row of one of these Arrow tables. Times and durations are",
        "nanoseconds, moments those of CLOCK_MONOTONIC; positions and sizes are bytes. A column may be added; none",
        "changes its meaning. A column that nothing fills yet is null.",
    ]
    for table, columns in TABLES.items():
        shown = requests_columns(protocol_extras()) if table == "requests" else columns
        lines += ["", f"## {table}", "", f"One row: {ROWS[table]}.", f"Upstream events it covers: {COVERS[table]}."]
        lines += ["", "| column | type | what it says |", "|---|---|---|"]
        lines += [f"| `{column.name}` | {type_name(column)} | {column.doc} |" for column in shown]
    return "\n".join([*lines, ""])


def protocol_extras() -> list[Column]:
    """Return the columns that the protocols add to `requests`, in the order of their names."""
    return [column for protocol in load_protocols() for column in (*protocol.request_extras, *protocol.response_extras)]


def type_name(column: Column) -> str:
    """Return the Arrow type as TABLES spell it."""
    special = {
        "timestamp": "timestamp[ns, UTC]",
        "exchange": "fixed_size_binary(16)",
        "strings": "list&lt;string&gt;",
        "frames": "list&lt;struct&gt;",
    }
    return special.get(column.type, column.type)


def wire_page(layout: Layout) -> str:
    """Return docs/wire.md."""
    lines = [
        "# Records",
        "",
        "Generated from the BTF of `wire.bpf.o` by `docs/generate.py` (`bpf/include/wire.h`); change it there.",
        "",
        "What crosses from the kernel, and the facts that user space adds. The high byte of a kind is the ring it",
        "travels in. A tail is what follows the fixed part; in a ring, a record is padded to 8 bytes.",
    ]
    comments = member_comments(WIRE_H.read_text())
    for kind, name in layout.kinds.items():
        struct = f"{name}_record"
        dtype = layout.btf.dtype(struct)
        tail = ", then a tail" if layout.btf.has_tail(struct) else ""
        lines += ["", f"## {name}", "", f"`struct {struct}`, kind {kind:#06x}, {dtype.itemsize} bytes{tail}."]
        lines += ["", "| offset | member | type | |", "|---|---|---|---|"]
        lines += [
            f"| {offset} | `{member}` | {spelled} | {comments.get((struct, member), '')} |"
            for member, spelled, offset in members(dtype)
        ]
    lines += ["", "## record_header", "", "The first member of every record.", "", "| offset | member | type | |"]
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {offset} | `{member}` | {spelled} | {comments.get(('record_header', member), '')} |"
        for member, spelled, offset in members(layout.btf.dtype("record_header"))
    ]
    lines += ["", "## Enums"]
    for enum, values in enums(layout):
        lines += ["", f"`enum {enum}`", "", "| name | value |", "|---|---|"]
        lines += [f"| `{name}` | {value} |" for name, value in values.items()]
    return "\n".join([*lines, ""])


def wire_golden(layout: Layout) -> str:
    """Return tests/golden/wire.txt: every struct and enum of wire.h, one member a line."""
    lines: list[str] = []
    for struct in sorted(
        name for name in layout.btf.struct_names() if name.endswith("_record") or name == "record_header"
    ):
        dtype = layout.btf.dtype(struct)
        lines.append(f"struct {struct} {dtype.itemsize}{' + tail' if layout.btf.has_tail(struct) else ''}")
        lines += [f"  {offset:4} {member} {spelled}" for member, spelled, offset in members(dtype)]
    for enum, values in enums(layout):
        lines.append(f"enum {enum}")
        lines += [f"  {value:4} {name}" for name, value in values.items()]
    return "\n".join([*lines, ""])


def members(dtype: np.dtype[np.void]) -> Iterable[tuple[str, str, int]]:
    """Yield (name, type, offset) of each member."""
    assert dtype.names is not None and dtype.fields is not None
    for name in dtype.names:
        member, offset = dtype.fields[name][:2]
        yield name, "record_header" if member.fields else spell(member), offset


def spell(dtype: np.dtype[np.generic]) -> str:
    """Return `u32`, `char[16]`, `u8[16]`, ... of a dtype."""
    if dtype.subdtype is not None:
        inner, shape = dtype.subdtype
        return f"{spell(inner)}[{shape[0]}]"
    if dtype.kind == "S":
        return f"char[{dtype.itemsize}]"
    big = "be " if dtype.byteorder == ">" else ""
    return f"{big}{dtype.kind}{dtype.itemsize * 8}".replace("i", "s")


def enums(layout: Layout) -> list[tuple[str, dict[str, int]]]:
    """Return the enums of wire.h with their values, by name."""
    names = re.findall(r"^enum (\w+) \{", WIRE_H.read_text(), re.MULTILINE)
    return [(name, layout.enum(name)) for name in sorted(names) if name != NOT_IN_GOLDEN]


def member_comments(text: str) -> dict[tuple[str, str], str]:
    """Return the comment behind each member of each struct of wire.h."""
    comments: dict[tuple[str, str], str] = {}
    struct = ""
    for line in text.splitlines():
        if opened := re.match(r"struct (\w+) \{", line):
            struct = opened[1]
        if found := re.match(r"\t[\w ]+?(\w+)(?:\[\d*\])?;\s*/\*\s*(.+?)\s*\*/", line):
            comments[struct, found[1]] = found[2]
    return comments


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    return {ROOT / "docs" / "tables.md": tables_page(), ROOT / "docs" / "wire.md": wire_page(wire_layout())}


def main(arguments: list[str]) -> int:
    """Write the pages, or check them, or write the golden file; return the exit code."""
    if arguments == ["--golden"]:
        (ROOT / "tests" / "golden" / "wire.txt").write_text(wire_golden(wire_layout()))
        return 0
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if arguments == ["--check"]:
            print(f"{path.relative_to(ROOT)} is out of date; run: .venv/bin/python docs/generate.py")
        else:
            path.write_text(pages()[path])
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
