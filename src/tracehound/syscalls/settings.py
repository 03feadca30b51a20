"""What is copied of system calls in one trace: the kernel side does it, a fact tells it to decode."""

import json
import os
from dataclasses import dataclass
from typing import Final

FACT_POINT: Final = 0xFFFFFFFF  # number of the fact_point that has it
SYSCALLS_MAX: Final = 512  # numbers that the last points stand for


@dataclass(frozen=True, slots=True)
class SyscallSettings:
    """`limit`: bytes of a string or buffer at most. `with_data`: also bytes that a program moves (read, send, ...).

    `paths`: also what is behind each descriptor. `machine`: whose numbers the calls have.
    """

    limit: int = 32
    with_data: bool = False
    paths: bool = False
    machine: str = os.uname().machine

    def to_text(self) -> str:
        """Return it as the text of its fact."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_text(cls, text: bytes) -> "SyscallSettings":
        """Return what `to_text` gave."""
        return cls(**json.loads(text))
