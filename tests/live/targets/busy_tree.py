"""Processes, connections and requests without a pause: `busy_tree.py SECONDS LOG`; ends early by LOG.stop.

A server process answers GET with its path. Each round makes a request on a connection that stays, one on a connection
of its own, and runs a child that exits with 7. LOG gets `BEFORE_NS AFTER_NS PATH PORT CHILD` (CLOCK_MONOTONIC) for each
round; PATH is asked twice, with `/kept` and `/own` in front. An error of any kind ends it with a traceback and 1.
"""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECONDS, LOG = float(sys.argv[1]), sys.argv[2]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def ask(client: http.client.HTTPConnection, path: str) -> None:
    client.request("GET", path)
    body = client.getresponse().read()
    assert body == path.encode(), (path, body)


def main() -> None:
    signal.alarm(int(SECONDS) + 20)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # server_close() waits for them
    child = os.fork()
    if child == 0:
        signal.alarm(int(SECONDS) + 20)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=server.serve_forever, daemon=True).start()
        signal.sigwait({signal.SIGTERM})
        server.shutdown()
        server.server_close()
        os._exit(0)
    server.server_close()
    end = time.monotonic() + SECONDS
    stop = Path(f"{LOG}.stop")
    kept = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    number = 0
    try:
        with open(LOG, "w", buffering=1) as log:
            while time.monotonic() < end and not stop.exists():
                before_ns = time.monotonic_ns()
                ask(kept, f"/kept/{number}")
                own = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
                own.connect()
                port = own.sock.getsockname()[1]
                ask(own, f"/own/{number}")
                own.close()
                process = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
                assert process.wait(10) == 7
                log.write(f"{before_ns} {time.monotonic_ns()} {number} {port} {process.pid}\n")
                number += 1
                time.sleep(0.002)
        kept.close()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    os.kill(child, signal.SIGTERM)  # it ends when its sockets are closed
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
