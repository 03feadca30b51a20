"""A DNS server with an HTTP server beside it, and a client of both: `serve READY` or `ask`.

The server answers on 127.0.0.1 and ::1 port 53, by UDP and TCP, and serves HTTP on every address, port 8080. The client
asks by getaddrinfo and by each way that sockets without a peer have, then sends a request for /NAME to the address.
The folder above `tests` has to be in PYTHONPATH.
"""

import ctypes
import http.client
import http.server
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from tests.dns import (
    AAAA,
    ASKED,
    CNAME,
    RESPONSE,
    TRUNCATED,
    TXT,
    A,
    Answer,
    asked,
    pointer,
    query,
    raw,
    response,
    wire,
)  # fmt: skip

SERVER, SERVER6 = ("127.0.0.1", 53), ("::1", 53)
PORT = 8080
MANY = 300  # questions, more than are looked at while a protocol is not known
# Names with nothing special; the others below have no name, or only by answers that name nothing
PLAIN = {
    "plain.test": "127.0.0.5", "six.test": "fd00:53::6", "child.test": "127.0.0.11", "sendto.test": "127.0.0.12",
    "sendmsg.test": "127.0.0.13", "first.test": "127.0.0.14", "second.test": "127.0.0.15", "late.test": "127.0.0.16",
    "lines.test": "127.0.0.17", "sendto6.test": "127.0.0.18",
}  # fmt: skip
STRANGER, LOOPED, LONG = "127.0.0.20", "127.0.0.21", "127.0.0.22"
GETADDRINFO = ("plain.test", "six.test", "alias.test", "big.test", "liar.test")


def records_of(name: str, is_tcp: bool) -> list[Answer]:
    """Return what the zone has of a name."""
    if name == "alias.test":  # a chain of aliases that point into one another
        target = 12 + len(wire(name)) + 4 + 12  # of the name in the first answer
        edge = b"\x04edge" + pointer(target + 5)
        return [
            (ASKED, CNAME, wire("real.cdn.test")),
            (pointer(target), CNAME, edge),
            (wire("edge.cdn.test"), A, raw("127.0.0.7")),
        ]
    if name == "liar.test":
        return [(wire("other.test"), A, raw(STRANGER)), (ASKED, A, raw("127.0.0.10"))]
    if name == "loop.test":  # the owner is what stands there
        return [(pointer(12 + len(wire(name)) + 4), A, raw(LOOPED))]
    if name == "big.test" and is_tcp:
        return [(ASKED, A, raw(f"127.0.1.{last}")) for last in range(60)]
    if name == "long.test" and is_tcp:
        return [(b"\x01a" * 20000, A, raw(LONG))]
    if name in PLAIN:
        data = raw(PLAIN[name])
        return [(ASKED, TXT, b"\x08password"), (ASKED, AAAA if len(data) == 16 else A, data)]
    return []


def answered(message: bytes, is_tcp: bool) -> bytes:
    """Return the answer to a question."""
    number, name, type_ = asked(message)
    if name in ("big.test", "long.test") and not is_tcp:
        return response(name, [], type_, flags=RESPONSE | TRUNCATED, number=number)
    wanted = [one for one in records_of(name, is_tcp) if one[1] not in (A, AAAA) or type_ == one[1]]
    made = response(name, wanted, type_, number=number)
    return made.ljust(65535, b"\x3f") if name == "long.test" else made


def serve_udp(server: socket.socket) -> None:
    while True:
        message, client = server.recvfrom(512)
        server.sendto(answered(message, False), client)


def serve_tcp(server: socket.socket) -> None:
    while True:
        client, _ = server.accept()
        with client:
            while len(size := client.recv(2, socket.MSG_WAITALL)) == 2:
                message = client.recv(int.from_bytes(size), socket.MSG_WAITALL)
                reply = answered(message, True)
                client.sendall(len(reply).to_bytes(2) + reply)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Http(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def serve(ready: Path) -> None:
    for family, place in ((socket.AF_INET, SERVER), (socket.AF_INET6, SERVER6)):
        udp = socket.socket(family, socket.SOCK_DGRAM)
        udp.bind(place)
        threading.Thread(target=serve_udp, args=(udp,), daemon=True).start()
    tcp = socket.create_server(SERVER)
    threading.Thread(target=serve_tcp, args=(tcp,), daemon=True).start()
    server = Http(("::", PORT), Handler)
    ready.touch()
    server.serve_forever()


def get(address: str, name: str, times: int = 1) -> None:
    connection = http.client.HTTPConnection(address, PORT, timeout=10)
    for _ in range(times):
        connection.request("GET", f"/{name}")
        assert connection.getresponse().read() == b"ok"
    connection.close()


def resolve(name: str) -> str:
    return str(socket.getaddrinfo(name, PORT, type=socket.SOCK_STREAM)[-1][4][0])


class Many(ctypes.Structure):
    """struct mmsghdr with one iovec and a destination of its own."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("iovec", ctypes.c_void_p),
        ("iovecs", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("size", ctypes.c_uint),
    )


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def ask_many(names: tuple[str, ...]) -> None:
    """Ask for names by one sendmmsg, take the answers by one recvmmsg."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = ctypes.create_string_buffer(
        struct.pack("=H", socket.AF_INET) + struct.pack(">H", 53) + raw(SERVER[0]) + bytes(8), 16
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(None)
        for call, buffers in (
            (libc.sendmmsg, [ctypes.create_string_buffer(one, len(one)) for one in map(query, names)]),
            (libc.recvmmsg, [ctypes.create_string_buffer(512) for _ in names]),
        ):
            vectors = [Vector(ctypes.addressof(one), len(one)) for one in buffers]
            messages = (Many * len(names))()
            for message, vector in zip(messages, vectors, strict=True):
                message.iovec, message.iovecs = ctypes.addressof(vector), 1
                if call is libc.sendmmsg:
                    message.name, message.name_size = ctypes.addressof(place), 16
            assert call(client.fileno(), messages, len(names), 0, None) == len(names)


def ask_loosely() -> None:
    """Ask by sockets without a peer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.sendto(query("sendto.test"), SERVER)
        client.recvfrom(512)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.sendmsg([query("sendmsg.test")], [], 0, SERVER)
        client.recvmsg(512)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.sendto(query("sendto6.test"), SERVER6)
        client.recvfrom(512)
    ask_many(("first.test", "second.test"))
    for is_connected in (True, False):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(10)
            if is_connected:
                client.connect(SERVER)
            for number in range(MANY):
                name = ("late.test" if is_connected else "lines.test") if number == MANY - 1 else "nothing.test"
                client.send(query(name)) if is_connected else client.sendto(query(name), SERVER)
                client.recv(512)


def main() -> None:
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    get(STRANGER, "before")
    for name in GETADDRINFO:
        get(resolve(name), name, 2)
    for name in ("loop.test", "long.test"):
        try:
            resolve(name)
        except OSError:
            continue
        raise SystemExit(f"{name} has an address")
    for address in (STRANGER, LOOPED, LONG):
        get(address, address)
    code = "import socket; socket.getaddrinfo('child.test', 80)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    get("127.0.0.11", "child.test")
    ask_loosely()
    for name, address in PLAIN.items():
        if name not in (*GETADDRINFO, "child.test"):
            get(address, name)
    refused = socket.socket()
    assert refused.connect_ex((resolve("plain.test"), 9)) != 0
    refused.close()


if __name__ == "__main__":
    main()
