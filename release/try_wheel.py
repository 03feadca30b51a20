"""Tries the newest dist/*.whl in an empty virtual environment, this checkout out of sight (`make try-wheel`).

As root the checkout, the compilers, the C headers and the system's libbpf and libelf are hidden in a mount namespace of
the tried commands, and a program is traced; otherwise the wheel is only imported and asked for help.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TOOLS: Final = ("cc", "gcc", "clang", "llvm-strip", "ld", "as", "make")
LIBRARIES: Final = ("/usr/lib/*/libbpf.so.*", "/usr/lib/*/libelf*.so*", "/usr/lib/*/libz.so.*")
# hides every path among the arguments up to `--`, then runs the rest
HIDE: Final = """
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mount -t tmpfs none "$1"; else mount --bind /dev/null "$1"; fi
    shift
done
shift
exec "$@"
"""


def hidden() -> list[str]:
    """Return what the wheel must do without."""
    tools = {str(Path(found).resolve()) for tool in TOOLS if (found := shutil.which(tool))}
    libraries = {str(Path(found).resolve()) for pattern in LIBRARIES for found in glob.glob(pattern)}
    # Debian's own Python links zlib, for pip among others; the wheel's copy is proven by release/wheel.py
    libraries = {path for path in libraries if "/libz" not in path}
    return [str(ROOT), "/usr/include", *sorted(tools | libraries)]


def attempt(folder: Path, *command: str) -> None:
    """Run one command of the wheel's environment where what it must not need is hidden; exit if it fails."""
    run = [str(folder / "venv" / "bin" / command[0]), *command[1:]]
    if os.geteuid() == 0:
        run = ["unshare", "--mount", "sh", "-c", HIDE, "sh", *hidden(), "--", *run]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    print("$", *command, flush=True)
    if subprocess.run(run, check=False, cwd=folder, env=environment).returncode:
        raise SystemExit(f"the wheel does not work on its own: {' '.join(command)}")


def main() -> None:
    """Install the wheel, then use it."""
    wheel = max(ROOT.glob("dist/*.whl"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory(prefix="tracehound-wheel-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, str(wheel)], check=True)
        attempt(folder, "python", "-c", "import tracehound, tracehound.native._native as n; print(n.__file__)")
        attempt(folder, "tracehound", "--help")
        if os.geteuid() == 0:
            attempt(folder, "tracehound", "run", "--record", str(folder / "recording"), "--", "sh", "-c", "true; true")
            attempt(folder, "tracehound", "query", str(folder / "recording"), "select event, comm from processes")
    print(f"{wheel.name} works on its own" + ("" if os.geteuid() == 0 else " (import and help; as root more is tried)"))


if __name__ == "__main__":
    main()
