"""`tracehound flame`: a recording's stacks in three forms, chosen calls, and what is told when there are none."""

import gzip
from pathlib import Path

import pytest
from tests.recording.rows import FACTS, SCHEMAS, losses, requests
from tests.sinks.stack_rows import calls, frame, stacks
from tests.sources.taped import make_tape, traffic

import tracehound
from tracehound.cli import main
from tracehound.errors import UsageError
from tracehound.recording import RecordingWriter

FOLDED = "shop;main;load;read 2\nshop;[truncated];read 1\nweb;main;load;read 1\n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Make a recording whose stacks stand in two parts of it, one of them twice."""
    whole = {1: [frame("read"), frame("load"), frame("main")]}
    with RecordingWriter(tmp_path / "shop", SCHEMAS, FACTS) as recording:
        recording.append("calls", calls([(1, 2_000_000), (1, 1000), (2, 500), (None, 7)], return_value=[10, 20, -1, 3]))
        recording.append("stacks", stacks(whole))
        recording.flush()
        recording.append("calls", calls([(1, 50)], comm="python", service=["web"]))
        recording.append("stacks", stacks(whole | {2: [frame("read")]}, s2="truncated"))
        recording.append("losses", losses("ring_full", 4))
    return tmp_path / "shop"


def test_folded_to_standard_output(shop: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["flame", str(shop), "--format", "folded"]) == 0
    assert capfdbinary.readouterr().out.decode() == FOLDED


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--weight", "duration"], "shop;main;load;read 2001000\nshop;[truncated];read 500\nweb;main;load;read 50\n"),
        (["--weight", "return_value"], "shop;main;load;read 30\n"),
        (["--where", "duration_ns > 1ms"], "shop;main;load;read 1\n"),
        (["--where", "service = 'web' -- only it"], "web;main;load;read 1\n"),
    ],
)
def test_weights_and_chosen_calls(
    shop: Path, options: list[str], expected: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["flame", str(shop), "--format", "folded", *options]) == 0
    assert capfdbinary.readouterr().out.decode() == expected


def test_files_and_what_is_said_of_them(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["flame", str(shop)]) == 0
    told = "tracehound: flame.html: 4 calls in 3 distinct stacks; lost: ring_full 4; calls without a stack: 1\n"
    assert capfd.readouterr() == ("", told)
    assert "[truncated]" in (tmp_path / "flame.html").read_text()
    assert main(["flame", str(shop), "--format", "pprof", "--output", "p"]) == 0
    assert b"return_value" not in gzip.decompress((tmp_path / "p").read_bytes())
    assert capfd.readouterr().err.startswith("tracehound: p: 4 calls")
    assert main(["flame", str(shop), "--output", str(tmp_path / "none" / "x.html")]) == 2
    assert capfd.readouterr().err == f"tracehound: cannot write {tmp_path}/none/x.html: No such file or directory\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--weight", "duraton_ns"], "no weight duraton_ns. Near: duration_ns"),
        (["--where", "durationn > 1"], "--where: Binder Error: "),
        (["--where", "duration_ns > 1 parsec"], "--where: no unit parsec in '1 parsec'"),
        (["--where", "duration_ns > 1h"], "--where: no unit h"),
        (["--where", "pid = 1"], "no call that --where lets through has a stack: trace with `call --stack`"),
    ],
)
def test_mistakes_are_one_line(shop: Path, options: list[str], told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["flame", str(shop), *options]) == 2
    out, err = capfd.readouterr()
    assert err.startswith(f"tracehound: {told}") and err.count("\n") == 1 and out == ""


def test_without_stacks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old = {name: schema for name, schema in SCHEMAS.items() if name != "stacks"}
    for name, schemas, told in (
        ("none", SCHEMAS, "no call of this recording has a stack"),
        ("old", old, "this recording is of a version without stacks"),
    ):
        with RecordingWriter(tmp_path / name, schemas, FACTS) as recording:
            recording.append("requests", requests(0, 1))
        assert main(["flame", str(tmp_path / name)]) == 2
        assert capfd.readouterr().err.startswith(f"tracehound: {told}")


def test_a_tape_is_replayed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_tape(tmp_path / "shop.tape", traffic(), [10, 30, 60])
    assert main(["flame", str(tmp_path / "shop.tape")]) == 2
    assert "no call of this recording has a stack" in capfd.readouterr().err
    assert main(["flame", str(tmp_path / "shop.tap")]) == 2
    assert "no recording, tape or capture" in capfd.readouterr().err


def test_from_the_library(shop: Path) -> None:
    graph = tracehound.open(shop).flame(weight="duration", where="duration_ns < 1ms")
    assert str(graph).startswith("<!DOCTYPE html>") and "<iframe" in graph._repr_html_()
    assert sum(stack.weight for stack in graph.profile.stacks) == 1550
    with pytest.raises(UsageError, match="no weight cost"):
        tracehound.open(shop).flame("cost")
