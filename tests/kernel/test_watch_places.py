"""What `--watch` may be, on this process itself: no root needed for addresses."""

import os

import pytest

from tracehound.errors import TargetError, UsageError
from tracehound.kernel.watch_places import Watch, find_watches

PID = os.getpid()


@pytest.mark.parametrize(
    ("text", "access", "size"),
    [
        ("0x1000", "w", 4), ("0x1002", "w", 2), ("0x1001", "w", 1), ("0x1000:r", "r", 4), ("0x1000:rw:8", "rw", 8),
        ("0x1000:8", "w", 8), ("0x1000:w:1", "w", 1), ("0x1001:x", "x", 8),
    ],
)  # fmt: skip
def test_addresses(text: str, access: str, size: int) -> None:
    (watch,) = find_watches([text], PID)
    assert watch == Watch(text, PID, int(text.split(":")[0], 16), access, size)
    assert not watch.is_kernel and watch.facts()["point"] == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is no watch. Write"), ("1000", "1000 is no watch"), ("0x", "0x is no watch"), (":w", ":w is no watch"),
        ("0x1000:w:3", "a length is 1, 2, 4 or 8 bytes, not 3"), ("0x1000:w:16", "a length is"),
        ("0x1004:w:8", "0x1004 is no multiple of 8: name a length of 4 or less"),
        ("0x1000:x:8", "what is run has no length"), ("0x1000:wr", "is no watch"), ("a:b:c:d", "is no watch"),
        ("0xffffffff81000000:x", "is an address of the kernel: --allow-kernel-address permits it"),
    ],
)  # fmt: skip
def test_texts_that_are_none(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find_watches([text], PID)


def test_an_address_is_watched_once() -> None:
    with pytest.raises(UsageError, match="0x1000:r is watched already, as 0x1000:w: write rw for both"):
        find_watches(["0x1000:w", "0x1000:r"], PID)


def test_the_kernels_addresses_if_that_is_allowed() -> None:
    (watch,) = find_watches(["0xffffffff81000000:w"], PID, allows_kernel=True)
    assert watch.is_kernel


def test_no_such_process() -> None:
    with pytest.raises(TargetError, match="no process 4194305"):
        find_watches(["libc:environ"], 4_194_305)
