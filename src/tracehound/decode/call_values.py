"""Values of arguments as text: numbers, texts, bytes in hexadecimal, arrays, structs by the names of their members.

What could not be read is null, a null pointer is NULL, what was cut ends with \u2026.
"""

import ipaddress
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.call_types import NUMBERS, STRUCTS, struct_size
from tracehound.decode.tails import to_text

CUT: Final = "\u2026"
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10

Decode = Callable[[bytes], str]


def number_texts(registers: npt.NDArray[np.uint64], kind: str, is_hex: bool) -> pa.Array:
    """Return the low bytes of registers as a type's numbers; what is above them is not the argument's."""
    return numbers_to_text(np.ascontiguousarray(registers).view("u1").reshape(-1, 8), kind, is_hex)


def numbers_to_text(raw: npt.NDArray[np.uint8], kind: str, is_hex: bool) -> pa.Array:
    """Return rows of bytes, little-endian, of which each begins with a number of that type."""
    dtype = np.dtype("<" + NUMBERS[kind])
    values = np.ascontiguousarray(raw[:, : dtype.itemsize]).view(dtype).ravel()
    if dtype.kind == "f":
        return pa.array([f"{value:g}" for value in values.tolist()], pa.string())
    if not is_hex:
        return pa.array(values).cast(pa.string())
    distinct, inverse = np.unique(values.view(f"u{dtype.itemsize}"), return_inverse=True)
    return pa.array([f"{number:#x}" for number in distinct.tolist()], pa.string()).take(pa.array(inverse))


def piece_texts(pieces: pa.Array, argument: Mapping[str, Any]) -> pa.Array:
    """Return pieces, as `read` of kernel/arguments.py describes one, as text; those of numbers have their size."""
    form, kind = argument["form"], argument["type"]
    if form in ("str", "std"):
        return pc.fill_null(to_text(pieces), "")
    if form == "buf":
        return _by_value(pieces, bytes.hex)
    if form == "strings":
        return _by_value(pieces, _strings)
    if kind == "sockaddr":
        return _by_value(pieces, _sockaddr)
    if kind == "dirent":
        return _by_value(pieces, _dirent)
    is_single = argument["shown"] == kind
    if kind in STRUCTS:
        return _by_value(pieces, partial(_structs, kind, is_single))
    return _by_value(pieces, partial(_numbers, kind, bool(argument["hex"])))


def _by_value(pieces: pa.Array, decode: Decode) -> pa.Array:
    distinct = pieces.dictionary_encode()
    return pa.array([decode(each) for each in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _strings(raw: bytes) -> str:
    parts = raw.split(b"\0")[:-1] if raw.endswith(b"\0") else raw.split(b"\0") if raw else []
    return "[" + ", ".join(f'"{_text(part)}"' for part in parts) + "]"


def _numbers(kind: str, is_hex: bool, raw: bytes) -> str:
    dtype = np.dtype("<" + NUMBERS[kind])
    values = np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
    if is_hex:
        return "[" + ", ".join(f"{value:#x}" for value in values.view(f"u{dtype.itemsize}").tolist()) + "]"
    return "[" + ", ".join(f"{value:g}" if dtype.kind == "f" else str(value) for value in values.tolist()) + "]"


def _structs(kind: str, is_single: bool, raw: bytes) -> str:
    size = struct_size(kind)
    members = [_struct(kind, raw[at : at + size]) for at in range(0, len(raw), size)]
    if is_single:
        return members[0] if members else ""
    return "[" + ", ".join(members) + "]"


def _struct(kind: str, raw: bytes) -> str:
    """Return the members that are there: a struct that was cut has fewer."""
    known = STRUCTS[kind]
    if len(raw) < known.size:
        return raw.hex()
    if kind == "pthread_attr":
        return raw.hex()
    values = struct.unpack_from("<" + known.format, raw)
    shown = []
    for name, value in zip(known.names, values, strict=True):
        plain, _, form = name.partition("/")
        if plain != "_":
            shown.append(f"{plain}={_member(value, form)}")
    return "{" + ", ".join(shown) + "}"


def _member(value: Any, form: str) -> str:
    if isinstance(value, bytes):
        return f'"{_text(value.split(bytes(1))[0])}"'
    if form == "x":
        return f"{value:#x}"
    if form == "o":
        return f"0{value:o}"
    if form == "s":
        return "[" + " ".join(str(bit + 1) for bit in range(64) if value >> bit & 1) + "]"
    return str(value)


def _sockaddr(raw: bytes) -> str:
    if len(raw) < 2:
        return raw.hex()
    family = int.from_bytes(raw[:2], "little")
    port = int.from_bytes(raw[2:4], "big")
    if family == AF_INET and len(raw) >= 8:
        return f"{ipaddress.IPv4Address(raw[4:8])}:{port}"
    if family == AF_INET6 and len(raw) >= 24:
        return f"[{ipaddress.IPv6Address(raw[8:24])}]:{port}"
    if family == AF_UNIX:
        path = raw[2:110]
        return (
            "unix:@" + _text(path[1:].split(b"\0")[0]) if path[:1] == b"\0" else "unix:" + _text(path.split(b"\0")[0])
        )
    return f"{{sa_family={family}}}"


def _dirent(raw: bytes) -> str:
    head = STRUCTS["dirent"].size
    if len(raw) < head:
        return raw.hex()
    name = _text(raw[head:].split(b"\0")[0])
    return _struct("dirent", raw[:head])[:-1] + f', d_name="{name}"}}'
