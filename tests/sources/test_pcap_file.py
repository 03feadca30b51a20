"""Capture files: every format gives the same rows; damage is told with its place, and what was before it is kept."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sources import packets as p
from tests.sources.packets import Talk, block, enhanced, ethernet, interface, option, rows_of, section

from tracehound.sources.pcap import is_capture

TALK = Talk().open().exchange("/one").exchange("/two", b"x" * 3000).close()


def paths(rows: p.Rows) -> list[tuple[object, ...]]:
    return rows.columns("requests", "operation", "resource", "status", "outcome", "gap", "truncated")


GOOD = [("GET", "/one", 200, "ok", False, False), ("GET", "/two", 200, "ok", False, False)]
LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "ethernet": (1, p.ethernet),
    "vlan": (1, lambda one: p.ethernet(one, [b"\x81\x00\x00\x07"])),
    "qinq": (1, lambda one: p.ethernet(one, [b"\x88\xa8\x00\x05", b"\x81\x00\x00\x07"])),
    "padded": (1, lambda one: p.ethernet(one, padding=14)),
    "cooked": (113, p.cooked),
    "cooked2": (276, p.cooked2),
    "raw": (101, p.raw),
    "raw12": (12, p.raw),
    "null": (0, p.null),
    "null_big_endian": (0, p.loop),
    "loop": (108, p.loop),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_link_types(link: str, family: str, tmp_path: Path) -> None:
    talk = TALK
    if family == "ipv6":
        talk = Talk((p.CLIENT6, 40000), (p.SERVER6, 80)).open().exchange("/one").exchange("/two", b"x" * 3000).close()
    number, wrap = LINKS[link]
    rows = rows_of(tmp_path, p.pcap(talk.packets, number, wrap))
    assert paths(rows) == GOOD
    assert rows.error is None and rows.lost() == {}
    ips = ("10.0.0.1", "10.0.0.2") if family == "ipv4" else ("fd00::1", "fd00::2")
    assert set(rows.columns("requests", "local_ip", "local_port", "remote_ip", "remote_port")) == {
        (ips[0], 40000, ips[1], 80)
    }
    assert set(rows.columns("connections", "event", "family", "role", "pid", "comm", "service", "fd")) == {
        (event, family, None, None, None, None, None) for event in ("open", "close")
    }


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("ticks", [10**6, 10**9])
def test_byte_orders_and_resolutions(order: str, ticks: int, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, p.pcap(TALK.packets, order=order, ticks=ticks))
    assert paths(rows) == GOOD
    walls = [row["wall_time"].value for row in rows.of("requests")]
    first = next(at for at, (_, packet) in enumerate(TALK.packets) if b"HTTP/1.1 200" in packet)
    assert walls[0] == TALK.packets[first][0]


def pcapng(order: str = "<", ticks: bytes = b"\x06", per_second: int = 10**6, offset_s: int = 0) -> bytes:
    options = option(9, ticks, order)
    if offset_s:
        options += option(14, struct.pack(order + "q", offset_s), order)
    found = [section(order), interface(1, 0, options, order)]
    for time_ns, packet in TALK.packets:
        found.append(enhanced(ethernet(packet), (time_ns - offset_s * 10**9) * per_second // 10**9, order=order))
    return b"".join(found)


@pytest.mark.parametrize(
    ("order", "ticks", "per_second", "offset_s"),
    [
        ("<", b"\x06", 10**6, 0),
        (">", b"\x06", 10**6, 0),
        ("<", b"\x09", 10**9, 0),
        (">", b"\x94", 1 << 20, 0),
        ("<", b"\x06", 10**6, 1_600_000_000),
    ],
)
def test_pcapng(order: str, ticks: bytes, per_second: int, offset_s: int, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, pcapng(order, ticks, per_second, offset_s))
    assert paths(rows) == GOOD
    wall_ns = rows.of("requests")[0]["wall_time"].value
    first = next(at for at, (_, packet) in enumerate(TALK.packets) if b"HTTP/1.1 200" in packet)
    assert 0 <= TALK.packets[first][0] - wall_ns <= 10**9 // per_second + 1


def test_pcapng_sections_interfaces_and_every_packet_block(tmp_path: Path) -> None:
    found, half = [section("<"), interface(276), interface(101, 65535, option(9, b"\x09"))], len(TALK.packets) // 2
    for at, (time_ns, packet) in enumerate(TALK.packets[:half]):
        if at % 3 == 0:
            found.append(enhanced(p.cooked2(packet), time_ns // 1000))
        elif at % 3 == 1:
            found.append(enhanced(packet, time_ns, 1))
        else:
            fixed = struct.pack("<HHIIII", 1, 3, time_ns >> 32, time_ns & 0xFFFFFFFF, len(packet), len(packet))
            found.append(block(2, fixed + packet))
        found.append(block(0xBAD, b"\0\0\0\1 custom"))
    found += [section(">"), interface(113, 0, order=">")]
    for _, packet in TALK.packets[half:]:
        frame = p.cooked(packet)
        found.append(block(3, struct.pack(">I", len(frame)) + frame, ">"))
    rows = rows_of(tmp_path, b"".join(found))
    assert paths(rows) == GOOD
    assert rows.lost() == {"packet_dropped": 3 * (half // 3)}


def test_drops_that_the_capturer_counted_are_losses(tmp_path: Path) -> None:
    def told(count: int) -> bytes:
        return block(5, struct.pack("<III", 0, 0, 0) + option(5, struct.pack("<Q", count)) + option(7, bytes(8)))

    time_ns, packet = TALK.packets[0]
    dropped = enhanced(ethernet(packet), time_ns // 1000, options=option(4, struct.pack("<Q", 4)))
    rows = rows_of(tmp_path, section() + interface(1) + dropped + told(7) + told(9))
    assert rows.lost() == {"packet_dropped": 13}


def test_an_interface_that_is_not_read_costs_its_packets_only(tmp_path: Path) -> None:
    found = [section(), interface(1), interface(147)]
    for time_ns, packet in TALK.packets:
        found += [enhanced(ethernet(packet), time_ns // 1000), enhanced(b"?" * 40, time_ns // 1000, 1)]
    rows = rows_of(tmp_path, b"".join(found))
    assert paths(rows) == GOOD
    assert rows.lost() == {"packet_unread": len(TALK.packets)}


WHOLE = p.pcap(TALK.packets)
NG = pcapng()
DAMAGED = {
    "empty": (b"", "is no capture: it has only 0 bytes"),
    "short": (b"\xd4\xc3\xb2\xa1", "is no capture: it has only 4 bytes"),
    "other": (b"PAR1" + bytes(100), "is no capture: it begins with 50 41 52 31"),
    "header only in part": (WHOLE[:20], "is cut off at byte 20"),
    "version": (WHOLE[:4] + b"\x07" + WHOLE[5:], "is damaged at byte 0: pcap version 7 is not known"),
    "link": (WHOLE[:20] + b"\x93" + WHOLE[21:], "is of link type 147, which is not read"),
    "giant packet": (WHOLE[:32] + b"\xff\xff\xff\x7f" + WHOLE[36:], "is damaged at byte 24: a packet of 2147483647"),
    "last packet": (WHOLE[:-3], f"is cut off at byte {len(WHOLE) - 3}, inside a packet"),
    "last header": (WHOLE + bytes(7), f"is cut off at byte {len(WHOLE) + 7}, inside a packet"),
    "block cut": (NG[:-3], f"is cut off at byte {len(NG) - 3}, inside a packet"),
    "block length": (NG + struct.pack("<III", 6, 13, 13), f"is damaged at byte {len(NG)}: a block of 13 bytes"),
    "block lengths": (NG + struct.pack("<IIII", 6, 16, 0, 12), f"is damaged at byte {len(NG)}: a block whose two"),
    "giant block": (NG + struct.pack("<III", 6, 1 << 30, 0), f"is damaged at byte {len(NG)}: a block of 1073741824"),
    "no interface": (NG + enhanced(b"x", 0, 9), f"is damaged at byte {len(NG)}: a block of type 6 that cannot be"),
    "no section": (NG + block(0x0A0D0D0A, bytes(16)), f"is damaged at byte {len(NG)}: a section without"),
    "section version": (
        NG + block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 2, 0, -1)),
        f"is damaged at byte {len(NG)}: a section of",
    ),
    "captured more": (
        NG + block(6, struct.pack("<IIIII", 0, 0, 0, 99, 99)), f"is damaged at byte {len(NG)}: a block of type 6"
    ),
}  # fmt: skip

NOTHING_BEFORE = ("empty", "short", "other", "header only in part", "version", "link", "giant packet")


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_told_with_its_place_and_what_was_before_it_is_kept(case: str, tmp_path: Path) -> None:
    content, said = DAMAGED[case]
    rows = rows_of(tmp_path, content)
    assert rows.error is not None
    assert rows.error.startswith(f"{tmp_path / 'capture'} {said}"), rows.error
    assert paths(rows) == ([] if case in NOTHING_BEFORE else GOOD)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert p.read(tmp_path / "none").error == f"{tmp_path / 'none'} cannot be read: No such file or directory"
    assert p.read(tmp_path).error == f"{tmp_path} cannot be read: Is a directory"


def test_is_capture(tmp_path: Path) -> None:
    path = tmp_path / "file"
    cases = {WHOLE: True, NG: True, pcapng(">"): True, p.pcap([], order=">", ticks=10**9): True, b"": False,
             b"PAR1": False, b"\n\r\r\n" + bytes(20): False}  # fmt: skip
    for content, expected in cases.items():
        path.write_bytes(content)
        assert is_capture(path) is expected
    assert not is_capture(tmp_path) and not is_capture(tmp_path / "none")


def test_a_capture_without_packets(tmp_path: Path) -> None:
    for content in (p.pcap([]), section(), section() + interface(1)):
        rows = rows_of(tmp_path, content)
        assert rows.tables == {} and rows.error is None
