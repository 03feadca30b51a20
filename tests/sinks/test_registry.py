"""Outputs are the modules of the folder; the page names them all."""

import re
from pathlib import Path

import pytest

from tracehound.errors import UsageError
from tracehound.sinks import kind, names

ROOT = Path(__file__).parents[2]


def test_each_module_is_an_output_of_its_name_with_a_test_and_a_row_in_the_page() -> None:
    modules = {path.stem for path in (ROOT / "src/tracehound/sinks").glob("[!_]*.py")}
    assert set(names()) == modules
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (ROOT / "docs/sinks.md").read_text(), re.MULTILINE))
    assert rows == {name: kind(name).doc for name in names()}
    for name in names():
        assert kind(name).name == name
        assert (ROOT / f"tests/sinks/test_{name}.py").exists()


def test_an_unknown_output_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no output csv\. Outputs: console, flame, folded, jsonl, parquet, pprof"):
        kind("csv")
