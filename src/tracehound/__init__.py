"""Tracehound shows what Linux programs really do, from outside, with eBPF."""

from typing import TYPE_CHECKING, Any

from tracehound.errors import (
    AttachError,
    KernelError,
    LayoutError,
    LoadError,
    NotSupported,
    PermissionDenied,
    ProtocolError,
    QueryError,
    RecordingError,
    SinkError,
    TargetError,
    TracehoundError,
    UsageError,
)

if TYPE_CHECKING:
    from tracehound.live import LiveTrace, TableView, trace
    from tracehound.opened import Opened
    from tracehound.opened import open_kept as open

_HOMES = {
    "LiveTrace": "tracehound.live",
    "Opened": "tracehound.opened",
    "TableView": "tracehound.live",
    "open": "tracehound.opened",
    "trace": "tracehound.live",
}
_NAMES = {"open": "open_kept"}  # in their homes, where that is another one

__all__ = [
    "AttachError",
    "KernelError",
    "LayoutError",
    "LiveTrace",
    "LoadError",
    "NotSupported",
    "Opened",
    "PermissionDenied",
    "ProtocolError",
    "QueryError",
    "RecordingError",
    "SinkError",
    "TableView",
    "TargetError",
    "TracehoundError",
    "UsageError",
    "open",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), _NAMES.get(name, name))
    raise AttributeError(f"module 'tracehound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
