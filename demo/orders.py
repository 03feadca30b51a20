"""The `orders` service of the demo: GET /orders and GET /orders/NUMBER, JSON over HTTP/1.1; prints its `host:port`.

Argument: the host:port of a Redis server, if there is one; orders that were asked for are kept there.
"""

import contextlib
import json
import random
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from store import Store

ORDERS: Final = 100
BROKEN: Final = frozenset({13, 77})  # answered with 500
SLOW_S: Final = (0.002, 0.015)


class Orders(BaseHTTPRequestHandler):
    """Answers as a service with a slow store would."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    store_address: str | None = None

    def handle(self) -> None:
        """Connect to the store, if there is one, for as long as the caller stays connected."""
        with Store(self.store_address) if self.store_address else contextlib.nullcontext() as self.store:
            super().handle()

    def do_GET(self) -> None:
        """Answer one request."""
        if self.path == "/orders":
            time.sleep(random.uniform(*SLOW_S))
            self.answer(200, [{"number": number, "items": number % 7 + 1} for number in range(1, ORDERS + 1)])
            return
        number = int(self.path.removeprefix("/orders/"))
        if self.store and (kept := self.store.ask("GET", f"order:{number}")):
            self.answer(200, json.loads(kept))
            return
        time.sleep(random.uniform(*SLOW_S))
        if number in BROKEN:
            self.answer(500, {"error": "the store is broken"})
        elif number > ORDERS:
            self.answer(404, {"error": "no such order"})
        else:
            order = {"number": number, "items": [f"item {item}" for item in range(number % 7 + 1)]}
            if self.store:
                self.store.ask("SET", f"order:{number}", json.dumps(order), "EX", "60")
            self.answer(200, order)

    def answer(self, status: int, value: object) -> None:
        """Send a status and a JSON body."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the trace tells."""


def main() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    Orders.store_address = sys.argv[1] if len(sys.argv) > 1 else None
    with ThreadingHTTPServer(("127.0.0.1", 0), Orders) as server:
        print(f"127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
