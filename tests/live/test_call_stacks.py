"""Stacks and registers of calls: the right ones, none wrong, each loss told; signals; other tools' uretprobes."""

import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import RunCli
from tests.live.conftest import rows as rows_of
from tests.live.hits import Watched, records_of, registers_of, traced, watched
from tests.live.test_calls import Server

import tracehound
from tracehound.kernel.call_options import CallOptions
from tracehound.kernel.perf import ExtraOptions, PerfReader, own_registers

pytest.importorskip("capstone")
X86_ONLY = pytest.mark.skipif(platform.machine() != "x86_64", reason="names registers of x86-64")
SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}[platform.machine()]
UPROBES = Path("/sys/bus/event_source/devices/uprobe")


@pytest.fixture
def target(c_target: Callable[[str], Path]) -> Iterator[Watched]:
    with watched(c_target) as running:
        yield running


@pytest.fixture
def server(c_target: Callable[[str], Path]) -> Iterator[Server]:
    running = Server(c_target("calls"))
    with running.process as process:
        running.tick(1)
        yield running
        process.kill()


@X86_ONLY
@pytest.mark.parametrize("size", [512, 8192, 65000])
def test_each_hit_has_its_registers_and_the_stack_from_its_stack_pointer(
    target: Watched, tmp_path: Path, size: int
) -> None:
    tape = tmp_path / "tape"
    options = CallOptions(registers=("rip", "rsp", "rdi"), stack_bytes=size)
    with traced(target.pid, options, ["watched:hook"], tape=tape) as (seen, trace):
        for _ in range(4):  # a ring has room for each part, however late its reader comes
            target.do("mark", 5)
            target.do("thread-mark", 5)
            assert trace.wait_flushed(60)
    assert len(seen.calls) == 60 and not seen.lost()
    rows = {row["call"]: row for row in seen.calls}
    stacks = records_of(tape, "call_stack")
    assert sorted(int(record["call"]) for record, _ in stacks) == sorted(rows)
    for record, tail in stacks:
        row, registers = rows[int(record["call"])], registers_of(record, tail)
        shown = {each["name"]: each["value"] for each in row["registers"]}
        assert shown == {name: registers[own_registers()[name]] for name in ("rip", "rsp", "rdi")}
        assert (shown["rip"], shown["rsp"]) == (row["ip"], row["sp"]) and record["abi"] == 2
        assert (record["pid"], record["tid"], record["time_ns"]) == (row["pid"], row["tid"], row["entry_ns"])
        copy = tail[len(tail) - int(record["stack_size"]) :]
        assert struct.unpack_from("<Q", copy)[0] == row["caller_ip"]
        assert bytes([0xC5]) * 64 in copy and shown["rdi"] == row["sp"] + copy.index(bytes([0xC5]) * 64)
        assert len(copy) <= record["stack_asked"] <= size and record["chain_count"] > 0
    again = tracehound.open(tape)
    replayed = rows_of(again.calls)
    assert [(row["call"], row["registers"]) for row in replayed] == [(r["call"], r["registers"]) for r in seen.calls]
    asked = {int(record["stack_asked"]) for record, _ in stacks}
    assert asked == {size} if size < 65000 else min(asked) > 60000  # an event has at most 65535 bytes


@X86_ONLY
def test_registers_alone_are_those_that_were_named(target: Watched, tmp_path: Path) -> None:
    tape = tmp_path / "tape"
    with traced(target.pid, CallOptions(registers=("rdi", "rip")), ["watched:hook"], tape=tape) as (seen, _):
        target.do("mark", 5)
    assert [[each["name"] for each in row["registers"]] for row in seen.calls] == [["rdi", "rip"]] * 5
    assert all(row["registers"][1]["value"] == row["ip"] for row in seen.calls)
    assert {(int(r["register_count"]), int(r["stack_size"])) for r, _ in records_of(tape, "call_stack")} == {(2, 0)}


@pytest.mark.parametrize(("rate", "count"), [(1_000, 1_000), (10_000, 10_000), (50_000, 20_000)])
def test_hits_are_stacks_and_losses(c_target: Callable[[str], Path], run_cli: RunCli, rate: int, count: int) -> None:
    binary, folder = c_target("calls"), Path(os.environ["XDG_STATE_HOME"]) / f"stacks-{rate}"
    options = ("--format", "none", "--stack", "--reg", next(iter(own_registers())), "--record", folder)
    finished = run_cli("call", *options, "calls:tick[long]", "--", binary, "rate", count, rate)
    assert finished.code == 0, finished.err
    recording = tracehound.open(folder)
    calls = recording.sql("select count(*) n, count(registers) with_stack from calls").to_pylist()[0]
    lost = recording.sql("select coalesce(sum(count), 0) n from losses").to_pylist()[0]["n"]
    assert calls["with_stack"] <= calls["n"] <= count
    if not lost:
        assert calls == {"n": count, "with_stack": count}
    assert 2 * count - calls["n"] - calls["with_stack"] <= lost
    print(f"{rate} hits/s with 8 KiB: {calls['n']} rows, {calls['with_stack']} stacks, {lost} records lost")


def test_three_counts_of_what_found_no_room_agree(server: Server, tmp_path: Path) -> None:
    """A ring of 16 KiB has room for one record of 8 KiB; what is lost last shows with the next that finds room."""
    tape = tmp_path / "tape"
    options = CallOptions(stack_bytes=8192, perf_pages=4)
    with traced(server.process.pid, options, ["calls:tick"], tape=tape) as (seen, trace):
        server.tick(3000)
        for _ in range(os.cpu_count() or 1):
            for cpu in sorted(os.sched_getaffinity(server.process.pid)):
                os.sched_setaffinity(server.process.pid, {cpu})
                assert trace.wait_flushed(60)
                server.tick(1)
        extras, kernel = trace._extras, trace._kernel
        assert extras is not None and kernel is not None
        assert trace.wait_flushed(60)
        counts = extras.readers[0].counts()
        in_program = kernel.stacks_lost(0)
    hits = seen.counts[0][0]
    stacks = len(records_of(tape, "call_stack"))
    assert in_program > 100
    assert in_program == sum(each.lost for each in counts) == hits - stacks == seen.lost("ring_full")
    assert all(each.lost_now in (None, each.lost) and not each.malformed for each in counts)
    assert len(seen.calls) == hits  # the rows themselves are all there


def open_uretprobe(path: Path, offset: int) -> int:
    """Return an event that counts returns of a function by uretprobe, as another tool would."""
    kind = int((UPROBES / "type").read_text())
    name = ctypes.create_string_buffer(os.fsencode(path))
    attributes = struct.pack("<IIQQQQQIIQQ", kind, 112, 1, 0, 0, 0, 0, 0, 0, ctypes.addressof(name), offset)
    attributes = attributes.ljust(112, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(SYS_PERF_EVENT_OPEN, attributes, -1, 0, -1, 8)
    if fd < 0:
        pytest.skip(f"no uretprobe by perf_event_open: {os.strerror(ctypes.get_errno())}")
    return fd


@X86_ONLY
def test_slots_that_another_tools_uretprobe_has_replaced(target: Watched, tmp_path: Path) -> None:
    from tracehound.kernel.points import find_points

    if not UPROBES.exists():
        pytest.skip("this kernel has no uprobe events")
    (marked,) = find_points(["watched:marked"], (target.pid,))
    event = open_uretprobe(target.binary, marked.offset)
    try:
        tape = tmp_path / "tape"
        with traced(target.pid, CallOptions(stack_bytes=8192), ["watched:hook"], tape=tape) as (seen, _):
            target.do("mark", 3)
    finally:
        os.close(event)
    stacks = records_of(tape, "call_stack")
    assert len(stacks) == 3 == len(seen.calls)
    for record, tail in stacks:
        assert record["slot_count"] == 1
        before = 8 * (int(record["register_count"]) + int(record["chain_count"]))
        slot, address = struct.unpack_from("<QQ", tail, before)
        copy = tail[before + 16 :]
        (there,) = struct.unpack_from("<Q", copy, slot - registers_of(record, tail)[own_registers()["rsp"]])
        assert there != address and address >> 12 == int(target.places["step"], 16) >> 12


def test_side_band_tells_what_is_mapped_by_whom_we_trace_and_by_nobody_else(
    c_target: Callable[[str], Path], run_cli: RunCli, tmp_path: Path
) -> None:
    """A process that maps libraries, is traced from its start, and is long gone when its stacks are read."""
    tape = tmp_path / "tape"
    bystander = Watched(c_target("watched"))
    try:
        finished = run_cli(
            "call", "--format", "none", "--no-record", "--stack", "--tape", tape, "calls:tick", "--",
            c_target("calls"), "threads", 3,
        )  # fmt: skip
        bystander.do("step", 1)
    finally:
        bystander.close()
    assert finished.code == 0, finished.err
    stacks, found = records_of(tape, "call_stack"), records_of(tape, "fact_mapping")
    pids = {int(record["pid"]) for record, _ in stacks}
    mapped = [record for record, _ in found if not record["flags"] & 1]  # as they were made
    assert len(pids) == 1 and {int(record["pid"]) for record in mapped} == pids
    paths = [tail.decode() for record, tail in found if not record["flags"] & 1]
    assert str(c_target("calls")) in paths and any("libc.so" in path for path in paths)
    assert any(record["flags"] == 2 for record in mapped)  # its exec
    kept = tracehound.open(tape)
    found_rows = kept.sql("select s.status, s.frames from calls join stacks s using (stack_id)").to_pylist()
    frames = {(row["status"], tuple(frame["symbol"] for frame in row["frames"][:2])) for row in found_rows}
    assert frames == {("complete", ("tick", "ticks"))} and len(found_rows) == len(stacks)
    assert min(int(record["time_ns"]) for record in mapped) < min(int(record["time_ns"]) for record, _ in stacks)


def test_a_signal_stops_the_process_at_each_hit_and_resume_continues_it(target: Watched) -> None:
    options = CallOptions(signal=signal.SIGSTOP, resumes=True)
    with traced(target.pid, options, ["watched:step"]) as (seen, _):
        target.do("step", 5)
    assert len(seen.calls) == 5
    assert target.process.poll() is None


def test_a_signal_without_resume_is_the_users_own_wish(target: Watched, run_cli: RunCli) -> None:
    with traced(target.pid, CallOptions(signal=signal.SIGTERM), ["watched:step"]) as (seen, trace):
        assert target.process.stdin is not None
        print("step", 5, file=target.process.stdin, flush=True)
        assert target.process.wait(60) == -signal.SIGTERM
        assert trace.wait_ended(60)
    assert len(seen.calls) == 1
    finished = run_cli("call", "--no-record", "--pid", os.getpid(), "--signal", "USR3", "libc:write")
    assert finished.code == 2 and finished.lines == ["tracehound: no signal USR3. Near: USR2, USR1"]


class Failing:
    """A drain that tells an error of the first ring it is asked for."""

    def add_perf(self, events: Sequence[tuple[int, int]], *_: object) -> int:
        return 0

    def read_perf(self, group: int, number: int, out: Any) -> bool:
        out.error = 0 if number else errno.EBADMSG
        return True


def test_a_ring_that_is_no_longer_read_is_told_once() -> None:
    with PerfReader(-1, 4, ExtraOptions(is_sideband=True)) as reader:
        reader.read_by(Failing(), 1)  # type: ignore[arg-type]
        cpu = reader.counts()[0].cpu
        assert reader.take_failures() == [
            f"the perf ring of CPU {cpu} (4 pages) is no longer read: Bad message (errno {errno.EBADMSG})"
        ]
        assert reader.take_failures() == []


def open_events() -> list[int]:
    """Return the perf events of this process: other descriptors come and go with threads that look at targets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[perf_event]":
                found.append(int(name))
    return found


def test_every_ring_is_closed() -> None:
    before = open_events()
    with PerfReader(-1, 4, ExtraOptions(is_sideband=True)) as reader:
        assert len(open_events()) > len(before)
        assert reader.counts() == []
    assert open_events() == before
