"""What settings come to: parts of the memory, features."""

from tracehound.account import features_of
from tracehound.config import MIB, Settings
from tracehound.line import Line


def test_decode_keeps_to_its_part_of_the_memory() -> None:
    line = Line(Settings(memory_mib=8), [])
    assert line.decoder._requests._streams._windows_bytes == MIB


def test_features_are_those_wanted_and_added_less_those_off() -> None:
    assert features_of(Settings(nat=False)) == {"processes", "tcp", "requests"}
    assert features_of(Settings(nat=True, files=True, off=frozenset({"tcp"}))) == {
        "processes", "requests", "nat", "files"
    }  # fmt: skip
    assert features_of(Settings(nat=True, off=frozenset({"nat"})), frozenset({"tcp"})) == {"tcp"}
