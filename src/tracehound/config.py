"""Settings of a trace: one schema for the command line and the library."""

import json
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

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


WAITING_BYTES: Final = 2048  # what a request without an answer takes, with its texts


class Budgets(NamedTuple):
    """What `memory_mib` is divided into. Records are there three times while decode catches up: arena, batch, merge."""

    backlog_bytes: int
    lifecycle_backlog_bytes: int
    windows_bytes: int
    waiting_requests: int


@dataclass(frozen=True, slots=True)
class Settings:
    """How to trace. Sizes are in MiB; rings must be powers of two; budgets are of user memory.

    The backlogs are what they say or their share of `memory_mib`, whichever is less.
    """

    memory_mib: int = 256
    ring_mib: int = 16
    lifecycle_ring_mib: int = 4
    backlog_mib: int = 64
    lifecycle_backlog_mib: int = 16
    response_timeout_s: float = 300.0
    files: bool = False  # opens of files: each system call of each process of the machine takes some 0.1 µs longer
    nat: bool | None = None  # addresses after NAT; None: where this network namespace has rules of it
    btf: str | None = None
    redact: bool = True
    payloads: bool = False  # rows of `payloads`: the captured bytes themselves, which nothing redacts
    filters: tuple[Filter, ...] = ()
    off: frozenset[str] = frozenset()  # switches that are off at the start: processes, tcp, requests ...
    tape_mib: int = 1024  # a tape grows no larger

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming the setting."""
        for name in ("ring_mib", "lifecycle_ring_mib"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise UsageError(f"--{name.replace('_', '-')} must be a power of two, not {value}")
        for name in ("memory_mib", "backlog_mib", "lifecycle_backlog_mib", "tape_mib"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.response_timeout_s <= LONGEST_TIMEOUT_S:  # false of NaN too
            limits = f"above 0 and at most {LONGEST_TIMEOUT_S:.0f}"
            raise UsageError(f"--response-timeout must be {limits}, not {self.response_timeout_s:g}")

    @property
    def budgets(self) -> Budgets:
        """How the memory is divided: 3 of 16 parts for data, 1 for lifecycle, 2 for windows, 2 for requests."""
        part = self.memory_mib * MIB // 16
        backlog, lifecycle = min(self.backlog_mib * MIB, 3 * part), min(self.lifecycle_backlog_mib * MIB, part)
        return Budgets(backlog, lifecycle, 2 * part, max(2 * part // WAITING_BYTES, 1))

    def to_text(self) -> str:
        """Return as JSON what changes the rows of a trace, for a `fact_config` record."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return json.dumps(kept | {"filters": [[each.name, each.is_only, each.value] for each in self.filters]})

    @classmethod
    def from_text(cls, text: str | bytes, **given: Any) -> "Settings":
        """Return the settings that `to_text` told, with those given; what another version told is passed over.

        Raises UsageError for a text or a value that cannot be.
        """
        try:
            told = json.loads(text)
            known = {name: told[name] for name in _KEPT if name in told}
            filters = tuple(Filter(str(name), bool(sense), value) for name, sense, value in told.get("filters", ()))
            return cls(**known, filters=filters, **given)
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"no settings of a trace: {error}") from error


_KEPT: Final = tuple(
    field.name for field in fields(Settings) if field.name not in ("btf", "redact", "filters", "off", "tape_mib")
)
