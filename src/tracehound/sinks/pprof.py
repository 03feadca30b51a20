"""A profile of pprof, gzip'ed: what `go tool pprof` and most profilers' web pages read.

Source: profile.proto of github.com/google/pprof. Values are the number of calls and, if another weight was asked for,
that one; a sample's labels are its process and its stack's status. Addresses are offsets in the file; functions are
named here, so that nothing has to be looked up. Written by hand: it is a few messages of numbers and strings.
"""

import gzip
from collections.abc import Iterable
from typing import Final

from tracehound.sinks._profile import COUNT, Place, Profile, weight_of
from tracehound.sinks._profile_sink import open_profile
from tracehound.sinks._sink import Sink, SinkKind, Source

_VARINT: Final = 0
_BYTES: Final = 2
_KERNEL: Final = "[kernel]"


def pprof(profile: Profile) -> bytes:
    """Return a profile in pprof's form."""
    return gzip.compress(_Message(profile).encode(), mtime=0)


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _number(field: int, value: int) -> bytes:
    """Return a field of a number; as in proto3, 0 is left out."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


class _Message:
    """The message Profile under way: its strings, mappings and locations are numbered as they are met."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._strings = {"": 0}
        self._mappings: dict[tuple[str, str], int] = {}
        self._locations: dict[tuple[int, ...], int] = {}

    def encode(self) -> bytes:
        profile, about = self._profile, self._profile.about
        count = weight_of(COUNT)
        has_weight = (about.weight, about.unit) != (count.name, count.unit)
        types = [(count.name, count.unit), *([(about.weight, about.unit)] if has_weight else [])]
        parts = [_bytes(1, _number(1, self._text(name)) + _number(2, self._text(unit))) for name, unit in types]
        for stack in profile.stacks:
            labels = (("process", stack.process), ("status", stack.status))
            sample = _packed(1, self._location_numbers(stack.frames.tolist()))
            sample += _packed(2, (stack.rows, stack.weight) if has_weight else (stack.rows,))
            sample += b"".join(_bytes(3, _number(1, self._text(key)) + _number(2, self._text(v))) for key, v in labels)
            parts.append(_bytes(2, sample))
        locations = [self._location(places, number) for places, number in self._locations.items()]
        parts += [self._mapping(*key, number) for key, number in self._mappings.items()]
        parts += locations
        parts += [self._function(number) for number in range(len(profile.functions))]
        says = (f"tracehound {about.version}: {about.command}", f"host {about.host}", about.lost, *about.notes)
        comments = [self._text(text) for text in says]
        parts += [_bytes(6, text.encode()) for text in self._strings]
        parts += [_number(9, about.started_ns), _packed(13, comments), _number(14, self._text(types[-1][0]))]
        return b"".join(parts)

    def _text(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _location_numbers(self, frames: list[int]) -> list[int]:
        """Return locations from the innermost on; inlined frames and the one that they are inlined into are one."""
        numbers, group = [], list[int]()
        for place in frames:
            group.append(place)
            if not self._profile.functions[self._profile.places[place].function].is_inlined:
                numbers.append(self._locations.setdefault(tuple(group), len(self._locations) + 1))
                group = []
        if group:
            numbers.append(self._locations.setdefault(tuple(group), len(self._locations) + 1))
        return numbers

    def _location(self, places: tuple[int, ...], number: int) -> bytes:
        found = [self._profile.places[place] for place in places]
        lines = (_bytes(4, _number(1, place.function + 1) + _number(2, place.line)) for place in found)
        address = found[-1].address
        head = _number(1, number) + _number(2, self._mapping_number(found[-1])) + _number(3, address)
        return _bytes(4, head + b"".join(lines))

    def _mapping_number(self, place: Place) -> int:
        function = self._profile.functions[place.function]
        file = function.file or (_KERNEL if function.kind == "kernel" else "")
        return self._mappings.setdefault((file, place.build_id), len(self._mappings) + 1) if file else 0

    def _mapping(self, file: str, build_id: str, number: int) -> bytes:
        texts = _number(5, self._text(file)) + _number(6, self._text(build_id))
        return _bytes(3, _number(1, number) + _number(3, (1 << 64) - 1) + texts + _number(7, 1))

    def _function(self, number: int) -> bytes:
        function = self._profile.functions[number]
        name = self._text(function.name)
        names = _number(2, name) + _number(3, name) + _number(4, self._text(function.source))
        return _bytes(5, _number(1, number + 1) + names)


def _open(path: str, source: Source) -> Sink:
    return open_profile("pprof", path, source)


SINK: Final = SinkKind("pprof", "stacks of calls with their count, as a profile of pprof, written at the end", _open)
