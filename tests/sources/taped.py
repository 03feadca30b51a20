"""Tapes for tests: traffic of records like the kernel's, through a line that writes a tape, and the rows it gave."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.decode.records import CLIENT, Recorder, Socket, both_ends

from tracehound.btf import Layout, wire_layout
from tracehound.config import Settings
from tracehound.line import Line
from tracehound.recording import Facts
from tracehound.replay import TapeReplay
from tracehound.sources.tape import FRAME, RECORDS, Frame, Tape, TapeWriter
from tracehound.tables import TABLES, build

Rows = dict[str, pa.Table]
FACTS = Facts("elsewhere", "0-boot", "0.0.1", ("shop", "--port", "1"), {"tcp": True}, ((5, 7),), "6.18")
DAMAGE = b"\x10\0\0\0" * 9
SECRETS = ("qsecretq", "hsecreth", "bsecretb", "csecretc", "asecreta", "usecretu")


class Collected:
    """A sink that keeps all rows."""

    def __init__(self) -> None:
        self._batches: dict[str, list[pa.RecordBatch]] = {}

    def write(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        for name, rows in tables.items():
            self._batches.setdefault(name, []).append(rows)

    def flush(self) -> None: ...

    def take_losses(self) -> None: ...

    def close(self) -> None: ...

    @property
    def rows(self) -> Rows:
        return {name: pa.Table.from_batches(batches) for name, batches in self._batches.items()}


def traffic(recorder: Recorder | None = None) -> Recorder:
    """Return processes, a file, HTTP at both ends, some of it lost or cut off, and a protocol that is not known."""
    found = recorder or Recorder()
    text = Settings(response_timeout_s=2.0).to_text().encode()
    found.add("fact_config", text, text_size=len(text))
    found.add("fact_clock", monotonic_ns=found.time_ns, realtime_ns=1_700_000_000_000_000_000)
    argv = b"shop\0--password\0asecreta\0"
    found.add("fork", pid=1, tid=1, child_pid=100, child_ns_pid=7, start_ns=5, uid=3, cgroup_id=9, comm=b"sh")
    found.add(
        "exec", b"/bin/shop" + argv, pid=100, tid=101, start_ns=5, ppid=1, uid=3, ns_pid=7, cgroup_id=9, comm=b"shop",
        exe_size=9, argv_size=len(argv),
    )  # fmt: skip
    tail = b"/bin/shop" + argv + b"/web" + b"orders"
    found.add(
        "fact_process", tail, pid=100, start_ns=5, ppid=1, ns_pid=7, uid=3, exe_size=9, argv_size=len(argv),
        cgroup_size=4, service_size=6, comm=b"shop",
    )  # fmt: skip
    found.add("fact_cgroup", b"/web", id=9, path_size=4)
    found.add("open", b"/etchosts", pid=100, tid=101, result=4, place_size=4, path_size=5, duration_ns=9, flags=0)
    found.add("release", pid=100, tid=101, first=3, last=3)
    found.add("connection", cookie=5, event=5, pid=200, tid=201, family=2, transport=6, local_port=80, backlog=9)
    client, server = both_ends(found, verdict=wire_layout().enum("l7_protocol")["L7_HTTP1"])
    for number in range(8):
        exchange(client, server, number)
        found.add("fact_tick")
    found.add("retransmit", pid=100, cookie=11, attempt=1, sequence=77, size_bytes=9, state=1)
    other = Socket(found, 13, CLIENT, (bytes((127, 0, 0, 1)), 41000), base=(5, 6)).open()
    other.send(b"HELO bsecretb\r\n")
    other.receive(b"\x00\x01bsecretb")
    other.close(error=104, retransmits=2, srtt_us=50)
    found.add("fact_tick")
    exchange(client, server, 9)
    found.lose(len(found.raw) - 2)  # of the response, at the server
    exchange(client, server, 10)
    client.send(b"GET /never?key=qsecretq HTTP/1.1\r\nHost: shop\r\nAuth")
    for socket in (client, server):
        socket.close(srtt_us=40, retransmits=1, send_calls=3, receive_calls=4, first_read_ns=7, state=7)
    found.add("exit", pid=100, tid=100, start_ns=5, exit_code=3, comm=b"shop")
    found.add("fact_loss", counter=2, count=3, first_ns=1, last_ns=2)
    found.add("fact_tick", time_ns=found.time_ns + 1_000_000_000)
    return found


def exchange(client: Socket, server: Socket, number: int) -> None:
    """Send one request and its answer."""
    body = b'{"password": "bsecretb"}' if number % 2 else b""
    request = (
        f"{'POST' if body else 'GET'} /orders/{number}?token=qsecretq&page=2 HTTP/1.1\r\nHost: shop\r\n"
        f"Authorization: Bearer hsecreth\r\nUser-Agent: usecretu@shop.example agent\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    client.send(request)
    server.receive(request)
    head = b"HTTP/1.1 200 Fine\r\nSet-Cookie: sid=csecretc\r\nContent-Type: text/plain\r\n"
    if number % 3:
        answer = head + b"Content-Length: 8\r\n\r\nbsecretb"
    else:
        answer = head + b"Transfer-Encoding: chunked\r\n\r\n8;a=bsecretb\r\nbsecretb\r\n0\r\nX-T: bsecretb\r\n\r\n"
    server.send(answer[:20])
    server.send(answer[20:])
    client.receive(answer)


def make_tape(path: Path, recorder: Recorder, cuts: Sequence[int] = (), cap_bytes: int = 1 << 30) -> Rows:
    """Write a tape as a trace would; return the rows of its line. `cuts`: where the records are cut into frames."""
    kept = Collected()
    writer = TapeWriter(path, FACTS, recorder.layout, cap_bytes)
    writer.ending = {"elapsed_ns": 4_200_000_000, "outcome": "exit 0"}
    line = Line(Settings(response_timeout_s=2.0), [kept], recorder.layout, writer)
    for number, raw in enumerate(pieces(recorder, cuts)):
        line.feed(*line.read(raw))
        if number == 0:
            line.write_probes(probes(attached=False))
        line.advance()
    line.feed(*line.read(DAMAGE))
    line.count_losses(recorder.time_ns, {("drain", "damaged"): 2})
    line.write_probes(probes(attached=True))
    line.finish(recorder.time_ns + 5)
    line.flush()
    writer.close()
    return kept.rows


def write_tape(path: Path, recorder: Recorder, layout: Layout) -> None:
    """Write the same tape without a line: its layout may be one that this version cannot decode."""
    writer = TapeWriter(path, FACTS, layout, 1 << 30)
    for number, raw in enumerate(pieces(recorder, (10, 20, 50))):
        writer.put(writer.pack(raw, 1), 0)
        if number == 0:
            writer.put_probes(probes(attached=False))
    writer.put(writer.pack(DAMAGE, 0), 0)
    writer.put_counts(recorder.time_ns, {("drain", "damaged"): 2})
    writer.put_probes(probes(attached=True))
    writer.put_finish(recorder.time_ns + 5)
    writer.close()


def pieces(recorder: Recorder, cuts: Sequence[int]) -> Iterator[bytes]:
    """Yield the records in pieces, the first of them what comes before all at the start of a trace."""
    edges = [0, 2, *sorted(cut for cut in cuts if 2 < cut < len(recorder.raw)), len(recorder.raw)]
    for start, stop in pairwise(edges):
        yield b"".join(recorder.raw[start:stop])


def probes(attached: bool) -> pa.RecordBatch:
    values = {"time_ns": [2_000_000_000], "program": ["on_exec"], "attached": [attached], "lost_by_it": ["exec rows"]}
    return build(TABLES["probes"], 1, values)


def replayed(tape: Any, **given: Any) -> tuple[Rows, tuple[str, ...]]:
    """Return the rows of a tape (a path or a `Tape`), and what the replay has to say."""
    kept = Collected()
    with TapeReplay(tape if hasattr(tape, "frames") else Tape(tape), **given) as replay:
        end = replay.run([kept])
    return kept.rows, end.notes


class Recut:
    """A tape whose records come in other pieces: cut behind so many records, and only there."""

    def __init__(self, tape: Tape, pieces: Sequence[int]) -> None:
        self._tape = tape
        self._pieces = pieces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def frames(self) -> Iterator[Frame]:
        waiting: list[bytes] = []
        for frame in self._tape.frames():
            if frame.type == RECORDS:
                waiting += records_of(frame.data)
                continue
            yield from self._flush(waiting)
            waiting = []
            yield frame
        yield from self._flush(waiting)

    def _flush(self, records: list[bytes]) -> Iterator[Frame]:
        at, turn = 0, 0
        while at < len(records):
            size = self._pieces[turn % len(self._pieces)] if self._pieces else len(records)
            yield Frame(RECORDS, 0, b"".join(records[at : at + size]))
            at, turn = at + size, turn + 1


def records_of(raw: bytes) -> list[bytes]:
    """Return the records of a frame; a rest that is none is the last."""
    found, at = list[bytes](), 0
    while at + 32 <= len(raw):
        size = int.from_bytes(raw[at + 16 : at + 20], "little")
        if size < 32 or at + size > len(raw):
            break
        found.append(raw[at : at + size + -size % 8])
        at += size + -size % 8
    return [*found, raw[at:]] if raw[at:] else found


def frame_ends(data: bytes) -> list[int]:
    """Return where each frame of a tape ends, the header first."""
    ends, at = [16], 16
    while at < len(data):
        at += FRAME.size + FRAME.unpack_from(data, at)[0]
        ends.append(at)
    return ends[1:]


class Counted(Collected):
    """A sink that also knows how many rows of each table there were before each frame; `watch` its tape."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[dict[str, int]] = []  # by the number of the frame; the last: all that the end did not make

    def watch(self, tape: Tape) -> Any:
        sink = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(tape, name)

            def frames(self) -> Iterator[Frame]:
                sink.before.clear()  # the first look is for the settings
                for frame in tape.frames():
                    sink.before.append({name: rows.num_rows for name, rows in sink.rows.items()})
                    yield frame

        return Watched()


# Rows that the end makes of what is under way: the columns that a whole tape knows better
UNDER_WAY: dict[tuple[str, str], tuple[str, ...]] = {
    ("connections", "open"): ("fd", "tid", "generation"),  # its first call is not there
    ("connections", "accept"): ("fd", "tid", "generation", "pid"),
    ("connections", "close"): ("protocol", "why"),
}


def assert_cut(found: Rows, whole: Rows, before: Mapping[str, int]) -> None:
    """Check rows of a tape that is cut: those that the frames before the cut give, first and as in the whole one.

    `before`: how many those are, by table. Behind them stands what is under way, ended; nothing else.
    """
    for name in found.keys() | before.keys():
        rows, first = found[name], before.get(name, 0)
        assert rows.slice(0, first).equals(whole[name].slice(0, first) if first else rows.slice(0, 0)), name
        every = whole[name].to_pylist() if name in whole else []
        for row in rows.slice(first).to_pylist():
            if row in every or name == "losses" or row.get("event") == "snapshot":
                continue
            if name == "requests":
                assert row["outcome"] in ("no_response", "unknown"), row
                continue
            better = UNDER_WAY[name, row["event"]]
            assert {**row, **dict.fromkeys(better)} in [{**each, **dict.fromkeys(better)} for each in every], row
