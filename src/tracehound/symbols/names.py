"""Functions by name: as a symbol has it, demangled, with parameters or without; globs, and what is like a name."""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from tracehound.errors import TargetError
from tracehound.symbols.demangle import names_of
from tracehound.symbols.functions import Symbols

NEAR: Final = 3  # names that are offered
NEAR_CANDIDATES: Final = 4096  # names that are compared letter by letter
FORM_BYTES: Final = 300  # what the forms of one name take, about
FORMS_KEPT: Final = 200_000
FORMS_LIMIT: Final = 16 << 20  # characters, and 8 times those of all names
FORM_REFUSED: Final = 1 << 16  # characters that a name counts which stays mangled: it may have been tried for long


class Names:
    """The names of a file's functions; `file` is what errors call it."""

    def __init__(self, symbols: Symbols, file: str) -> None:
        self.symbols, self.file = symbols, file
        self._kept: list[tuple[str, ...]] | None = None

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held."""
        return FORM_BYTES * len(self._kept or ())

    def exactly(self, name: str) -> list[int]:
        """Return the places in `symbols` of what has a name in any form; a symbol's own comes before others'."""
        if found := self.symbols.indices_named(name):
            return found
        return [at for at, forms in enumerate(self._forms()) if name in forms]

    def matching(self, pattern: str) -> list[int]:
        """Return the places in `symbols` of a name, or else of all that a glob (`*`, `?`) matches in any form."""
        if (found := self.exactly(pattern)) or not set(pattern) & set("*?"):
            return found
        is_match = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
        return [at for at, forms in enumerate(self._forms()) if any(map(is_match, forms))]

    def near(self, name: str) -> list[str]:
        """Return up to three names that hold this one, or else are like it, or end with one that is."""
        text = name.lower()
        holding, alike = set[str](), dict[str, str]()
        for forms in self._forms():
            one = forms[-1]
            if len(holding) < NEAR_CANDIDATES and text in one.lower():
                holding.add(one)
                continue
            last = one if "::" in name else one.rpartition("::")[2]
            if len(alike) < NEAR_CANDIDATES and abs(len(last) - len(name)) <= 3 and last[:1] == name[:1]:
                alike.setdefault(last, one)
        if holding:
            return sorted(holding, key=lambda one: (len(one), one))[:NEAR]
        return [alike[one] for one in get_close_matches(name, sorted(alike), NEAR)]

    def _forms(self) -> Iterable[tuple[str, ...]]:
        """The forms of every function's name, kept if they are not too many."""
        if self._kept is not None:
            return self._kept
        if len(self.symbols) > FORMS_KEPT:
            return self._read_forms()
        self._kept = list(self._read_forms())
        return self._kept

    def _read_forms(self) -> Iterator[tuple[str, ...]]:
        """Raises TargetError where names are longer than any that a compiler writes: a file can say them endlessly."""
        room = FORMS_LIMIT + 8 * len(self.symbols.strings)
        for index in range(len(self.symbols)):
            forms = names_of(self.symbols.name(index))
            room -= sum(map(len, forms)) if len(forms) > 1 or not forms[0].startswith("_Z") else FORM_REFUSED
            if room < 0:
                raise TargetError(f"{self.file} has names of more characters than are looked at")
            yield forms
