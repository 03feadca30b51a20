"""One memory budget, shared out."""

from tracehound.agent import Line
from tracehound.config import MIB, Settings


def test_the_memory_budget_is_shared_out() -> None:
    whole, half = Settings(), Settings(memory_mib=128, backlog_mib=7)
    assert (whole.backlog_bytes, whole.lifecycle_backlog_bytes, whole.windows_bytes) == (64 * MIB, 16 * MIB, 64 * MIB)
    assert (half.backlog_bytes, half.lifecycle_backlog_bytes, half.windows_bytes) == (7 * MIB, 8 * MIB, 32 * MIB)


def test_decode_keeps_to_it() -> None:
    line = Line(Settings(memory_mib=4), [])
    assert line.decoder._requests._streams._windows_bytes == MIB
