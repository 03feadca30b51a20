"""Settings of a trace: one schema for the command line and the library."""

from dataclasses import dataclass
from typing import Final

from tracehound.errors import UsageError

MIB: Final = 1 << 20


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
    off: frozenset[str] = frozenset()  # switches that are off at the start: processes, tcp, requests ...

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
