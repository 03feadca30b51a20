"""Which form of the parsers is under test: the `.py` of the checkout, or what `make test-compiled` asks for."""

import os
from importlib import import_module
from pathlib import Path

import tracehound.protocols

FORM = os.environ.get("TRACEHOUND_FORM", "interpreted")
SUFFIX = {"interpreted": ".py", "compiled": ".so"}[FORM]
DECODE = ("exchange", "pairing", "parsing")


def test_every_parser_is_of_the_form_under_test() -> None:
    folder = Path(next(iter(tracehound.protocols.__path__)))
    names = [f"tracehound.protocols.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"]
    files = [import_module(name).__file__ or "" for name in [*names, *(f"tracehound.decode.{name}" for name in DECODE)]]
    assert len(files) > len(DECODE)
    assert [file for file in files if not file.endswith(SUFFIX)] == []
