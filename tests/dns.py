"""Messages of DNS for tests: made by hand, with compression, and a small zone. RFC 1035."""

import struct
from collections.abc import Sequence
from ipaddress import ip_address

A, CNAME, TXT, AAAA, HTTPS, ANY = 1, 5, 16, 28, 65, 255
IN = 1
RESPONSE, TRUNCATED, NAME_ERROR = 0x8180, 0x0200, 3
ASKED = b"\xc0\x0c"  # a pointer to the question's name

Answer = tuple[bytes, int, bytes]  # owner as on the wire, type, data


def wire(name: str) -> bytes:
    """Return a name as on the wire."""
    labels = [label.encode() for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def pointer(at: int) -> bytes:
    """Return what leads to a name at a place in the message."""
    return struct.pack(">H", 0xC000 | at)


def raw(address: str) -> bytes:
    """Return an address as the data of A or AAAA."""
    return ip_address(address).packed


def answer(owner: bytes, type_: int, data: bytes, class_: int = IN) -> bytes:
    """Return one record."""
    return owner + struct.pack(">HHIH", type_, class_, 60, len(data)) + data


def query(name: str, type_: int = A, number: int = 7) -> bytes:
    """Return a question."""
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + wire(name) + struct.pack(">HH", type_, IN)


def response(
    name: str, answers: Sequence[Answer], type_: int = A, *, flags: int = RESPONSE, number: int = 7, behind: bytes = b""
) -> bytes:
    """Return the answer to a question; `behind`: of sections after it."""
    head = struct.pack(">HHHHHH", number, flags, 1, len(answers), 0, 0)
    body = b"".join(answer(*one) for one in answers)
    return head + wire(name) + struct.pack(">HH", type_, IN) + body + behind


def asked(message: bytes) -> tuple[int, str, int]:
    """Return number, name and type of a question."""
    labels, at = list[str](), 12
    while message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode())
        at += 1 + message[at]
    return int.from_bytes(message[:2]), ".".join(labels), int.from_bytes(message[at + 1 : at + 3])
