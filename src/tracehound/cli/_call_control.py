"""Points of a running `tracehound call` from another one: a socket of mode 0600 in the state folder, a line each way.

The question is a JSON object: add or remove, a point's text, and filters of it; the answer has names or an error. Only
who runs the trace (root, mostly) can connect; the folder is made with the ids of whose state it is.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tracehound.errors import TargetError, TracehoundError, UsageError

WAIT_S: Final = 60.0  # for an answer: points of a large file are looked for
LONGEST: Final = 1 << 20
PATTERN: Final = "call-*.sock"

Ask = Callable[[dict[str, Any]], list[str]]


def folder() -> Path:
    """Return where the sockets are."""
    from tracehound.recording import state_folder

    return state_folder()[0]


def make_folder(path: Path) -> None:
    """Make the state folder, if it is not there; raises OSError, SinkError."""
    from tracehound.recording import state_folder
    from tracehound.recording.owner import acting_as

    with acting_as(state_folder()[1]):
        path.mkdir(parents=True, exist_ok=True)


class Control:
    """Answers questions in a thread of its own. A context manager; without a state folder there is no socket."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._socket: socket.socket | None = None
        self._path: Path | None = None

    def __enter__(self) -> "Control":
        with suppress(OSError, TracehoundError):
            path = folder() / f"call-{os.getpid()}.sock"
            make_folder(path.parent)
            path.unlink(missing_ok=True)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            before = os.umask(0o177)
            try:
                self._socket.bind(str(path))
            finally:
                os.umask(before)
            self._path = path
            self._socket.listen(4)
            threading.Thread(target=self._serve, args=(self._socket,), name="tracehound-control", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError, ValueError):
                connection.settimeout(WAIT_S)
                answer = self._answer(_read_line(connection))
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            return {"names": self._ask(json.loads(line))}
        except (TracehoundError, OSError) as error:
            return {"error": str(error)}
        except (ValueError, TypeError, KeyError) as error:
            return {"error": f"that is no question: {error}"}


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST:
        part = connection.recv(65536)
        if not part:
            break
        line += part
    return line


def ask_running(questions: Sequence[dict[str, Any]], pid: int | None) -> list[str]:
    """Ask a running `call`, the only one or that of a pid; return what it said. Raises TargetError, UsageError."""
    path = _find(pid)
    said = []
    for question in questions:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(WAIT_S)
            try:
                connection.connect(str(path))
                connection.sendall(json.dumps(question).encode() + b"\n")
                answer = json.loads(_read_line(connection))
            except (OSError, ValueError) as error:
                raise TargetError(f"tracehound call, pid {_pid_of(path)}, does not answer: {error}") from error
        if "error" in answer:
            raise UsageError(answer["error"])
        said += [f"{question['do']}: {name}" for name in answer["names"]]
    return said


def _pid_of(path: Path) -> int:
    return int(path.stem.removeprefix("call-"))


def _find(pid: int | None) -> Path:
    found = {_pid_of(path): path for path in sorted(folder().glob(PATTERN)) if _is_alive(path)}
    if pid is not None and pid in found:
        return found[pid]
    if pid is None and len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise TargetError("no tracehound call of yours runs: points are added to one that does")
    known = ", ".join(map(str, found))
    raise TargetError(f"{'several run' if pid is None else f'no call has pid {pid}'}. Name one by --of: {known}")


def _is_alive(path: Path) -> bool:
    """Whether somebody listens; what a killed one left behind is taken away."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(WAIT_S)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return False
        except OSError:
            return False
    return True
