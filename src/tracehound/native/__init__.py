"""The C of user space: splitting records, the drain thread, protocol detection, libbpf.

`ffi` and `lib` are those of the compiled module `_native` (cffi, API mode: every call releases the GIL); it is loaded
at their first use, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracehound.native._native import ffi, lib

__all__ = ["detect", "ffi", "lib"]


def detect(head: bytes, direction: int, transport: int, port: int) -> tuple[int, int]:
    """Judge the first bytes of one direction as the kernel would.

    Takes numbers of `enum direction`, IPPROTO_* and the server's port; returns one of `enum l7_protocol` (0: none) and
    one of `enum l7_match`.
    """
    from tracehound.native._native import lib

    verdict = lib.detect(head, len(head), direction, transport, port)
    return verdict >> 8, verdict & 0xFF


def __getattr__(name: str) -> Any:
    if name in ("ffi", "lib"):
        from tracehound.native import _native

        globals().update(ffi=_native.ffi, lib=_native.lib)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
