"""Tries the newest dist/*.whl in an empty virtual environment, this checkout out of sight (`make try-wheel`).

As root the checkout, the compilers, the C headers and the system's libbpf and libelf are hidden in a mount namespace of
the tried commands, and a server with its client is traced, from the command line and from Python; what they give is
compared with what must come. Otherwise the wheel is only imported and asked for help.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TOOLS: Final = ("cc", "gcc", "clang", "llvm-strip", "ld", "as", "make", "bpftool")
LIBRARIES: Final = ("/usr/lib/*/libbpf.so.*", "/usr/lib/*/libelf*.so*", "/usr/lib/*/libz.so.*")
# hides every path among the arguments up to `--`, makes sure of it, then runs the rest
HIDE: Final = """
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mount -t tmpfs none "$1"; else mount --bind /dev/null "$1"; fi || exit 3
    if [ -s "$1" ] && [ -n "$(ls -A "$1")" ]; then echo "$1 is not hidden" >&2; exit 3; fi
    shift
done
shift
exec "$@"
"""
REQUESTS: Final = 25
# a server and its client in one process
PROGRAM: Final = f"""
import http.client, http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = http.client.HTTPConnection(*server.server_address)
for number in range({REQUESTS}):
    client.request("GET", f"/orders/{{number}}")
    client.getresponse().read()
client.close()
"""
LIBRARY: Final = """
import json, sys, tracehound
with tracehound.trace(command=[sys.executable, sys.argv[1]]) as trace:
    code = trace.wait()
roles = sorted(trace.requests.to_arrow()["role"].to_pylist())
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libbpf" in line or "libelf" in line}
print(json.dumps([code, roles, len(trace.losses), sorted(libraries)]))
"""
ROWS: Final = "select role, count(*)::int as n, count(distinct resource)::int as resources from requests group by all"
LOSSES: Final = "select count(*)::int as n from losses"


def hidden() -> list[str]:
    """Return what the wheel must do without."""
    tools = {str(Path(found).resolve()) for tool in TOOLS if (found := shutil.which(tool))}
    libraries = {str(Path(found).resolve()) for pattern in LIBRARIES for found in glob.glob(pattern)}
    # Debian's own Python links zlib, for pip among others; the wheel's copy is proven by release/wheel.py
    libraries = {path for path in libraries if "/libz" not in path}
    return [str(ROOT), "/usr/include", *sorted(tools | libraries)]


def attempt(folder: Path, *command: str) -> str:
    """Run one command of the wheel's environment where what it must not need is hidden; exit if it fails."""
    run = [str(folder / "venv" / "bin" / command[0]), *command[1:]]
    if os.geteuid() == 0:
        run = ["unshare", "--mount", "sh", "-c", HIDE, "sh", *hidden(), "--", *run]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    print("$", *(word if "\n" not in word else "..." for word in command), flush=True)
    done = subprocess.run(run, check=False, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"the wheel does not work on its own: {' '.join(command[:3])} ended with {done.returncode}")
    return done.stdout


def query(folder: Path, sql: str) -> list[dict[str, object]]:
    """Ask the recording that the attempts made."""
    out = attempt(folder, "tracehound", "query", "recording", sql, "--format", "json")
    return [json.loads(line) for line in out.splitlines()]


def must_be(what: str, found: object, expected: object) -> None:
    """Exit if a result is not what must come."""
    if found != expected:
        raise SystemExit(f"the wheel does not work on its own: {what}: {found} instead of {expected}")


def trace_something(folder: Path) -> None:
    """Trace a program by the command line and by the library, and check what comes."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    python = str(folder / "venv" / "bin" / "python")
    attempt(folder, "tracehound", "run", "--strict", "--record", "recording", "--", python, str(program))
    counted = {"n": REQUESTS, "resources": REQUESTS}
    rows = sorted(query(folder, ROWS), key=lambda row: str(row["role"]))
    must_be("requests", rows, [{"role": role, **counted} for role in ("client", "server")])
    must_be("losses", query(folder, LOSSES), [{"n": 0}])
    code, roles, losses, libraries = json.loads(attempt(folder, "python", "-c", LIBRARY, str(program)))
    must_be("the library's rows", (code, roles, losses), (0, ["client"] * REQUESTS + ["server"] * REQUESTS, 0))
    outside = [path for path in libraries if not path.startswith(str(folder))]
    must_be("libraries of the system", (bool(libraries), outside), (True, []))


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
            attempt(folder, "tracehound", "doctor")
            trace_something(folder)
    print(f"{wheel.name} works on its own" + ("" if os.geteuid() == 0 else " (import and help; as root more is tried)"))


if __name__ == "__main__":
    main()
