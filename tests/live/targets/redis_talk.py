"""A redis-server and one client without a library, all bytes written out: RESP2, RESP3, a pipeline, MULTI, channels.

`redis_talk.py FOLDER`, the folder of the server. Each exchange waits for the bytes that its answer ends with.
"""

import socket
import subprocess
import sys
import time

FOLDER = sys.argv[1]
SECRET = "hunter2-planted"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def command(line: str) -> bytes:
    words = [word.encode() for word in line.split(" ")]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def ask(connection: socket.socket, data: bytes, replies: int) -> None:
    """Send, then wait for so many lines of an answer."""
    connection.sendall(data)
    read(connection, replies)


def read(connection: socket.socket, lines: int) -> None:
    seen = b""
    while seen.count(b"\r\n") < lines:
        part = connection.recv(65536)
        assert part, seen
        seen += part


def talk(port: int) -> None:
    with connect(port) as one:
        ask(one, command(f"SET cart:17 {SECRET}"), 1)
        ask(one, command("GET cart:17"), 2)
        ask(one, b"PING\r\n", 1)
        ask(one, command("MSET a 1 b 2 user:password:x 3"), 1)
        ask(one, command("GET a") + command("INCR a") + command("MGET a b none"), 2 + 1 + 6)
        ask(one, command("MULTI") + command("INCR a") + command(f"LPUSH l {SECRET}") + command("EXEC"), 6)
        ask(one, command("EVAL return{1,redis.status_reply('x')} 1 a"), 3)
        for wrong in (f"GET a {SECRET}", f"{SECRET} a", "LPUSH a x", f"AUTH {SECRET}", "SELECT x"):
            ask(one, command(wrong), 1)
        ask(one, command("SELECT 2"), 1)
        ask(one, command("GET a"), 1)
    with connect(port) as two, connect(port) as other:
        two.sendall(command("HELLO 3"))
        read(two, 15)
        ask(two, command("SUBSCRIBE news"), 6)
        ask(other, command(f"PUBLISH news {SECRET}"), 1)
        read(two, 7)
        ask(other, command(f"HSET h f {SECRET} g 2"), 1)
        ask(other, command("HELLO 3"), 15)
        ask(other, command("HGETALL h"), 9)
        ask(other, command("ZADD z 1.5 x"), 1)
        ask(other, command("ZSCORE z x"), 1)


where = free_port()
line = ["redis-server", "--port", str(where), "--bind", "127.0.0.1", "--save", "", "--dir", FOLDER]
with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
    try:
        talk(where)
    finally:
        process.terminate()
