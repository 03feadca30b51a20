"""Names of C++ and Rust functions as their sources have them, and the forms by which a user may call them.

pycxxfilt (LLVM's demanglers) reads the Itanium C++ ABI's names and Rust's of today (v0, RFC 2603); Rust's older ones
are C++ names with a hash behind them and escapes of their own (rustc's legacy scheme), read here. Left out: Swift, D.
"""

import re
from typing import Final

MEMO: Final = 32 << 20  # characters of names that are kept
NAME_LIMIT: Final = 4096  # characters; a longer one stays as it is
SHOWN_LIMIT: Final = 1 << 16  # characters of a name as it is shown; libLLVM's longest has 12,573
OUTPUT_LIMIT: Final = 1 << 30  # characters that a name might grow to, by a rough upper bound

_LEGACY: Final = re.compile(r"(_ZN.*)17h[0-9a-f]{16}(E)(?:\.llvm\.[0-9A-F]+)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\$(?:(SP|BP|RF|LT|GT|LP|RP|C)|u([0-9a-f]{1,6}))\$")
_ESCAPED: Final = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
_BACK_REFERENCE: Final = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
_RUST_REFERENCE: Final = re.compile(r"B[0-9a-zA-Z]*_")
_CLONE: Final = re.compile(r"(?: \(\.[^()]*\)| \[clone [^\]]*\])+$")
_QUALIFIERS: Final = (" const", " volatile", " &", " &&", " noexcept")
_OPERATOR: Final = re.compile(r"(?<![\w$])operator(?![\w$])")
_STRUCTURE: Final = re.compile(r"->|[][(){}<> ]")


class _Memo(dict[str, str]):
    """Names that were demangled, forgotten all at once when they are too many characters."""

    def __init__(self) -> None:
        self.room = MEMO

    def keep(self, name: str, shown: str) -> str:
        self.room -= len(name) + len(shown) + 100
        if self.room < 0:
            self.clear()
            self.room = MEMO
        self[name] = shown
        return shown


_memo: Final = _Memo()


def demangle(name: str) -> str:
    """Return a symbol's name as the source has it; one that is not mangled, or not rightly, stays as it is."""
    if not name.startswith(("_Z", "_R")) or len(name) > NAME_LIMIT:
        return name
    found = _memo.get(name)
    if found is None:
        found = _demangle(name)
        found = _memo.keep(name, found if len(found) <= SHOWN_LIMIT else name)
    return found


def _demangle(name: str) -> str:
    import pycxxfilt

    mangled, at, version = name.partition("@")
    try:
        if mangled.startswith("_R"):
            if _may_explode(mangled, _RUST_REFERENCE):
                return name
            found = pycxxfilt.rust_demangle(mangled)
        elif legacy := _LEGACY.fullmatch(mangled):
            return _demangle_legacy(legacy) + at + version
        elif _may_explode(mangled, _BACK_REFERENCE):
            return name
        else:
            found = pycxxfilt.itanium_demangle(mangled)
    except ValueError:
        return name
    return (found or mangled) + at + version


def names_of(name: str) -> tuple[str, ...]:
    """Return every form by which a symbol may be called: as it is, demangled, and that without its parameters."""
    bare = name.partition("@")[0].removesuffix(".abi0")  # Go's, of what is written in assembly
    found = demangle(bare)
    if found == bare:
        return (bare,) if bare == name else (name, bare)
    return tuple(dict.fromkeys((name, bare, found, without_parameters(found))))


def without_parameters(name: str) -> str:
    """Return a demangled name without return type, parameters, Rust's `::<...>`, and what a compiler says of a copy."""
    text = _CLONE.sub("", name) if " (." in name or " [clone" in name else name
    while text.endswith(_QUALIFIERS):
        text = text[: text.rindex(" ")]
    if text.endswith(">") and "::<" in text:
        start, opens = _outermost(text)
        return text[: opens[-1] - 2] if opens and text.startswith("::<", opens[-1] - 2) else text
    if "(" not in text and " " not in text:
        return text
    operator = _OPERATOR.search(text) if "operator" in text else None
    if operator is None:
        start, opens = _outermost(text)
        return text[start : opens[-1]] if opens and text.endswith(")") and opens[-1] > start else text[start:]
    start, _ = _outermost(text[: operator.start()])
    end = text.rfind("(") if text.endswith("()") else _opening(text)
    return text[start : end if end > operator.end() else len(text)]


def _outermost(text: str) -> tuple[int, list[int]]:
    """Return where the last word begins that is in no parentheses, and where those begin that are in no others."""
    depth, word, opens = 0, 0, list[int]()
    for match in _STRUCTURE.finditer(text):
        mark, at = match[0], match.start()
        if mark in "([{<":
            if not depth:
                opens.append(at)
            depth += 1
        elif mark == " ":
            if not depth:
                word = at + 1
        elif mark != "->":
            depth -= 1
    return word, opens


def _opening(text: str) -> int:
    """Return where the parenthesis opens that the last character closes; the end if it does not."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] == ")":
            depth += 1
        elif text[at] == "(":
            depth -= 1
            if not depth:
                return at
        if not depth:
            break
    return len(text)


def _may_explode(name: str, reference: re.Pattern[str]) -> bool:
    """Tell whether parts that refer to parts could make a text too long to hold: at most three to the third of them."""
    growth: int = 3 ** (len(reference.findall(name)) // 3)
    return len(name) * growth > OUTPUT_LIMIT


def _demangle_legacy(match: re.Match[str]) -> str:
    """Return `a::b` of `_ZN1a1bE`, its escapes read."""
    text, parts = match[1][3:], []
    while text:
        digits = re.match(r"\d{1,4}", text)
        if not digits:
            return match.string
        size = int(digits[0])
        part, text = text[digits.end() : digits.end() + size], text[digits.end() + size :]
        if len(part) < size:
            return match.string
        parts.append(part)
    return "::".join(_unescape(part) for part in parts)


def _unescape(part: str) -> str:
    if part.startswith("_$"):
        part = part[1:]
    part = _ESCAPE.sub(lambda found: _ESCAPED[found[1]] if found[1] else _character(int(found[2], 16)), part)
    return part.replace("..", "::")


def _character(code: int) -> str:
    return chr(code) if 0x20 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else "?"
