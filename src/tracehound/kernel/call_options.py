"""What `call` takes at each hit beside the arguments: registers, a copy of the stack, a signal; what it watches."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from tracehound.errors import UsageError
from tracehound.kernel.perf import ExtraOptions, default_pages, own_registers

if TYPE_CHECKING:
    from tracehound.kernel.watch_places import Watch

WATCH_RATE_DEFAULT: Final = 10_000


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What is taken at each hit.

    `registers`: names of those that rows show. `stack_bytes`: how much of the stack is copied, 0: nothing. `signal`:
    the number of what the process is sent, 0: nothing; `resumes`: it is continued as soon as the hit was read.
    `watch_rate`: a watch with more hits in a second than this is ended.
    """

    registers: tuple[str, ...] = ()
    stack_bytes: int = 0
    perf_pages: int = field(default_factory=default_pages)
    signal: int = 0
    resumes: bool = False
    watches: "tuple[Watch, ...]" = ()
    watch_rate: int = WATCH_RATE_DEFAULT

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming the option."""
        _ = self.extra
        if self.resumes and not self.signal:
            raise UsageError(
                "--resume continues what --signal has stopped: name that too, as in --signal STOP --resume"
            )
        if self.watch_rate < 1:
            raise UsageError(f"--watch-rate must be at least 1, not {self.watch_rate}")

    @property
    def has_rings(self) -> bool:
        """Whether hits have records of registers or stacks."""
        return bool(self.registers or self.stack_bytes)

    @property
    def extra(self) -> ExtraOptions:
        """What the rings of these records take; a stack needs all registers and has the call chain for its depth."""
        known = own_registers()
        names = known if self.stack_bytes else self.registers
        mask = sum({1 << known[name] for name in names})
        return ExtraOptions(mask, self.stack_bytes, has_chain=bool(self.stack_bytes))


def parse_registers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the registers that are named, each once; raises UsageError with near matches."""
    known = own_registers()
    names = dict.fromkeys(name.strip().lower() for text in texts for name in text.split(","))
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 3, 0.5)
            raise UsageError(f"no register {name or '(nothing)'}. {'Near' if near else 'There are'}: "
                             + ", ".join(near or known))  # fmt: skip
    return tuple(names)


def parse_signal(text: str) -> int:
    """Return the number of a signal, named as in kill(1) or by number; raises UsageError with near matches."""
    names = {each.name.removeprefix("SIG"): int(each) for each in signal.Signals}
    name = text.upper().removeprefix("SIG")
    if name in names:
        return names[name]
    if text.isdecimal() and 0 < int(text) <= signal.SIGRTMAX:
        return int(text)
    near = get_close_matches(name, names, 3, 0.6)
    raise UsageError(f"no signal {text}. {'Near' if near else 'There are'}: {', '.join(near or names)}")
