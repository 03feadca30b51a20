"""Detection in user space: the kernel's own detectors, on pieces of any length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracehound.btf import wire_layout
from tracehound.native import detect

SEND, RECEIVE = 0, 1
TCP = 6


@pytest.mark.parametrize(
    ("head", "direction", "protocol", "match"),
    [
        (b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n", SEND, "L7_HTTP1", "MATCH_STRONG"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", RECEIVE, "L7_HTTP1", "MATCH_STRONG"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), SEND, "L7_NONE", "MATCH_NO"),
        (b"", SEND, "L7_NONE", "MATCH_NO"),
    ],
)
def test_names_the_protocol(head: bytes, direction: int, protocol: str, match: str) -> None:
    layout = wire_layout()
    expected = (layout.enum("l7_protocol")[protocol], layout.enum("l7_match")[match])
    assert detect(head, direction, TCP, 80) == expected


@given(st.binary(max_size=200), st.integers(0, 1), st.integers(0, 255), st.integers(0, 65535))
def test_takes_any_bytes(head: bytes, direction: int, transport: int, port: int) -> None:
    layout = wire_layout()
    protocol, match = detect(head, direction, transport, port)
    assert protocol in layout.enum("l7_protocol").values()
    assert match in layout.enum("l7_match").values()
