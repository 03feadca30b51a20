"""Rows of `probes` with what the kernel counted, and tables that are full: what is lost by them is told."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.conftest import SYS_BPF, Row, Traced, rows

from tracehound.config import MIB
from tracehound.kernel.privileged import CaptureOrderWords, LoadSettings, Privileged

ENABLE_STATS = 32  # command of bpf(2): runs are counted until its descriptor is closed
EXECS = 20


@contextmanager
def counted_runs() -> Iterator[None]:
    attributes = ctypes.create_string_buffer(struct.pack("<I", 0))
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF[platform.machine()], ENABLE_STATS, attributes, 4)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.close(fd)


def test_hits_and_time_of_each_program(traced: Traced, tmp_path: Path) -> None:
    script = f"i=0; while [ $i -lt {EXECS} ]; do /bin/true; i=$((i+1)); done"
    with counted_runs():
        trace = traced(["/bin/sh", "-c", script], record=str(tmp_path / "record"))
    first: dict[str, Row] = {}
    last: dict[str, Row] = {}
    for row in rows(trace.probes):
        (last if row["program"] in first else first)[row["program"]] = row
    assert first.keys() == last.keys()
    assert all(row["hits"] is None and row["misses"] is None for row in first.values())
    for name in ("on_fork", "on_exec", "on_exit"):
        assert last[name]["hits"] > EXECS and last[name]["run_time_ns"] > last[name]["hits"]
        assert last[name]["misses"] == 0


STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


@pytest.mark.skipif(STATS.exists() and STATS.read_text().strip() == "1", reason="kernel.bpf_stats_enabled is 1")
def test_runs_that_are_not_counted_are_null(traced: Traced, tmp_path: Path) -> None:
    trace = traced(["/bin/true"], record=str(tmp_path / "record"))
    last = rows(trace.probes)[-1]
    assert (last["hits"], last["misses"], last["run_time_ns"]) == (None, 0, None)


def test_a_full_table_is_told() -> None:
    with Privileged(LoadSettings(MIB, MIB, features=frozenset({"requests"}))) as kernel:
        _, room = kernel.occupancy()["orders"]
        kernel.write_orders(CaptureOrderWords(cookie, 1, 0, 0) for cookie in range(1, room + 4))
        assert kernel.occupancy()["orders"] == (room, room)
        assert kernel.lost()["orders", "table_full"] == 3
        kernel.forget_orders(range(1, 11))
        assert kernel.occupancy()["orders"] == (room - 10, room)
        kernel.mark(1 << 22, 3)  # no such process
        assert kernel.occupancy()["traced"][0] == 1
