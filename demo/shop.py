"""A small shop of three processes and a cache, and the customers that keep it busy for some seconds.

    .venv/bin/tracehound run -- .venv/bin/python demo/shop.py

`shop` (this script) starts `orders` and `web`, then asks `web` from several threads; `web` asks `orders`, and `orders`
keeps what it was asked for in Redis, if redis-server is installed. Some orders do not exist, some are broken, and
nobody listens where the shop sends its statistics.
"""

import contextlib
import http.client
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from store import redis_server

HERE: Final = Path(__file__).parent
CUSTOMERS: Final = 4
VISITS: Final = 50
MISSING: Final = 404  # an order that does not exist
STATISTICS_PORT: Final = 9  # discard: nothing listens there


@contextlib.contextmanager
def server(script: str, *arguments: str) -> Iterator[str]:
    """Run a script of this folder until the end of the block; gives the `host:port` that its first line names."""
    command = [sys.executable, str(HERE / script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def visit(web: str, seed: int, seen: Counter[int]) -> None:
    """Ask for order after order over one connection."""
    chosen = random.Random(seed)
    with contextlib.closing(http.client.HTTPConnection(web, timeout=10)) as connection:
        for _ in range(VISITS):
            number = MISSING if chosen.random() < 0.05 else chosen.randrange(1, 101)
            path = "/" if chosen.random() < 0.2 else f"/orders/{number}?customer={seed}"
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            seen[response.status] += 1


def send_statistics() -> str:
    """Try to send statistics to where nobody listens."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", STATISTICS_PORT, timeout=5)) as connection:
        try:
            connection.request("POST", "/statistics", body=b"{}")
        except OSError as error:
            return f"statistics not sent: {error.strerror}"
    return "statistics sent"


def main() -> None:
    """Open the shop, serve every customer, close it."""
    seen: list[Counter[int]] = [Counter() for _ in range(CUSTOMERS)]
    with (
        redis_server() as store,
        server("orders.py", *([store] if store else [])) as orders,
        server("web.py", orders) as web,
    ):
        customers = [threading.Thread(target=visit, args=(web, n, seen[n])) for n in range(CUSTOMERS)]
        for customer in customers:
            customer.start()
        for customer in customers:
            customer.join()
    statuses = sum(seen, Counter())
    print(
        f"shop: {statuses.total()} pages;",
        ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items())),
    )
    print(f"shop: {send_statistics()}")


if __name__ == "__main__":
    main()
