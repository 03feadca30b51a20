"""The Decoder as a whole: records of a small system in, all tables out, however the stream is cut."""

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.records import Recorder, Socket, both_ends

from tracehound.batch import Batch, split
from tracehound.decode import Decoder, DecodeSettings
from tracehound.protocols import load_protocols

S = 1_000_000_000
REQUEST = b"GET /orders/17?token=x HTTP/1.1\r\nHost: shop\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Tables = dict[str, list[dict[str, Any]]]


def decode(recorder: Recorder, batches: list[Batch], end_ns: int) -> Tables:
    decoder = Decoder(recorder.layout, load_protocols(), DecodeSettings())
    found: dict[str, list[pa.RecordBatch]] = {}
    for tables in (*(decoder.decode(batch) for batch in batches), decoder.finish(end_ns)):
        for name, table in tables.items():
            found.setdefault(name, []).append(table)
    return {name: pa.Table.from_batches(parts).to_pylist() for name, parts in found.items()}


def cut(recorder: Recorder, seed: int, pieces: int) -> list[Batch]:
    """Cut the records in order of time at random moments, as Merge would, some pieces empty."""
    rng = random.Random(seed)
    order = sorted(range(len(recorder.raw)), key=lambda at: recorder.times[at])
    last = recorder.times[order[-1]]
    edges = [*sorted(rng.choice(recorder.times) + rng.randint(-1, 1) for _ in range(pieces)), last]
    batches, since = [], -1
    for edge in edges:
        raw = b"".join(recorder.raw[at] for at in order if since < recorder.times[at] <= edge)
        batches.append(replace(split(raw, recorder.layout), watermark_ns=edge))
        since = max(edge, since)
    return batches


def small_system(seed: int) -> Recorder:
    """A shell starts a client and a server; several connections, some refused, some joined, some left open."""
    rng = random.Random(seed)
    recorder = Recorder()
    start = recorder.time_ns
    recorder.add("fact_clock", monotonic_ns=start, realtime_ns=1_700_000_000 * S)
    for pid in (100, 200):
        recorder.add("fork", pid=50, tid=50, child_pid=pid, child_ns_pid=pid, start_ns=start + pid, comm=b"sh")
        exe, argv = b"/usr/bin/python3", b"python3\0shop.py\0"
        recorder.add(
            "exec", exe + argv, pid=pid, tid=pid, ppid=50, ns_pid=pid, start_ns=start + pid, exe_size=len(exe),
            argv_size=len(argv), comm=b"python3",
        )  # fmt: skip
    client, server = both_ends(recorder)
    others = [Socket(recorder, 20 + n, 1 + n % 2, local=(bytes((127, 0, 0, 1)), 5000 + n)) for n in range(6)]
    refused = replace(others[0], cookie=90)
    refused.lifecycle("ERROR", error=111, established_ns=0)
    for other in others[:4]:
        other.open()
    for _ in range(rng.randint(1, 8)):
        client.send(REQUEST)
        server.receive(REQUEST)
        server.send(RESPONSE)
        client.receive(RESPONSE)
        other = rng.choice(others)
        other.move(rng.randint(0, 1), rng.choice([REQUEST, b"\x00\x01", RESPONSE]))
        if rng.random() < 0.3:
            recorder.time_ns += rng.randint(0, 2 * S)
        if rng.random() < 0.3 and len(recorder.raw) > 12:
            recorder.lose(rng.randrange(12, len(recorder.raw)))
    client.close()
    server.close()
    for other in others[:3]:
        other.close()
    recorder.add("exit", pid=100, tid=100, start_ns=start + 100, exit_code=1, comm=b"python3")
    recorder.add("fact_loss", counter=2, count=3, first_ns=start, last_ns=recorder.time_ns)
    return recorder


def test_tables_of_a_small_system() -> None:
    recorder = small_system(3)
    tables = decode(recorder, cut(recorder, 0, 0), recorder.time_ns + 1)
    assert {"processes", "connections", "requests", "losses", "fact_clock"} <= tables.keys()
    assert [row["event"] for row in tables["processes"]] == ["start", "exec", "start", "exec", "exit"]
    assert all(row["wall_time"] is None and row["service"] is None for row in tables["requests"])
    of_client = {row["event"]: row for row in tables["connections"] if row["cookie"] == 11}
    assert of_client["close"]["protocol"] == "http1"
    assert {row["connection"] for row in tables["requests"]} <= {row["connection"] for row in tables["connections"]}


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.integers(0, 12))
def test_any_cut_gives_the_same_rows(system: int, seed: int, pieces: int) -> None:
    recorder = small_system(system)
    end_ns = recorder.time_ns + 1
    whole, parts = decode(recorder, cut(recorder, 0, 0), end_ns), decode(recorder, cut(recorder, seed, pieces), end_ns)
    assert whole.keys() == parts.keys()
    for name in whole:
        if name == "losses":  # of several stages, each in its own order
            assert sorted(map(str, whole[name])) == sorted(map(str, parts[name]))
        else:
            assert whole[name] == parts[name], name


@given(st.integers(0, 1 << 30))
def test_connections_balance(system: int) -> None:
    recorder = small_system(system)
    rows = decode(recorder, cut(recorder, 0, 0), recorder.time_ns + 1)["connections"]
    events = [row["event"] for row in rows]
    ends = [row for row in rows if row["event"] in ("close", "snapshot")]
    joined = sum(row["preexisting"] for row in ends)
    assert events.count("open") + events.count("accept") + joined == len(ends)
    assert len({(row["connection"]) for row in ends}) == len(ends)


def test_orders_are_taken_once() -> None:
    recorder = small_system(1)
    decoder = Decoder(recorder.layout, load_protocols(), DecodeSettings())
    for batch in cut(recorder, 0, 0):
        decoder.decode(batch)
    decoder.take_orders()
    assert decoder.take_orders() == []
