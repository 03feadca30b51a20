"""The recordings that nobody named: kept in the user's state folder, the newest of them called `last`.

Follows the XDG base directory specification. Under sudo the folder is that of the user who called it, and all files in
it are made with that user's ids. Names are rising numbers: a clock that steps back must not hide the newest.
"""

import difflib
import fcntl
import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tracehound.errors import SinkError, TargetError
from tracehound.recording.manifest import NAME
from tracehound.recording.owner import Owner, acting_as

KEPT: Final = 10
TOTAL_BYTES: Final = 2 << 30
CAP_BYTES: Final = 256 << 20


class StateRecording(NamedTuple):
    """A fresh, empty folder for a `RecordingWriter`, and how it is to be written."""

    directory: Path
    owner: Owner | None
    cap_bytes: int


def state_folder(environ: Mapping[str, str] | None = None) -> tuple[Path, Owner | None]:
    """Return the state folder (which need not exist), and whose ids it is written with, None if ours."""
    environ = os.environ if environ is None else environ
    owner: Owner | None = None
    home = Path(environ.get("HOME") or "/")
    sudo_uid = environ.get("SUDO_UID", "")
    if sudo_uid.isdecimal() and int(sudo_uid) != 0 and os.geteuid() == 0:
        try:
            entry = pwd.getpwuid(int(sudo_uid))
        except KeyError:
            pass  # a user without a home has no state folder: ours serves
        else:
            owner, home = Owner(entry.pw_uid, entry.pw_gid), Path(entry.pw_dir)
    given = environ.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else home / ".local/state"
    return base / "tracehound", owner


def new_state_recording(environ: Mapping[str, str] | None = None) -> StateRecording:
    """Make an empty folder for a recording and drop the oldest ones; raises SinkError."""
    folder, owner = state_folder(environ)
    try:
        with acting_as(owner):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = _next_directory(folder)
            _drop_oldest(folder)
    except OSError as error:
        raise SinkError(
            f"cannot keep a recording in {folder}: {error.strerror or error}. Use --record DIR, or --no-record"
        ) from error
    return StateRecording(directory, owner, CAP_BYTES)


def resolve(name: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the recording that `name` means: `last`, or a path; raises TargetError."""
    if name == "last":
        folder, _ = state_folder(environ)
        for directory in reversed(_recordings(folder)):
            if (directory / NAME).exists():
                return directory
        raise TargetError(f"no recording is kept in {folder} yet. Make one: tracehound run -- COMMAND")
    path = Path(name)
    if (path / NAME).exists():
        return path
    if path.exists():
        raise TargetError(f"{path} is not a recording: it has no {NAME}{_near(path)}")
    raise TargetError(f"no recording {path}{_near(path)}")


def _near(path: Path) -> str:
    try:
        names = [entry.name for entry in path.absolute().parent.iterdir() if (entry / NAME).exists()]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, 3, 0.5)
    return f". Near: {', '.join(near)}" if near else ". `last` is the newest that was kept without a name"


def _recordings(folder: Path) -> list[Path]:
    try:
        numbers = sorted(int(name) for name in os.listdir(folder) if name.isascii() and name.isdecimal())
    except OSError:
        return []
    return [folder / f"{number:06}" for number in numbers]


def _next_directory(folder: Path) -> Path:
    while True:
        known = _recordings(folder)
        directory = folder / f"{int(known[-1].name) + 1 if known else 1:06}"
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            continue  # another tracehound took the number
        return directory


def _drop_oldest(folder: Path) -> None:
    newest_first = _recordings(folder)[::-1]
    room = TOTAL_BYTES
    for index, directory in enumerate(newest_first):
        room -= CAP_BYTES if index == 0 else _size_bytes(directory)
        if index and (index >= KEPT or room < 0) and not _is_written(directory):
            shutil.rmtree(directory, ignore_errors=True)


def _size_bytes(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue  # its writer renamed it just now
    return total


def _is_written(directory: Path) -> bool:
    """Tell whether a writer holds the folder's lock (see `RecordingWriter`)."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
