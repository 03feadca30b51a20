"""TCP and UDP as captures show them: what was said, in its order, whole or marked, whatever happened to the packets."""

import io
import random
import struct
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest
from tests.sources import packets as p
from tests.sources.packets import ACK, CLIENT4, FIN, PSH, RST, SERVER4, STEP_NS, SYN, Row, Rows, Talk, rows_of

from tracehound.btf import wire_layout
from tracehound.config import Settings
from tracehound.decode import Decoder, DecodeSettings
from tracehound.line import Line
from tracehound.protocols import load_protocols
from tracehound.sinks._summary import Summary
from tracehound.sinks.console import LiveRows
from tracehound.sources.pcap import read_capture

COLUMNS = ("resource", "status", "outcome", "gap", "truncated")


def told(tmp_path: Path, talk: Talk, snap: int = 1 << 18) -> Rows:
    rows = rows_of(tmp_path, p.pcap(talk.packets, snap=snap))
    assert rows.error is None
    return rows


def good(*names: str) -> list[tuple[object, ...]]:
    return [(name, 200, "ok", False, False) for name in names]


def requests(rows: Rows) -> list[tuple[object, ...]]:
    return rows.columns("requests", *COLUMNS)


def ends(rows: Rows) -> list[tuple[object, ...]]:
    return rows.columns("connections", "event", "error", "bytes_sent", "bytes_received")


def without_times(rows: Rows, table: str, *left_out: str) -> list[Row]:
    found = []
    for row in rows.of(table):
        found.append({k: v for k, v in row.items() if not k.endswith(("_ns", "_time", "_us")) and k not in left_out})
    return sorted(found, key=repr)


# ---- what rows say ---------------------------------------------------------------------------------------------------


def test_exchange_is_what_both_live_ends_compute(tmp_path: Path) -> None:
    rows = told(tmp_path, Talk().open().exchange("/one").exchange("/two").close())
    assert requests(rows) == good("/one", "/two")
    ends_of = b"".join(bytes(10) + b"\xff\xff" + ip + port.to_bytes(2, "big")
                       for ip, port in ((CLIENT4, 40000), (SERVER4, 80)))  # fmt: skip
    prefix = blake2b(ends_of + (1001).to_bytes(4, "big"), digest_size=8).digest()
    first_size = len(p.request("/one"))
    assert rows.columns("requests", "exchange", "role", "request_position") == [
        (prefix + bytes(8), None, 0), (prefix + first_size.to_bytes(8, "big"), None, first_size)
    ]  # fmt: skip


def test_no_process_and_no_calls_are_claimed(tmp_path: Path) -> None:
    rows = told(tmp_path, Talk().open().exchange("/one").close())
    for table in ("requests", "connections"):
        for row in rows.of(table):
            assert {row[name] for name in ("pid", "tid", "comm", "service", "process_start_ns", "role")} == {None}
    assert rows.columns("connections", "event", "state", "protocol", "preexisting", "send_calls", "receive_calls") == [
        ("open", "ESTABLISHED", None, False, None, None), ("close", "CLOSE", "http1", False, None, None)
    ]  # fmt: skip
    assert "processes" not in rows.tables


def test_times_are_the_packets(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one")
    (row,) = told(tmp_path, talk).of("requests")
    sent = talk.packets[3][0]
    assert row["wall_time"].value == sent + 2 * STEP_NS
    assert row["duration_ns"] == 2 * STEP_NS
    assert row["start_ns"] == row["first_response_ns"] - 2 * STEP_NS == row["end_ns"] - 2 * STEP_NS


def test_mid_stream_gives_rows_without_exchange_and_says_so(tmp_path: Path) -> None:
    talk = Talk().open()
    talk.packets.clear()
    for name in ("/one", "/two"):
        talk.exchange(name)
        talk.time_ns += 2_000_000_000  # quiet: it is certain again what answers what
    rows = told(tmp_path, talk.close())
    assert rows.columns("requests", "resource", "status", "exchange", "joined_midstream") == [
        ("/one", 200, None, True), ("/two", 200, None, True)
    ]  # fmt: skip
    assert set(rows.columns("requests", "local_port", "remote_port")) == {(40000, 80)}
    assert rows.columns("connections", "event", "preexisting") == [("snapshot", True), ("close", True)]


def test_payloads_of_a_capture_are_nobodys_and_from_packets(tmp_path: Path) -> None:
    talk, layout = Talk().open().exchange("/one").close(), wire_layout()
    (tmp_path / "capture").write_bytes(p.pcap(talk.packets))
    decoder = Decoder(layout, load_protocols(), DecodeSettings(payloads=True))
    (batch,) = read_capture(tmp_path / "capture", layout)
    columns = ("pid", "tid", "source", "direction", "position", "tcp_sequence", "bytes", "protocol")
    assert [tuple(row[name] for name in columns) for row in decoder.decode(batch)["payloads"].to_pylist()] == [
        (None, None, "packet", "send", 0, 1001, p.request("/one"), "http1"),
        (None, None, "packet", "receive", 0, 5001, p.response(), "http1"),
    ]


def test_lines_and_summary_name_addresses_where_no_process_is_known(tmp_path: Path) -> None:
    talk, stream, summary = Talk().open().exchange("/one").close(), io.StringIO(), Summary()
    refused = Talk(client=(CLIENT4, 40001), time_ns=talk.time_ns)
    refused.add(0, SYN, seq=1000)
    refused.add(1, RST | ACK, seq=0, ack=1001)
    (tmp_path / "capture").write_bytes(p.pcap(talk.packets + refused.packets))
    line = Line(Settings(), [LiveRows(stream), summary])
    for batch in read_capture(tmp_path / "capture", line.layout):
        line.feed(batch)
        line.advance()
    line.finish(line.merge.watermark_ns)
    summary.close()
    first, second = stream.getvalue().splitlines()
    assert " 10.0.0.1 → 10.0.0.2:80 " in first and "GET /one" in first
    assert " 10.0.0.1 → 10.0.0.2:80 " in second and "ECONNREFUSED" in second
    ((key, group),) = summary.calls.groups.items()
    assert (key.name, key.peer, key.port, group.requests) == ("10.0.0.1", "10.0.0.2", 80, 1)


# ---- handshakes ------------------------------------------------------------------------------------------------------


def without(*numbers: int) -> Callable[[Talk], None]:
    def lose(talk: Talk) -> None:
        talk.packets[:] = [one for at, one in enumerate(talk.packets) if at not in numbers]

    return lose


@pytest.mark.parametrize(
    ("lost", "is_partial"), [((0,), False), ((1,), False), ((2,), False), ((1, 2), False), ((0, 2), False)], ids=str
)
def test_any_one_packet_of_the_handshake_proves_the_client(
    lost: tuple[int, ...], is_partial: bool, tmp_path: Path
) -> None:
    talk = Talk().open().exchange("/one").close()
    expected = told(tmp_path, talk).columns("requests", *COLUMNS, "exchange")
    without(*lost)(talk)
    rows = told(tmp_path, talk)
    assert rows.columns("requests", *COLUMNS, "exchange") == expected
    assert rows.columns("connections", "event", "preexisting") == [
        ("snapshot" if is_partial else "open", is_partial), ("close", is_partial)
    ]  # fmt: skip


def test_refused_and_unanswered(tmp_path: Path) -> None:
    refused, unanswered = Talk(), Talk(client=(CLIENT4, 40001))
    refused.add(0, SYN, seq=1000)
    refused.add(1, RST | ACK, seq=0, ack=1001)
    unanswered.add(0, SYN, seq=1000)
    unanswered.add(0, SYN, seq=1000)
    rows = rows_of(tmp_path, p.pcap(sorted(refused.packets + unanswered.packets)))
    assert rows.columns("connections", "event", "local_port", "error") == [
        ("error", 40000, "ECONNREFUSED"), ("error", 40001, None)
    ]  # fmt: skip


def test_fast_open_data_counts_from_the_first_byte(tmp_path: Path) -> None:
    talk = Talk()
    asked = p.request("/one")
    talk.add(0, SYN, asked, seq=1000)
    talk.next[0] += len(asked)
    talk.add(1, SYN | ACK, seq=5000)
    talk.add(0, ACK)
    talk.send(1, p.response()).close()
    rows = told(tmp_path, talk)
    assert requests(rows) == good("/one")
    assert rows.columns("requests", "request_position") == [(0,)]


def test_simultaneous_open_is_one_connection(tmp_path: Path) -> None:
    talk = Talk()
    talk.add(0, SYN, seq=1000)
    talk.add(1, SYN, seq=5000)
    talk.add(0, SYN | ACK, seq=1000)
    talk.add(1, SYN | ACK, seq=5000)
    rows = told(tmp_path, talk.exchange("/one").close())
    assert requests(rows) == good("/one")
    assert [row[0] for row in ends(rows)] == ["open", "close"]


def test_port_reuse_is_a_new_connection(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one").close()
    again = Talk(isn=(90_000, 7)).open().exchange("/two").close()
    reset = Talk(isn=(500_000, 9)).open().exchange("/three")  # its end is not in the capture
    last = Talk(isn=(4_000_000_000, 11)).open().exchange("/four").close()
    talk.packets += [(at + k * 1_000_000_000, one) for k, other in enumerate((again, reset, last), 1)
                     for at, one in other.packets]  # fmt: skip
    rows = told(tmp_path, talk)
    assert requests(rows) == good("/one", "/two", "/three", "/four")
    by_connection = sorted(rows.columns("connections", "connection", "event"), key=lambda row: row[0])
    assert [event for _, event in by_connection] == ["open", "close"] * 4
    assert len({row["exchange"] for row in rows.of("requests")}) == 4


def test_a_forged_syn_does_not_end_a_connection(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one")
    talk.add(0, SYN, seq=77)
    talk.add(1, ACK)  # challenge
    rows = told(tmp_path, talk.exchange("/two").close())
    assert requests(rows) == good("/one", "/two")
    assert len(ends(rows)) == 2


# ---- order, copies, holes --------------------------------------------------------------------------------------------


def long_talk() -> Talk:
    talk = Talk(isn=(0xFFFFFF00, 0xFFFFF000)).open()  # both streams pass the wrap
    for number in range(8):
        talk.exchange(f"/{number}", bytes([number]) * (number * 2500), 900)
    return talk.close()


CLEAN = long_talk()


@pytest.mark.parametrize("seed", range(12))
def test_shuffled_and_duplicated_captures_give_the_rows_of_the_clean_one(seed: int, tmp_path: Path) -> None:
    """Written out of order: the times are right, as with several interfaces or queues."""
    clean = told(tmp_path, CLEAN)
    assert requests(clean) == good(*(f"/{number}" for number in range(8)))
    chance = random.Random(seed)
    packets = [one for one in CLEAN.packets for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    places = [at + chance.uniform(0, 40) for at in range(len(packets))]
    shuffled = [one for _, one in sorted(zip(places, packets, strict=True), key=lambda pair: pair[0])]
    rows = rows_of(tmp_path, p.pcap(shuffled))
    for table in ("requests", "connections"):
        assert without_times(rows, table) == without_times(clean, table)
    assert rows.of("losses") == rows.of("retransmits") == []


@pytest.mark.parametrize("seed", range(12))
def test_segments_that_overtake_each_other_give_the_rows_of_the_clean_one(seed: int, tmp_path: Path) -> None:
    """Each one-way run of packets is shuffled and stamped anew: a network did that."""
    clean, chance, runs = told(tmp_path, CLEAN), random.Random(seed), list[list[bytes]]()
    for at, (_, packet) in enumerate(CLEAN.packets):
        has_data = len(packet) > 40
        if has_data and at > 3 and runs and runs[-1][-1][12:16] == packet[12:16] and len(runs[-1][-1]) > 40:
            runs[-1].append(packet)
        else:
            runs.append([packet])
    found = []
    for run in runs:
        chance.shuffle(run)
        found += run + [chance.choice(run) for _ in range(chance.choice((0, 0, 1)))]
    rows = rows_of(tmp_path, p.pcap([(p.START_NS + at * STEP_NS, one) for at, one in enumerate(found)]))
    for table in ("requests", "connections"):
        assert without_times(rows, table) == without_times(clean, table)
    assert rows.of("losses") == []


def test_a_lost_segment_that_is_sent_again_is_no_loss(tmp_path: Path) -> None:
    talk = Talk().open().send(0, p.request("/one"))
    body, at = p.response(b"z" * 4000), talk.next[1]
    talk.send(1, body, 1000, lost=(1,))
    talk.add(0, ACK, ack=at + 1000)
    talk.add(1, PSH | ACK, body[1000:2000], seq=at + 1000)
    rows = told(tmp_path, talk.acknowledge(0).close())
    assert requests(rows) == good("/one")
    assert rows.of("losses") == []
    assert ends(rows)[-1] == ("close", None, len(p.request("/one")), len(body))


def test_a_segment_sent_again_in_vain_is_a_row_of_retransmits(tmp_path: Path) -> None:
    talk = Talk().open().send(0, p.request("/one"))
    talk.add(0, PSH | ACK, p.request("/one"), seq=1001)
    talk.add(0, ACK, b"\0", seq=talk.next[0] - 1)  # a keep-alive
    talk.add(0, ACK, seq=talk.next[0] - 1)
    rows = told(tmp_path, talk.send(1, p.response()).close())
    assert requests(rows) == good("/one")
    assert rows.columns("retransmits", "sequence", "size_bytes", "pid") == [(1001, len(p.request("/one")), None)]
    assert rows.columns("connections", "event", "retransmits") == [("open", None), ("close", 1)]


def lost_talk(lost: Callable[[Talk], object]) -> Talk:
    talk = Talk().open().exchange("/1").exchange("/2").exchange("/3")
    lost(talk)
    talk.time_ns += 2_000_000_000
    talk.exchange("/8").exchange("/9")
    return talk.close()


def lose_request(talk: Talk) -> None:
    talk.send(0, p.request("/lost"), lost=(0,)).acknowledge(1)
    talk.send(1, p.response()).acknowledge(0)


def lose_response(talk: Talk) -> None:
    talk.send(0, p.request("/half")).acknowledge(1)
    talk.send(1, p.response(b"y" * 100), lost=(0,)).acknowledge(0)


def lose_head_of_response(talk: Talk) -> None:
    talk.send(0, p.request("/half")).acknowledge(1)
    talk.send(1, p.response(b"y" * 3000), 1000, lost=(0,)).acknowledge(0)


def lose_exchange(talk: Talk) -> None:
    talk.send(0, p.request("/lost"), lost=(0,))
    talk.send(1, p.response(), lost=(0,)).acknowledge(0)


@pytest.mark.parametrize(
    ("lost", "half"),
    [
        (lose_request, []),
        (lose_response, [("/half", None, "unknown", True, False)]),
        (lose_head_of_response, [("/half", None, "unknown", True, False)]),
        (lose_exchange, []),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_the_capture_missed_is_a_gap_and_nothing_is_wrongly_paired(
    lost: Callable[[Talk], object], half: list[tuple[object, ...]], tmp_path: Path
) -> None:
    rows = told(tmp_path, lost_talk(lost))
    assert requests(rows) == [*good("/1", "/2", "/3"), *half, *good("/8", "/9")]
    assert rows.lost()["gap"] > 0
    assert set(rows.lost()) <= {"gap"}


def test_a_lost_end_of_a_body_does_not_matter_to_a_length_that_was_told(tmp_path: Path) -> None:
    talk = Talk().open().send(0, p.request("/one"))
    talk.send(1, p.response(b"z" * 5000), 1000, lost=(2, 3)).acknowledge(0).exchange("/two").close()
    rows = told(tmp_path, talk)
    assert [row[:3] for row in requests(rows)] == [("/one", 200, "ok"), ("/two", 200, "ok")]


def test_an_answer_lost_at_the_end_is_not_called_missing(tmp_path: Path) -> None:
    talk = Talk().open().send(0, p.request("/one")).send(1, p.response(), lost=(0,)).acknowledge(0)
    rows = told(tmp_path, talk)
    assert requests(rows) == [("/one", None, "unknown", True, False)]
    assert rows.lost() == {"gap": len(p.response())}


# ---- overlap: as Linux does ------------------------------------------------------------------------------------------

BODY = 12


def overlap(tmp_path: Path, *segments: tuple[int, bytes]) -> bytes:
    """Send pieces of a 12 byte path, at places, then the rest of the request; return the path that was seen."""
    talk = Talk().open()
    talk.send(0, b"GET /")
    at = talk.next[0]
    for place, data in segments:
        talk.add(0, PSH | ACK, data, seq=at + place)
    talk.next[0] = at + BODY
    talk.send(0, b" HTTP/1.1\r\nHost: e\r\n\r\n").acknowledge(1).send(1, p.response()).close()
    rows = told(tmp_path, talk)
    assert rows.of("losses") == []
    (row,) = rows.of("requests")
    return str(row["resource"])[1:].encode()


OVERLAPS = {
    "delivered stays": ([(0, b"aaaaaa"), (3, b"bbbbbbbbb")], b"aaaaaabbbbbb"),
    "sent again, other bytes": ([(0, b"aaaaaaaaaaaa"), (0, b"bbbbbbbbbbbb")], b"aaaaaaaaaaaa"),
    "waiting, inside an older one": ([(2, b"aaaaaaaaaa"), (4, b"bbb"), (0, b"cc")], b"ccaaaaaaaaaa"),
    "waiting, covers an older one": ([(4, b"aaa"), (2, b"bbbbbbbbbb"), (0, b"cc")], b"ccbbbbbbbbbb"),
    "waiting, same start and longer": ([(2, b"aaa"), (2, b"bbbbbbbbbb"), (0, b"cc")], b"ccbbbbbbbbbb"),
    "waiting, same place": ([(2, b"aaaaaaaaaa"), (2, b"bbbbbbbbbb"), (0, b"cc")], b"ccaaaaaaaaaa"),
    "waiting, begins before": ([(6, b"aaaaaa"), (2, b"bbbbbb"), (0, b"cc")], b"ccbbbbbbaaaa"),
    "waiting, begins behind": ([(2, b"bbbbbb"), (6, b"aaaaaa"), (0, b"cc")], b"ccbbbbbbaaaa"),
    "fills the hole and more": ([(4, b"aaaaaaaa"), (0, b"ccccccc")], b"cccccccaaaaa"),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_overlap(case: str, tmp_path: Path) -> None:
    segments, expected = OVERLAPS[case]
    assert overlap(tmp_path, *segments) == expected


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_reset(tmp_path: Path) -> None:
    talk = Talk().open().send(0, p.request("/one"))
    talk.add(1, RST, seq=12345)  # of nothing here
    talk.add(1, RST | ACK)
    talk.send(0, p.request("/late"))  # was under way
    rows = told(tmp_path, talk)
    assert requests(rows) == [("/one", None, "no_response", False, False)]
    assert ends(rows) == [("open", None, None, None), ("close", "ECONNRESET", len(p.request("/one")), 0)]


def test_half_close_and_a_body_until_the_end(tmp_path: Path) -> None:
    talk = Talk().open().send(0, p.request("/one"))
    talk.add(0, FIN | ACK)
    talk.send(1, b"HTTP/1.1 200 OK\r\n\r\n" + b"q" * 5000).add(1, FIN | ACK)
    talk.add(0, ACK)
    rows = told(tmp_path, talk)
    assert requests(rows) == good("/one")
    assert rows.columns("requests", "response_bytes") == [(5019,)]
    assert [row[0] for row in ends(rows)] == ["open", "close"]


def test_simultaneous_close_and_late_packets(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one")
    acked = list(talk.next)
    talk.add(0, FIN | ACK)
    talk.add(1, FIN | ACK, ack=acked[0])
    talk.add(0, ACK)
    talk.add(1, ACK)
    talk.add(1, FIN | ACK, seq=talk.next[1] - 1)
    talk.add(1, PSH | ACK, b"HTTP/1.1 500 late", seq=acked[1])
    rows = told(tmp_path, talk)
    assert requests(rows) == good("/one")
    assert [row[0] for row in ends(rows)] == ["open", "close"]


def test_open_at_the_end_of_the_capture(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one")
    rows = told(tmp_path, talk)
    assert ends(rows) == [("open", None, None, None), ("snapshot", None, len(p.request("/one")), len(p.response()))]
    assert rows.columns("connections", "event", "protocol") == [("open", None), ("snapshot", "http1")]


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_packets_larger_than_the_length_field(family: str, tmp_path: Path) -> None:
    """The card splits them after the capture; up to 64 KiB, and more of IPv6."""
    ipv6 = family == "ipv6"
    talk = Talk((p.CLIENT6, 40000), (p.SERVER6, 80)) if ipv6 else Talk()
    talk.open().send(0, p.request("/one"))
    answer = p.response(b"h" * 150_000)
    talk.send(1, answer, 70_000 if ipv6 else 65_495).acknowledge(0).exchange("/two").close()
    zeroed = [
        (at, one[:2] + b"\0\0" + one[4:]) if len(one) > 60_000 and not ipv6 else (at, one) for at, one in talk.packets
    ]
    rows = rows_of(tmp_path, p.pcap(zeroed))
    assert requests(rows) == good("/one", "/two")
    assert rows.columns("requests", "response_bytes") == [(len(answer),), (len(p.response()),)]
    assert rows.lost() == {}


@pytest.mark.parametrize("snap", [54, 60, 96, 128, 200, 1000])
def test_snaplen_cuts_are_right_or_marked(snap: int, tmp_path: Path) -> None:
    talk = Talk().open()
    for number in range(6):
        talk.exchange(f"/{number}", b"b" * 3000)
        talk.time_ns += 2_000_000_000
    talk.close()
    rows = told(tmp_path, talk, snap=snap)
    expected = {f"/{number}": 200 for number in range(6)}
    for row in rows.of("requests"):
        if not row["truncated"]:
            assert (row["status"], row["outcome"]) == (expected[row["resource"]], "ok")
            assert row["response_bytes"] == len(p.response(b"b" * 3000))
    if snap >= 96:  # the heads are whole: nothing is missing
        assert requests(rows) == good(*expected)
    else:
        assert rows.lost().get("uncaptured", 0) + rows.lost().get("packet_damaged", 0) > 0 or not rows.of("requests")
    close = ends(rows)[-1]
    assert close == ("close", None, 6 * len(p.request("/1")), 6 * len(p.response(b"b" * 3000)))


# ---- IP --------------------------------------------------------------------------------------------------------------


def cut_ipv4(packet: bytes, size: int) -> list[bytes]:
    body = packet[20:]
    found = []
    for start in range(0, len(body), size):
        more = start + size < len(body)
        found.append(
            p.ipv4(packet[12:16], packet[16:20], packet[9], body[start : start + size],
                   ident=int.from_bytes(packet[4:6], "big"), fragment=start // 8 | (0x2000 if more else 0))
        )  # fmt: skip
    return found


def cut_ipv6(packet: bytes, size: int, ident: int) -> list[bytes]:
    body = packet[40:]
    found = []
    for start in range(0, len(body), size):
        more = start + size < len(body)
        header = struct.pack(">BBHI", packet[6], 0, start | more, ident)
        found.append(p.ipv6(packet[8:24], packet[24:40], 44, header + body[start : start + size]))
    return found


def fragmented(talk: Talk, size: int) -> list[tuple[int, list[bytes]]]:
    return [
        (at, cut_ipv6(one, size, number) if p.is_ipv6(one) else cut_ipv4(one, size))
        for number, (at, one) in enumerate(talk.packets)
    ]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("order", ["in order", "reversed", "copied"])
def test_fragments(family: str, order: str, tmp_path: Path) -> None:
    talk = Talk((p.CLIENT6, 40000), (p.SERVER6, 80)) if family == "ipv6" else Talk()
    found = []
    for at, pieces in fragmented(talk.open().exchange("/one", b"f" * 4000).exchange("/two").close(), 64):
        pieces = {"in order": pieces, "reversed": pieces[::-1], "copied": pieces[:1] + pieces}[order]
        found += [(at, piece) for piece in pieces]
    rows = rows_of(tmp_path, p.pcap(found))
    assert requests(rows) == good("/one", "/two")
    assert rows.lost() == {}


def test_a_missing_or_overlapping_fragment_spoils_its_datagram(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one").exchange("/two").close()
    asks = [at for at, (_, one) in enumerate(talk.packets) if b"GET" in one]
    cut = fragmented(talk, 24)
    del cut[asks[0]][1][1]
    pieces = cut[asks[1]][1]
    pieces.insert(
        1, p.ipv4(CLIENT4, SERVER4, 6, bytes(24), ident=int.from_bytes(pieces[0][4:6], "big"), fragment=0x2001)
    )
    rows = rows_of(tmp_path, p.pcap([(at, piece) for at, pieces in cut for piece in pieces]))
    assert requests(rows) == []
    assert rows.lost()["fragment_lost"] >= 2
    assert rows.lost()["gap"] > 0


def test_headers_with_options_and_extensions(tmp_path: Path) -> None:
    talk = Talk((p.CLIENT6, 40000), (p.SERVER6, 80)).open().exchange("/one").close()
    extensions = bytes.fromhex("3c00000000000000 2b00000000000000 3300000000000000 2c01000000000000")
    extensions = bytes.fromhex(
        "3c 00 000000000000"  # hop by hop, then destination options
        "2b 01 000000000000 0000000000000000"  # then routing
        "33 00 000000000000"  # then authentication
        "2c 04 0000 00000000 00000000 00000000 00000000 00000000"  # then an atomic fragment
        "06 00 0000 00000000"
    )
    packets = [(at, p.ipv6(one[8:24], one[24:40], 0, extensions + one[40:])) for at, one in talk.packets]
    assert requests(rows_of(tmp_path, p.pcap(packets))) == good("/one")
    talk = Talk().open().exchange("/one").close()
    packets = [(at, p.ipv4(one[12:16], one[16:20], 6, one[20:], options=b"\x94\x04\0\0")) for at, one in talk.packets]
    assert requests(rows_of(tmp_path, p.pcap(packets))) == good("/one")


def test_other_packets_are_passed_over_and_impossible_ones_counted(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one").close()
    at = talk.packets[2][0]
    others = [p.ipv4(CLIENT4, SERVER4, 1, b"\x08\0\0\0ping"), p.ipv6(p.CLIENT6, p.SERVER6, 59, b"")]
    damaged = [
        p.ipv4(CLIENT4, SERVER4, 6, b"short"), p.ipv4(CLIENT4, SERVER4, 6, bytes(40)), b"\x42" + bytes(30),
        p.ipv4(CLIENT4, SERVER4, 17, b"\0\1\0\1\0\4\0\0"), p.ipv6(p.CLIENT6, p.SERVER6, 0, b""), b"\x60",
        p.ipv4(CLIENT4, SERVER4, 6, bytes(64), fragment=0x3FFF),
    ]  # fmt: skip
    talk.packets[3:3] = [(at, one) for one in others + damaged]
    rows = told(tmp_path, talk)
    assert requests(rows) == good("/one")
    assert rows.lost() == {"packet_damaged": len(damaged)}


# ---- UDP and clocks --------------------------------------------------------------------------------------------------


def test_datagrams(tmp_path: Path) -> None:
    def datagram(source: tuple[bytes, int], target: tuple[bytes, int], data: bytes) -> bytes:
        return p.ip(source[0], target[0], 17, p.udp(source[1], target[1], data))

    client, server, late = (CLIENT4, 5000), (SERVER4, 53), (CLIENT4, 5001)
    sent = [
        datagram(client, server, b"question"), datagram(server, client, b"answer"), datagram(client, server, b""),
        datagram(client, server, b"more"), datagram(server, late, b"an answer to what was before"),
    ]  # fmt: skip
    rows = rows_of(tmp_path, p.pcap([(p.START_NS + at, one) for at, one in enumerate(sent)]))
    columns = ("event", "transport", "role", "local_port", "remote_port", "bytes_sent", "bytes_received")
    assert rows.columns("connections", *columns) == [
        ("open", "udp", None, 5000, 53, None, None), ("open", "udp", None, 5001, 53, None, None),
        ("snapshot", "udp", None, 5000, 53, 12, 6), ("snapshot", "udp", None, 5001, 53, 0, 28),
    ]  # fmt: skip


def test_a_clock_that_is_set_is_told_and_moves_no_time(tmp_path: Path) -> None:
    before = Talk().open().exchange("/one")
    after = Talk(client=(CLIENT4, 40001), time_ns=before.time_ns - 3_600_000_000_000).open().exchange("/two")
    rows = rows_of(tmp_path, p.pcap(before.packets + after.packets))
    assert requests(rows) == good("/one", "/two")
    first, second = rows.of("requests")
    assert first["time_ns"] < second["time_ns"] < first["time_ns"] + 1_000_000_000
    assert second["wall_time"].value == after.packets[5][0]
    assert first["wall_time"].value == before.packets[5][0]
    assert rows.lost() == {"clock_step": 1}


def test_times_that_cannot_be_do_no_harm(tmp_path: Path) -> None:
    talk = Talk().open().exchange("/one").close()
    found = [p.section(), p.interface(1, 0, p.option(9, b"\x00") + p.option(14, struct.pack("<q", -1 << 63)))]
    found += [p.enhanced(p.ethernet(one), at * 0x0123456789ABCDEF % 2**64) for at, (_, one) in enumerate(talk.packets)]
    rows = rows_of(tmp_path, b"".join(found))
    assert sorted(requests(rows)) == good("/one")
