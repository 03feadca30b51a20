"""A trace with stacks on a tape, replayed where neither its processes nor its files are: the same rows."""

import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.decode.stack_records import add_stack, timeline, writer
from tests.sources.taped import FACTS, Collected, Rows, replayed
from tests.symbols.sampled import is_gone
from tests.symbols.stopped import capture, compile_program, needs_x86, waiting

import tracehound
from tracehound.account import public_schemas
from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.config import Settings
from tracehound.decode.stack_scrub import Code, without_values
from tracehound.line import Line
from tracehound.mappings import Mappings
from tracehound.procfs import FactWriter, add_config
from tracehound.scrub import scrub
from tracehound.sources.tape import Tape, TapeWriter
from tracehound.symbols import mapped_files
from tracehound.symbols.module_store import ModuleStore

SECRET = b"hunter2 hunter2 hunter2 "
WAYS = ("recursion", "qsort", "signal")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a machine that has no file which a tape speaks of."""
    monkeypatch.setattr(mapped_files, "open_local", lambda _: None)


class Trace:
    """A line with a tape that is fed as `agent` does it."""

    def __init__(self, tape: Path) -> None:
        self.layout, self.facts, self.kept = wire_layout(), FactWriter(wire_layout()), Collected()
        self.tape = TapeWriter(tape, FACTS, self.layout, 1 << 30)
        self.mappings = Mappings(self.facts, self.layout)
        modules = ModuleStore(self.mappings.files.module_of)
        self.line = Line(Settings(), [self.kept], self.layout, self.tape, modules=modules)
        add_config(self.facts, Settings().to_text())
        self._feed_facts()

    def _feed_facts(self) -> None:
        self.line.feed(*self.line.read(self.facts.take()))

    def take(self, raw: bytes) -> None:
        """Take records as they are drained."""
        read = self.line.read(raw)
        self.mappings.look_at([read.batch])
        self._feed_facts()
        self.line.feed(*read)
        self.line.advance()
        self.mappings.follow(self.line.decoder.stacks, True)

    def finish(self) -> Rows:
        self.line.finish(time.monotonic_ns())
        self.mappings.follow(self.line.decoder.stacks, True)
        self._feed_facts()
        self.line.flush()
        self.tape.close()
        self.mappings.close()
        return self.kept.rows


def traced(folder: Path, stack_tail: bytes = b"") -> tuple[Path, Rows]:
    """Trace three programs that wait, whose files and processes are gone afterwards; return the tape and its rows."""
    trace = Trace(folder / "stacks.tape")
    for call, way in enumerate(WAYS):
        program = compile_program(folder, "calls.c", "-O2", f"-DNUMBER={call}")
        with waiting(program, way) as (pid, tid):
            captured = capture(pid, tid, 4096, with_files=False)
            stack = captured.stack + stack_tail
            made, now = writer(), time.monotonic_ns()
            ip, sp, bp = (int(captured.samples[name][0]) for name in ("ip", "sp", "bp"))
            add_stack(made, call, pid, (ip, sp, bp), stack, time_ns=now, chain=[(1 << 64) - 512, ip])
            made.add("fact_tick", now + 40_000_000, {})
            program.unlink()
            trace.take(made.take())
            os.kill(pid, signal.SIGKILL)
            while not is_gone(pid):
                time.sleep(0.001)
    return folder / "stacks.tape", trace.finish()


def plain(rows: Rows) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows["stacks"].to_pylist()
    return found


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Rows]]:
    yield traced(tmp_path_factory.mktemp("stacks"), SECRET * 10)


@needs_x86
@pytest.mark.usefixtures("elsewhere")
def test_the_same_rows_elsewhere(tape: tuple[Path, Rows]) -> None:
    path, rows = tape
    found, notes = replayed(path)
    assert notes == ()
    assert plain(found) == plain(rows)
    assert len(plain(rows)) == len(WAYS)
    for row in plain(rows):
        assert row["status"] == "complete"
        assert [frame["symbol"] for frame in row["frames"]][1:3] == ["stop", "recurse"]


@needs_x86
@pytest.mark.usefixtures("elsewhere")
def test_a_scrubbed_tape_gives_the_same_rows_and_holds_no_values(tape: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = tape
    report = scrub(path, tmp_path / "scrubbed.tape")
    assert report.differs == ()
    assert plain(replayed(tmp_path / "scrubbed.tape")[0]) == plain(rows)
    held = []
    for one in (path, tmp_path / "scrubbed.tape"):
        with Tape(one) as opened:
            held.append(b"".join(frame.data for frame in opened.frames()))
    assert SECRET in held[0]
    assert SECRET not in held[1] and b"hunter2" not in held[1]
    assert struct.pack("<Q", 0xDEAD0000) in held[0]  # a register
    assert struct.pack("<Q", 0xDEAD0000) not in held[1]


@needs_x86
def test_a_tape_without_modules_is_resolved_by_build_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libc is on this machine too; the program, which was deleted, is not."""
    monkeypatch.setattr("tracehound.mappings.add_module", lambda *_: None)
    path, rows = traced(tmp_path)
    found, _ = replayed(path)
    first = plain(found)[0]
    assert first["frames"][0] == plain(rows)[0]["frames"][0] | {"guessed": False}
    assert first["frames"][0]["symbol"] == "pause"
    assert first["frames"][1]["symbol"] is None
    assert first["status"] in ("fp_used", "bad_cfi", "truncated")


@needs_x86
def test_a_recording_holds_stacks(tape: tuple[Path, Rows]) -> None:
    path, rows = tape
    sql = "select stack_id, status, depth, frames[1].symbol as first, len(frames) as frames from stacks order by 1"
    found = tracehound.open(path).sql(sql).to_pylist()
    assert [(row["stack_id"], row["first"], row["depth"]) for row in found] == sorted(
        (row["stack_id"], row["frames"][0]["symbol"], row["depth"]) for row in plain(rows)
    )
    assert "stacks" in public_schemas()


def test_of_a_synthetic_tape(tmp_path: Path) -> None:
    """Memory that changes, forks and modules of the tape alone; and nobody asks this machine."""
    trace = Trace(tmp_path / "made.tape")
    trace.line.feed(*trace.line.read(timeline(1)))
    trace.line.advance()
    rows = trace.finish()
    assert plain(replayed(tmp_path / "made.tape")[0]) == plain(rows)


def test_only_addresses_stay() -> None:
    facts, code = writer(), Code(np.array([0x5000, 0x1000], np.uint64), np.array([0x6000, 0x2000], np.uint64))
    stack = struct.pack("<7Q", 0x1000, 0x2000, 0x2001, 0x7FFF0010, 0, 5, 0x5FFF) + b"abc"
    add_stack(
        facts,
        1,
        5,
        (0x1234, 0x7FFF0000, 77),
        stack,
        chain=[(1 << 64) - 512, 0x1100, 0x99],
        slots=[(0x7FFF0008, 0x1001)],
    )
    records = split(facts.take(), wire_layout()).records["call_stack"]
    found = without_values(records.fixed[0], records.tails, code)
    assert len(found) == len(records.tails)
    words = struct.unpack_from("<32Q", found)
    assert [word for word in words[:20] if word] == [1, 0x7FFF0000, 0x1234]  # rbp, rsp, rip
    assert words[20:23] == ((1 << 64) - 512, 0x1100, 1)
    assert words[23:25] == (0x7FFF0008, 0x1001)
    assert words[25:] == (0x1000, 0x2000, 1, 0x7FFF0010, 0, 1, 0x5FFF)
    assert found[-3:] == bytes(3)
