"""What `doctor` finds out: rights, lockdown, tracefs, full tables, each as one clear line."""

from pathlib import Path

import pytest

from tracehound.kernel import features
from tracehound.kernel.features import Feature, missing_capabilities, restrictions, tables
from tracehound.kernel.probes import FEATURES, PROGRAMS, ProgramStatus, check_features

ALL = (1 << 41) - 1


@pytest.mark.parametrize(
    ("effective", "missing"),
    [
        (ALL, []),
        (ALL & ~(1 << 38), []),  # CAP_SYS_ADMIN has it in it
        (ALL & ~(1 << 38 | 1 << 21), ["CAP_PERFMON"]),
        (ALL & ~(1 << 19 | 1 << 12), ["CAP_NET_ADMIN", "CAP_SYS_PTRACE"]),
        (0, [name for name, _, _ in features.CAPABILITIES]),
    ],
)
def test_each_missing_capability_says_what_it_would_give(effective: int, missing: list[str]) -> None:
    found = missing_capabilities(effective)
    assert [feature.name for feature in found] == missing
    assert all(feature.status == "warn" and feature.text.startswith("missing: without it ") for feature in found)


@pytest.mark.parametrize(
    ("modes", "is_off"),
    [("[none] integrity confidentiality", False), ("none integrity [confidentiality]", True), (None, False)],
)
def test_lockdown(modes: str | None, is_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lockdown"
    if modes is not None:
        file.write_text(f"{modes}\n")
    (tmp_path / "events").mkdir()
    monkeypatch.setattr(features, "LOCKDOWN", file)
    monkeypatch.setattr(features, "TRACEFS", (tmp_path,))
    assert [feature.name for feature in restrictions()] == ["lockdown"] * is_off
    assert f"lockdown {'confidentiality' if is_off else 'none'}" in features.describe_kernel()


def test_no_tracefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "TRACEFS", (tmp_path,))
    assert [(one.status, one.name) for one in restrictions()] == [("off", "tracefs")]
    assert "nothing here needs it" in restrictions()[0].text


def test_programs_that_are_missing() -> None:
    statuses = [ProgramStatus(one, one.name != "on_send", None if one.name != "on_send" else "why") for one in PROGRAMS]
    found = {one.name: one for one in features.features_of(statuses)}
    lost = next(one.lost_by_it for one in PROGRAMS if one.name == "on_send")
    assert found["requests"] == Feature("off", "requests", f"on_send: why; {lost}")
    assert {name: one.status for name, one in found.items()} == dict.fromkeys(FEATURES, "ok") | {"requests": "off"}


def test_room_in_tables() -> None:
    found = tables({"traced": (3, 65536), "orders": (0, 10)})
    assert found == Feature("ok", "tables", "traced 3 of 65536, orders 0 of 10")


def test_switches_have_names() -> None:
    assert check_features(FEATURES) == frozenset(FEATURES)
    for program in PROGRAMS:
        assert program.feature in FEATURES
