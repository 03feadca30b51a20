"""Each golden tape gives the rows that are kept beside it: what was traced once is read by every later version.

A column that came later is not looked at. `make_tapes.py --rows` writes the rows anew.
"""

import json
import random
from pathlib import Path

import pytest
from tests.golden.make_tapes import LARGEST, SCENARIOS, TAPES, rows_of
from tests.sources.taped import Counted, assert_cut, frame_ends, replayed

from tracehound.replay import TapeReplay
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


CUTS = 9  # of each tape; at any byte


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_tape_that_is_cut_gives_the_rows_before_the_cut(name: str, tmp_path: Path) -> None:
    """Those of the whole tape, in their order, then what was under way; in one line where, and why."""
    path, cut = TAPES / f"{name}.tape", tmp_path / "cut.tape"
    whole = Counted()
    with TapeReplay(whole.watch(Tape(path))) as replay:
        replay.run([whole])
    data = path.read_bytes()
    ends, chance = frame_ends(data), random.Random(name)
    for size in [ends[1], ends[-3], *(chance.randrange(ends[1], ends[-2]) for _ in range(CUTS - 2))]:
        cut.write_bytes(data[:size])
        found, notes = replayed(cut)
        (note,) = [note for note in notes if not note.startswith("this tape lacks records of ")]  # kinds came later
        position = max(end for end in ends if end <= size)
        assert note.startswith(f"{cut} is cut at byte {position:,}: ") and note.endswith("rows end there")
        assert_cut(found, whole.rows, whole.before[ends.index(position) - 1])
