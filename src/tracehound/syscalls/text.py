"""Bytes as they stand between quotes in C: octal where they are not printable."""

from typing import Final

_PLAIN: Final = {
    **{code: chr(code) for code in range(0x20, 0x7F)},
    0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x09: "\\t", 0x0D: "\\r", 0x0B: "\\v", 0x0C: "\\f",
}  # fmt: skip
_DIGITS: Final = frozenset(b"01234567")
_CLEAN: Final = bytes(code for code in range(0x20, 0x7F) if code not in b'"\\')


def quote(data: bytes, limit: int | None = None) -> str:
    """Return bytes in quotes, with `...` behind them if they are more than `limit`."""
    more = ""
    if limit is not None and len(data) > limit:
        data, more = data[:limit], "..."
    if not data.translate(None, _CLEAN):
        return f'"{data.decode("ascii")}"{more}'
    parts = []
    for at, code in enumerate(data):
        plain = _PLAIN.get(code)
        if plain is None:
            is_long = at + 1 < len(data) and data[at + 1] in _DIGITS
            plain = f"\\{code:03o}" if is_long else f"\\{code:o}"
        parts.append(plain)
    return f'"{"".join(parts)}"{more}'


def quote_hexadecimal(data: bytes, limit: int) -> str:
    """Return bytes in quotes, each in hexadecimal."""
    more = "..." if len(data) > limit else ""
    return '"' + "".join(f"\\x{code:02x}" for code in data[:limit]) + f'"{more}'
