"""The protocols that Tracehound reads. This directory is the registry: every module without underscore is one.

A module's name is the protocol's name everywhere, and its `PROTOCOL` all that the engine knows of it (`_protocol.py`).
Modules are imported when `load_protocols` is called, not before.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from tracehound.protocols._protocol import Protocol

__all__ = ["Protocol", "load_protocols"]


@cache
def load_protocols() -> tuple[Protocol, ...]:
    """Import every protocol module and return their `PROTOCOL`s, in order of their names."""
    names = sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(import_module(f"{__name__}.{name}").PROTOCOL for name in names)
