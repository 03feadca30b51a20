"""Settings of a trace: one schema for the command line and the library."""

from dataclasses import dataclass
from typing import Final

from tracehound.errors import UsageError

MIB: Final = 1 << 20


IN_KERNEL: Final = ("uid", "pid", "comm", "port")
BY_ROW: Final = ("tid", "protocol")  # these leave out rows of requests


@dataclass(frozen=True, slots=True)
class Filter:
    """Only what has this value, or nothing that has it; several of one name and sense are alternatives."""

    name: str  # one of IN_KERNEL and BY_ROW
    is_only: bool
    value: int | str

    def __str__(self) -> str:
        return f"--{'only' if self.is_only else 'no'}-{self.name} {self.value}"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to trace. Sizes are in MiB; rings must be powers of two; budgets are of user memory."""

    memory_mib: int = 256
    ring_mib: int = 16
    lifecycle_ring_mib: int = 4
    backlog_mib: int = 64
    lifecycle_backlog_mib: int = 16
    response_timeout_s: float = 300.0
    btf: str | None = None
    redact: bool = True
    filters: tuple[Filter, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming the setting."""
        for name in ("ring_mib", "lifecycle_ring_mib"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise UsageError(f"--{name.replace('_', '-')} must be a power of two, not {value}")
        for name in ("memory_mib", "backlog_mib", "lifecycle_backlog_mib"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        if self.response_timeout_s <= 0:
            raise UsageError(f"--response-timeout must be above 0, not {self.response_timeout_s:g}")
