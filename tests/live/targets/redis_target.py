"""redis-server with its clients in one process tree: `redis_target.py WHAT FOLDER [ARGUMENT...]`.

WHAT: `benchmark TESTS REQUESTS` (redis-benchmark, 16 commands at once), `paced RATE SECONDS`, `talk` (redis-py and
redis-cli in all ways of speaking), `replica` (a second server that follows). FOLDER gets `told.json`: the port, and how
often the server ran each command, as `INFO commandstats` says.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

WHAT, FOLDER, ARGUMENTS = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
PIPELINE = 16


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def server(*options: str) -> Iterator[int]:
    """Run a server on a free port of loopback that keeps nothing."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(FOLDER), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()


def count_calls(port: int) -> dict[str, int]:
    """Return how often each command was run, by the names of `operation`."""
    with redis.Redis(port=port) as client:
        stats: Any = client.info("commandstats")
    return {name.removeprefix("cmdstat_").replace("|", " ").upper(): one["calls"] for name, one in stats.items()}


def benchmark(port: int, tests: str, requests: str) -> None:
    command = ["redis-benchmark", "-p", str(port), "-n", requests, "-P", str(PIPELINE), "-c", "8", "-t", tests, "-q"]
    subprocess.run([*command, "-r", "1000"], check=True, stdout=subprocess.DEVNULL, timeout=300)


def paced(port: int, rate: str, seconds: str) -> None:
    """Send so many commands a second over one connection, 16 at once, in even steps."""
    steps = int(rate) * int(seconds) // PIPELINE
    key = b"*2\r\n$3\r\nGET\r\n$7\r\nkey:%03d\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.monotonic()
        for step in range(steps):
            connection.sendall(b"".join(key % (at % 1000) for at in range(step, step + PIPELINE)))
            left = PIPELINE * len(b"$-1\r\n")
            while left:
                left -= len(connection.recv(left))
            time.sleep(max(began + (step + 1) * PIPELINE / int(rate) - time.monotonic(), 0))


def talk(port: int) -> None:
    """Speak in many ways; what rows there must be stands in the test."""
    with redis.Redis(port=port, protocol=3, client_name="shop") as client:
        client.set("cart:17", "secret")
        client.get("cart:17")
        client.hset("h", mapping={"field": "secret"})
        client.hgetall("h")
        client.set("big", b"x" * 300_000)
        client.get("big")
        with client.pipeline(transaction=False) as many:
            many.incr("n").lpush("cart:17", "secret").get("n")
            many.execute(raise_on_error=False)
        with client.pipeline(transaction=True) as transaction:
            transaction.set("a", "1").incr("cart:17").get("a")
            transaction.execute(raise_on_error=False)
        client.register_script("return redis.call('get', KEYS[1])")(keys=["a"])
        client.eval("return {1, {2, 'secret'}, redis.error_reply('MINE secret')}", 1, "a")
        client.rpush("l", *(b"x" * 200 for _ in range(200)))
        client.lrange("l", 0, -1)
        with client.pipeline(transaction=False) as many:
            for _ in range(5_000):
                many.ping()
            many.execute()
    with redis.Redis(port=port, protocol=2) as client, client.pubsub() as channels:
        channels.subscribe("news")
        channels.psubscribe("n*")
        client.publish("news", "secret")
        deadline, seen = time.monotonic() + 20, 0
        while seen < 2 and time.monotonic() < deadline:
            message = channels.get_message(timeout=1)
            seen += bool(message and message["type"].endswith("message") and message["data"] == b"secret")
        client.blpop(["none"], timeout=1)
    lines = "hello 3\nclient tracking on\nget cart:17\nset cart:17 x\nselect 2\nget a\nnope hunter2\n"
    subprocess.run(["redis-cli", "-p", str(port)], input=lines, text=True, check=True, stdout=subprocess.DEVNULL)


def replica(port: int) -> None:
    """Let another server follow until it has what the first one had."""
    with redis.Redis(port=port) as client, server("--replicaof", f"127.0.0.1 {port}") as other:
        client.set("k", "secret")
        deadline = time.monotonic() + 30
        with redis.Redis(port=other) as follower:
            while follower.get("k") != b"secret" and time.monotonic() < deadline:
                time.sleep(0.1)


WAYS: dict[str, Callable[..., None]] = {"benchmark": benchmark, "paced": paced, "talk": talk, "replica": replica}
with server() as where:
    WAYS[WHAT](where, *ARGUMENTS)
    told = {"port": where, "calls": count_calls(where)}
(FOLDER / "told.json").write_text(json.dumps(told))
