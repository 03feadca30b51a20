"""What all tests share: hypothesis tries the same inputs in each run (new ones are for `make soak`), keeps no database,
has no deadline (machines are busy), prints what to replay. pytest is not told that it is in CI: it would print the
difference of lists of any length, and takes an hour for one of 16,000 members. What is read of programs is kept in a
folder of the run: the user's cache stays as it was, and each run begins with none, as on a machine of CI."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tracehound", database=None, deadline=None, print_blob=True, derandomize=True)
settings.load_profile("tracehound")
for variable in ("CI", "BUILD_NUMBER"):
    os.environ.pop(variable, None)


@pytest.fixture(autouse=True, scope="session")
def cache_folder() -> Iterator[Path]:
    """Keep the cache of tables out of the user's own; Go's compiler, which looks there too, keeps its own."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with tempfile.TemporaryDirectory(prefix="tracehound-cache-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOCACHE", os.environ.get("GOCACHE") or str(home / "go-build"))
        patch.setenv("XDG_CACHE_HOME", folder)
        yield Path(folder)
