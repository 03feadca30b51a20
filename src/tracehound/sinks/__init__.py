"""Where rows go. Each module here without an underscore is one kind of output and exports one `SINK`."""

import importlib
import pkgutil

from tracehound.errors import UsageError
from tracehound.sinks._follow import FollowSink, Row
from tracehound.sinks._sink import Sink, SinkKind, Source
from tracehound.sinks._where import WhereSink, where_rows

__all__ = ["FollowSink", "Row", "Sink", "SinkKind", "Source", "WhereSink", "kind", "names", "where_rows"]


def names() -> tuple[str, ...]:
    """Return the names of all kinds of output, in order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


def kind(name: str) -> SinkKind:
    """Return the kind of output called `name`; raises UsageError."""
    if name not in names():
        raise UsageError(f"no output {name}. Outputs: {', '.join(names())}")
    found: SinkKind = importlib.import_module(f"{__name__}.{name}").SINK
    return found
