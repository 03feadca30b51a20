"""`tracehound tape`: what a tape is of, and one without secrets."""

import re
from pathlib import Path

import pytest
from tests.sources.taped import make_tape, traffic

from tracehound.cli import main


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "shop.tape"
    make_tape(path, traffic(), [10, 30, 60])
    return path


def test_info_says_what_it_is_of(tape: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tape", "info", str(tape)]) == 0
    out, err = capfd.readouterr()
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert err == ""
    assert lines["command"] == "shop --port 1"
    assert lines["host"] == "elsewhere, kernel 6.18, boot 0-boot"
    assert lines["switches"] == "tcp" and lines["version"] == "tracehound 0.0.1"
    assert lines["started"] == "1970-01-01T00:00:00.000+00:00"
    assert lines["secrets"].startswith("raw")
    assert lines["size"].startswith(f"{tape.stat().st_size:,} bytes, ")
    assert lines["records"].startswith("data 52, ") and lines["damaged"] == "1 records"
    assert "cut" not in lines


def test_scrub_makes_one_that_can_be_shown(tape: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tape.with_name("shown.tape")
    assert main(["tape", "scrub", str(tape), str(target)]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    said = rf"tracehound: {target} is made; [\d,]+ of [\d,]+ bytes of traffic stay, 2 arguments blanked\n"
    assert re.fullmatch(said, err)
    assert main(["tape", "info", str(target)]) == 0
    assert "secrets    scrubbed" in capfd.readouterr().out
    for path in (tape, target):
        assert main(["replay", str(path), "--format", "json"]) == 0
    first, second = capfd.readouterr().err.split('{"table": "summary"')[1:]
    assert first == second
