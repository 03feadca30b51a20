"""Calls of C++, Rust and Go functions by the names that their sources have; Go programs live, stripped ones too."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.conftest import TARGETS, Finished, Row, RunCli, rows
from tests.symbols.conftest import GO, build

import tracehound

pytest.importorskip("capstone")

COMPILERS = {"cpp": ("g++", "-O1", "-Wl,--build-id"), "rs": ("rustc", "-O", "--edition=2021"), "c": ("cc", "-O1"),
             "go": (GO or "go", "build")}  # fmt: skip

FIRST = "rax" if os.uname().machine == "x86_64" else "x0"  # where Go's first argument is


class Shown(NamedTuple):
    """What `tracehound call` of a program gave."""

    finished: Finished
    rows: list[Row]
    lost: int


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """Return what compiles a target, or skips the test where there is no such compiler."""

    def make(name: str, *options: str) -> Path:
        kind = name.rpartition(".")[2]
        if not shutil.which(COMPILERS[kind][0]):
            pytest.skip(f"{COMPILERS[kind][0]} is not installed")
        build(*COMPILERS[kind], *options, "-o", tmp_path / "shop", TARGETS / name)
        return tmp_path / "shop"

    return make


@pytest.fixture
def call(run_cli: RunCli, tmp_path: Path) -> Callable[..., Shown]:
    def run(program: Path, *words: str) -> Shown:
        record = tmp_path / f"record{len(list(tmp_path.iterdir()))}"
        finished = run_cli("call", "--record", record, *words, "--", program)
        assert finished.code == 0, finished.err
        kept = tracehound.open(record)
        return Shown(finished, rows(kept.calls), sum(row["count"] for row in rows(kept.losses)))

    return run


def counted(shown: Shown) -> Counter[str]:
    """Return how many calls of each symbol there were; they are whole, and none was lost."""
    assert shown.lost == 0 and not any(row["incomplete"] for row in shown.rows)
    return Counter(row["symbol"] for row in shown.rows)


def test_cpp_with_and_without_parameters(call: Callable[..., Shown], made: Callable[..., Path]) -> None:
    shop = made("shop.cpp")
    shown = call(shop, f"{shop}:shop::Cart::add", "shop:*twice<long>*[n=long]")
    assert counted(shown) == {
        "shop::Cart::add(int)": 10,
        "shop::Cart::add(char const*)": 5,
        "long shop::twice<long>(long)": 3,
    }
    assert {row["point"] for row in shown.rows} == {f"{shop}:shop::Cart::add(int)",
        f"{shop}:shop::Cart::add(char const*)", "shop:long shop::twice<long>(long)"}  # fmt: skip
    twice = [row for row in shown.rows if "twice" in row["symbol"]]
    assert [row["return_value"] for row in twice] == [2 * int(row["args"][0]["value"]) for row in twice]


def test_cpp_of_a_debug_file(call: Callable[..., Shown], made: Callable[..., Path], tmp_path: Path) -> None:
    """The program itself has no symbols."""
    shop = made("shop.cpp")
    build("objcopy", "--only-keep-debug", shop, tmp_path / "shop.debug")
    build("strip", shop)
    build("objcopy", f"--add-gnu-debuglink={tmp_path / 'shop.debug'}", shop)
    shown = call(shop, "--filter", "shop::Cart::add:n > 6", "shop:shop::Cart::add(int)[ptr,n=int]")
    assert counted(shown) == {"shop::Cart::add(int)": 3}
    assert [row["args"][1]["value"] for row in shown.rows] == ["7", "8", "9"]


def test_rust(call: Callable[..., Shown], made: Callable[..., Path]) -> None:
    shown = call(made("shop.rs"), "shop:*shop::Cart*::add[ptr,n=ulong]", "shop:shop::twice")
    assert sorted(counted(shown).values()) == [3, 10]
    adds = [row for row in shown.rows if row["args"]]
    assert [row["args"][1]["value"] for row in adds] == [str(n) for n in range(10)]
    assert [row["return_value"] for row in adds] == [1 + sum(range(n + 1)) for n in range(10)]


def test_go_stripped(call: Callable[..., Shown], made: Callable[..., Path]) -> None:
    shown = call(made("shop.go", "-ldflags=-s -w"), "--format", "none", f"shop:main.work[n=long:{FIRST}]",
                 "shop:main.(*cart).Total")  # fmt: skip
    assert shown.lost == 0
    work = [row for row in shown.rows if row["symbol"] == "main.work"]
    assert [int(row["args"][0]["value"]) for row in work] == list(range(100))
    assert [row["return_value"] for row in work] == [2 * n + 1 for n in range(100)]
    total = [row for row in shown.rows if row["symbol"] == "main.(*cart).Total"]
    # A stack that grows runs a function's first instructions again, and a call may end in another thread
    assert len(total) >= 8 * 201
    assert {row["return_value"] for row in total if not row["incomplete"]} <= {3 * n for n in range(1, 202)}
    assert any(not row["incomplete"] for row in total)


def test_a_function_whose_end_is_not_seen(call: Callable[..., Shown], made: Callable[..., Path]) -> None:
    shown = call(made("odd.c"), "--format", "json", "shop:odd[int]", "shop:jumps", "shop:plain")
    told = [line for line in shown.finished.lines if "entry only" in line]
    assert [line.partition(", ")[0] for line in told] == [
        "tracehound: shop:odd: entry only", "tracehound: shop:jumps: entry only"
    ]  # fmt: skip
    assert "at +0x" in told[0] and told[1].endswith("it ends in jumps to other functions only")
    found = Counter((row["symbol"], row["event"]) for row in shown.rows)
    assert found == {("odd", "entry"): 5, ("jumps", "entry"): 5, ("plain", "call"): 5}
    lines = map(json.loads, shown.finished.out.splitlines())
    points = {row["point"] for row in lines if row["table"] == "calls"}
    assert points == {"shop:odd", "shop:jumps", "shop:plain"}


def test_a_name_that_is_not_there(run_cli: RunCli, made: Callable[..., Path]) -> None:
    finished = run_cli("call", "--no-record", "shop:shop::Cart::ad", "--", made("shop.cpp"))
    assert finished.code == 2 and len(finished.lines) == 1
    assert finished.err.endswith("no function shop::Cart::ad. Near: shop::Cart::add\n")
