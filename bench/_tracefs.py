"""tracefs for a bench that sets tracehound, which needs none, against tools that need it."""

import os
import sys
from pathlib import Path
from typing import Final

FOLDERS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
MOUNT: Final = 'mount -t tracefs none /sys/kernel/tracing && exec "$@"'


def need_tracefs(bench: str) -> None:
    """Start `bench` again with tracefs in a mount namespace of its own, if there is none."""
    if any((folder / "events" / "syscalls").exists() for folder in FOLDERS):
        return
    again = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", sys.executable, "-u", "-m", f"bench.{bench}", *sys.argv[1:]]
    os.execvp(again[0], again)
