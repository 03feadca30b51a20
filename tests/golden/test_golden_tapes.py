"""Each golden tape gives the rows that are kept beside it: what was traced once is read by every later version.

A column that came later is not looked at. `make_tapes.py --rows` writes the rows anew.
"""

import json
from pathlib import Path

import pytest
from tests.golden.make_tapes import LARGEST, SCENARIOS, TAPES, rows_of

from tracehound.sources.tape import Tape

NAMES = sorted(SCENARIOS)


def test_there_is_one_tape_for_each_scenario_with_its_rows() -> None:
    assert {path.stem for path in TAPES.glob("*.tape")} == set(NAMES)
    assert {path.stem for path in TAPES.glob("*.jsonl")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_tape_is_small_scrubbed_and_says_nothing_of_who_made_it(name: str) -> None:
    path = TAPES / f"{name}.tape"
    assert path.stat().st_size <= LARGEST
    with Tape(path) as tape:
        assert tape.redacted and tape.facts.host == tape.facts.boot_id == "golden"
        text = b"".join(frame.data for frame in tape.frames()) + (TAPES / f"{name}.jsonl").read_bytes()
        assert tape.cut is None
    for secret in (str(Path.home()), str(Path(__file__).parents[2]), "hunter2"):
        assert len(secret) < 6 or secret.encode() not in text


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_tape_gives_its_rows(name: str) -> None:
    head, *kept = (TAPES / f"{name}.jsonl").read_text().splitlines()
    known: dict[str, list[str]] = json.loads(head)
    wanted = [json.loads(line) for line in kept]
    found = [json.loads(line) for line in rows_of(TAPES / f"{name}.tape").splitlines()[1:]]
    seen = [
        {column: value for column, value in row.items() if column == "table" or column in known[row["table"]]}
        for row in found
        if row["table"] in known
    ]
    assert seen == wanted
