"""HTTP over unix sockets, datagrams over unix and UDP: `unix_udp.py FOLDER`.

A client and a server process; what each end moved goes to FOLDER/client and FOLDER/server as JSON: name of the socket
-> [pid, bytes sent, bytes received, send calls, receive calls].
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

REQUESTS = 20
DATAGRAMS = 5
LONG = 100_000


class Counted:
    """A socket that counts what it moves."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner
        self.sent = self.received = self.sends = self.receives = 0

    def send(self, data: bytes) -> None:
        while data:
            size = self.inner.send(data)
            self.sent += size
            self.sends += 1
            data = data[size:]

    def receive(self, size: int) -> bytes:
        """Receive exactly `size` bytes."""
        found = b""
        while len(found) < size:
            data = self.inner.recv(size - len(found))
            assert data, "end of stream"
            self.received += len(data)
            self.receives += 1
            found += data
        return found

    def told(self) -> list[int]:
        return [os.getpid(), self.sent, self.received, self.sends, self.receives]


def request_of(name: str, number: int) -> bytes:
    body = b"b" * (LONG if number % 5 == 4 else 20)
    return f"POST /{name}/{number} HTTP/1.1\r\nHost: unix\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def response_of(number: int) -> bytes:
    body = b"r" * (LONG if number % 7 == 6 else 30)
    return f"HTTP/1.1 {200 + number % 2} Text\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def talk_http(name: str, end: Counted, is_client: bool) -> None:
    for number in range(REQUESTS):
        request, response = request_of(name, number), response_of(number)
        if is_client:
            end.send(request)
            end.receive(len(response))
        else:
            end.receive(len(request))
            end.send(response)


def talk_datagrams(end: Counted, is_client: bool) -> None:
    """Each datagram of the client's is answered with one half as long."""
    for number in range(1, DATAGRAMS + 1):
        if is_client:
            end.send(bytes(200 * number))
            end.receive(100 * number)
        else:
            end.receive(200 * number)
            end.send(bytes(100 * number))


def serve_unconnected(end: socket.socket) -> list[int]:
    sent = received = 0
    for _ in range(DATAGRAMS):
        data, address = end.recvfrom(65536)
        received += len(data)
        sent += end.sendto(data[: len(data) // 2], address)
    return [os.getpid(), sent, received, DATAGRAMS, DATAGRAMS]


def ask_unconnected(end: socket.socket, address: Any) -> list[int]:
    sent = received = 0
    for number in range(1, DATAGRAMS + 1):
        sent += end.sendto(bytes(200 * number), address)
        received += len(end.recvfrom(65536)[0])
    return [os.getpid(), sent, received, DATAGRAMS, DATAGRAMS]


def main() -> None:
    signal.alarm(60)
    folder = Path(sys.argv[1])
    named = socket.socket(socket.AF_UNIX)
    named.bind(str(folder / "http.sock"))
    named.listen()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{folder.name}-{os.getpid()}")
    abstract.listen()
    pair = socket.socketpair()
    datagrams = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp6.bind(("::1", 0))
    ends: dict[str, list[int]] = {}
    server = os.fork()
    signal.alarm(60)
    if server == 0:
        for name, listener in (("named", named), ("abstract", abstract)):
            with listener.accept()[0] as accepted:
                end = Counted(accepted)
                talk_http(name, end, False)
                ends[name] = end.told()
        for name, both in (("pair", pair), ("datagrams", datagrams)):
            both[0].close()
            end = Counted(both[1])
            talk_http(name, end, False) if name == "pair" else talk_datagrams(end, False)
            ends[name] = end.told()
        ends["udp"], ends["udp6"] = serve_unconnected(udp), serve_unconnected(udp6)
        (folder / "server").write_text(json.dumps(ends))
        os._exit(0)
    for name, listener in (("named", named), ("abstract", abstract)):
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(listener.getsockname())
            end = Counted(connected)
            talk_http(name, end, True)
            ends[name] = end.told()
    for name, both in (("pair", pair), ("datagrams", datagrams)):
        both[1].close()
        end = Counted(both[0])
        talk_http(name, end, True) if name == "pair" else talk_datagrams(end, True)
        ends[name] = end.told()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected:
        connected.connect(udp.getsockname())
        end = Counted(connected)
        talk_datagrams(end, True)
        ends["udp"] = end.told()
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        ends["udp6"] = ask_unconnected(client, udp6.getsockname())
    ports = {"udp": udp.getsockname()[1], "udp6": udp6.getsockname()[1]}
    _, status = os.waitpid(server, 0)
    assert status == 0, f"the server ended with {status}"
    abstract_name = abstract.getsockname()[1:].decode()
    (folder / "client").write_text(json.dumps(ends))
    (folder / "names").write_text(json.dumps({"ports": ports, "abstract": abstract_name}))


if __name__ == "__main__":
    main()
