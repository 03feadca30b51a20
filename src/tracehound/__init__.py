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

_HOMES = {"LiveTrace": "tracehound.live", "TableView": "tracehound.live", "trace": "tracehound.live"}

__all__ = [
    "AttachError",
    "KernelError",
    "LayoutError",
    "LiveTrace",
    "LoadError",
    "NotSupported",
    "PermissionDenied",
    "ProtocolError",
    "QueryError",
    "RecordingError",
    "SinkError",
    "TableView",
    "TargetError",
    "TracehoundError",
    "UsageError",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tracehound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
