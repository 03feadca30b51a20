"""Settings that cannot be are refused by name."""

import math

import pytest

from tracehound.config import Settings
from tracehound.errors import UsageError


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e300])
def test_response_timeout_is_a_time(value: float) -> None:
    with pytest.raises(UsageError, match="--response-timeout must be"):
        Settings(response_timeout_s=value)


@pytest.mark.parametrize(
    ("name", "value"), [("ring_mib", 3), ("ring_mib", 0), ("lifecycle_ring_mib", -4), ("memory_mib", 0)]
)
def test_sizes(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be"):
        Settings(**{name: value})  # type: ignore[arg-type]
