"""What runs already when it is attached to: a client and a server that have begun to speak HTTP.

`talk_before.py TRUTH`: prints the two pids when a connection has carried its first requests and waits for a line; then
come more requests, on that connection and on new ones. TRUTH gets, as JSON, what was done. The exit code is 7.
"""

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

from tests.vm.talk import REQUESTS, account, ask, exchange, serve

SHORT: Final = 3  # connections that are made afterwards


def serve_all(listener: socket.socket) -> None:
    """Serve the connection from before and the short ones, side by side."""
    threads = []
    for _ in range(1 + SHORT):
        threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def main() -> None:
    signal.alarm(300)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    pair = socket.socketpair()
    server = os.fork()
    if server == 0:
        datagrams.close()
        pair[0].close()
        serve_all(listener)
        os._exit(0)
    listener.close()
    pair[1].close()
    with socket.create_connection(("127.0.0.1", port), 60) as kept:
        kept.setblocking(True)
        before = exchange(kept, 0)
        print(json.dumps([os.getpid(), server]), flush=True)
        sys.stdin.readline()
        after = exchange(kept, REQUESTS)
        short = [ask(port, number * REQUESTS) for number in range(2, 2 + SHORT)]
        told = account(kept, before + after) | {"requests": after}
    _, status = os.waitpid(server, 0)
    truth = {
        "client": os.getpid(),
        "server": server,
        "udp_port": datagrams.getsockname()[1],
        "kept": told,
        "short": short,
        "server_status": status,
    }
    Path(sys.argv[1]).write_text(json.dumps(truth))
    sys.exit(7)


if __name__ == "__main__":
    main()
