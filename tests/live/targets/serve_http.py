"""An HTTP server for the tests: `serve_http.py (http.server | uvicorn | aiohttp) PORT LOG`.

LOG gets `METHOD PATH STATUS` for each request, before its response is sent. GET /items 200, POST /items 201,
/missing 404, /broken 503. Ends by SIGTERM, or after two minutes.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO

KIND, PORT, LOG = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def answer(method: str, path: str, log: TextIO) -> tuple[int, bytes]:
    """Return status and body of a request, and log it."""
    status = {"missing": 404, "broken": 503}.get(path.split("/")[1], 201 if method == "POST" else 200)
    log.write(f"{method} {path} {status}\n")
    return status, f"{method} {path}\n".encode()


def serve_http_server(log: TextIO) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, body = answer(self.command, self.path, log)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - names that http.server asks for

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Server(("127.0.0.1", PORT), Handler).serve_forever()


def serve_uvicorn(log: TextIO) -> None:
    import uvicorn

    async def app(
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[object], Awaitable[None]],
    ) -> None:
        while (await receive()).get("more_body"):
            pass
        status, body = answer(scope["method"], scope["path"], log)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False, lifespan="off")


def serve_aiohttp(log: TextIO) -> None:
    from aiohttp import web

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        status, body = answer(request.method, request.path, log)
        return web.Response(status=status, body=body)

    async def serve() -> None:
        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PORT).start()
        await asyncio.Event().wait()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(serve())


if __name__ == "__main__":
    signal.alarm(120)
    with open(LOG, "w", buffering=1) as stream:
        {"http.server": serve_http_server, "uvicorn": serve_uvicorn, "aiohttp": serve_aiohttp}[KIND](stream)
