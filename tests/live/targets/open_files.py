"""Opens files in every way: `open_files.py FOLDER MANY`; MANY more are opened by four threads.

FOLDER gets `told.json`: for each open, in the order of their ends, path (as given), resolved path, flags, mode, result
(descriptor or errno's name) and whether the path was too long to be kept. Names of files begin with `traced-`.
"""

import ctypes
import errno
import json
import os
import platform
import sys
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
MANY = int(sys.argv[2])
KEPT = 4096
PATH_MAX = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
OPENAT = {"x86_64": 257, "aarch64": 56}[platform.machine()]
OPENAT2 = 437
OPEN, CREAT = 2, 85  # x86_64 only
AT_FDCWD = -100
told: list[dict[str, Any]] = []


def tell(path: str | None, resolved: str | None, flags: list[str], result: int | str, mode: int | None = None) -> None:
    kept = None if path is None else path[:KEPT]
    truncated = path is not None and len(path) > KEPT
    told.append({"path": kept, "resolved": resolved, "flags": flags, "mode": mode, "result": result, "cut": truncated})


def names(flags: int) -> list[str]:
    """Return the names of what is used here."""
    found = [("O_RDONLY", "O_WRONLY", "O_RDWR")[flags & 3]]
    for name in ("O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_PATH"):
        if flags & getattr(os, name):
            found.append(name)
    return found


def attempt(
    path: str, resolved: str | None, flags: int = os.O_RDONLY, mode: int = 0o644, dir_fd: int | None = None
) -> int:
    """Open by `os.open`, which is openat(2) and adds O_CLOEXEC; return the descriptor or -1."""
    result: int | str
    try:
        result = os.open(path, flags, mode, dir_fd=dir_fd)
    except OSError as error:
        result = errno.errorcode[error.errno or 0]
    wanted = mode if flags & os.O_CREAT else None
    tell(path, resolved, names(flags | os.O_CLOEXEC), result, wanted)
    return result if isinstance(result, int) else -1


def call(number: int, *arguments: Any) -> int | str:
    """Make a system call; return its result or the error's name."""
    result: int = LIBC.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


def relative_and_absolute(folder: str) -> None:
    os.close(attempt("traced-relative", f"{folder}/traced-relative", os.O_RDWR | os.O_CREAT, 0o640))
    os.close(attempt(f"{folder}/traced-relative", f"{folder}/traced-relative", os.O_WRONLY | os.O_APPEND))
    os.close(attempt("./sub/../traced-relative", f"{folder}/traced-relative"))
    attempt("traced-relative", f"{folder}/traced-relative", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    attempt("sub/../traced-missing", f"{folder}/sub/../traced-missing")
    attempt(f"{folder}/traced-missing/x", f"{folder}/traced-missing/x")
    os.close(attempt("../traced-folder/sub", f"{folder}/sub", os.O_RDONLY | os.O_DIRECTORY))
    longest = "./" * ((PATH_MAX - 1 - len("traced-long")) // 2) + "traced-long"
    os.close(attempt(longest, f"{folder}/traced-long", os.O_WRONLY | os.O_CREAT))
    too_long = "/traced-" + "x" * 4992
    attempt(too_long, too_long[:KEPT])


def directories(folder: str) -> None:
    sub = os.open("sub", os.O_RDONLY | os.O_DIRECTORY)
    os.close(attempt("traced-in", f"{folder}/sub/traced-in", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=sub))
    attempt("traced-missing", f"{folder}/sub/traced-missing", dir_fd=sub)
    os.close(sub)
    attempt("traced-nowhere", None, dir_fd=sub)
    deep = folder
    for number in range(34):
        deep += f"/{number}"
        os.mkdir(deep)
    os.close(attempt(f"{deep}/traced-deep", f"{deep}/traced-deep", os.O_WRONLY | os.O_CREAT))
    os.chdir(deep)
    os.close(attempt("traced-deep", None))
    os.chdir("/")
    os.close(attempt(f".{folder}/traced-relative", f"{folder}/traced-relative"))
    attempt("traced-missing-at-root", "/traced-missing-at-root")
    os.chdir(folder)


def links_and_pipes(folder: str) -> None:
    os.symlink("traced-relative", "traced-link")
    os.symlink("/nowhere/at/all", "traced-dangling")
    os.close(attempt("traced-link", f"{folder}/traced-relative"))
    attempt("traced-link", f"{folder}/traced-link", os.O_RDONLY | os.O_NOFOLLOW)
    attempt(f"{folder}/traced-dangling", f"{folder}/traced-dangling")
    os.close(attempt("traced-link", f"{folder}/traced-link", os.O_PATH | os.O_NOFOLLOW))
    reading, writing = os.pipe()
    os.symlink(f"/proc/self/fd/{writing}", "traced-pipe")
    os.close(attempt("traced-pipe", f"{folder}/traced-pipe", os.O_WRONLY))
    os.symlink("/proc/self/status", "traced-proc")
    os.close(attempt("traced-proc", f"/proc/{os.getpid()}/status"))
    os.symlink("/", "traced-root")
    os.close(attempt("traced-root", "/"))
    os.close(reading)
    os.close(writing)


def other_calls(folder: str) -> None:
    resolved = f"{folder}/traced-raw"
    how = (ctypes.c_uint64 * 3)(os.O_RDWR | os.O_CREAT, 0o604, 0)
    result = call(OPENAT2, AT_FDCWD, b"traced-raw", how, ctypes.c_size_t(ctypes.sizeof(how)))
    tell("traced-raw", resolved, ["O_RDWR", "O_CREAT"], result, 0o604)
    os.close(int(result))
    tell(None, None, ["O_RDONLY"], call(OPENAT, AT_FDCWD, ctypes.c_void_p(1), 0, 0))
    if platform.machine() == "x86_64":
        result = call(CREAT, b"traced-raw", 0o600)
        tell("traced-raw", resolved, ["O_WRONLY", "O_CREAT", "O_TRUNC"], result, 0o600)
        os.close(int(result))
        result = call(OPEN, b"traced-raw", os.O_RDONLY, 0)
        tell("traced-raw", resolved, ["O_RDONLY"], result)
        os.close(int(result))


def many(number: int) -> None:
    for at in range(number, MANY, 4):
        descriptor = os.open(f"traced-many-{at}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, b"x")
        os.close(descriptor)


def main() -> None:
    (FOLDER / "sub").mkdir()
    os.chdir(FOLDER)
    folder = os.getcwd()
    relative_and_absolute(folder)
    directories(folder)
    links_and_pipes(folder)
    other_calls(folder)
    threads = [threading.Thread(target=many, args=(number,)) for number in range(4 if MANY else 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (FOLDER / "told.json").write_text(json.dumps({"pid": os.getpid(), "opens": told}))


if __name__ == "__main__":
    main()
