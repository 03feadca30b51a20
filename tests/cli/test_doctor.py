"""`tracehound doctor`: what it prints of what was probed."""

import json

import pytest

from tracehound.cli import doctor, main
from tracehound.kernel import features, others
from tracehound.kernel.features import Feature
from tracehound.kernel.others import RunningTrace

KERNEL = "kernel 6.18 x86_64, BTF yes, lockdown none, uid 0"
FOUND = [
    Feature("ok", "processes", "all programs loaded and attached"),
    Feature("off", "kprobes", "this kernel was built without CONFIG_KPROBES; nothing here needs them"),
    Feature("ok", "tcp", ""),
    Feature("warn", "RLIMIT_MEMLOCK", "cannot be raised; not needed on kernels from 5.11"),
]
TEXT = f"""\
 {KERNEL}
 ok    processes, tcp
 off   kprobes         this kernel was built without CONFIG_KPROBES; nothing here needs them
 warn  RLIMIT_MEMLOCK  cannot be raised; not needed on kernels from 5.11
 runs  42  tracehound attach --all: 24 programs, 1.250 s of run time; traced 3 of 65536; rings data 50 % of 16 MiB; \
lost ring_full 7
"""
OTHER = RunningTrace(
    42, "tracehound attach --all", 24, 1_250_000_000, 0, {"traced": (3, 65536)}, {"data": (8 << 20, 16 << 20)},
    {"ring_full": 7},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "describe_kernel", lambda btf: KERNEL)
    monkeypatch.setattr(features, "probe_features", lambda btf: FOUND)
    monkeypatch.setattr(others, "find_running", lambda: [OTHER])


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == TEXT


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel"] == KERNEL
    assert found["features"][1] == {"status": "off", "name": "kprobes", "text": FOUND[1].text}
    assert len(found["features"]) == 4
    assert [(each["pid"], each["rings"]) for each in found["running"]] == [(42, {"data": [8 << 20, 16 << 20]})]


@pytest.mark.parametrize("seconds", ["-1", "4000"])
def test_a_time_that_cannot_be(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--seconds", seconds]) == 2
    assert capsys.readouterr().err == f"tracehound: --seconds is 0 to 3600, not {seconds}\n"


def test_nothing_works() -> None:
    assert doctor.as_text(KERNEL, FOUND[1:2]).splitlines() == [
        f" {KERNEL}",
        f" off   kprobes  {FOUND[1].text}",
    ]
