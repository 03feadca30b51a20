"""Watched addresses of a running C program: each access and no other, in every thread and child; four at once."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.conftest import RunCli
from tests.live.hits import Watched, traced, watched

from tracehound.errors import AttachError
from tracehound.kernel.call_options import CallOptions, parse_registers
from tracehound.kernel.perf import own_registers
from tracehound.kernel.watch_places import find_watches

COUNT = 50


@pytest.fixture
def target(c_target: Callable[[str], Path]) -> Iterator[Watched]:
    with watched(c_target) as running:
        yield running


def options(target: Watched, *texts: str, **given: object) -> CallOptions:
    return CallOptions(watches=find_watches(texts, target.pid), **given)  # type: ignore[arg-type]


# what the target does -> hits of w, rw and r: a write reads and writes, and changes the value
ACCESS = {
    ("write", "w"): 1,
    ("write", "rw"): 2,
    ("write", "r"): 1,
    ("read", "w"): 0,
    ("read", "rw"): 1,
    ("read", "r"): 1,
}


@pytest.mark.parametrize("place", ["global", "heap", "stack"])
@pytest.mark.parametrize("access", ["r", "w", "rw"])
def test_accesses_to_data(target: Watched, place: str, access: str) -> None:
    text = f"{target.places[place]}:{access}:4"
    with traced(target.pid, options(target, text)) as (seen, _):
        for kind in ("write", "read"):
            target.do(f"{place}-{kind}", COUNT)
    expected = COUNT * (ACCESS["write", access] + ACCESS["read", access])
    assert seen.counts == [(expected, 0)] and len(seen.calls) == expected and not seen.lost()
    assert {(row["event"], row["point"], row["pid"], row["tid"]) for row in seen.calls} == {
        ("watch", text, target.pid, target.pid)
    }
    values = [tuple(int(each["value"], 16) for each in row["args"][1:]) for row in seen.calls]
    changes = [(old, new) for old, new in values if old != new]
    first = 5 if place == "global" else 0
    assert changes == ([] if access == "r" else [(first + n, first + n + 1) for n in range(COUNT)])
    assert {row["args"][0]["value"] for row in seen.calls} == {target.places[place]}
    assert [each["type"] for each in seen.calls[0]["args"]] == ["ptr", "uint32", "uint32"]
    assert all(row["ip"] and row["sp"] and not row["incomplete"] for row in seen.calls)


def test_code_that_is_run_by_name_with_registers(target: Watched) -> None:
    shown = tuple(own_registers())
    with traced(target.pid, options(target, "watched:step", registers=shown)) as (seen, _):
        target.do("step", COUNT)
    assert seen.counts == [(COUNT, 0)] and len(seen.calls) == COUNT
    for row in seen.calls:
        registers = {each["name"]: each["value"] for each in row["registers"]}
        assert tuple(registers) == shown
        assert row["ip"] == int(target.places["step"], 16) and (row["symbol"], row["args"][1:]) == ("step", [])
        if "rip" in registers:
            assert (registers["rip"], registers["rsp"], registers["rbp"]) == (row["ip"], row["sp"], row["bp"])


@pytest.mark.parametrize("how", ["thread", "fork"])
def test_threads_and_children_that_begin_later(target: Watched, how: str) -> None:
    with traced(target.pid, options(target, "watched:total:rw")) as (seen, _):
        target.do(f"{how}-read", COUNT)
        target.do("read", COUNT)
    begun = 2 if how == "thread" else 1
    found = Counter((row["pid"], row["tid"]) for row in seen.calls)
    assert sorted(found.values()) == [COUNT] * (begun + 1) and found[target.pid, target.pid] == COUNT
    assert len({pid for pid, _ in found}) == (1 if how == "thread" else 2)


def test_four_at_once_and_the_fifth_says_why_not(target: Watched, run_cli: RunCli) -> None:
    places = target.places
    texts = ["watched:total:w", f"{places['heap']}:w", f"{places['stack']}:rw:4", "watched:step:x"]
    with traced(target.pid, options(target, *texts)) as (seen, _):
        for kind in ("global-write", "heap-write", "stack-read", "step"):
            target.do(kind, COUNT)
        fifth = run_cli("call", "--no-record", "--pid", target.pid, "--watch", "watched:hook:x")
    assert seen.counts == [(COUNT, 0)] * 4
    assert Counter(row["point"] for row in seen.calls) == dict.fromkeys(texts, COUNT)
    assert fifth.code == 2 and fifth.lines == [
        "tracehound: cannot watch watched:hook:x: a CPU has four debug registers and others use them, such as a "
        "debugger: watch fewer at once"
    ]
    with (
        pytest.raises(AttachError, match="four debug registers and 4 of these watches take them: watch fewer"),
        traced(target.pid, options(target, *texts, "watched:hook:x")),
    ):
        pass
    with traced(target.pid, options(target, *texts)) as (again, _):  # all five were given back
        target.do("step", 1)
    assert again.counts == [(0, 0)] * 3 + [(1, 0)]


def test_too_many_hits_end_the_watch_and_are_counted(target: Watched) -> None:
    with traced(target.pid, options(target, "watched:step:x", "watched:total:w", watch_rate=100)) as (seen, trace):
        target.do("step", 5000)
        target.do("write", 50)
        assert trace.wait_flushed(60)
        target.do("step", 10)  # it is off by now: nobody stops for it
    (hits, without_row), other = seen.counts
    assert other == (50, 0)
    assert 5000 >= hits == without_row + 100 and without_row > 0
    assert seen.lost("rate_limited") == without_row
    assert seen.notes == ["watched:step:x: more than 100 hits in a second (--watch-rate): it was ended"]


def test_the_process_exits_meanwhile(target: Watched) -> None:
    with traced(target.pid, options(target, "watched:total")) as (seen, trace):
        target.do("write", 3)
        target.process.kill()
        target.process.wait()
        assert trace.wait_ended(60)
    assert seen.counts == [(3, 0)] and len(seen.calls) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("watched:totl", "{path}: no symbol totl. Near: total"),
        ("watchd:total", "nothing named watchd is mapped by pid {pid}. Near: watched"),
        ("watched:of_thread:w", "{path}: of_thread is another one in each thread: watch its address"),
        ("nonsense", "nonsense is no watch. Write 0xADDRESS, LIB:SYMBOL or LIB+0xOFFSET, then :r, :w, :rw or :x, "
         "then :LENGTH"),
        ("0x1003:w:4", "0x1003:w:4: 0x1003 is no multiple of 4: name a length of 1 or less"),
        ("0x1000:w:3", "0x1000:w:3: a length is 1, 2, 4 or 8 bytes, not 3"),
        ("watched:step:x:4", "watched:step:x:4: what is run has no length"),
        ("0xffffffff81000000:w", "0xffffffff81000000:w is an address of the kernel: --allow-kernel-address permits "
         "it, and it may hang the machine"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(target: Watched, run_cli: RunCli, text: str, said: str) -> None:
    finished = run_cli("call", "--no-record", "--pid", target.pid, "--watch", text)
    assert finished.code == 2
    assert finished.lines == ["tracehound: " + said.format(path=target.binary, pid=target.pid)]


def test_registers_have_near_matches() -> None:
    name = next(iter(own_registers()))
    assert parse_registers([name, f"{name},{name}"]) == (name,)
