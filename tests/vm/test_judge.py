"""How rows of an emulated machine are judged against what was done there."""

from collections import Counter

import pytest
from tests.vm.guest import judge

FIRST, SECOND = ("server", "/a", 200, 30, 40), ("server", "/b", 200, 30, 40)
UNANSWERED = ("server", "/b", None, 30, None)
OTHER = ("server", "/a", 404, 30, 40)


@pytest.mark.parametrize(
    ("found", "is_loss_told", "value"),
    [
        ([FIRST, SECOND], False, "exact"),
        ([], True, "none"),
        ([FIRST], True, "lossy"),
        ([FIRST], False, "wrong"),
        ([FIRST, UNANSWERED], True, "lossy"),
        ([FIRST, UNANSWERED], False, "wrong"),
        ([FIRST, SECOND, UNANSWERED], True, "wrong"),
        ([OTHER, SECOND], True, "wrong"),
        ([FIRST, FIRST], True, "wrong"),
    ],
)
def test_rows_are_judged(found: list[tuple[object, ...]], is_loss_told: bool, value: str) -> None:
    assert judge(Counter([FIRST, SECOND]), Counter(found), is_loss_told) == value
