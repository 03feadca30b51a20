"""The `web` service of the demo: pages made from what `orders` says. Argument: its host:port; prints its own."""

import http.client
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web(BaseHTTPRequestHandler):
    """Asks orders over one connection for each customer's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    orders_address = ""

    def setup(self) -> None:
        """Connect to orders when a customer connects."""
        super().setup()
        self.orders = http.client.HTTPConnection(self.orders_address, timeout=10)

    def finish(self) -> None:
        """Close both."""
        self.orders.close()
        super().finish()

    def do_GET(self) -> None:
        """Answer with a page around what orders said."""
        path = self.path.partition("?")[0]
        self.orders.request("GET", "/orders" if path == "/" else path)
        response = self.orders.getresponse()
        body = b"<html><body><pre>" + response.read() + b"</pre></body></html>\n"
        self.send_response(502 if response.status == 500 else response.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the trace tells."""


def main() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    Web.orders_address = sys.argv[1]
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        print(f"127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
