"""The bench of our own CPU by stage: what it measures exists."""

import importlib

from bench.own_cpu import STAGES


def test_every_stage_is_a_function_that_exists() -> None:
    for module, owner, name, _ in STAGES:
        found = importlib.import_module(module)
        assert callable(getattr(getattr(found, owner) if owner else found, name)), (module, owner, name)
