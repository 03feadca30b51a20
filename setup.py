"""Build steps that pyproject.toml cannot state: the BPF objects, the native module, and parsers compiled by mypyc.

The same `.py` files are source and fallback: a checkout runs them as they are, a wheel has them compiled beside, unless
TRACEHOUND_PURE=1 asks for one wheel for every CPython.
"""

import os
import runpy
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
native_build = runpy.run_path(str(ROOT / "src" / "tracehound" / "native" / "build.py"))
is_pure = os.environ.get("TRACEHOUND_PURE", "0") not in ("", "0")

BUILDING = {"build", "build_ext", "bdist_wheel", "install"}

# The modules with per-message Python
COMPILED = (
    "src/tracehound/protocols/[!_]*.py",
    "src/tracehound/protocols/_[!_]*.py",
    "src/tracehound/decode/exchange.py",
    "src/tracehound/decode/pairing.py",
    "src/tracehound/decode/parsing.py",
    "src/tracehound/decode/trials.py",
)


class BuildExtensions(build_ext):
    """Compile bpf/*.bpf.c into package data, then the cffi module, and for a wheel the parsers."""

    def finalize_options(self) -> None:
        """Add what mypyc makes of the parsers, but not in a checkout, nor where only names are asked for."""
        if not is_pure and not self.inplace and BUILDING & set(self.distribution.commands):
            self.distribution.ext_modules = [*(self.distribution.ext_modules or ()), *compiled_parsers()]
        super().finalize_options()

    def run(self) -> None:
        """Compile all of it."""
        in_checkout = self.inplace or self.editable_mode
        package = (ROOT / "src" if in_checkout else Path(self.build_lib)) / "tracehound"
        native_build["compile_bpf_objects"](ROOT / "bpf", package / "bpf")
        super().run()


def compiled_parsers() -> list[Any]:
    """Have mypyc write the C of the parsers; return its extensions."""
    from mypyc.build import mypycify

    files = sorted(str(path.relative_to(ROOT)) for pattern in COMPILED for path in ROOT.glob(pattern))
    os.environ["MYPYPATH"] = "src"
    options = ["--config-file=", "--strict", "--explicit-package-bases", "--follow-imports=silent"]
    options.append("--ignore-missing-imports")
    found: list[Any] = mypycify([*options, *files], opt_level="2", debug_level="0", group_name="tracehound")
    return found


setup(
    cffi_modules=["src/tracehound/native/build.py:ffibuilder"],
    cmdclass={"build_ext": BuildExtensions},
    # cffi builds against the limited API: without mypyc one wheel serves every CPython from 3.11 on
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if is_pure else {},
)
