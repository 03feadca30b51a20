"""pprof: read back by a small decoder of its own, and by pprof itself where Go is there."""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.sinks.stack_rows import SHOP, SOURCE, calls, frame, shop, stacks

from tracehound.sinks import kind
from tracehound.sinks.pprof import pprof

GO: Final = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
Message = list[tuple[int, int | bytes]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return number, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            at += value
            yield key >> 3, data[at - value : at]
        else:
            assert key & 7 == 0
            yield key >> 3, value


def parts(message: Message, field: int) -> list[Message]:
    return [list(fields(value)) for number, value in message if number == field and isinstance(value, bytes)]


def one(message: Message, field: int) -> int:
    return next((value for number, value in message if number == field and isinstance(value, int)), 0)


def numbers(message: Message, field: int) -> list[int]:
    (data,) = (value for number, value in message if number == field and isinstance(value, bytes))
    found, at = [], 0
    while at < len(data):
        number, at = varint(data, at)
        found.append(number)
    return found


def test_a_shop_read_back() -> None:
    message: Message = list(fields(gzip.decompress(pprof(shop("duration")))))
    texts = [value.decode() for number, value in message if number == 6 and isinstance(value, bytes)]
    assert texts[0] == "" and len(set(texts)) == len(texts)
    types = [(texts[one(each, 1)], texts[one(each, 2)]) for each in parts(message, 1)]
    assert types == [("calls", "count"), ("duration", "nanoseconds")]
    functions = {one(each, 1): (texts[one(each, 2)], texts[one(each, 4)]) for each in parts(message, 5)}
    mappings = {one(each, 1): (texts[one(each, 5)], texts[one(each, 6)]) for each in parts(message, 3)}
    locations = {}
    for each in parts(message, 4):
        lines = [(functions[one(line, 1)][0], one(line, 2)) for line in parts(each, 4)]
        locations[one(each, 1)] = mappings.get(one(each, 2)), one(each, 3), lines
    samples = []
    for each in parts(message, 2):
        labels = {texts[one(label, 1)]: texts[one(label, 2)] for label in parts(each, 3)}
        samples.append((numbers(each, 2), [locations[number] for number in numbers(each, 1)], labels))
    libc, program, kernel = ("/lib/libc.so.6", "ab12"), (SHOP, "ab12"), ("[kernel]", "")
    whole, cut = {"process": "shop", "status": "complete"}, {"process": "shop", "status": "truncated"}
    opened = (libc, 100, [("open64", 0)])
    deep = (kernel, (1 << 64) - (1 << 40), [("do_sys_openat2", 0)])
    python = (None, 1 << 40, [("shop.orders:load", 12)])
    inlined = (program, 400, [("inner", 7), ("load", 0)])
    assert samples == [
        ([3, 4000], [opened, (program, 200, [("load", 0)]), (program, 300, [("main", 0)])], whole),
        ([1, 500], [deep, opened, python, (program, 310, [("main", 0)])], whole),
        ([1, 70], [inlined, (program, 0x512, [("shop+0x512", 0)])], cut),
        ([1, 1], [], {"process": "shop", "status": "no_row"}),
    ]
    assert functions[max(functions)][0] and ("inner", "shop.c") in functions.values()
    assert [texts[number] for number in numbers(message, 13)][:3] == [
        "tracehound 0.1.0: python shop.py", "host box", "lost: ring_full 4",
    ]  # fmt: skip
    assert one(message, 9) == 1_700_000_000_000_000_000


def test_counts_alone_are_one_value(tmp_path: Path) -> None:
    sink = kind("pprof").open(str(tmp_path / "p"), SOURCE)
    sink.write({"calls": calls([(1, 0)]), "stacks": stacks({1: [frame("main")]})})
    sink.close()
    message: Message = list(fields(gzip.decompress((tmp_path / "p").read_bytes())))
    assert [numbers(each, 2) for each in parts(message, 2)] == [[1]]


@pytest.mark.skipif(GO is None, reason="no Go here")
def test_pprof_itself_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "shop.pb.gz"
    path.write_bytes(pprof(shop("duration")))
    environ = {**os.environ, "PPROF_TMPDIR": str(tmp_path), "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    command = [str(GO), "tool", "pprof", "-top", "-unit=ns", str(path)]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environ)
    assert found.returncode == 0, found.stderr
    rows = re.findall(r"^ *(\d+)(?:ns)? +\S+% +\S+% +(\d+)(?:ns)? +\S+% +(.+)$", found.stdout, re.MULTILINE)
    assert [(name, int(flat), int(cumulative)) for flat, cumulative, name in rows] == [
        ("open64", 4000, 4500), ("do_sys_openat2", 500, 500), ("inner (inline)", 70, 70), ("load", 0, 4070),
        ("main", 0, 4500), ("shop+0x512", 0, 70), ("shop.orders:load", 0, 500),
    ]  # fmt: skip
    assert "lost: ring_full 4" in found.stdout
