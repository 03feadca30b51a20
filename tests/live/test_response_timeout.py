"""A response that comes too late: the request's row says `no_response`, and the response makes no second one."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.live.conftest import Traced, rows

REQUEST = "GET /{} HTTP/1.1\r\nHost: test\r\n\r\n"
RESPONSE = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def test_response_after_the_timeout_is_counted(
    traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    client, server = [], []
    for path, delay_s in (("fast", 0), ("slow", 2.5), ("next", 0)):
        client += [["send", REQUEST.format(path), 0], ["receive", len(RESPONSE), 0]]
        server += [["receive", len(REQUEST.format(path)), 0], ["sleep", delay_s], ["send", RESPONSE, 0]]
    (tmp_path / "scenarios").write_text(json.dumps([["timeout", client, server]]))
    command = python_target("http_pair", tmp_path / "scenarios", tmp_path / "told")
    trace = traced(command, record=str(tmp_path / "record"), response_timeout_s=1.0)
    assert trace.exit_code == 0
    said = Counter((row["resource"], row["status"], row["outcome"]) for row in rows(trace.requests))
    assert said == {("/fast", 200, "ok"): 2, ("/slow", None, "no_response"): 2, ("/next", 200, "ok"): 2}
    assert [(row["counter"], row["count"]) for row in rows(trace.losses)] == [("late_response", 1)] * 2
