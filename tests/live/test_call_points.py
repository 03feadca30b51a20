"""Points that come and go while a program runs, hits that are limited or counted in the kernel; code stays whole."""

import json
import mmap
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Finished, Row, RunCli, StartCli, rows, wait_for
from tests.live.test_calls import Server

import tracehound
from tracehound.kernel.bpf_object import BpfObject, ObjectOptions
from tracehound.kernel.call_points import CallPoints, call_sizes
from tracehound.kernel.points import find_points
from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged
from tracehound.kernel.process_maps import mappings
from tracehound.native import lib

pytest.importorskip("capstone")

MIB = 1 << 20
CYCLES = 200


@pytest.fixture
def binary(c_target: Callable[[str], Path]) -> Path:
    return c_target("calls")


@pytest.fixture
def server(binary: Path) -> Iterator[Server]:
    running = Server(binary)
    with running.process as process:
        running.tick(1)
        yield running
        process.kill()


def code_of(pid: int, path: Path) -> tuple[bytes, bytes]:
    """Return the code of a file as a process has it in memory, and as it is in the file."""
    memory, file = b"", b""
    with open(f"/proc/{pid}/mem", "rb") as source, path.open("rb") as original:
        for each in mappings(pid):
            if each.is_code and each.path == str(path):
                size = each.end - each.start
                source.seek(each.start)
                memory += source.read(size)
                original.seek(each.offset)
                file += original.read(size).ljust(size, b"\0")
    return memory, file


def test_points_come_and_go_under_load(binary: Path, tmp_path: Path) -> None:
    with subprocess.Popen([binary, "rate", "10000000", "10000"]) as process:
        try:
            with tracehound.trace(pid=process.pid, record=tmp_path / "record") as trace:
                seen = come_and_go(trace, str(binary))
        finally:
            process.kill()
    found = rows(tracehound.open(tmp_path / "record").calls)
    numbers = sorted(int(row["args"][0]["value"]) for row in found if row["args"][0]["name"] == "n")
    hits, lost = (sum(each[name] for each in seen.values()) for name in ("hits", "lost"))
    assert len(found) + lost == hits
    assert len(numbers) == len(set(numbers))
    if lost == 0:  # not one was missed while others came and went
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]
    assert any(row["args"][0]["name"] == "m" for row in found)
    print(f"{hits} hits, {len(found)} rows, {lost} lost")


def come_and_go(trace: Any, binary: str) -> dict[str, dict[str, int]]:
    """Add and remove points of one file; return what was counted of them."""

    def grow(name: str) -> None:
        query = f"select count(*) n from calls where args[1].name = '{name}'"
        before = trace.sql(query)["n"][0].as_py()
        wait_for(lambda: trace.sql(query)["n"][0].as_py() > before + 300, what=f"rows with {name}")

    assert len(trace.add_point(f"{binary}:t*[n=long]")) == 6  # tick, ticks, take_numbers and so on
    grow("n")
    assert trace.remove_point(f"{binary}:take_text") == [f"{binary}:take_text"]
    grow("n")
    trace.add_point(f"{binary}:tick[m=long]")
    grow("m")
    assert trace.remove_point(f"{binary}:tick[m=long]") == [f"{binary}:tick"]
    grow("n")
    assert len(trace.remove_point(f"{binary}:t*[n=long]")) == 5
    with pytest.raises(tracehound.TargetError, match=r"no point .*tick is traced"):
        trace.remove_point(f"{binary}:tick")
    counts: dict[str, dict[str, int]] = trace.point_counts
    return counts


def test_code_is_whole_after_many_cycles(server: Server, binary: Path) -> None:
    pid = server.process.pid
    points = find_points([f"{binary}:tick[long]", f"{binary}:factorial", f"{binary}:take_*[str]"], (pid,))
    features = frozenset({"processes", "calls"})
    with Privileged(LoadSettings(MIB, MIB, features=features)) as kernel:
        kernel.mark(pid, TRACE_ON)
        added: list[int] = []
        for cycle in range(CYCLES):
            kernel.call_points().add(points, added.extend)
            assert cycle % 50 or not server.tick(1)
            kernel.call_points().remove(added)
            assert cycle % 50 or server.tick(1)
        hits = [kernel.call_points().counts(number).hits for number in added]
        assert sum(hits) == CYCLES / 50 and len(added) == CYCLES * len(points)
    memory, file = code_of(pid, binary)
    assert memory == file and len(memory) >= mmap.PAGESIZE
    assert server.tick(1) and server.process.poll() is None
    print(f"{CYCLES} cycles of {len(points)} points")


def test_a_perf_link_for_each_place_where_there_is_no_uprobe_multi(server: Server, binary: Path) -> None:
    pid = server.process.pid
    points = find_points([f"{binary}:tick[long]", f"{binary}:factorial"], (pid,))
    options = ObjectOptions({"config_call_scratches": call_sizes()["call_scratches"]}, call_sizes())
    with BpfObject("call", options) as loaded:  # not loaded for uprobe_multi: the kernel refuses such links
        assert not lib.bpf_map_update_elem(
            loaded.maps["traced"], struct.pack("<I", pid), struct.pack("<I", TRACE_ON), 0
        )
        call_points = CallPoints(loaded)
        assert not call_points.has_multi
        added: list[int] = []
        call_points.add(points, added.extend)
        assert not server.tick(30)
        call_points.remove(added[1:])
        server.tick(3)
        call_points.detach()
        assert [call_points.counts(number).hits for number in added] == [33, 0]
    assert server.tick(1)


# ---- limits and counts -----------------------------------------------------------------------------------------------


@pytest.fixture
def call(run_cli: RunCli, binary: Path) -> Callable[..., Finished]:
    def run(*words: object, threads: int = 500) -> Finished:
        finished = run_cli("call", "--no-record", *words, "--", binary, "threads", threads)
        assert finished.code == 0, finished.err
        return finished

    return run


def hits_of(finished: Finished) -> tuple[int, int]:
    """Return hits and rows of the one point."""
    found = re.findall(r"^ *(\d+) +(\d+) +\d+ .*calls:tick$", finished.err, re.MULTILINE)
    return int(found[0][0]), int(found[0][1])


def test_hits_are_rows_and_what_is_left_out(call: Callable[..., Finished]) -> None:
    few = call("--format", "none", "--rate", "50", "calls:tick")
    hits, shown = hits_of(few)
    assert hits == 2000 and 50 <= shown < 2000
    assert "limit: 50 rows a second" in few.err and f"above the limit: {2000 - shown} of 2000 hits" in few.err
    off = call("--format", "none", "--ceiling", "300", "calls:tick", threads=5000)
    assert "let go, above --ceiling: calls:tick" in off.err
    assert hits_of(off)[1] >= 300
    assert re.search(r"above the limit: [1-4] of", off.err)  # four threads: each may be past the look at the switch
    filtered = call("--format", "none", "--filter", "n < 10", "--filter", "n != 5", "calls:tick[n=long]")
    assert hits_of(filtered) == (2000, 36) and "filtered: 1964 of 2000 hits" in filtered.err
    assert "filter: n < 10" in filtered.err and "filter: n != 5" in filtered.err


def test_callers(call: Callable[..., Finished]) -> None:
    for caller, expected in (("calls", 2000), ("libc", 0)):
        finished = call("--format", "none", "--caller", caller, "calls:tick")
        hits, shown = hits_of(finished)
        untold = sum(map(int, re.findall(r"fault (\d+)", finished.err)))  # a thread was changing the process's maps
        assert hits == 2000 and shown <= expected <= shown + untold and untold < 1000
        assert f"called from {caller}" in finished.err


def groups(finished: Finished) -> list[Row]:
    lines = (json.loads(line) for line in finished.out.splitlines())
    return [line for line in lines if line["table"] == "counts"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--count",), [({}, 2000)]),
        (("--count", "comm"), [({"comm": "calls"}, 2000)]),
        (("--count=return", "--filter", "n < 3"), [({"return": 0}, 4), ({"return": 2}, 4), ({"return": 4}, 4)]),
        (("--count", "n", "--filter", "n >= 498"), [({"n": 498}, 4), ({"n": 499}, 4)]),
        (("--count", "comm,n", "--filter", "n == 7"), [({"comm": "calls", "n": 7}, 4)]),
    ],
)
def test_counts(call: Callable[..., Finished], words: tuple[str, ...], expected: list[tuple[Row, int]]) -> None:
    finished = call(*words, "--format", "json", "calls:tick[n=long]")
    assert [(row["by"], row["count"]) for row in groups(finished)] == expected
    assert '"table":"calls"' not in finished.out


def test_histograms(call: Callable[..., Finished]) -> None:
    (of_numbers,) = groups(call("--histogram", "n", "--format", "json", "calls:tick[n=long]"))
    bits = {slot["from"]: slot["count"] for slot in of_numbers["slots"]}
    assert bits == {0: 4, 1: 4, 2: 8, 4: 16, 8: 32, 16: 64, 32: 128, 64: 256, 128: 512, 256: 4 * 244}
    assert of_numbers["total"] == 4 * sum(range(500))
    by_thread = groups(call("--histogram", "duration", "--by", "tid", "--format", "json", "calls:tick"))
    assert len(by_thread) == 4 and all(row["count"] == 500 and row["total"] > 0 for row in by_thread)
    shown = call("--histogram", "duration", "calls:tick").out
    assert re.search(r"^calls:tick: duration, 2000 calls, mean ", shown) and "####" in shown


def test_code_that_is_of_no_file(run_cli: RunCli) -> None:
    script = (
        "import mmap, sys\nroom = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)\n"
        "print(open('/proc/self/maps').read(), flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "\n")
        start = next(line.split("-")[0] for line in lines if " rwxp " in line)
        finished = run_cli("call", "--no-record", "--pid", process.pid, f"0x{start}")
        process.kill()
    assert finished.code == 2 and "points stand in files. A hardware breakpoint can" in finished.err


def test_points_of_a_call_that_runs(
    server: Server, run_cli: RunCli, start_cli: StartCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    output = tmp_path / "rows"
    options = ("--no-record", "--format", "json", "--output", output, "--pid", server.process.pid)
    running = start_cli("call", *options, "calls:factorial")
    (path,) = wait_for_value(lambda: list(tmp_path.glob("tracehound/call-*.sock")))
    assert path.stat().st_mode & 0o777 == 0o600
    wait_for(
        lambda: not run_cli("call", "--add", "calls:tick[n=long]", "--filter", "n > 1").code, what="an added point"
    )

    def is_shown() -> bool:
        server.tick(3)
        return output.exists() and '"point":"calls:tick"' in output.read_text()

    wait_for(is_shown, what="a row of the added point")
    assert set(re.findall(r'"value": ?"(\d)"', output.read_text())) == {"2"}
    assert run_cli("call", "--remove", "calls:tick").out == "removed: calls:tick\n"
    assert server.tick(1)
    for words, message in (
        (("--remove", "calls:tock"), "no point calls:tock is traced. Near:"),
        (("--add", "calls:tock"), "no function tock"),
        (("--add", "calls:tick", "--of", 1), f"no call has pid 1. Name one by --of: {path.stem[5:]}"),
    ):
        finished = run_cli("call", *words)
        assert finished.code == 2 and len(finished.lines) == 1 and message in finished.err
    running.process.send_signal(signal.SIGINT)
    _, err = running.process.communicate(timeout=60)
    assert running.process.returncode == 0 and "calls:tick" in err and not path.exists()
    assert "no tracehound call of yours runs" in run_cli("call", "--add", "calls:tick").err


def wait_for_value(find: Callable[[], list[Path]]) -> list[Path]:
    """Wait until something is found."""
    wait_for(find, what="a socket")
    return find()
