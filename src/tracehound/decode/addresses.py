"""Addresses and the kernel's small enums, as the words that rows carry.

Sources: RFC 5952 (text of IPv6 addresses, by `ipaddress`), include/net/tcp_states.h, signal(7), errno(3). Everything
works on a column's distinct values. An IPv4-mapped address is shown as the IPv4 address it is, though its socket's
family stays `ipv6`: both ends of one connection then show the same text.
"""

import errno
import signal
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from socket import AF_INET, AF_INET6, AF_UNIX, IPPROTO_TCP, IPPROTO_UDP, inet_ntoa
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FAMILIES: Final[Mapping[int, str]] = {int(AF_INET): "ipv4", int(AF_INET6): "ipv6", int(AF_UNIX): "unix"}
UNIX: Final = -1
TRANSPORTS: Final[Mapping[int, str]] = {int(IPPROTO_TCP): "tcp", int(IPPROTO_UDP): "udp", UNIX: "unix"}
ROLES: Final[Mapping[int, str]] = {1: "client", 2: "server"}  # enum connection_role
TCP_STATES: Final[Mapping[int, str]] = dict(
    enumerate(
        (
            "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT",
            "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV",
        ),
        start=1,
    )
)  # fmt: skip
_IPV4_MAPPED: Final = b"\0" * 10 + b"\xff\xff"

Integers = npt.NDArray[np.integer[Any]]


def format_address(family: int, raw: bytes) -> str | None:
    """Return one address of 16 bytes (IPv4: the first 4) as text; None for a family without IP addresses."""
    if family == AF_INET:
        return inet_ntoa(raw[:4])
    if family == AF_INET6:
        return inet_ntoa(raw[12:]) if raw.startswith(_IPV4_MAPPED) else str(IPv6Address(raw))
    return None


def address_column(families: Integers, raw: npt.NDArray[np.uint8]) -> pa.Array:
    """Return addresses as a string array; families: (n,) integers, raw: (n, 16) u1."""
    keys = np.empty((len(raw), 18), "u1")
    keys[:, :2] = np.ascontiguousarray(families, "<u2").view("u1").reshape(-1, 2)
    keys[:, 2:] = raw
    # S compares as memcmp; that it ignores trailing zeros is harmless as all keys are equally long.
    _, first, inverse = np.unique(keys.view("S18")[:, 0], return_index=True, return_inverse=True)
    texts = [format_address(int(families[at]), raw[at].tobytes()) for at in first]
    return pa.array(texts, pa.string()).take(pa.array(inverse))


def format_addresses(families: Integers, raw: npt.NDArray[np.uint8]) -> list[str | None]:
    """Return addresses as texts; families: (n,) integers, raw: (n, 16) u1."""
    texts: list[str | None] = address_column(families, raw).to_pylist()
    return texts


def name_column(numbers: Integers, name_of: Callable[[int], str | None]) -> pa.Array:
    """Return `name_of` each number as a string array, asking once for each distinct number."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return pa.array([name_of(int(number)) for number in distinct], pa.string()).take(pa.array(inverse))


def transport_column(families: Integers, transports: Integers) -> pa.Array:
    """Return tcp, udp or unix; of family unix a record's transport only tells streams (TCP) from the rest (UDP)."""
    return name_column(np.where(families == int(AF_UNIX), UNIX, transports.astype(np.int64)), TRANSPORTS.get)


def text_column(names: npt.NDArray[np.bytes_]) -> pa.Array:
    """Return C strings of a fixed size (dtype S) as a string array, each up to its first NUL; empty ones are null."""
    distinct, inverse = np.unique(names, return_inverse=True)
    texts = [name.partition(b"\0")[0].decode(errors="backslashreplace") or None for name in distinct.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(inverse))


def tcp_state_name(state: int) -> str | None:
    """Return the kernel's name of a TCP state without its prefix; None for 0 (not TCP)."""
    return TCP_STATES.get(state) or (str(state) if state else None)


def errno_name(number: int) -> str | None:
    """Return `ECONNREFUSED` for 111 and the number's digits for one without a name; None for 0."""
    number = abs(number)
    return errno.errorcode.get(number) or (str(number) if number else None)


def signal_name(number: int) -> str | None:
    """Return `SIGKILL` for 9, `SIGRTMIN+3` for real-time signals; None for 0."""
    if number == 0:
        return None
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
