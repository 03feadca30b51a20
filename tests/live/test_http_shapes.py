"""HTTP/1 in every shape that two programs can give it on the wire: one row at each end, and every column right."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Row, Traced, rows

MIB = 1 << 20
FILE_SIZE = 200 * MIB
Cuts = int | list[int]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a row must say; None is not looked at, but for `status` where it means null."""

    operation: str
    resource: str
    status: int | None
    outcome: str
    request_bytes: int | None = None
    response_bytes: int | None = None
    truncated: bool | None = False
    messages_sent: int | None = None
    messages_received: int | None = None


@dataclass(slots=True)
class Scenario:
    """One connection: what each end does, and the rows both ends must give."""

    name: str
    client: list[list[Any]] = field(default_factory=list)
    server: list[list[Any]] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)

    def move(self, sender: str, text: str, cuts: Cuts = 0, read: Cuts = 0) -> None:
        """Let one end send and the other receive, each in its own pieces."""
        receiver = {"client": "server", "server": "client"}[sender]
        getattr(self, sender).append(["send", text, cuts])
        getattr(self, receiver).append(["receive", len(text), read])

    def both(self, name: str, *arguments: object) -> None:
        for end in (self.client, self.server):
            end.append([name, *arguments])

    def expect(self, request: str, status: int | None, response: str | None, **given: Any) -> None:
        """Expect the row of a request sent whole; `response` None: do not look at its size."""
        method, resource, _ = request.split(" ", 2)
        outcome = "no_response" if status is None else {4: "client_error", 5: "server_error"}.get(status // 100, "ok")
        size = None if response is None else len(response)
        sizes = {"request_bytes": len(request), "response_bytes": size}
        self.expected.append(
            Expected(**{"resource": resource, "outcome": outcome, **sizes, **given}, operation=method, status=status)
        )

    def call(self, request: str, response: str, cuts: Cuts = 0, read: Cuts = 0, answer: Cuts | None = None) -> None:
        """One request and its response, both cut the same way unless `answer` says how the response is."""
        self.move("client", request, cuts, read)
        self.move("server", response, cuts if answer is None else answer, read if answer is None else answer)
        self.expect(request, int(response.split(" ", 2)[1]), response)


def head(first: str, *headers: str) -> str:
    return "".join(f"{line}\r\n" for line in (first, *headers)) + "\r\n"


def get(path: str, *headers: str, method: str = "GET") -> str:
    return head(f"{method} {path} HTTP/1.1", "Host: test", *headers)


def post(path: str, body: str, *headers: str) -> str:
    return get(path, f"Content-Length: {len(body)}", *headers, method="POST") + body


def reply(status: int, body: str = "", *headers: str) -> str:
    return head(f"HTTP/1.1 {status} Text", f"Content-Length: {len(body)}", *headers) + body


def chunked(*chunks: str, trailers: tuple[str, ...] = ()) -> str:
    parts = [f"{len(chunk):x};a=b\r\n{chunk}\r\n" for chunk in chunks]
    return "".join(parts) + "0\r\n" + "".join(f"{line}\r\n" for line in trailers) + "\r\n"


TRAILERS = ("X-Sum: 12", "X-More: yes")
CHUNKED_REQUEST = get("/chunked/0", "Transfer-Encoding: chunked", "Trailer: X-Sum", method="PUT") + chunked(
    "first", "GET /not/a/request HTTP/1.1\r\n\r\n", "x" * 20, trailers=TRAILERS
)
CHUNKED_RESPONSE = head("HTTP/1.1 201 Created", "Transfer-Encoding: chunked", "Trailer: X-Sum") + chunked(
    "one", "HTTP/1.1 500 No\r\n\r\n", "0\r\n\r\n", trailers=TRAILERS
)
LONG_REQUEST = post("/split/0", "b" * 500, *(f"X-Header-{i}: {'v' * i}" for i in range(30)))
LONG_RESPONSE = reply(404, "c" * 500, *(f"X-Header-{i}: {'w' * i}" for i in range(30)))
FULL = "Filler: " + "f" * 992  # with its line end 1,002 bytes


def then_plain(scenario: Scenario) -> Scenario:
    """Add a plain exchange: its row is right only if the end of what came before was found exactly."""
    scenario.call(get(f"/{scenario.name}/last"), reply(202, "after"))
    return scenario


def reading_and_writing() -> Iterator[Scenario]:
    """Calls of every size."""
    for name, cuts, read in (("bytes", 1, 1), ("bytes-out", 1, 0), ("bytes-in", 0, 1), ("sevens", 7, 5)):
        scenario = Scenario(name)
        scenario.call(post(f"/{name}/0", "body"), reply(200, "hello"), cuts, read)
        scenario.call(get(f"/{name}/1"), reply(500, "x" * 300), cuts, read)
        yield then_plain(scenario)
    scenario = Scenario("apart")
    request, response = post("/apart/0", "the body"), reply(201, "the answer")
    scenario.call(request, response, [request.index("the body")], 0, [response.index("the answer")])
    yield then_plain(scenario)
    scenario = Scenario("segment")
    requests = [
        get("/segment/0"),
        post("/segment/1", "GET / HTTP/1.1\r\n\r\n"),
        *(get(f"/segment/{i}") for i in (2, 3, 4)),
    ]
    responses = [reply(200 + i, "answer" * i) for i in (0, 1, 2)] + [reply(404, "none"), reply(503)]
    for cut in (0, len(requests[0]) + 9):
        scenario.move("client", "".join(requests), [cut])
        scenario.move("server", "".join(responses), [cut], [cut])
        for request, response in zip(requests, responses, strict=True):
            scenario.expect(request, int(response.split()[1]), response)
    yield then_plain(scenario)


def framing() -> Iterator[Scenario]:
    """Where messages end."""
    yield then_plain(one("chunked", CHUNKED_REQUEST, CHUNKED_RESPONSE))
    big = head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + chunked(*["d" * 30_000] * 10, trailers=TRAILERS)
    for name, cuts in (("chunked-pieces", 20_000), ("chunked-large", 0)):  # of one call: 64 KiB and its tail
        scenario = Scenario(name)
        scenario.move("client", get(f"/{name}/0"))
        scenario.move("server", big, cuts, 20_000)
        scenario.expect(get(f"/{name}/0"), 200, big, truncated=None)
        yield then_plain(scenario)
    yield then_plain(one("large", post("/large/0", "u" * MIB), reply(200, "d" * MIB)))
    yield then_plain(one("head", get("/head/0", method="HEAD"), head("HTTP/1.1 200 OK", "Content-Length: 1000")))
    yield then_plain(one("no-content", get("/no-content/0", method="DELETE"), head("HTTP/1.1 204 No Content")))
    yield then_plain(
        one("not-modified", get("/not-modified/0"), head("HTTP/1.1 304 Not Modified", "Content-Length: 77"))
    )
    scenario = Scenario("continue")
    request, response = post("/continue/0", "b" * 50, "Expect: 100-continue"), reply(200, "done")
    scenario.move("client", request[:-50])
    scenario.move("server", head("HTTP/1.1 100 Continue"))
    scenario.move("client", request[-50:])
    scenario.move("server", response)
    scenario.expect(request, 200, None)
    yield then_plain(scenario)
    hints = head("HTTP/1.1 103 Early Hints", "Link: </a.css>")
    yield then_plain(one("hints", get("/hints/0"), hints + reply(200, "page"), status=200, response_bytes=None))
    yield then_plain(one("query", get("/query?token=geheim&page=2"), reply(200), resource="/query?token=?&page=?"))
    scenario = Scenario("upgrade")
    request = get("/upgrade/0", "Connection: Upgrade", "Upgrade: websocket")
    scenario.move("client", request)
    scenario.move("server", head("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket"))
    scenario.expect(request, 101, None, request_bytes=None, messages_sent=1, messages_received=2)
    scenario.move("client", "\x81\x85\x00\x00\x00\x00hello")
    scenario.move("server", "\x81\x05world")
    scenario.move("server", "\x89\x00\x01\x02wo\x80\x03rld")
    yield scenario
    scenario = Scenario("events")
    request = get("/events/0", "Accept: text/event-stream")
    scenario.move("client", request)
    scenario.move("server", head("HTTP/1.1 200 OK", "Content-Type: text/event-stream") + "data: 1\n\n")
    scenario.expect(request, 200, None, messages_sent=0, messages_received=3)
    scenario.move("server", "data: 2\n\n: alive\n\n")
    scenario.move("server", "data: 3\n\n")
    yield scenario


def one(name: str, request: str, response: str, **given: Any) -> Scenario:
    """One exchange, its row as the two texts say but for what is given."""
    scenario = Scenario(name)
    scenario.move("client", request)
    scenario.move("server", response)
    scenario.expect(request, given.pop("status", int(response.split(" ", 2)[1])), response, **given)
    return scenario


def sizes() -> Iterator[Scenario]:
    """Heads that are kept whole, and one that is not."""
    yield then_plain(one("wide", get("/wide/0", *[FULL] * 16), reply(200, "", *[FULL] * 16)))
    yield one("too-wide", get("/too-wide/0", *[FULL] * 70), reply(200), truncated=True, request_bytes=None)


def ends() -> Iterator[Scenario]:
    """Connections that end in other ways than after the last response."""
    request = get("/until-close/0")
    response = head("HTTP/1.0 200 OK", "Content-Type: text/plain") + "all that comes " * 20
    scenario = one("until-close", request, response)
    scenario.server.append(["close"])
    scenario.client.append(["eof"])
    yield scenario
    for name, last in (("abandoned", "close"), ("aborted", "reset")):
        scenario = Scenario(name, client=[["send", get(f"/{name}/0"), 0], ["sleep", 0.05], [last]])
        scenario.server = [["receive", len(get(f"/{name}/0")), 0], ["eof"]]
        scenario.expect(get(f"/{name}/0"), None, None)
        yield scenario
    scenario = Scenario("never-sent")
    scenario.move("client", get("/never-sent/0"))
    scenario.server.append(["close"])
    scenario.client.append(["eof"])
    scenario.expect(get("/never-sent/0"), None, None)
    yield scenario
    scenario = Scenario("broken-off")
    scenario.move("client", get("/broken-off/0"))
    scenario.move("server", reply(200, "b" * 1000)[:-900])
    scenario.server.append(["close"])
    scenario.client.append(["eof"])
    scenario.expect(get("/broken-off/0"), 200, None, outcome="unknown")
    yield scenario
    scenario = Scenario("half-closed")
    scenario.client = [["send", get("/half-closed/0"), 0], ["shutdown"], ["receive", len(reply(200, "late")), 0]]
    scenario.server = [["receive", len(get("/half-closed/0")), 0], ["eof"], ["send", reply(200, "late"), 0], ["close"]]
    scenario.expect(get("/half-closed/0"), 200, reply(200, "late"))
    yield scenario
    scenario = Scenario("early-answer")
    request = get("/early-answer/0", "Content-Length: 100000", method="POST") + "b" * 500
    scenario.move("client", request)
    scenario.move("server", reply(413, "too much"))
    scenario.expect(request, 413, reply(413, "too much"), request_bytes=None, truncated=None)
    yield scenario


def splits() -> Iterator[Scenario]:
    """Two pieces, cut at each byte of the first KiB: on connections of their own, then all on one."""
    on_one = Scenario("split-on-one")
    for cut in range(1, 1024):
        scenario = Scenario(f"split-{cut}")
        scenario.call(LONG_REQUEST, LONG_RESPONSE, [cut], [cut])
        yield scenario
        on_one.call(LONG_REQUEST, LONG_RESPONSE, [cut], [cut])
    yield on_one


def boundaries() -> Iterator[Scenario]:
    """Chunked messages with trailers cut at each byte, thus at each boundary that HTTP has."""
    for cut in range(1, max(len(CHUNKED_REQUEST), len(CHUNKED_RESPONSE))):
        scenario = Scenario(f"boundary-{cut}")
        scenario.call(CHUNKED_REQUEST, CHUNKED_RESPONSE, [cut], [cut])
        yield then_plain(scenario)


def sent_file() -> Scenario:
    request, start = get("/file/0"), head("HTTP/1.1 200 OK", f"Content-Length: {FILE_SIZE}")
    scenario = Scenario("file")
    scenario.both("mark", "before")
    scenario.move("client", request)
    scenario.server.append(["mark", "request"])
    scenario.move("server", start)
    scenario.server.append(["sendfile", FILE_SIZE])
    scenario.client.append(["drain", FILE_SIZE, 0.005])
    scenario.both("mark", "after")
    scenario.expect(request, 200, None, response_bytes=len(start) + FILE_SIZE)
    return then_plain(scenario)


SHAPES = [*reading_and_writing(), *framing(), *sizes(), *ends(), sent_file()]
MANY = [*splits(), *boundaries()]


@dataclass(frozen=True, slots=True)
class Played:
    """The rows of every scenario, by its name and role, and what the target said."""

    rows: dict[tuple[str, str], list[Row]]
    losses: list[Row]
    told: dict[str, Any]


@pytest.fixture(scope="module")
def played(traced: Traced, python_target: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("shapes")
    steps = [[scenario.name, scenario.client, scenario.server] for scenario in [*SHAPES, *MANY]]
    (folder / "scenarios").write_text(json.dumps(steps))
    trace = traced(python_target("http_pair", folder / "scenarios", folder / "told"), record=str(folder / "record"))
    assert trace.exit_code == 0
    told = json.loads((folder / "told").read_text())
    names = {port: name for name, port in told["ports"].items()}
    assert len(names) == len(steps)
    found: dict[tuple[str, str], list[Row]] = {(name, role): [] for name in names.values() for role in told["pids"]}
    for row in rows(trace.requests):
        name = names[row["local_port"] if row["role"] == "client" else row["remote_port"]]
        found[name, row["role"]].append(row)
    for ends in found.values():
        ends.sort(key=lambda row: (row["request_position"], row["time_ns"]))
    return Played(found, rows(trace.losses), told)


def differences(scenario: Scenario, role: str, played: Played) -> list[str]:
    """Compare a scenario's rows at one end with what is expected."""
    found = played.rows[scenario.name, role]
    wrong = []
    if len(found) != len(scenario.expected):
        said = [(row["operation"], row["resource"], row["status"], row["outcome"]) for row in found[:10]]
        wrong.append(f"{scenario.name} {role}: {len(found)} rows, expected {len(scenario.expected)}: {said}")
    for row, expected in zip(found, scenario.expected, strict=False):
        for name in Expected.__slots__:
            value = getattr(expected, name)
            got = bool(row[name]) if name == "truncated" else row[name]
            if got != value and (value is not None or name == "status"):
                wrong.append(f"{scenario.name} {role} {row['resource']}: {name} is {row[name]}, expected {value}")
        if row["pid"] != played.told["pids"][role] or row["gap"] or row["protocol"] != "http1":
            wrong.append(f"{scenario.name} {role}: pid {row['pid']}, gap {row['gap']}, protocol {row['protocol']}")
    return wrong


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("scenario", SHAPES, ids=lambda scenario: scenario.name)
def test_shape_gives_its_rows(scenario: Scenario, role: str, played: Played) -> None:
    assert differences(scenario, role, played) == []


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("group", ["split", "boundary"])
def test_message_cut_at_each_byte_gives_its_rows(group: str, role: str, played: Played) -> None:
    wrong = [differences(scenario, role, played) for scenario in MANY if scenario.name.startswith(group)]
    wrong = [found for found in wrong if found]
    assert not wrong, f"{len(wrong)} connections are wrong, the first ones: {wrong[:5]}"


def test_both_ends_agree_on_the_exchange(played: Played) -> None:
    for scenario in [*SHAPES, *MANY]:
        ends = [[row["exchange"] for row in played.rows[scenario.name, role]] for role in ("client", "server")]
        assert ends[0] == ends[1], scenario.name
        assert None not in ends[0] and len(set(ends[0])) == len(ends[0]), scenario.name


def test_nothing_was_lost(played: Played) -> None:
    assert played.losses == []


@pytest.mark.parametrize("role", ["client", "server"])
def test_file_lasts_as_long_as_its_transfer(role: str, played: Played) -> None:
    row = played.rows["file", role][0]
    marks = played.told["marks"][role]["file"]
    began = marks["before" if role == "client" else "request"]
    assert marks["after"] - began > 800_000_000  # the reader was slow
    assert abs(row["start_ns"] - began) < 50_000_000
    assert abs(row["end_ns"] - marks["after"]) < 50_000_000
    assert row["response_bytes"] > FILE_SIZE


DISCARDS = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
client.sendall(b"GET /thrown-away HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
server.recv(4096)
answer = b"HTTP/1.1 204 No Content\\r\\n\\r\\n"
server.sendall(answer)
stale = bytearray(b"HTTP/1.1 500 Never Sent\\r\\n\\r\\n")[: len(answer)]
assert client.recv_into(stale, 0, socket.MSG_TRUNC) == len(answer)
"""


def test_bytes_that_the_reader_throws_away_are_not_guessed(traced: Traced, tmp_path: Path) -> None:
    """recv(MSG_TRUNC) of TCP leaves the buffer as it was: what stands there never came."""
    trace = traced([sys.executable, "-c", DISCARDS], record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    assert {row["role"]: row["status"] for row in rows(trace.requests)} == {"server": 204, "client": None}
