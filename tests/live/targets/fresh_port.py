"""Connections whose local ports all differ: the kernel gives a port again once it has rested for a second."""

import socket

_used: set[int] = set()


def connect(address: tuple[str, int], timeout_s: float = 20) -> socket.socket:
    """Connect from a port of 127.0.0.1 that no earlier connection of this process had."""
    passed_over = []
    try:
        while True:
            client = socket.socket()
            client.bind(("127.0.0.1", 0))
            port = client.getsockname()[1]
            if port not in _used:
                break
            passed_over.append(client)
    finally:
        for one in passed_over:
            one.close()
    _used.add(port)
    client.settimeout(timeout_s)
    client.connect(address)
    return client
