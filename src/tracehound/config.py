"""Settings of a trace: one schema for the command line and the library."""

from dataclasses import dataclass
from typing import Final

from tracehound.errors import UsageError

MIB: Final = 1 << 20
LONGEST_TIMEOUT_S: Final = 1e9  # as nanoseconds an int64 holds it beside any clock


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
    """How to trace. Sizes are in MiB; rings must be powers of two; budgets are of user memory.

    `memory_mib` is the whole budget: a quarter for data that waits, a sixteenth for lifecycle records, a quarter for
    the windows of half messages; the rest is for what waits in tables.
    """

    memory_mib: int = 256
    ring_mib: int = 16
    lifecycle_ring_mib: int = 4
    backlog_mib: int | None = None
    lifecycle_backlog_mib: int | None = None
    response_timeout_s: float = 300.0
    files: bool = False  # opens of files: each system call of each process of the machine takes some 0.1 µs longer
    nat: bool | None = None  # addresses after NAT; None: where this network namespace has rules of it
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
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.response_timeout_s <= LONGEST_TIMEOUT_S:  # false of NaN too
            limits = f"above 0 and at most {LONGEST_TIMEOUT_S:.0f}"
            raise UsageError(f"--response-timeout must be {limits}, not {self.response_timeout_s:g}")

    @property
    def backlog_bytes(self) -> int:
        """How much data may wait for decode."""
        return self.backlog_mib * MIB if self.backlog_mib is not None else self.memory_mib * MIB // 4

    @property
    def lifecycle_backlog_bytes(self) -> int:
        """How much may wait of processes and connections."""
        own = self.lifecycle_backlog_mib
        return own * MIB if own is not None else self.memory_mib * MIB // 16

    @property
    def windows_bytes(self) -> int:
        """How much may be kept of messages that are not complete."""
        return self.memory_mib * MIB // 4
