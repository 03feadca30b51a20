"""HTTP clients for the tests: `call_http.py (requests|httpx|aiohttp) PORT PLAN`.

PLAN is a JSON list of `{close, requests: [[method, path, body size], ...]}`, each a connection of its own, all at once;
`METHOD PATH STATUS` goes to standard output for each request.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

KIND, PORT, PLAN = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
Plan = dict[str, Any]


def body_of(size: int | None) -> bytes | None:
    return None if size is None else b"x" * size


def headers_of(plan: Plan) -> dict[str, str]:
    return {"Connection": "close"} if plan["close"] else {}


def said(method: str, path: str, status: int) -> None:
    sys.stdout.write(f"{method} {path} {status}\n")


def call_requests(plan: Plan) -> None:
    import requests

    with requests.Session() as session:
        session.trust_env = False
        for method, path, size in plan["requests"]:
            url = f"http://127.0.0.1:{PORT}{path}"
            response = session.request(method, url, data=body_of(size), headers=headers_of(plan), timeout=20)
            said(method, path, response.status_code)


def call_httpx(plan: Plan) -> None:
    import httpx

    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=20, trust_env=False) as client:
        for method, path, size in plan["requests"]:
            response = client.request(method, path, content=body_of(size), headers=headers_of(plan))
            said(method, path, response.status_code)


async def call_aiohttp(plan: Plan) -> None:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1, force_close=plan["close"])) as session:
        for method, path, size in plan["requests"]:
            url = f"http://127.0.0.1:{PORT}{path}"
            async with session.request(method, url, data=body_of(size), headers=headers_of(plan)) as response:
                await response.read()
                said(method, path, response.status)


def main() -> None:
    signal.alarm(60)
    plans: list[Plan] = json.loads(PLAN.read_text())
    if KIND == "aiohttp":

        async def run_all() -> None:
            await asyncio.gather(*map(call_aiohttp, plans))

        asyncio.run(run_all())
        return
    call: Callable[[Plan], None] = {"requests": call_requests, "httpx": call_httpx}[KIND]
    with ThreadPoolExecutor(len(plans)) as threads:
        list(threads.map(call, plans))


if __name__ == "__main__":
    main()
