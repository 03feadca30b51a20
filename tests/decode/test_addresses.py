"""Addresses and names: raw numbers in, texts out."""

import numpy as np
import pytest

from tracehound.decode.addresses import (
    TCP_STATES,
    address_column,
    errno_name,
    format_addresses,
    name_column,
    signal_name,
    tcp_state_name,
    text_column,
)

INET, INET6, UNIX = 2, 10, 1


@pytest.mark.parametrize(
    ("family", "raw", "text"),
    [
        (INET, bytes([127, 0, 0, 1]), "127.0.0.1"),
        (INET, bytes(4), "0.0.0.0"),
        (INET, bytes([255] * 16), "255.255.255.255"),
        (INET6, bytes(15) + b"\x01", "::1"),
        (INET6, bytes(16), "::"),
        (INET6, bytes.fromhex("20010db8000000000000000000000001"), "2001:db8::1"),
        (INET6, bytes(10) + b"\xff\xff\x01\x02\x03\x04", "1.2.3.4"),
        (INET6, bytes(10) + b"\xff\xfe\x01\x02\x03\x04", "::fffe:102:304"),
        (UNIX, bytes(16), None),
        (0, bytes(16), None),
    ],
)
def test_address(family: int, raw: bytes, text: str | None) -> None:
    rows = np.frombuffer(raw.ljust(16, b"\0"), "u1").reshape(1, 16)
    assert format_addresses(np.array([family], "u2"), rows) == [text]


def test_many_addresses_keep_their_places() -> None:
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 3, (10_000, 16)).astype("u1")
    families = rng.choice([INET, INET6, UNIX], len(raw)).astype("u2")
    column = address_column(families, raw).to_pylist()
    for at in range(0, len(raw), 97):
        assert column[at] == format_addresses(families[at : at + 1], raw[at : at + 1])[0]


def test_no_rows() -> None:
    assert format_addresses(np.empty(0, "u2"), np.empty((0, 16), "u1")) == []
    assert name_column(np.empty(0, "i8"), errno_name).to_pylist() == []
    assert text_column(np.empty(0, "S16")).to_pylist() == []


def test_names() -> None:
    assert [errno_name(n) for n in (0, 111, -104, 4000)] == [None, "ECONNREFUSED", "ECONNRESET", "4000"]
    assert [signal_name(n) for n in (0, 9, 15, 37, 34, 64, 33)] == [
        None, "SIGKILL", "SIGTERM", "SIGRTMIN+3", "SIGRTMIN", "SIGRTMAX", "SIG33",
    ]  # fmt: skip
    assert [tcp_state_name(n) for n in (0, 1, 7, 10, 99)] == [None, "ESTABLISHED", "CLOSE", "LISTEN", "99"]
    assert len(TCP_STATES) == 12


def test_text_ends_at_its_first_nul() -> None:
    assert text_column(np.array([b"sh\0tail", b"", b"\xff!"], "S16")).to_pylist() == ["sh", None, "\\xff!"]


def test_name_is_asked_once_for_each_number() -> None:
    asked: list[int] = []

    def name(number: int) -> str:
        asked.append(number)
        return f"n{number}"

    assert name_column(np.array([3, 1, 3, 3]), name).to_pylist() == ["n3", "n1", "n3", "n3"]
    assert sorted(asked) == [1, 3]
