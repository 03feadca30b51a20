"""Connections that stay, and a storm of short ones: `churn.py SHORT THREADS STAYING RESULT`.

A server forks off and serves; the client opens STAYING connections, says `ready` with the pids, and makes SHORT
connections from THREADS threads when a line comes on standard input. Then RESULT gets the client's ports of both with
the moments (CLOCK_MONOTONIC) at which each short one began and ended. It waits for a second line before it ends.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

SHORT, THREADS, STAYING = map(int, sys.argv[1:4])


def serve(listener: socket.socket) -> None:
    def one(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data.upper())

    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


def call(port: int) -> tuple[int, int, int]:
    began = time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(b"hello")
        assert connection.recv(5) == b"HELLO"
        own = connection.getsockname()[1]
    return own, began, time.monotonic_ns()


def main() -> None:
    signal.alarm(400)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    port = listener.getsockname()[1]
    server = os.fork()
    if server == 0:
        signal.alarm(400)
        serve(listener)
    listener.close()
    staying = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(STAYING)]
    for connection in staying:
        connection.sendall(b"before")
        assert connection.recv(6) == b"BEFORE"
    print(json.dumps({"client": os.getpid(), "server": server, "port": port}), flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(THREADS) as threads:
        short = list(threads.map(call, [port] * SHORT))
    for connection in staying:
        connection.sendall(b"and after")
        assert connection.recv(9) == b"AND AFTER"
    told = {"short": short, "staying": [connection.getsockname()[1] for connection in staying]}
    with open(sys.argv[4], "w") as result:
        json.dump(told, result)
    print("done", flush=True)
    sys.stdin.readline()
    os.kill(server, signal.SIGTERM)
    os.waitpid(server, 0)


main()
