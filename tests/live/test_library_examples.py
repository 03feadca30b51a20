"""The examples of docs/library.md run, one after another, as a reader would run them."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^## ([^\n]+)\n.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = EXAMPLE.findall((ROOT / "docs" / "library.md").read_text())


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == (ROOT / "docs" / "library.md").read_text().count("```python")


def test_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, object] = {}
    for title, code in EXAMPLES:
        exec(compile(code, f"docs/library.md: {title}", "exec"), names)
