"""Answers of nf_tables about chains: literal bytes in, whether one is of type nat out."""

import struct

import pytest

from tracehound.kernel.netfilter import DONE, has_nat_chain, split_messages

GENERIC = b"\x02\x00\x00\x00"


def attribute(kind: int, value: bytes) -> bytes:
    raw = struct.pack("=HH", len(value) + 4, kind) + value
    return raw.ljust(-(-len(raw) // 4) * 4, b"\0")


def message(kind: int, payload: bytes) -> bytes:
    raw = struct.pack("=IHHII", 16 + len(payload), kind, 2, 1, 0) + payload
    return raw.ljust(-(-len(raw) // 4) * 4, b"\0")


TABLE, NAME, HOOK = attribute(1, b"t\0"), attribute(3, b"output\0"), attribute(0x8004, attribute(1, b"\0\0\0\3"))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (TABLE + NAME + HOOK + attribute(7, b"nat\0"), True),
        (TABLE + NAME + HOOK + attribute(7, b"filter\0"), False),
        (TABLE + attribute(3, b"nat\0"), False),  # only called so
        (TABLE + NAME, False),
        (b"", False),
        (struct.pack("=HH", 0, 7), False),
        (struct.pack("=HH", 900, 7) + b"nat\0", True),
        (b"\x01", False),
    ],
)
def test_type_of_a_chain(attributes: bytes, expected: bool) -> None:
    assert has_nat_chain(GENERIC + attributes) is expected


def test_messages_of_a_datagram() -> None:
    raw = message(0xA03, GENERIC + TABLE) + message(DONE, b"\0\0\0\0")
    assert list(split_messages(raw)) == [(0xA03, GENERIC + TABLE), (DONE, b"\0\0\0\0")]
    assert list(split_messages(raw[:10])) == []
    assert list(split_messages(struct.pack("=IHHII", 3, 1, 0, 0, 0))) == []
