"""Which content of a descriptor slot a connection had: every number is told from the same one used again."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.live.conftest import Traced, rows

WIDE = 64


def test_generation_counts_what_the_program_gave_up(
    traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    trace = traced(python_target("reused_descriptors", tmp_path / "told"), files=True, record=str(tmp_path / "record"))
    assert trace.exit_code == 0 and rows(trace.losses) == []
    told = json.loads((tmp_path / "told").read_text())
    found = {
        row["local_port"]: row
        for row in rows(trace.connections)
        if row["pid"] == told["pid"] and row["event"] == "open" and row["transport"] == "tcp"
    }
    released = Counter[int]()
    at_first: dict[int, int] = {}  # slot -> generation when it was used first, less what was given up until then
    checked = 0
    for event, one, two in told["events"]:
        if event == "release":
            released.update(range(1000) if two - one >= WIDE else range(one, two + 1))
            continue
        row = found[one]
        assert row["fd"] == two
        assert row["generation"] == at_first.setdefault(two, row["generation"] - released[two]) + released[two]
        checked += 1
    assert checked == 50 + 2 * 12 + 3
    used = [(row["fd"], row["generation"]) for row in found.values() if row["fd"] is not None]
    assert len(used) == len(set(used)) == checked


def test_generation_is_null_without_the_switch(
    traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    trace = traced(python_target("reused_descriptors", tmp_path / "told"), record=str(tmp_path / "record"))
    assert trace.exit_code == 0
    assert {row["generation"] for row in rows(trace.connections)} == {None}
