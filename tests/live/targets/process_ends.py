"""Processes that start, exec and end in every way: `process_ends.py FOLDER LEADER_EXITS EXEC_THREAD VFORK_EXEC`.

FOLDER gets `told.json`: for each name the pid, the parent, the argv of each exec in turn, and the exit code (a negative
one is the signal, as `subprocess` has it).
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
LEADER_EXITS, EXEC_THREAD, VFORK_EXEC = sys.argv[2:5]
SHELL = "/bin/sh"
MANY_THREADS = "import threading as t; [x.start() for x in [t.Thread(target=str) for _ in range(50)]]"
told: dict[str, dict[str, Any]] = {}


def run(name: str, *argv: str, then: tuple[list[str], ...] = (), kill: signal.Signals | None = None) -> str:
    """Run a program to its end, or to a signal; `then` is what it execs itself. Return its output."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    if kill is not None:
        process.send_signal(kill)
    out, _ = process.communicate(timeout=20)
    told[name] = {"pid": process.pid, "ppid": os.getpid(), "execs": [list(argv), *then], "code": process.returncode}
    return out


def fork(name: str, code: int, *argv: str) -> None:
    """Fork; the child tries to exec what does not exist, if asked, and exits."""
    child = os.fork()
    if child == 0:
        if argv:
            with suppress(OSError):
                os.execv(argv[0], argv)
        os._exit(code)
    os.waitpid(child, 0)
    told[name] = {"pid": child, "ppid": os.getpid(), "execs": [], "code": code}


def main() -> None:
    signal.alarm(40)
    run("threads", sys.executable, "-c", MANY_THREADS)
    run("leader-exits", LEADER_EXITS, "argument of the leader")
    exits = [SHELL, "-c", "exit 5", "from a thread"]
    run("exec-thread", EXEC_THREAD, *exits, then=(exits,))
    exits = [SHELL, "-c", "exit 6", "from vfork"]
    child = int(run("vfork-parent", VFORK_EXEC, *exits))
    told["vfork-child"] = {"pid": child, "ppid": told["vfork-parent"]["pid"], "execs": [exits], "code": 6}
    run("killed", "/bin/sleep", "30", kill=signal.SIGKILL)
    run("terminated", "/bin/sleep", "31", kill=signal.SIGTERM)
    run("by-itself", SHELL, "-c", "ulimit -c 0; kill -SEGV $$")
    last = ["sleep", "0.01"]
    run("chain", SHELL, "-c", "exec sh -c 'exec sleep 0.01'", then=(["sh", "-c", "exec sleep 0.01"], last))
    script = FOLDER / "script"
    script.write_text("#!/bin/sh -e\nexit 3\n")
    script.chmod(0o755)
    run("script", str(script), "one", "two")
    told["script"]["execs"] = [[SHELL, "-e", str(script), "one", "two"]]
    run("odd-arguments", "/bin/true", "", "a b\tc\n", "ünï", "", "x" * 1000, "")
    run("long-arguments", "/bin/true", *(f"argument {i} {'y' * 100}" for i in range(100)))
    fork("fork", 9)
    fork("failed-exec", 8, "/no/such/program", "never seen")
    told["driver"] = {"pid": os.getpid(), "ppid": os.getppid(), "execs": [[sys.executable, *sys.argv]], "code": 0}
    (FOLDER / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
