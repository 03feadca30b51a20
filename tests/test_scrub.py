"""A scrubbed tape gives the same rows, of the same lengths, and holds nothing of what is secret."""

import importlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.records import CLIENT, PEEK, Recorder, Socket
from tests.sources.other_versions import Editor
from tests.sources.taped import FACTS, SECRETS, Rows, frame_ends, make_tape, records_of, replayed, traffic, write_tape
from tests.sources.test_versions import edited, with_whispers

from tracehound.btf import Layout, wire_layout
from tracehound.errors import RecordingError, SinkError
from tracehound.protocols import load_protocols
from tracehound.scrub import Report, scrub
from tracehound.sources.tape import RECORDS, Tape, TapeWriter

VERDICTS = wire_layout().enum("l7_protocol")
SCRUBBED = [protocol.name for protocol in load_protocols() if protocol.scrub is not None]
SIZES = [(1 << 20,), (1,), (7,), (3, 50, 1)]
SECRET = "Zq7Zq7Zq7Zq7Zq7"
LOCAL = bytes((127, 0, 0, 1))


def records(path: Path) -> bytes:
    with Tape(path) as tape:
        return b"".join(frame.data for frame in tape.frames() if frame.type == RECORDS)


def scrubbed(recorder: Recorder, folder: Path) -> tuple[Report, bytes]:
    """Return what scrubbing a tape of these records says, and the records of the scrubbed one."""
    for name in ("x.tape", "y.tape"):
        (folder / name).unlink(missing_ok=True)
    write_tape(folder / "x.tape", recorder, recorder.layout)
    report = scrub(folder / "x.tape", folder / "y.tape")
    return report, records(folder / "y.tape")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    path = tmp_path_factory.mktemp("tapes") / "whole.tape"
    return path, make_tape(path, traffic(), [10, 20, 50])


def test_the_rows_stay_and_the_secrets_go(live: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = live
    report = scrub(path, tmp_path / "y.tape")
    assert (report.differs, report.notes, report.arguments) == ((), (), 2)
    assert 0 < report.kept_bytes < report.payload_bytes
    found, notes = replayed(tmp_path / "y.tape")
    assert notes == () and found.keys() == rows.keys()
    for name, table in rows.items():
        assert found[name].equals(table), name
    before, after = records(path), records(tmp_path / "y.tape")
    assert len(before) == len(after)
    assert [secret for secret in SECRETS if secret.encode() not in before] == []
    assert [secret for secret in SECRETS if secret.encode() in after] == []
    assert (tmp_path / "y.tape").stat().st_mode & 0o777 == 0o600
    with Tape(tmp_path / "y.tape") as tape, Tape(path) as raw:
        assert (tape.redacted, raw.redacted) == (True, False)
        assert tape.facts == raw.facts
    again = scrub(tmp_path / "y.tape", tmp_path / "z.tape")
    assert again.differs == () and records(tmp_path / "z.tape") == after


def test_what_stands_in_the_way_is_one_clear_line(live: tuple[Path, Rows], tmp_path: Path) -> None:
    target = tmp_path / "y.tape"
    target.write_text("mine")
    with pytest.raises(SinkError, match=r"y\.tape is there already"):
        scrub(live[0], target)
    assert target.read_text() == "mine"
    with pytest.raises(RecordingError, match="No such file"):
        scrub(tmp_path / "no.tape", tmp_path / "z.tape")
    assert not (tmp_path / "z.tape").exists()


def test_a_cut_tape_stays_one(live: tuple[Path, Rows], tmp_path: Path) -> None:
    whole = live[0].read_bytes()
    ends = frame_ends(whole)
    cut = tmp_path / "x.tape"
    cut.write_bytes(whole[: ends[5] - 3])
    report = scrub(cut, tmp_path / "y.tape")
    assert report.differs == ()
    before, _ = replayed(cut)
    after, notes = replayed(tmp_path / "y.tape")
    assert "is cut at byte" in notes[0]
    assert all(after[name].equals(table) for name, table in before.items())


def test_what_is_damaged_or_of_an_unknown_kind_is_zero(tmp_path: Path) -> None:
    def edit(editor: Editor) -> None:
        editor.add_kind("whisper", 0x1FE, "release")

    theirs: Layout = edited(edit)
    recorder = with_whispers(theirs)
    recorder.raw[9:9] = [b"\xff" * 40]  # damage in the middle of a frame: its rest is lost
    report, after = scrubbed(recorder, tmp_path)
    assert report.differs == ()
    assert SECRET.encode() not in after and b"bsecretb" not in after
    kinds = {number for number, name in theirs.kinds.items() if name == "whisper"}
    whispers = [each for each in records_of(after) if int.from_bytes(each[20:22], "little") in kinds]
    assert {each[32:] for each in whispers} <= {bytes(8)}


def vector_of(protocol: str, number: int) -> list[tuple[int, bytes]]:
    vector = importlib.import_module(f"tests.protocols.test_{protocol}").VECTORS[number]
    steps = [(step.direction, step.data) for step in vector.steps]
    return [*steps, *((direction, data) for direction, data in enumerate(vector.trailing) if data)]


def vectors() -> list[tuple[str, int]]:
    modules = {name: importlib.import_module(f"tests.protocols.test_{name}") for name in SCRUBBED}
    return [(name, number) for name, module in modules.items() for number in range(len(module.VECTORS))]


def conversation(protocol: str, steps: list[tuple[int, bytes]], sizes: tuple[int, ...], lost: int = -1) -> Recorder:
    """Return one connection whose bytes pass in calls of these sizes; the record of number `lost` is lost."""
    recorder = Recorder()
    recorder.add("fact_clock", monotonic_ns=1, realtime_ns=10**18)
    recorder.add("fact_tick")
    client = Socket(recorder, 11, CLIENT, (LOCAL, 40000), verdict=VERDICTS[f"L7_{protocol.upper()}"]).open()
    turn = itertools.cycle(sizes)
    for direction, data in steps:
        at = 0
        while at < len(data):
            size = next(turn)
            client.move(direction, data[at : at + size])
            at += size
    client.close()
    recorder.add("fact_tick", time_ns=recorder.time_ns + 1_000_000_000)
    if 0 <= lost < len(recorder.raw) - 5:
        recorder.lose(3 + lost)
    return recorder


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("protocol", "number"), vectors())
def test_every_vector_of_every_protocol_keeps_its_rows(
    protocol: str, number: int, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    report, _ = scrubbed(conversation(protocol, vector_of(protocol, number), sizes), tmp_path)
    assert report.differs == ()


@settings(max_examples=40)
@given(which=st.integers(0, 1 << 20), size=st.integers(1, 60), lost=st.integers(0, 40))
def test_after_a_gap_the_rows_stay_too(
    tmp_path_factory: pytest.TempPathFactory, which: int, size: int, lost: int
) -> None:
    protocol, number = vectors()[which % len(vectors())]
    recorder = conversation(protocol, vector_of(protocol, number), (size,), lost)
    report, _ = scrubbed(recorder, tmp_path_factory.mktemp("gap"))
    assert report.differs == ()


# ---- HTTP/1 with a secret in every place that is not for rows


def secret_requests(body_length: bool) -> list[bytes]:
    s = SECRET
    body = f'{{"password": "{s}"}}\r\nGET /?{s} HTTP/1.1\r\n\r\n'
    chunks = f"{len(body):x};sig={s}\r\n{body}\r\n0;{s}\r\nX-Sum: {s}\r\n\r\n"
    chunked = f"Transfer-Encoding: chunked\r\nTrailer: {s}\r\n\r\n{chunks}"
    framing = f"Content-Length: {len(body)}\r\n\r\n{body}" if body_length else chunked
    return [
        f"POST /a;v={s}/b?token={s}&{s}#{s} HTTP/1.1\r\nHost: shop\r\nCookie: sid={s}\r\nX-Any: {s}\r\n {s}\r\n"
        f"Authorization: Basic {s}\r\nUser-Agent: {s}@corp.example agent\r\n{framing}".encode(),
        f"GET http://{s}:{s}@shop/x?y={s} HTTP/1.1\r\nHost: shop\r\nReferer: /?{s}\r\nUpgrade: {s}\r\n\r\n".encode(),
        f"GET /unfinished?{s} HTTP/1.1\r\nHost: shop\r\nCookie: {s}\r\nX-{'Y' * 3}".encode(),
    ]


def secret_responses(kind: str) -> list[bytes]:
    s = SECRET
    framing = {
        "length": f"Content-Length: {len(s)}\r\n\r\n{s}",
        "chunked": f"Transfer-Encoding: chunked\r\n\r\n{len(s):x}; {s}\r\n{s}\r\n0\r\nETag: {s}\r\n\r\n",
        "events": (
            f"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            f"{len(s) * 2 + 14:x}\r\ndata: {s}\n\nid: {s}\n\n\r\n0\r\n\r\n"
        ),
        "close": f"\r\n{s}\r\nHTTP/1.1 200 {s}\r\n\r\n",
    }[kind]
    return [f"HTTP/1.1 200 {s}\r\nSet-Cookie: a={s}\r\nServer: {s}\r\n{framing}".encode()]


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["length", "chunked", "events", "close"]),
    has_length=st.booleans(),
    sizes=st.lists(st.integers(1, 120), min_size=1, max_size=4),
    lost=st.one_of(st.just(-1), st.integers(0, 30)),
)
def test_no_secret_of_http_is_left(
    tmp_path_factory: pytest.TempPathFactory, kind: str, has_length: bool, sizes: list[int], lost: int
) -> None:
    first, second, last = secret_requests(has_length)
    (answer,) = secret_responses(kind)
    steps = [(0, first), (1, secret_responses("length")[0]), (0, second), (1, answer), (0, last)]
    report, after = scrubbed(conversation("http1", steps, tuple(sizes), lost), tmp_path_factory.mktemp("http"))
    for record in records_of(after):
        assert SECRET[:6].encode() not in record
    if lost < 0:
        assert report.differs == ()


def test_bytes_that_were_only_looked_at_and_unknown_ones_are_blanked(tmp_path: Path) -> None:
    recorder = conversation("http1", [], (1,))
    other = Socket(recorder, 12, CLIENT, (LOCAL, 40001)).open()
    request = f"GET /orders?x={SECRET} HTTP/1.1\r\nHost: shop\r\n\r\n".encode()
    other.verdict = VERDICTS["L7_HTTP1"]
    other.receive(request[:30], flags=PEEK)
    other.send(request)
    stranger = Socket(recorder, 13, CLIENT, (LOCAL, 40002)).open()
    stranger.send(f"HELLO {SECRET}".encode())
    report, after = scrubbed(recorder, tmp_path)
    assert report.differs == ()
    assert SECRET.encode() not in after and b"HELLO" not in after
    assert b"GET /orders?x=xxxxxxxxxxxxxxx HTTP/1.1" in after


def test_arguments_of_calls_are_cleaned_as_in_rows(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.add("fact_clock", monotonic_ns=1, realtime_ns=10**18)
    text = {"form": "str", "type": "str", "shown": "str", "hex": False, "exit": False}
    number = {"form": "number", "type": "int64", "shown": "int64", "hex": False, "exit": False}
    given = [
        text | {"name": "url", "piece": 0},
        text | {"name": "token", "piece": 1},
        number | {"name": "size", "register": 0},
        number | {"name": "api_key", "register": 1},
        text | {"name": "out", "form": "buf", "type": "buf", "shown": "buf", "exit": True, "piece": 0},
    ]
    fact = json.dumps({"point": "a:f", "has_return": True, "arguments": given}).encode()
    recorder.add("fact_point", point=0, text_size=len(fact), tail=fact)
    texts = [f"http://host/?password={SECRET}".encode(), SECRET.encode()]
    sizes = np.array([*map(len, texts)], "<u4").tobytes()
    registers = np.array([7, 0x5A71375A, 0, 0, 0, 0], np.uint64)
    entry: dict[str, Any] = {
        "pid": 5,
        "tid": 5,
        "call": 1,
        "point": 0,
        "sp": 64,
        "caller_ip": 9,
        "arguments": registers,
    }
    recorder.add("call_entry", pieces=2, tail=sizes + b"".join(texts), **entry)
    out = f"Authorization: Bearer {SECRET}".encode()
    tail = np.array([len(out)], "<u4").tobytes() + out
    recorder.add("call_return", pid=5, tid=5, call=1, point=0, pieces=1, tail=tail)
    recorder.add("fact_tick")
    rows = make_tape(tmp_path / "x.tape", recorder)
    report = scrub(tmp_path / "x.tape", tmp_path / "y.tape")
    assert report.differs == () and SECRET.encode() in records(tmp_path / "x.tape")
    after = records(tmp_path / "y.tape")
    assert SECRET.encode() not in after and registers[1].tobytes() not in after
    (args,) = rows["calls"]["args"].to_pylist()
    assert [each["value"] for each in args] == ["http://host/?password=?", "?", "7", "?", "?"]
    found, _ = replayed(tmp_path / "y.tape")
    assert found["calls"].equals(rows["calls"])


def test_what_stood_at_a_watched_address_is_blanked(tmp_path: Path) -> None:
    layout = wire_layout()
    hit = np.zeros(1, layout.dtypes["call_watch"])
    kind = next(number for number, name in layout.kinds.items() if name == "call_watch")
    hit[["time_ns", "size", "kind", "address", "old_value", "new_value", "size_bytes", "known"]] = (
        5, hit.itemsize, kind, 0x1000, 0x5EC12E7, 0x5EC12E8, 8, 3,
    )  # fmt: skip
    writer = TapeWriter(tmp_path / "x.tape", FACTS, layout, 1 << 20)
    writer.put(writer.pack(hit.tobytes(), 1), 5)
    writer.put_finish(6)
    writer.close()
    scrub(tmp_path / "x.tape", tmp_path / "y.tape")
    (after,) = np.frombuffer(records(tmp_path / "y.tape"), hit.dtype)
    assert [int(after[name]) for name in ("address", "old_value", "new_value", "known")] == [0x1000, 0, 0, 0]
