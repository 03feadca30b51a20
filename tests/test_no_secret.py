"""No planted secret is in anything that is written: recording, SQL, rows as they come, summary, notebook, command line.

Conversations of each protocol, and commands, with a secret at the places where real ones stand go through the whole
line into every output; then all bytes of all outputs are searched for all secrets. That the search finds a secret in
each of them is shown by what is written without redaction.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest
from tests.decode.records import CLIENT, SERVER, Recorder, Socket
from tests.enrich.test_secrets import COMMANDS, WORDS, make_secret
from tests.protocols import redis_secrets
from tests.protocols.secret_cases import CASES, Talk, move_all
from tests.protocols.test_postgresql import plant as plant_in_postgresql

import tracehound
from tracehound.account import recording_source
from tracehound.btf import wire_layout
from tracehound.cli import main
from tracehound.config import Settings
from tracehound.line import Line
from tracehound.live import TableView
from tracehound.protocols._protocol import REQUEST, RESPONSE
from tracehound.recording import Recording
from tracehound.sinks import FollowSink, kind
from tracehound.sinks.console import Ending, LiveRows, Summary, render
from tracehound.target import Command

FOUND: Final = 10  # so many bytes of a secret are one that was found
FLUSH_CASES: Final = 100
UNREDACTED: Final = 40  # cases, to show that the search finds
FIELD: Final = WORDS + "-._~"


class Case(NamedTuple):
    talk: Talk
    secret: str


# ---- what passes


HTTP_REQUESTS: Final = (  # request target, more fields, body
    ("/orders?token=@", "", ""),
    ("/orders?@", "", ""),
    ("/orders;jsessionid=@/17", "", ""),
    ("/users/@@mail.example.org/cart", "", ""),
    ("/users/@%40mail.example.org", "", ""),
    ("/reset#access_token=@", "", ""),
    ("http://bob:@@shop.example/orders", "", ""),
    ("/orders", "Cookie: session=@; theme=dark\r\n", ""),
    ("/orders", "Authorization: Bearer @\r\n", ""),
    ("/orders", "Authorization: Basic @\r\n", ""),
    ("/orders", "X-Api-Key: @\r\n", ""),
    ("/orders", "Referer: http://shop.example/?token=@\r\n", ""),
    ("/orders", "From: @@mail.example.org\r\n", ""),
    ("/login", "Content-Type: application/json\r\n", '{"user": "bob", "password": "@"}'),
    ("/login", "Content-Type: application/x-www-form-urlencoded\r\n", "user=bob&password=@&mail=@@x.example"),
)
HTTP_RESPONSES: Final = (  # status line, more fields, body
    ("200 OK", "Set-Cookie: session=@; HttpOnly\r\n", "hello"),
    ("302 Found", "Location: /done?token=@\r\n", ""),
    ("401 Unauthorized", 'WWW-Authenticate: Digest nonce="@"\r\n', "password @ is wrong"),
    ("500 password=@", "X-Token: @\r\n", "for @@mail.example.org"),
    ("200 OK", "", '{"token": "@", "mail": "@@x.example"}'),
)


def put(text: str, secret: str) -> bytes:
    """Put a secret where `@` stands; `@@` is one before the @ of an address."""
    return text.replace("@@", "\0").replace("@", secret).replace("\0", f"{secret}@").encode()


def http1_case(number: int, rolls: random.Random) -> Case:
    secret = make_secret(rolls, FIELD)
    target, fields, body = HTTP_REQUESTS[number % len(HTTP_REQUESTS)]
    status, more, answer = HTTP_RESPONSES[number % len(HTTP_RESPONSES)]
    sent, got = put(body, secret), put(answer, secret)
    if number % 3 and got:
        size, got = b"Transfer-Encoding: chunked\r\n", b"%x;a=%s\r\n%s\r\n0\r\nX-Token: %s\r\n\r\n" % (
            len(got), secret.encode(), got, secret.encode(),
        )  # fmt: skip
    else:
        size = b"Content-Length: %d\r\n" % len(got)
    head = f"{'POST' if body else 'GET'} {target} HTTP/1.1\r\nHost: shop.example\r\n{fields}"
    request = put(head, secret) + b"Content-Length: %d\r\n\r\n" % len(sent) + sent
    return Case(
        ((REQUEST, request), (RESPONSE, put(f"HTTP/1.1 {status}\r\n{more}", secret) + size + b"\r\n" + got)), secret
    )


def redis_case(number: int, rolls: random.Random) -> Case:
    templates = redis_secrets.make_templates()
    talk, alphabet = templates[number % len(templates)]
    secret = make_secret(rolls, alphabet)
    return Case(tuple((way, redis_secrets.plant(data, secret.encode())) for way, data in talk), secret)


def postgresql_case(number: int, rolls: random.Random) -> Case:
    steps, secret = plant_in_postgresql(rolls)
    return Case(tuple(steps), secret)


MAKERS: Final[dict[str, Callable[[int, random.Random], Case]]] = {
    "http1": http1_case, "redis": redis_case, "postgresql": postgresql_case,
}  # fmt: skip


# ---- all outputs


class Outputs:
    """One of every kind of output, and what each has written."""

    def __init__(self, folder: Path, redact: bool) -> None:
        self.folder = folder
        self.source = recording_source(Command(("shop",)), redact)
        self.live = folder / "live.txt"
        self.summary = Summary()
        self.follow = FollowSink(self.source.schemas, None, {}, held_bytes=1 << 30)
        self.followed = [""]
        self.sinks = [
            kind("parquet").open(str(folder / "recording"), self.source),
            kind("jsonl").open(str(folder / "rows.jsonl"), self.source),
            LiveRows(self.live.open("w"), width=400),
            self.summary,
            self.follow,
        ]
        self.early = b""

    def look(self) -> None:
        """Take what is there while rows still come: Arrow streams that Parquet will replace, rows of a loop."""
        self.early += b"".join(path.read_bytes() for path in (self.folder / "recording").rglob("*.arrows"))
        self.followed += map(str, self.follow.take(0))

    def written(self) -> dict[str, bytes]:
        """Close all; return the bytes of each."""
        self.look()
        for sink in self.sinks:
            sink.close()
        recording = Recording(self.folder / "recording")
        opened = tracehound.open(self.folder / "recording")
        ending = Ending("shop", 1)
        tables = {name: recording.table(name) for name in recording.tables}
        files = [path for path in (self.folder / "recording").rglob("*") if path.is_file()]
        return {
            "files": b"".join(path.read_bytes() for path in files),
            "arrows": self.early,
            "recording": repr([table.to_pylist() for table in tables.values()]).encode(),
            "sql": repr(recording.sql("select * from requests").to_pylist()).encode(),
            "jsonl": (self.folder / "rows.jsonl").read_bytes(),
            "live": self.live.read_bytes(),
            "follow": "".join(self.followed).encode(),
            "summary": render(self.summary, ending, width=400).encode(),
            "summary json": self.summary.json_lines(ending).encode(),
            "notebook": (
                opened._repr_html_() + "".join(TableView(recording, name)._repr_html_() for name in tables)
            ).encode(),
        }


def exec_with(recorder: Recorder, pid: int, argv: tuple[str, ...]) -> None:
    """Record that a process runs a command."""
    words = b"".join(word.encode() + b"\0" for word in argv)
    recorder.add(
        "exec", b"/bin/app" + words, pid=pid, tid=pid, start_ns=pid, ppid=1, ns_pid=pid, comm=b"app", exe_size=8,
        argv_size=len(words),
    )  # fmt: skip


def write_all(protocol: str, outputs: Outputs, cases: int, redact: bool) -> list[str]:
    """Send generated cases through a line; return the secrets that passed."""
    layout = wire_layout()
    recorder, line, secrets = Recorder(layout), Line(Settings(redact=redact), outputs.sinks, layout), list[str]()
    verdict = layout.enum("l7_protocol")[f"L7_{protocol.upper()}"]
    for number in range(cases):
        rolls = random.Random(number)
        case = MAKERS[protocol](number, rolls)
        assert any(case.secret[:FOUND].encode() in data for _, data in case.talk), case
        words, alphabet = COMMANDS[number % len(COMMANDS)]
        secrets += case.secret, make_secret(rolls, alphabet)
        pid, role = 1000 + number, rolls.choice((CLIENT, SERVER))
        exec_with(recorder, pid, tuple(word.replace("{}", secrets[-1]) for word in words))
        ends = (bytes((127, 0, 0, 1)), 2000 + number), (bytes((127, 0, 0, 2)), 80)
        local, remote = ends if role == CLIENT else ends[::-1]
        socket = Socket(recorder, 100 + number, role, local, remote, pid=pid, tid=pid, verdict=verdict).open()
        move_all(socket, case.talk, rolls)
        socket.close()
        if number % FLUSH_CASES == FLUSH_CASES - 1 or number == cases - 1:
            line.feed(recorder.batch())
            recorder.raw.clear()
            recorder.times.clear()
            line.advance()
            line.flush()
            outputs.look()
    line.finish(recorder.time_ns + 1)
    line.flush()
    return secrets


def found_in(data: bytes, secrets: list[str]) -> Iterator[str]:
    """Yield the pieces of secrets that are in some bytes."""
    pieces = {
        whole[at : at + FOUND] for whole in map(str.encode, secrets) for at in range(max(len(whole) - FOUND + 1, 0))
    }
    if len(data) < FOUND:
        return
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 8)
    heads = np.ascontiguousarray(windows).view(np.uint64)[:, 0]
    wanted = np.frombuffer(b"".join(piece[:8] for piece in pieces), np.uint64)
    for at in np.flatnonzero(np.isin(heads, wanted)).tolist():
        if data[at : at + FOUND] in pieces:
            yield data[max(at - 60, 0) : at + 60].decode(errors="replace")


@pytest.mark.parametrize("protocol", MAKERS)
def test_no_planted_secret_is_in_any_output(protocol: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs(tmp_path, redact=True)
    secrets = write_all(protocol, outputs, CASES, redact=True)
    written = outputs.written()
    recording = Recording(tmp_path / "recording")
    (told,) = recording.sql(
        "select count(*) as rows, count(distinct connection) as connections, count(distinct protocol) as protocols"
        " from requests"
    ).to_pylist()
    assert told["rows"] >= told["connections"] == CASES and told["protocols"] == 1
    assert recording.table("processes").num_rows >= CASES
    for form in ("table", "csv", "json"):
        assert main(["query", str(tmp_path / "recording"), "from requests", "--format", form]) == 0
        written[form] = "".join(capfd.readouterr()).encode()
    assert min(map(len, written.values())) > 300
    leaks = {name: sorted(set(found_in(data, secrets)))[:3] for name, data in written.items()}
    assert {name: found for name, found in leaks.items() if found} == {}


def test_the_search_finds_a_secret_where_rows_are_not_redacted(tmp_path: Path) -> None:
    """Files of a recording are compressed, so its rows are searched too; a summary has routes, which have no values."""
    outputs = Outputs(tmp_path, redact=False)
    secrets = write_all("http1", outputs, UNREDACTED, redact=False)
    written = outputs.written()
    assert b"/orders" in written["summary"] and b"/orders" in written["summary json"]
    for name in ("recording", "sql", "jsonl", "live", "follow", "notebook"):
        assert any(found_in(written[name], secrets)), name
