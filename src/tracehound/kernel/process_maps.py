"""What a process has mapped, a line of /proc/PID/maps each. Source: proc(5). Leaves out opening the files."""

from pathlib import Path
from typing import NamedTuple

from tracehound.errors import TargetError
from tracehound.resolve import near_processes


class Mapping(NamedTuple):
    """Addresses of a process and what is there: `offset` in the file `path`, whose `inode` is 0 if it is no file."""

    start: int
    end: int
    offset: int
    path: str
    inode: int
    is_code: bool


def mappings(pid: int) -> list[Mapping]:
    """Return all that a process has mapped, by address; raises TargetError if it is gone, or another user's."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        if isinstance(error, FileNotFoundError | ProcessLookupError):
            raise TargetError(f"no process {pid}{near_processes(str(pid))}") from error
        raise TargetError(f"cannot read what pid {pid} has mapped: {error.strerror}. Run with sudo") from error
    found = []
    for fields in (line.split(None, 5) for line in lines):
        start, _, end = fields[0].partition("-")
        path = fields[5] if len(fields) == 6 else ""
        found.append(Mapping(int(start, 16), int(end, 16), int(fields[2], 16), path, int(fields[4]), "x" in fields[1]))
    return found
