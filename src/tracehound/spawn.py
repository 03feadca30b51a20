"""Starts the command of a trace so that it is traced from its fork on, and tells how it ended."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

from tracehound.errors import TargetError
from tracehound.kernel.privileged import TRACE_NONE, TRACE_SPAWNER, Privileged
from tracehound.target import Command

# Between these two a child gets the spawner's mark: no other thread may spawn then.
SPAWN_LOCK: Final = threading.Lock()


def check_command(target: Command) -> None:
    """Raise TargetError if the command cannot be found (exit code 127) or executed (126)."""
    program = target.argv[0]
    if shutil.which(program) is not None:
        return
    if os.sep in program and Path(program).is_dir():
        raise TargetError(f"cannot run {program}: it is a directory", 126)
    if os.sep in program and Path(program).exists():
        raise TargetError(f"cannot run {program}: it is not executable. Try: chmod +x {program}", 126)
    raise TargetError(f"no such command: {program}", 127)


def spawn(kernel: Privileged, target: Command) -> "subprocess.Popen[bytes]":
    """Start the command so that it is traced from its fork on; raises TargetError."""
    ids = user_ids(target.user) if target.user else {}
    with SPAWN_LOCK:
        kernel.mark_self(TRACE_SPAWNER)
        try:
            env = None if target.env is None else dict(target.env)
            return subprocess.Popen(target.argv, env=env, cwd=target.cwd, **ids)  # type: ignore[call-overload, no-any-return]
        except OSError as error:
            raise TargetError(f"cannot run {target.argv[0]}: {error.strerror}", 126) from error
        finally:
            kernel.mark_self(TRACE_NONE)


def user_ids(name: str) -> dict[str, object]:
    """Return what subprocess needs to run as a user; raises TargetError."""
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise TargetError(f"no such user: {name}") from None
    groups = os.getgrouplist(name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def shell_exit_code(returncode: int) -> int:
    """Return a process's exit code as a shell gives it: 128+N for signal N."""
    return 128 - returncode if returncode < 0 else returncode
