"""One system call as it was seen: its registers, what they pointed to, and its result."""

from dataclasses import dataclass, field
from typing import Final

ENTRY: Final = 0
EXIT: Final = 1
ERRORS_FROM: Final = -4095

Piece = tuple[bytes, bool]  # the bytes, and whether there was more


@dataclass(slots=True)
class Hit:
    """One call: registers, pieces by (phase, argument, part), and the result, None while it has none."""

    registers: tuple[int, ...]
    pieces: dict[tuple[int, int, str], Piece] = field(default_factory=dict)
    result: int | None = None
    limit: int = 32
    shows_data: bool = True

    @property
    def failed(self) -> bool:
        """Tell whether it returned an error."""
        return self.result is not None and ERRORS_FROM <= self.result < 0

    @property
    def succeeded(self) -> bool:
        """Tell whether it returned without one."""
        return self.result is not None and not self.failed

    def number(self, argument: int, kind: str = "u", bits: int = 64) -> int:
        """Return a register as a number of so many bits, `kind` i: signed."""
        value = self.registers[argument] & ((1 << bits) - 1)
        return value - (1 << bits) if kind == "i" and value >> bits - 1 else value

    def piece(self, phase: int, argument: int, part: str = "", least: int = 0) -> bytes | None:
        """Return the bytes of a piece, None if it could not be read or has fewer than `least`."""
        found = self.pieces.get((phase, argument, part))
        return None if found is None or len(found[0]) < least else found[0]
