"""What `import tracehound` costs and gives. How long it takes is a benchmark (bench/)."""

import subprocess
import sys

import pytest

import tracehound
from tracehound import errors


def loaded_after(code: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter has loaded after `code`."""
    run = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(run, check=True, capture_output=True, text=True).stdout.split())


def test_import_loads_neither_pyarrow_nor_duckdb() -> None:
    heavy = {"pyarrow", "duckdb", "polars", "pandas"}
    assert loaded_after("import tracehound") & heavy == set()


def test_every_public_name_can_be_had_and_is_listed() -> None:
    code = (
        "import tracehound\n"
        "assert sorted(tracehound.__all__) == list(tracehound.__all__), tracehound.__all__\n"
        "for name in tracehound.__all__: getattr(tracehound, name)\n"
        "assert set(tracehound.__all__) <= set(dir(tracehound)), dir(tracehound)\n"
    )
    assert "tracehound" in loaded_after(code)


def test_every_error_is_a_public_name() -> None:
    every = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert every <= set(tracehound.__all__)
    with pytest.raises(tracehound.UsageError):
        tracehound.trace()
    with pytest.raises(tracehound.TracehoundError):
        tracehound.trace(pid=0)
