"""Every bench runs to its end. What it finds on a busy machine is not judged here: `make bench` does that."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import names

ROOT = Path(__file__).parents[2]
FEWEST = {"attach": ("300",), "own_cpu": ("1", "400"), "calls": ("2",)}  # rounds, but sockets for attach


@pytest.mark.parametrize("name", [name for name in names() if name not in ("others", "syscalls")])
def test_a_bench_runs_to_its_end(name: str) -> None:
    if name == "compiled" and not (ROOT / "build" / "compiled" / ".built").exists():
        pytest.skip("the compiled parsers are not built: make compiled")
    if name == "call_count" and shutil.which("bpftrace") is None:
        pytest.skip("bpftrace, which it compares with, is not installed")
    run = [sys.executable, "-m", f"bench.{name}", *FEWEST.get(name, ("1",))]
    found = subprocess.run(run, check=False, capture_output=True, text=True, cwd=ROOT)
    assert found.stderr == ""
    lines = found.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAIL  ")]
    assert found.returncode == bool(failed)
    assert name in ("attach", "parse") or [line for line in lines if line.startswith(("PASS  ", "FAIL  "))]
