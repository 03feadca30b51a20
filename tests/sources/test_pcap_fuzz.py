"""Captures that are damaged, hostile or random: they end, in bounded memory, with rows or a RecordingError."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources import packets as p
from tests.sources.packets import ACK, CLIENT4, FIN, PSH, RST, SERVER4, SYN, Rows, Talk

from tracehound import native
from tracehound.btf import wire_layout
from tracehound.sources import _segments
from tracehound.sources._capture_records import CaptureRecords
from tracehound.sources._packets import Packets
from tracehound.sources._segments import Segments
from tracehound.sources.pcap import read_capture

LAYOUT = wire_layout()
FLAGS = {**LAYOUT.enum("connection_flag"), **LAYOUT.enum("data_flag")}
INPUTS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def check(rows: Rows) -> None:
    """What holds of the rows of any capture at all."""
    for row in rows.of("requests"):
        assert row["pid"] is None and row["role"] is None
        assert row["start_ns"] <= row["time_ns"]
    events: dict[int, list[str]] = {}
    for row in rows.of("connections"):
        assert row["cookie"] != 0 and row["pid"] is None
        events.setdefault(row["connection"], []).append(row["event"])
    for found in events.values():
        assert found.count("close") <= 1 and found.count("open") <= 1
    times = [row["time_ns"] for row in rows.of("losses")]
    assert all(0 <= at < 1 << 63 for at in times)


def read_bytes(folder: Path, content: bytes) -> Rows:
    rows = p.rows_of(folder, content)
    check(rows)
    return rows


def conversation() -> list[p.Timed]:
    talks = [Talk(client=(CLIENT4, 40000 + at), isn=(at * 7, at * 11)).open() for at in range(3)]
    for talk in talks:
        for number in range(3):
            talk.exchange(f"/{number}", b"b" * (900 * number))
        talk.close()
    dns = p.ip(CLIENT4, SERVER4, 17, p.udp(5353, 53, b"question"))
    return [*sorted(one for talk in talks for one in talk.packets), (talks[0].time_ns, dns)]


PACKETS = conversation()


def whole_files() -> list[bytes]:
    ng = [p.section(), p.interface(1), p.interface(276)]
    for number, (at, one) in enumerate(PACKETS):
        ng.append(p.enhanced(p.cooked2(one) if number % 2 else p.ethernet(one), at // 1000, number % 2))
    return [p.pcap(PACKETS), p.pcap(PACKETS, order=">", ticks=10**9), b"".join(ng)]


FILES = whole_files()


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        content = bytearray(chance.choice(FILES))
        for _ in range(chance.choice((1, 1, 2, 5, 50))):
            at = chance.randrange(len(content))
            match chance.randrange(4):
                case 0:
                    content[at] = chance.randrange(256)
                case 1:
                    del content[at : at + chance.randrange(1, 40)]
                case 2:
                    content[at:at] = chance.randbytes(chance.randrange(1, 40))
                case 3:
                    content[at : at + 4] = chance.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"))
        if chance.random() < 0.2:
            del content[chance.randrange(len(content)) :]
        read_bytes(tmp_path, bytes(content))


@pytest.mark.parametrize("content", FILES, ids=["pcap", "big endian", "pcapng"])
def test_rows_before_a_cut_are_kept_wherever_it_is(content: bytes, tmp_path: Path) -> None:
    whole = read_bytes(tmp_path, content).columns("requests", "connection", "resource", "status")
    before = 0
    for stop in range(0, len(content), 211):
        rows = read_bytes(tmp_path, content[:stop])
        good = [row for row in rows.columns("requests", "connection", "resource", "status") if row[2] == 200]
        assert set(good) <= set(whole)
        assert len(good) >= before
        before = len(good)
    assert before == len(whole) == 9


@INPUTS
@given(st.binary(max_size=400), st.sampled_from([b"", FILES[0][:24], FILES[2][:48]]))
def test_any_bytes(tmp_path: Path, content: bytes, head: bytes) -> None:
    read_bytes(tmp_path, head + content)


@INPUTS
@given(
    st.lists(
        st.tuples(st.binary(max_size=120), st.integers(0, 200), st.sampled_from([0, 1, 101, 113, 276])), max_size=8
    )
)
def test_any_packets(found: list[tuple[bytes, int, int]]) -> None:
    packets = Packets()
    for at, (data, more, link) in enumerate(found):
        segment = packets.read(at, link, data, len(data) + more)
        if segment is not None:
            assert len(segment.payload) <= segment.size


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_capture_missed_no_answer_is_given_to_another_request(seed: int, tmp_path: Path) -> None:
    """Each answer names its request by its status. Half of the connections pipeline, now and then."""
    chance, pipelines = random.Random(seed), seed % 2
    talk, asked = Talk(isn=(chance.randrange(2**32), chance.randrange(2**32))).open(), 0
    while asked < 40:
        numbers = range(asked, asked + chance.choice((1, 2, 4) if pipelines else (1,)))
        asked = numbers.stop
        for number in numbers:
            talk.send(0, p.request(f"/{number}") if number % 3 else p.request(f"/{number}?{'q' * 3000}"))
        talk.acknowledge(1)
        for number in numbers:
            talk.send(1, p.response(b"b" * chance.choice((0, 10, 5000)), f"{400 + number} X"))
        talk.acknowledge(0)
        talk.time_ns += chance.choice((0, 0, 2_000_000_000))
    talk.close()
    rate = chance.choice((0.01, 0.05, 0.2, 0.5))
    first = chance.choice((0, 3, 3, 3))
    left = [one for at, one in enumerate(talk.packets) if at < first or chance.random() >= rate]
    snap = chance.choice((1 << 18, 100))
    rows = read_bytes(tmp_path, p.pcap(left, snap=snap))
    found = {int(row["resource"].split("?")[0][1:]): row for row in rows.of("requests")}
    assert len(found) == len(rows.of("requests"))
    for number, row in found.items():
        assert row["status"] in (400 + number, None), row
        if row["status"] is None and row["outcome"] != "no_response":
            assert row["gap"] or row["truncated"], row
    if len(found) < asked or any(row["status"] is None for row in found.values()):
        assert any(name in rows.lost() for name in ("gap", "uncaptured")) or any(
            row["joined_midstream"] for row in found.values()
        )


SEGMENTS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(
        [SYN, SYN | ACK, ACK, ACK, PSH | ACK, PSH | ACK, PSH | ACK, PSH, FIN | ACK, RST, RST | ACK, 0, 255]
    ),
    st.one_of(st.integers(-40, 200), st.integers(0, 2**32 - 1)),
    st.one_of(st.integers(-40, 200), st.integers(0, 2**32 - 1)),
    st.binary(max_size=60),
    st.integers(0, 30),
)


class Reader:
    """Takes segments as the capture would; what comes of a direction is `streams`."""

    def __init__(self) -> None:
        self.records = CaptureRecords(LAYOUT)
        self.segments = Segments(self.records, FLAGS, native.detect)
        self.packets = Packets()
        self.now = 1_000_000_000

    def take(self, packet: bytes, size: int, step_ns: int = 1000) -> None:
        self.now += step_ns
        segment = self.packets.read(self.now, 101, packet, size)
        if segment is not None:
            self.segments.take(self.now, segment)

    def finish(self) -> dict[tuple[int, int], list[tuple[int, int, bytes]]]:
        """Check what holds of all records; return the pieces of each stream: start, stop, bytes."""
        self.segments.finish(self.now)
        assert self.segments._held_bytes == 0 or not all(one.is_open for one in self.segments._known.values())
        batch = self.records.take(self.now)
        streams: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {}
        data = batch.records.get("data")
        for at, record in enumerate(() if data is None else data.fixed):
            assert data is not None
            head = data.tails[data.offsets[at] : data.offsets[at + 1]]
            key, stop = (int(record["cookie"]), int(record["direction"])), int(record["position_end"])
            start = stop - int(record["call_size"])
            pieces = streams.setdefault(key, [])
            assert start >= (pieces[-1][1] if pieces else 0)
            assert len(head) == record["head_size"] <= record["call_size"]
            pieces.append((start, stop, head))
        connections = batch.records.get("connection")
        begun: set[int] = set()
        for record in () if connections is None else connections.fixed:
            assert record["event"] in (1, 3, 4, 7)
            begun.add(int(record["cookie"]))
        assert {cookie for cookie, _ in streams} <= begun
        return streams


@INPUTS
@given(st.lists(SEGMENTS, max_size=60), st.booleans())
def test_any_segments(found: Sequence[tuple[int, int, int, int, bytes, int]], has_begun: bool) -> None:
    reader = Reader()
    if has_begun:
        for _, packet in Talk(isn=(2**32 - 20, 5)).open().packets:
            reader.take(packet, len(packet))
    ends = ((CLIENT4, 40000), (SERVER4, 80))
    for direction, flags, seq, ack, payload, step in found:
        (source, source_port), (target, target_port) = ends[direction], ends[1 - direction]
        body = p.tcp(source_port, target_port, seq % 2**32, ack % 2**32, flags, payload)
        packet = p.ip(source, target, 6, body)
        reader.take(packet, len(packet), 1000 + step * 1_000_000)
    reader.finish()


@INPUTS
@given(st.binary(min_size=1, max_size=600), st.data())
def test_any_segments_of_one_stream_give_that_stream(stream: bytes, data: st.DataObject) -> None:
    """Cut, doubled, overlapping and out of order, but not contradicting each other."""
    cuts = data.draw(st.lists(st.tuples(st.integers(0, len(stream)), st.integers(1, 80)), max_size=60))
    cuts += [(at, 50) for at in data.draw(st.permutations(range(0, len(stream), 50)))]
    base = data.draw(st.sampled_from([1, 2**31 - 100, 2**32 - 300]))
    talk, reader = Talk(isn=(base - 1, 5)).open(), Reader()
    for at, size in cuts:
        if stream[at : at + size]:
            talk.add(0, PSH | ACK, stream[at : at + size], seq=base + at)
    for _, packet in talk.packets:
        reader.take(packet, len(packet))
    ((_, pieces),) = reader.finish().items()
    assert b"".join(head for _, _, head in pieces) == stream
    assert pieces[-1][1] == len(stream)


@INPUTS
@given(st.binary(min_size=100, max_size=600), st.data())
def test_what_is_missing_of_a_stream_is_a_hole_at_its_place(stream: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(10, 80))
    talk, reader = Talk().open(), Reader()
    firsts = range(0, len(stream), size)
    lost = data.draw(st.sets(st.sampled_from(range(len(firsts)))))
    for number, at in enumerate(data.draw(st.permutations(list(firsts)))):
        talk.add(0, PSH | ACK, stream[at : at + size], seq=1001 + at, is_kept=number not in lost)
    talk.next[0] = 1001 + len(stream)
    talk.add(1, ACK)
    talk.close()
    for _, packet in talk.packets:
        reader.take(packet, len(packet), 30_000_000)
    pieces = reader.finish().get((1, 0), [])
    for start, stop, head in pieces:
        assert head == stream[start:stop]
    kept = sum(len(one) - 40 for _, one in talk.packets[3:])
    assert sum(stop - start for start, stop, _ in pieces) == kept
    assert pieces[-1][1] == len(stream)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_segments, "CONNECTIONS", 64)
    monkeypatch.setattr(_segments, "HELD_BYTES", 200_000)
    monkeypatch.setattr(_segments, "HELD_OF_ONE", 20_000)
    reader = Reader()
    chance = random.Random(1)
    for number in range(400):
        talk = Talk(client=(CLIENT4, 1024 + number)).open()
        for _ in range(40):  # all behind a hole
            talk.add(0, PSH | ACK, bytes(1000), seq=5000 + chance.randrange(10**6))
        for _, packet in talk.packets:
            reader.take(packet, len(packet))
        segments = reader.segments
        assert len(segments._known) <= 64 and len(segments._by_ends) <= 128
        assert segments._held_bytes <= 200_000 + 2000
        held = sum(one.held_bytes for known in segments._known.values() for one in known.directions)
        assert held == segments._held_bytes
    assert reader.segments.shed == 400 - 64
    reader.finish()


def test_fragments_are_bounded_and_forgotten() -> None:
    packets, count = Packets(), 5000
    for ident in range(count):
        packet = p.ipv4(CLIENT4, SERVER4, 17, bytes(1400), ident=ident % 65536, fragment=0x2000)
        assert packets.read(ident, 101, packet, len(packet)) is None
        assert len(packets._pending) <= 1024
        assert packets._pending_bytes == sum(one.held for one in packets._pending.values()) <= 4 << 20
    packets.read(count + 31 * 10**9, 101, p.ipv4(CLIENT4, SERVER4, 17, bytes(8), fragment=0x2000), 28)
    assert len(packets._pending) == 1 and packets.fragments_lost == count
    packets.finish()
    assert packets.fragments_lost == count + 1 and packets._pending_bytes == 0


def test_batches_carry_their_records_in_order(tmp_path: Path) -> None:
    """However many packets: each batch is small, has a tick, and no record is later than it."""
    talk = Talk().open()
    for number in range(3000):
        talk.exchange(f"/{number}")
    (tmp_path / "capture").write_bytes(p.pcap(talk.close().packets))
    last, batches = 0, list(read_capture(tmp_path / "capture", LAYOUT))
    assert len(batches) > 1
    for batch in batches:
        tick_ns = int(batch.records["fact_tick"].fixed["time_ns"][0])
        for kind, records in batch.records.items():
            times = records.fixed["time_ns"].astype(np.int64)
            assert len(records) <= 8192
            assert times.min() > last - 2 and times.max() <= tick_ns, kind
        last = tick_ns
    assert p.rows_of(tmp_path, p.pcap(talk.packets)).columns("requests", "resource", "status") == [
        (f"/{number}", 200) for number in range(3000)
    ]


def test_many_connections_with_holes_cost_each_packet_the_same() -> None:
    """Holes that wait for their time are looked at when it has come, not at every packet."""
    reader, count = Reader(), 3000
    talks = [Talk(client=(CLIENT4, 1024 + number)).open() for number in range(count)]
    for talk in talks:
        for _, packet in talk.packets:
            reader.take(packet, len(packet))
    for talk in talks:
        talk.packets.clear()
        talk.send(1, bytes(10), lost=(0,)).acknowledge(0)
        reader.take(talk.packets[0][1], 40, 10_000)
    waiting = reader.segments._waiting
    assert count * 0.6 < len(waiting) < count  # those of the last 20 ms
    dues = [one.due_ns for one in waiting.values()]
    assert dues == sorted(dues) and dues[0] == reader.segments._next_due_ns
    reader.now += 1_000_000_000
    reader.take(talks[0].packets[0][1], 40)
    assert not waiting
    assert len(reader.finish()) == count
