"""Data records in, rows of `payloads` out: every captured byte at its place, and nothing twice."""

from typing import Any

import pytest
from tests.decode.records import CLIENT, HEAD_TAIL, OPAQUE, PEEK, Recorder, Socket

from tracehound.btf import wire_layout
from tracehound.decode import Decoder, DecodeSettings
from tracehound.protocols import load_protocols

LAYOUT = wire_layout()
HTTP1 = LAYOUT.enum("l7_protocol")["L7_HTTP1"]


def decode(recorder: Recorder, *, payloads: bool = True, cuts: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    decoder = Decoder(LAYOUT, load_protocols(), DecodeSettings(payloads=payloads))
    tables = [decoder.decode(batch) for batch in recorder.batches(cuts)]
    return [row for table in tables if "payloads" in table for row in table["payloads"].to_pylist()]


def conversation() -> Recorder:
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, verdict=HTTP1).open()
    socket.send(b"GET / HTTP/1.1\r\n\r\n")
    socket.receive(bytes(range(256)) * 300)
    socket.receive(b"again", flags=PEEK)
    socket.receive(b"again")
    socket.receive(b"h" * 5000, capture=HEAD_TAIL)
    socket.send(70_000, flags=OPAQUE)
    socket.close()
    return recorder


def test_nothing_unless_it_is_wanted() -> None:
    assert decode(conversation(), payloads=False) == []


def test_row_says_all_that_is_known() -> None:
    row = decode(conversation())[0]
    assert {name: value for name, value in row.items() if value is not None and name != "time_ns"} == {
        "pid": 100, "tid": 101, "preexisting": False, "connection": 11 << 8 | 1, "direction": "send",
        "source": "syscall", "protocol": "http1", "transport": "tcp", "position": 0, "tcp_sequence": 0,
        "size_bytes": 18, "captured_bytes": 18, "message_type": "unknown", "bytes": b"GET / HTTP/1.1\r\n\r\n",
    }  # fmt: skip


def test_bytes_stand_at_their_positions() -> None:
    received = bytes(range(256)) * 300 + b"again" + b"h" * 5000
    found = [row for row in decode(conversation()) if row["direction"] == "receive"]
    for row in found:
        assert received[row["position"] : row["position"] + row["captured_bytes"]] == row["bytes"]
    starts = [(row["position"], row["captured_bytes"]) for row in found]
    first = [(0, 16384), (16384, 16384), (32768, 16384), (49152, 16384), (76544, 256)]
    assert starts == [*first, (76800, 5), (76805, 4096), (81549, 256)]


def test_bytes_that_could_not_be_read_are_counted() -> None:
    row = decode(conversation())[-1]
    assert (row["size_bytes"], row["captured_bytes"], row["bytes"], row["position"]) == (70_000, 0, b"", 18)


@pytest.mark.parametrize("cuts", [(1,), (2, 3, 5), tuple(range(1, 12))])
def test_rows_do_not_depend_on_batch_cuts(cuts: tuple[int, ...]) -> None:
    assert decode(conversation(), cuts=cuts) == decode(conversation())
