"""HTTP over translated addresses: `nat_http.py LISTEN... -- CONNECT...`, each `ADDRESS PORT`.

Serves on each LISTEN and makes three requests over one connection to each CONNECT; run in a network namespace whose
rules make one of the other.
"""

import http.client
import http.server
import socket
import sys
import threading
from collections.abc import Iterator


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def ends(words: list[str]) -> Iterator[tuple[str, int]]:
    for address, port in zip(words[::2], words[1::2], strict=True):
        yield address, int(port)


def main() -> None:
    cut = sys.argv.index("--")
    servers = [Server(*end) for end in ends(sys.argv[1:cut])]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    for address, port in ends(sys.argv[cut + 1 :]):
        connection = http.client.HTTPConnection(address, port, timeout=10)
        for number in range(3):
            connection.request("GET", f"/{port}/{number}")
            assert connection.getresponse().read() == b"ok"
        connection.close()
    for server in servers:
        server.shutdown()


if __name__ == "__main__":
    main()
