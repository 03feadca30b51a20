"""The soak itself: every kind takes inputs, the state is resumed, a failure stops it and can be tried again."""

import argparse
import json
from pathlib import Path

import pytest
from tests.soak import __main__ as soak
from tests.soak.kinds import KINDS


def options(state: Path, inputs: int = 2000, seed: int = 3) -> argparse.Namespace:
    return argparse.Namespace(seed=seed, inputs=inputs, state=state)


def test_shares_are_all_of_it() -> None:
    assert sum(share for _, share in KINDS.values()) == pytest.approx(1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_inputs(kind: str) -> None:
    outcome = soak.run_block(soak.Block(kind, 0, 5), seed=1)
    assert (outcome.failed, outcome.text) == (None, "")
    assert outcome.resident_bytes > 0


def test_goes_on_where_it_ended(tmp_path: Path) -> None:
    state = tmp_path / "soak.json"
    first = soak.Soak(options(state))
    blocks = [first.next_block() for _ in range(5)]
    for block in blocks[:3]:
        assert block
        first.finish(block)
    first.save()
    second = soak.Soak(options(state))
    assert second.done == json.loads(state.read_text())["done"] == first.done
    given = {(block.kind, block.first) for block in blocks[:3] if block}
    left = []
    while block := second.next_block():
        left.append((block.kind, block.first))
        second.finish(block)
    assert not given & set(left)
    assert sum(second.done.values()) == 2000
    with pytest.raises(SystemExit, match="is of seed 3: name another"):
        soak.Soak(options(state, seed=4))


def test_an_input_that_fails_ends_it_and_says_how_to_try_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(number: int) -> None:
        assert number & 0xFFFF != 7, "seven"

    monkeypatch.setattr(soak, "KINDS", {"fail": (fail, 1.0)})
    assert soak.run(soak.Soak(options(tmp_path / "soak.json", 100)), jobs=1, minutes=1) == 1
    said = capsys.readouterr().out
    assert "AssertionError: seven" in said
    assert "again: .venv/bin/python -m tests.soak --seed 3 --kind fail --from 7 --inputs 1" in said


def test_memory_that_grows_is_told() -> None:
    memory = soak.Memory()
    seen = [memory.look(soak.Outcome(1, 100 << 20)) for _ in range(soak.SETTLED)]
    assert [*seen, memory.look(soak.Outcome(1, 150 << 20))] == [""] * (soak.SETTLED + 1)
    assert memory.look(soak.Outcome(1, 200 << 20)) == "a worker grew by 100 MiB to 200 MiB"
