"""ELF files with bytes changed where they are read, or cut off, and all that can be asked of one."""

import random
from pathlib import Path
from typing import Final

import numpy as np

from tracehound.errors import NotSupported, TargetError
from tracehound.symbols.elf import PT_LOAD, Elf
from tracehound.symbols.instructions import analyse, starts
from tracehound.symbols.lines import lines_of
from tracehound.symbols.module import Module

NO_FOLDER: Final = Path("/dev/null/none")  # where nothing can be kept
READ: Final = (
    *(".symtab", ".strtab", ".dynsym", ".dynstr", ".shstrtab", ".eh_frame", ".eh_frame_hdr", ".note.gnu.build-id"),
    *(".gnu_debugdata", ".gnu_debuglink", ".gopclntab", ".debug_info", ".debug_line", ".debug_abbrev", ".rela.dyn"),
)
VALUES: Final = (b"\xff" * 8, bytes(8), b"\0\0\0\x7f\0\0\0\0", b"\xff\xff\xff\x7f\0\0\0\0", b"\0\0\0\x10\0\0\0\0")


def damage(content: bytes, rolls: random.Random) -> bytes:
    """Return a file's bytes, some of them others: most of a file is code, so headers and tables are hit more often."""
    elf = Elf(content)
    headers = 64 * len(elf.sections)
    places = [(0, 64), (64, 56 * len(elf.segments)), (len(content) - headers, headers)]
    places += [(one.offset, min(one.size, 1 << 16)) for name, one in elf.sections.items() if name in READ and one.size]
    broken = bytearray(content)
    for _ in range(rolls.choice((1, 1, 2, 8, 64))):
        start, size = rolls.choice(places)
        at, width = start + rolls.randrange(size), rolls.choice((1, 2, 4, 8))
        broken[at : at + width] = rolls.choice((*VALUES, rolls.randbytes(8)))[:width]
    return bytes(broken[: len(broken) if rolls.random() < 0.8 else rolls.randrange(len(broken))])


def read_everything(content: bytes) -> bool:
    """Ask a module of these bytes all there is; False where it is refused, with an error for users."""
    try:
        module = Module(Elf(content, "damaged"), None, NO_FOLDER)
        functions = module.functions("*")
        module.near("recurze")
        analyse(module, functions[:5])
        for one in functions[:20]:
            found = module.symbol_at(one.offset)
            assert found is None or found[1] >= 0
            assert all(one.offset <= at < one.offset + one.size for at in starts(module, one).tolist())
            lines_of(module, one.offset)
        places = [segment.offset for segment in module.elf.segments if segment.kind == PT_LOAD]
        module.symbols_at(np.array([*places, 1 << 63], dtype="u8"))
        module.load_bias(1 << 47, places[0] if places else 0)
        assert len(module.rows) >= 0
    except (TargetError, NotSupported):  # the latter for another machine
        return False
    return True
