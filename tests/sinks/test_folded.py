"""Folded stacks: whole texts of a shop's calls; and how stacks are collected, which all three outputs share."""

from pathlib import Path

import numpy as np
import pytest
from tests.decode.stack_records import LEAF, MS, SP, WHOLE, add_stack, batch_of, known
from tests.sinks.stack_rows import SOURCE, calls, frame, profile, shop, stacks

from tracehound.btf import wire_layout
from tracehound.decode.stacks import StackDecoder
from tracehound.errors import SinkError, UsageError
from tracehound.sinks import _profile, kind
from tracehound.sinks._profile import weight_of
from tracehound.sinks.folded import folded

BY_COUNT = """\
shop;main;load;open64 3
shop;main;shop.orders:load_[p];open64;do_sys_openat2_[k] 1
shop;[truncated];shop+0x512;load;inner_[i] 1
shop;[no_row] 1
"""
BY_DURATION = """\
shop;main;load;open64 4000
shop;main;shop.orders:load_[p];open64;do_sys_openat2_[k] 500
shop;[truncated];shop+0x512;load;inner_[i] 70
shop;[no_row] 1
"""


@pytest.mark.parametrize(("weight", "expected"), [("count", BY_COUNT), ("duration", BY_DURATION)])
def test_a_shop(weight: str, expected: str) -> None:
    assert folded(shop(weight)).decode() == expected


def test_what_does_not_weigh_is_counted() -> None:
    assert shop("duration").about.notes == (
        "calls without a stack: 1",
        "calls without duration, which weigh nothing: 1",
    )
    assert shop("duration").statuses == {"complete": (2, 4500), "truncated": (1, 70), "no_row": (1, 1)}
    assert shop().about.lost == "lost: ring_full 4"


def test_any_column_with_numbers_is_a_weight() -> None:
    rows = calls([(1, 0), (1, 0), (1, 0)], return_value=[4096, -1, 12])
    found = profile("return_value", {"calls": rows, "stacks": stacks({1: [frame("read")]})})
    assert folded(found).decode() == "shop;read 4108\n"
    assert found.about.notes == ("calls without return_value, which weigh nothing: 1",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("durations", "no weight durations. Near: duration_ns"),
        ("point", "no weight point. There are: count, duration,"),
    ],
)
def test_a_weight_that_there_is_not(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        weight_of(name)


def test_names_that_would_break_a_line() -> None:
    names = ["a;b", "c\nd\u202e", "operator new(unsigned long)", "kühl"]
    found = profile("count", {"calls": calls([(1, 0)], comm="p;q"), "stacks": stacks({1: [*map(frame, names)]})})
    assert folded(found).decode() == r"p:q;kühl;operator new(unsigned long);c\nd\u202e;a:b 1" + "\n"


def test_frames_without_a_symbol_are_named_for_their_place() -> None:
    frames = [
        frame(None, None, file=None, address=0x7F00),
        frame(None, 0x10),
        frame("", None, address=-16, kind="kernel"),
    ]
    found = profile("count", {"calls": calls([(1, 0)]), "stacks": stacks({1: frames})})
    assert folded(found).decode() == "shop;[0xfffffffffffffff0]_[k];shop+0x10;[0x7f00] 1\n"


def test_stacks_of_several_batches_processes_and_empty_ones() -> None:
    first = {"calls": calls([(1, 0), (2, 0)]), "stacks": stacks({1: [frame("a"), frame("b")], 2: []})}
    again = {"calls": calls([(1, 0)], comm="other"), "stacks": stacks({1: [frame("a"), frame("b")], 3: [frame("b")]})}
    found = profile("count", first, again, {"calls": calls([(3, 0)])}, {"stacks": stacks({})})
    assert (
        folded(found).decode()
        == "shop;b 1\nother;b;a 1\nshop;b;a 1\nshop 1\n".replace("shop;b 1\nother;b;a 1\n", "other;b;a 1\n")
        + "shop;b 1\n"
    )
    assert len(found.places) == 2


def test_memory_is_bounded_by_distinct_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_profile, "STACKS_MAX", 2)
    rows = {number: [frame(f"f{number}")] for number in range(4)}
    found = profile("count", {"calls": calls([(at, 0) for at in (0, 1, 2, 3, 0)]), "stacks": stacks(rows)})
    assert folded(found).decode() == "shop;f0 2\nshop;[not_kept] 2\nshop;f1 1\n"


def test_stacks_as_decode_makes_them() -> None:
    facts = known()
    add_stack(facts, 7, 5, (LEAF, SP, 0), WHOLE)
    add_stack(facts, 8, 5, (LEAF, SP, 0), WHOLE[:24], asked=24)
    decoder = StackDecoder(wire_layout())
    found = decoder.take(batch_of(facts, 99 * MS))
    ids = decoder.stack_of(np.array([7, 8], np.uint64)).to_pylist()
    assert found is not None
    rows = profile("count", {"calls": calls([(ids[0], 1), (ids[1], 1)], comm="work"), "stacks": found})
    assert folded(rows).decode() == "work;outer;middle;leaf 1\nwork;[truncated];middle;leaf 1\n"
    assert rows.functions[0].file == "/bin/work" and len(rows.places[0].build_id) == 40


def test_the_file_is_there_from_the_start_and_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "shop.folded"
    sink = kind("folded").open(str(path), SOURCE)
    assert path.read_bytes() == b""
    sink.write({"calls": calls([(1, 0)]), "stacks": stacks({1: [frame("main")]})})
    sink.flush()
    sink.close()
    sink.close()
    assert path.read_text() == "shop;main 1\n"
    assert sink.take_losses() is None
    with pytest.raises(SinkError, match=r"cannot write .*: No such file"):
        kind("folded").open(str(tmp_path / "none" / "x"), SOURCE)


def test_a_full_disk_is_counted_by_stacks() -> None:
    sink = kind("folded").open("/dev/full", SOURCE)
    sink.write({"calls": calls([(1, 0), (2, 0)])})
    sink.close()
    losses = sink.take_losses()
    assert losses is not None
    assert losses.select(["counter", "count"]).to_pylist() == [{"counter": "disk_full", "count": 2}]
