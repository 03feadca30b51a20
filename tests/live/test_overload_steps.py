"""The steps of overload, in the kernel: less is captured, then only counted, then dropped; back one step at a time.

The drain runs and nobody takes: what decode does when it stands still.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest
from tests.live.conftest import wait_for

from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.config import MIB
from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged
from tracehound.kernel.ring import Drain

BUDGET = 8 * MIB
RELAX_S = 1.0
LAYOUT = wire_layout()
CLASSES = {name: number for name, number in LAYOUT.enum("capture_class").items() if name.startswith("CAPTURE_")}
FRAMED, HEAD_TAIL, COUNT = (CLASSES[f"CAPTURE_{name}"] for name in ("FRAMED", "HEAD_TAIL", "COUNT"))
LIMITED = LAYOUT.enum("loss_counter")["LOSS_CAPTURE_LIMITED"]


class Watched:
    """What the drain gave and said: classes of data records in their order, changes of the limit, losses told."""

    def __init__(self, drain: Drain) -> None:
        self.drain = drain
        self.classes: list[int] = []
        self.limits: list[tuple[int, float]] = []
        self.limited = 0
        self.dropped = 0

    def look(self) -> int:
        limit = self.drain.counters()["capture_limit"]
        if not self.limits or self.limits[-1][0] != limit:
            self.limits.append((limit, time.monotonic()))
        return limit

    def take(self) -> None:
        for arena in self.drain.take():
            records = split(arena, LAYOUT).records
            if "data" in records:
                self.classes += records["data"].fixed["capture_class"].tolist()
            if "fact_loss" in records:
                self.limited += int((records["fact_loss"].fixed["counter"] == LIMITED).sum())
            if "fact_drop" in records:
                self.dropped += int(records["fact_drop"].fixed["count"].sum())


@contextmanager
def flood(kernel: Privileged, command: list[str], folder: Path) -> Iterator[None]:
    with subprocess.Popen(command) as target:
        try:
            kernel.mark(target.pid, TRACE_ON)
            (folder / "go").touch()
            yield
            (folder / "stop").touch()
            assert target.wait(20) == 0
        finally:
            target.kill()


@pytest.fixture
def drain() -> Iterator[tuple[Privileged, Drain]]:
    with Privileged(LoadSettings(4 * MIB, MIB)) as kernel:
        sizes = {"lifecycle": (MIB, "RING_LIFECYCLE"), "data": (4 * MIB, "RING_DATA")}
        rings = [(fd, sizes[name][0], LAYOUT.enum("ring_id")[sizes[name][1]]) for name, fd in kernel.ring_fds().items()]
        with Drain(rings, BUDGET, MIB, kernel.limits_fd()) as running:
            yield kernel, running


def test_capture_goes_down_and_back_by_steps(
    drain: tuple[Privileged, Drain], python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    kernel, running = drain
    watched = Watched(running)
    with flood(kernel, python_target("framed_flood", tmp_path), tmp_path):
        assert watched.look() == 0
        wait_for(lambda: watched.look() == COUNT, what="counts only")
        (tmp_path / "fast").touch()
        wait_for(lambda: watched.look() == COUNT and running.counters()["data_dropped_records"] > 100, what="drops")
        assert running.counters()["data_held_peak_bytes"] <= BUDGET
        (tmp_path / "fast").unlink()
        deadline = time.monotonic() + 20
        while watched.look() and time.monotonic() < deadline:
            watched.take()
            time.sleep(0.005)
        time.sleep(0.3)
        watched.take()
    watched.take()
    assert [limit for limit, _ in watched.limits] == [0, HEAD_TAIL, COUNT, HEAD_TAIL, 0]
    times = [since for _, since in watched.limits]
    assert times[4] - times[3] >= 0.9 * RELAX_S, "two steps at once"
    # What the kernel captured follows: whole requests, parts, positions; then a gap; positions, parts, whole ones.
    assert [step for step, _ in groupby(watched.classes)][-5:] == [FRAMED, HEAD_TAIL, COUNT, HEAD_TAIL, FRAMED]
    assert watched.limited == 4, "each change is told"
    assert watched.dropped == running.counters()["data_dropped_records"]
