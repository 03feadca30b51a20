"""What a trace says of its rings at its end."""

import pytest

from tracehound.account import ring_notes
from tracehound.config import MIB, Settings


@pytest.mark.parametrize(
    ("lifecycle", "data", "told"),
    [
        (0, 0, []),
        (2 * MIB - 1, 8 * MIB - 1, []),
        (0, 8 * MIB, ["the data ring was up to 50 % full of 16 MiB: --ring-mib makes it larger"]),
        (4 * MIB, 0, ["the lifecycle ring was up to 100 % full of 4 MiB: --lifecycle-ring-mib makes it larger"]),
    ],
)
def test_a_ring_that_was_half_full_is_told(lifecycle: int, data: int, told: list[str]) -> None:
    counters = {"lifecycle_ring_peak_bytes": lifecycle, "data_ring_peak_bytes": data}
    assert ring_notes(counters, Settings()) == told
