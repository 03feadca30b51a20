"""Sockets that are there before an attach: `counted_before.py FOLDER`, a client and a server process.

Prints one JSON line when all is set up: pids, names and ports. At each line of input it goes on: first every socket
carries something, then the process ends. What was carried after the first line goes to FOLDER/told.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

REQUEST = b"GET /before HTTP/1.1\r\nHost: unix\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def answer(connection: socket.socket, request: bytes, response: bytes) -> None:
    assert connection.recv(4096) == request
    connection.sendall(response)


def ask(connection: socket.socket, request: bytes, response: bytes) -> None:
    connection.sendall(request)
    assert connection.recv(4096) == response


def main() -> None:
    signal.alarm(60)
    folder = Path(sys.argv[1])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "listen"))
    listener.listen(7)
    udp_server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp_server.bind(("127.0.0.1", 0))
    datagrams = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    begin_server, begun = os.pipe()
    server = os.fork()
    signal.alarm(60)
    if server == 0:
        os.close(begun)
        datagrams[0].close()
        accepted = listener.accept()[0]
        answer(accepted, b"first", b"answer")
        os.read(begin_server, 1)  # until the attach
        answer(accepted, REQUEST, RESPONSE)
        data, address = udp_server.recvfrom(4096)
        udp_server.sendto(data + b"!", address)
        answer(datagrams[1], b"one", b"two")
        os.read(begin_server, 1)
        os._exit(0)
    listener.close()
    datagrams[1].close()
    udp_port = udp_server.getsockname()[1]
    udp_server.close()
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(folder / "listen"))
    ask(client, b"first", b"answer")
    udp_client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp_client.connect(("127.0.0.1", udp_port))
    unused = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    unused_unix = socket.socket(socket.AF_UNIX)
    told = {
        "client": os.getpid(),
        "server": server,
        "udp_port": udp_port,
        "udp_client_port": udp_client.getsockname()[1],
        "fds": {"client": client.fileno(), "udp_client": udp_client.fileno(), "datagrams": datagrams[0].fileno()},
    }
    print(json.dumps(told), flush=True)
    sys.stdin.readline()
    os.write(begun, b".")
    ask(client, REQUEST, RESPONSE)
    ask(udp_client, b"ask", b"ask!")
    ask(datagrams[0], b"one", b"two")
    unused.sendto(b"new", ("127.0.0.1", 9))
    print("done", flush=True)
    sys.stdin.readline()
    os.write(begun, b".")
    os.waitpid(server, 0)
    unused_unix.close()


if __name__ == "__main__":
    main()
