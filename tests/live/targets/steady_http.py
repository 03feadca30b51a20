"""One request each 20 ms, each logged when its response is there: `steady_http.py SECONDS LOG`; ends early by LOG.stop.

LOG gets the pid of the server and of the client in its first line, then `TIME_NS PATH` (CLOCK_MONOTONIC) for each
request.
"""

import http.client
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

SECONDS, LOG = float(sys.argv[1]), sys.argv[2]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def main() -> None:
    signal.alarm(int(SECONDS) + 20)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    child = os.fork()
    if child == 0:
        signal.alarm(int(SECONDS) + 20)
        server.handle_request()  # one connection
        os._exit(0)
    server.server_close()
    end = time.monotonic() + SECONDS
    stop = Path(f"{LOG}.stop")
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    with open(LOG, "w", buffering=1) as log:
        log.write(f"{child} {os.getpid()}\n")
        number = 0
        while time.monotonic() < end and not stop.exists():
            client.request("GET", f"/steady/{number}")
            client.getresponse().read()
            log.write(f"{time.monotonic_ns()} /steady/{number}\n")
            number += 1
            time.sleep(0.02)
    client.close()
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
