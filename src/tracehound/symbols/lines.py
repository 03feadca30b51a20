"""Source files, lines and inlined functions of places in code; read when first asked for.

From DWARF, of the file itself or its debug file, by symbolic, which makes one table of all of it; that table is kept
by build id. Of Go programs without DWARF from their own table, without inlined functions. Left out: columns, split
DWARF, what a debug file has in a file of its own (DW_FORM_GNU_*_alt).
"""

import os
import stat
from threading import Lock
from typing import Any, Final, NamedTuple

from tracehound.symbols import cache
from tracehound.symbols.demangle import demangle
from tracehound.symbols.elf import DEBUG_FOLDER, PT_LOAD, SHT_NOBITS, Elf, FileBytes
from tracehound.symbols.module import Module, status_identity

SIZE_LIMIT: Final = 1 << 30  # bytes of a file that is read for its lines
MEMO: Final = 1 << 16  # places that are kept
_BUILDING: Final = Lock()


class Line(NamedTuple):
    """A function at a place: `file` is "" and `line` 0 where nothing says; `is_inlined`: into the one after it."""

    function: str
    file: str
    line: int
    is_inlined: bool


def lines_of(module: Module, offset: int) -> list[Line]:
    """Return the functions at a byte of the file, the innermost first: inlined ones, then the one they are in.

    Of a return address ask for one byte before. Empty where no symbol says so.
    """
    memo = module.notes.setdefault("lines", {})
    found = memo.get(offset)
    if found is None:
        if len(memo) >= MEMO:
            memo.clear()
        found = memo[offset] = _look_up(module, offset)
    return list(found)


def _look_up(module: Module, offset: int) -> tuple[Line, ...]:
    address = module.address_of(offset)
    if address is None:
        return ()
    named = module.symbol_at(offset)
    table = _table(module)
    if table is not None:
        # Its addresses count from the first segment that is loaded
        base = next((one.address for one in module.elf.segments if one.kind == PT_LOAD), 0)
        rows = table.lookup(address - base) if address >= base else ()
        if rows:
            found = [Line(demangle(row.symbol) or "?", row.full_path or "", row.line, True) for row in rows]
            # Of its aliases it is called as everywhere else
            found[-1] = found[-1]._replace(function=named[0] if named else found[-1].function, is_inlined=False)
            return tuple(found)
    file, line = module.go.line_of(address) or ("", 0) if module.go else ("", 0)
    return (Line(named[0], file, line, False),) if named else ()


def _table(module: Module) -> Any:
    """Return symbolic's table of a module, None if nothing has lines for it."""
    with _BUILDING:
        if "line table" not in module.notes:
            module.notes["line table"] = _open_table(module)
    return module.notes["line table"]


def _open_table(module: Module) -> Any:
    source = next((elf for elf in (module.elf, module.debug) if elf is not None and _has_lines(elf)), None)
    if source is None or len(source.data) > SIZE_LIMIT:
        return None
    from symbolic.exceptions import SymbolicError
    from symbolic.symcache import SymCache

    open_table: Any = SymCache.from_bytes
    of = _identity(module, source).encode()
    kept = cache.load(module.identity, "lines", module.cache_folder)
    try:
        if kept and bytes(kept.get("of", b"")) == of:
            table = bytes(kept["table"])
        else:
            table = _make_table(source)
            cache.store(module.identity, "lines", {"of": of, "table": table}, module.cache_folder)
        module.notes_bytes += len(table)
        return open_table(table)
    except (SymbolicError, ValueError, OSError):
        return None  # damaged: as if it were not there


def _make_table(source: Elf) -> bytes:
    from symbolic.debuginfo import Archive

    if isinstance(source.data, FileBytes) and _is_the_systems(source.name, source.data.status):
        return _convert(Archive.open(f"/proc/self/fd/{source.data.fileno()}"))
    # Read, not mapped: the user of a traced program may truncate its file. An archive does not hold its bytes: we do
    data = source.data if isinstance(source.data, bytes) else source.data[:]
    table = _convert(Archive.from_bytes(data))
    del data
    return table


def _convert(archive: Any) -> bytes:
    objects = list(archive.iter_objects())
    if len(objects) != 1:
        raise ValueError(f"{len(objects)} objects")
    with objects[0].make_symcache().open_stream() as stream:
        table: bytes = stream.read()
    return table


def _is_the_systems(name: str, status: os.stat_result) -> bool:
    """Tell whether it is a package's debug file, which is replaced and not written into."""
    is_roots = status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_roots and name.startswith(f"{DEBUG_FOLDER}/")


def _identity(module: Module, source: Elf) -> str:
    if source is module.elf:
        return module.file_identity
    assert isinstance(source.data, FileBytes)
    return status_identity(source.data.status)


def _has_lines(elf: Elf) -> bool:
    for name in (".debug_line", ".zdebug_line"):
        section = elf.sections.get(name)
        if section is not None and section.kind != SHT_NOBITS and section.size:
            return True
    return False
