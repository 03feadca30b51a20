"""Programs that several tests read, each compiled once."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.symbols.stopped import FOLDER

GO = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")


def build(*command: str | Path, **environment: str) -> None:
    """Run a compiler or the like; what it says is what a failure shows."""
    everything = {**os.environ, **environment}
    run = [str(part) for part in command]
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=everything)
    assert not done.returncode, done.stderr


@pytest.fixture(scope="session")
def cpp_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a C++ library with debug information."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    target = tmp_path_factory.mktemp("cpp") / "libnames.so"
    build("g++", "-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o", target, FOLDER / "names.cpp")
    return target


@pytest.fixture(scope="session")
def rust_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what compiles a Rust library with a scheme of names, `v0` or `legacy`."""
    if not shutil.which("rustc"):
        pytest.skip("rustc is not installed")
    folder, done = tmp_path_factory.mktemp("rust"), dict[str, Path]()

    def compiled(scheme: str) -> Path:
        if scheme not in done:
            target = folder / f"libnames_{scheme}.so"
            # Rust's stable compilers write the older names only for those who ask twice
            options = ("-C", f"symbol-mangling-version={scheme}", "-Z", "unstable-options")
            command = ("rustc", "--crate-type=cdylib", "--edition=2021", "-O", "-g", *options)
            build(*command, "-o", target, FOLDER / "names.rs", RUSTC_BOOTSTRAP="1")
            done[scheme] = target
        return done[scheme]

    return compiled


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return what builds the Go program with options."""
    if not GO:
        pytest.skip("Go is not installed")
    folder, done = tmp_path_factory.mktemp("go"), dict[tuple[str, ...], Path]()

    def built(*options: str) -> Path:
        assert GO
        if options not in done:
            done[options] = folder / f"calls{len(done)}"
            build(GO, "build", *options, "-o", done[options], FOLDER / "calls.go")
        return done[options]

    return built
