"""`doctor` on this machine as it is, and without BTF, tracefs and rights: one clear line for each, and `run` as told.

What is missing is hidden by a mount namespace of the test's own.
"""

import json
import os

import pytest
from tests.live.conftest import TRACEHOUND, RunCli
from tests.live.test_bad_days import AS_NOBODY, said

from tracehound.kernel.probes import FEATURES

HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


def hidden(folder: str) -> list[str]:
    """Return the prefix that runs a command where a folder is empty."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", HIDE, folder]


def test_what_works_here(run_cli: RunCli) -> None:
    result = run_cli("doctor", "--json", "--pid", os.getpid())
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    names = {feature["name"] for feature in found["features"] if feature["status"] == "ok"}
    assert {*FEATURES, "tables"} <= names
    assert found["process"]["pid"] == os.getpid()
    assert "BTF yes" in found["kernel"]


def test_no_btf(run_cli: RunCli) -> None:
    prefix = [*hidden("/sys/kernel/btf"), *TRACEHOUND]
    result = run_cli("doctor", prefix=prefix)
    assert (result.code, result.err) == (0, "")
    assert "BTF no" in result.out.splitlines()[0]
    lines = [line for line in result.out.splitlines() if "/sys/kernel/btf/vmlinux" in line]
    assert len(lines) == 1 and lines[0].startswith(" off   tracing") and "--btf FILE" in lines[0]
    said(run_cli("run", "--", "echo", "started", prefix=prefix), 2, "/sys/kernel/btf/vmlinux", "--btf FILE")


@pytest.mark.skipif(not os.path.isdir("/sys/kernel/tracing"), reason="this kernel has no tracefs to hide")
def test_no_tracefs(run_cli: RunCli) -> None:
    prefix = [*hidden("/sys/kernel/tracing"), *TRACEHOUND]
    result = run_cli("doctor", prefix=prefix)
    lines = [line for line in result.out.splitlines() if "tracefs" in line]
    assert len(lines) == 1 and "nothing here needs it" in lines[0]
    assert set(FEATURES) <= set(result.out.splitlines()[1].replace(",", "").split())
    ran = run_cli("run", "--strict", "--no-record", "--", "echo", "started", prefix=prefix)
    assert (ran.code, ran.out) == (0, "started\n")


def test_no_rights(run_cli: RunCli) -> None:
    result = run_cli("doctor", prefix=[*AS_NOBODY, *TRACEHOUND])
    assert (result.code, result.err) == (0, "")
    assert "uid 65534" in result.out.splitlines()[0] and result.out.splitlines()[1] == " ok    query"
    for name in ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"):
        assert sum(line.startswith(f" warn  {name} ") for line in result.out.splitlines()) == 1


def test_no_such_process(run_cli: RunCli) -> None:
    said(run_cli("doctor", "--pid", 1 << 23), 2, f"no process {1 << 23}")
