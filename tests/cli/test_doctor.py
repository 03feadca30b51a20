"""`tracehound doctor`: what it prints of what was probed."""

import json

import pytest

from tracehound.cli import doctor, main
from tracehound.kernel import features
from tracehound.kernel.features import Feature

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
"""


@pytest.fixture(autouse=True)
def _probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "describe_kernel", lambda btf: KERNEL)
    monkeypatch.setattr(features, "probe_features", lambda btf: FOUND)


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == TEXT


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel"] == KERNEL
    assert found["features"][1] == {"status": "off", "name": "kprobes", "text": FOUND[1].text}
    assert len(found["features"]) == 4


def test_nothing_works() -> None:
    assert doctor.as_text(KERNEL, FOUND[1:2]).splitlines() == [
        f" {KERNEL}",
        f" off   kprobes  {FOUND[1].text}",
    ]
