"""HTTP, Redis and PostgreSQL, server and client of each in one process tree: `three_protocols.py FOLDER SECONDS`.

FOLDER gets `servers.json` when all are there: the ports, and the file of PostgreSQL's log; `http.log`, a line for each
request before its answer is sent; and at the end `told.json`: what each server counted. Ends early by `FOLDER/stop`.
"""

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import redis

sys.path.append(str(Path(__file__).parents[3]))
postgresql_server, redis_server = map(import_module, ("tests.live.postgresql_server", "tests.live.redis_server"))

FOLDER, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
PAUSE_S = 0.01
SECRET = "hunter2-planted"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        with (FOLDER / "http.log").open("a") as log:
            log.write(f"{self.path}\n")
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def call_http(port: int) -> Callable[[int], None]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(number: int) -> None:
        client.request("GET", f"/orders/{number}?token={SECRET}")
        assert client.getresponse().read() == b"hello"

    return call


def call_redis(port: int) -> Callable[[int], None]:
    client = redis.Redis(port=port)

    def call(number: int) -> None:
        with client.pipeline(transaction=False) as several:
            several.set(f"cart:{number % 10}", SECRET)
            for key in ("cart:0", "cart:9", "cart:none"):
                several.get(key)
            several.execute()

    return call


def call_postgresql(url: str) -> Callable[[int], None]:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("create table things (id int primary key, name text)")

    def call(number: int) -> None:
        if number % 2:
            connection.execute("select name from things where id = %s", (number - 1,), prepare=True)
        else:
            connection.execute(f"insert into things values ({number}, '{SECRET}')")

    return call


def count_calls(port: int) -> dict[str, int]:
    with redis.Redis(port=port) as client:
        stats: Any = client.info("commandstats")
    return {name: stats[f"cmdstat_{name.lower()}"]["calls"] for name in ("GET", "SET")}


def repeat(call: Callable[[int], None], until: float) -> None:
    number = 0
    while time.monotonic() < until and not (FOLDER / "stop").exists():
        call(number)
        number += 1
        time.sleep(PAUSE_S)


def main() -> None:
    signal.alarm(int(SECONDS) + 120)
    (FOLDER / "http.log").touch()
    web = HTTPServer(("127.0.0.1", 0), Handler)
    child = os.fork()
    if child == 0:
        signal.alarm(int(SECONDS) + 120)
        web.handle_request()  # one connection
        os._exit(0)
    web.server_close()
    with redis_server.running_server(FOLDER) as (_, redis_port), postgresql_server.running_server() as postgresql:
        calls = [call_http(web.server_port), call_redis(redis_port), call_postgresql(postgresql.url())]
        servers = {"http1": web.server_port, "redis": redis_port, "postgresql": postgresql.port}
        written = FOLDER / "servers.part"
        written.write_text(json.dumps({"ports": servers, "log": str(postgresql.folder / "log")}))
        written.rename(FOLDER / "servers.json")
        until = time.monotonic() + SECONDS
        threads = [threading.Thread(target=repeat, args=(call, until)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = {
            "http1": Counter(GET=len((FOLDER / "http.log").read_text().splitlines())),
            "redis": count_calls(redis_port),
            "postgresql": Counter(
                statement.split()[0].upper() for statement in postgresql.statements() if "things" in statement
            ),
        }
        (FOLDER / "told.json").write_text(json.dumps(told))
        calls.clear()  # closes the clients' connections, before their servers go
    os.waitpid(child, 0)


main()
