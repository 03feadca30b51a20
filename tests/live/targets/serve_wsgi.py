"""What gunicorn serves for the tests: GET /items 200, POST /items 201, /missing 404, /broken 503."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answer one request."""
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    status = {"missing": 404, "broken": 503}.get(path.split("/")[1], 201 if method == "POST" else 200)
    body = f"{method} {path}\n".encode()
    start_response(f"{status} {HTTPStatus(status).phrase}", [("Content-Length", str(len(body)))])
    return [body]
