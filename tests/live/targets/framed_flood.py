"""HTTP requests of 8 KiB one way over one connection: `framed_flood.py FOLDER`, until FOLDER/stop is there.

It begins when FOLDER/go is there, sends one each 2 ms, and without a pause while FOLDER/fast is there.
"""

import signal
import socket
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\nX-Filler: " + b"x" * 8000 + b"\r\n\r\n"


def read(server: socket.socket) -> None:
    while server.recv(1 << 16):
        pass


def main() -> None:
    signal.alarm(60)
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    reader = threading.Thread(target=read, args=(server,))
    reader.start()
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
    number = 0
    is_fast = False
    while True:
        number += 1
        client.sendall(REQUEST)
        if number % 16 == 0:
            is_fast = (FOLDER / "fast").exists()
            if (FOLDER / "stop").exists():
                break
        if not is_fast:
            time.sleep(0.002)
    client.close()
    reader.join()


if __name__ == "__main__":
    main()
