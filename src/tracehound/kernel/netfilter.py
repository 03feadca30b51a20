"""Whether this network namespace translates addresses.

Sources: include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h (a dump of the chains; iptables-nft makes the same),
/proc/net/ip_tables_names (the older iptables). Leaves out IPVS, and what BPF programs and other namespaces rewrite.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NETLINK_NETFILTER: Final = 12
GET_CHAINS: Final = 10 << 8 | 4  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN
REQUEST_DUMP: Final = 0x301
DONE: Final = 3
ERROR: Final = 2
CHAIN_TYPE: Final = 7  # NFTA_CHAIN_TYPE
TYPE_MASK: Final = 0x3FFF  # of an attribute
HEADER: Final = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
GENERIC_SIZE: Final = 4  # struct nfgenmsg
ATTRIBUTE: Final = struct.Struct("=HH")  # struct nlattr: length, type
OLD_TABLES: Final = tuple(Path(f"/proc/net/{name}_tables_names") for name in ("ip", "ip6"))


def has_nat() -> bool:
    """Tell whether there are rules of NAT here; also True if we may not know."""
    return _has_old_table() or _has_nft_chain()


def _has_old_table() -> bool:
    for path in OLD_TABLES:
        try:
            if "nat" in path.read_text().split():
                return True
        except OSError:
            continue
    return False


def _has_nft_chain() -> bool:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
            netlink.settimeout(1)
            netlink.send(HEADER.pack(HEADER.size + GENERIC_SIZE, GET_CHAINS, REQUEST_DUMP, 1, 0) + bytes(GENERIC_SIZE))
            return any(has_nat_chain(message) for message in _messages(netlink))
    except PermissionError:
        return True
    except OSError:  # a kernel without nf_tables
        return False


def _messages(netlink: socket.socket) -> Iterator[bytes]:
    """Yield what follows the header of each answer, up to the end of the dump; raises OSError."""
    while True:
        for kind, payload in split_messages(netlink.recv(1 << 16)):
            if kind == DONE:
                return
            if kind == ERROR:
                (code,) = struct.unpack_from("=i", payload)
                raise OSError(-code, errno.errorcode.get(-code, "netlink"))
            yield payload


def split_messages(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, what follows the header) of each netlink message of a datagram."""
    at = 0
    while at + HEADER.size <= len(raw):
        length, kind, *_ = HEADER.unpack_from(raw, at)
        if length < HEADER.size:
            return
        yield kind, raw[at + HEADER.size : at + length]
        at += -(-length // 4) * 4


def has_nat_chain(message: bytes) -> bool:
    """Tell whether a message about a chain, from its nfgenmsg on, says that it is of type nat."""
    at = GENERIC_SIZE
    while at + ATTRIBUTE.size <= len(message):
        length, kind = ATTRIBUTE.unpack_from(message, at)
        if length < ATTRIBUTE.size:
            return False
        if kind & TYPE_MASK == CHAIN_TYPE:
            return message[at + ATTRIBUTE.size : at + length].rstrip(b"\0") == b"nat"
        at += -(-length // 4) * 4
    return False
