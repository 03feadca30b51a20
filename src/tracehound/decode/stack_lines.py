"""Source files, lines and inlined functions for rows of `stacks`, when somebody asks: DWARF is dear to read.

The files must be on this machine, with the build ids that the frames have; a frame whose file is not stays as it is.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tracehound.errors import TargetError
from tracehound.symbols.address_space import FileKey
from tracehound.symbols.lines import Line, lines_of
from tracehound.symbols.mapped_files import open_local
from tracehound.symbols.module import Module
from tracehound.tables import TABLES, arrow_schema

NO_DEVICE: Final = (0, 0)
Frame = dict[str, Any]


def add_lines(stacks: pa.Table, module_of: Callable[[FileKey], Module | None] = open_local) -> pa.Table:
    """Return rows of `stacks` with `source` and `line`, and a frame of its own, `inlined`, for each inlined function.

    `module_of` opens a file by build id and path. `depth` counts no inlined frames.
    """
    known: dict[tuple[str, str], Module | None] = {}
    memo: dict[tuple[str, str, int], list[Line]] = {}

    def lines(frame: Frame) -> list[Line]:
        build_id, file, offset = frame["build_id"], frame["file"], frame["file_offset"]
        if not build_id or offset is None:
            return []
        if (build_id, file) not in known:
            key = FileKey(bytes.fromhex(build_id), NO_DEVICE, 0, file.encode("utf-8", "surrogateescape"))
            known[build_id, file] = module_of(key)
        module = known[build_id, file]
        if (build_id, file, offset) not in memo:
            memo[build_id, file, offset] = _lines_at(module, offset) if module is not None else []
        return memo[build_id, file, offset]

    frames = [
        None if stack is None else [one for frame in stack for one in _expanded(frame, lines(frame))]
        for stack in stacks["frames"].to_pylist()
    ]
    place = stacks.schema.get_field_index("frames")
    field = arrow_schema(TABLES["stacks"]).field("frames")
    return stacks.set_column(place, field, pa.array(frames, field.type))


def _lines_at(module: Module, offset: int) -> list[Line]:
    try:
        return lines_of(module, offset)
    except TargetError:  # a damaged file has no lines
        return []


def _expanded(frame: Frame, lines: list[Line]) -> list[Frame]:
    """Return a frame with its line, behind those of the functions that are inlined there."""
    found = []
    for line in lines:
        told = {"source": line.file or None, "line": line.line or None, "inlined": line.is_inlined}
        if line.is_inlined:
            told |= {"symbol": line.function, "symbol_offset": None}
        found.append(frame | told)
    return found or [frame]
