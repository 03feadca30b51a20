"""Build steps that pyproject.toml cannot state: the BPF objects and the native module."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
native_build = runpy.run_path(str(ROOT / "src" / "tracehound" / "native" / "build.py"))


class BuildBpfAndNative(build_ext):
    """Compile bpf/*.bpf.c into package data, then the cffi module."""

    def run(self) -> None:
        in_place = self.inplace or self.editable_mode
        package = (ROOT / "src" if in_place else Path(self.build_lib)) / "tracehound"
        native_build["compile_bpf_objects"](ROOT / "bpf", package / "bpf")
        super().run()


setup(
    cffi_modules=["src/tracehound/native/build.py:ffibuilder"],
    cmdclass={"build_ext": BuildBpfAndNative},
    # cffi builds against the limited API: one wheel for every CPython from 3.11 on
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
