"""What the live tests share: the root and BTF requirement, traces, command lines, and the check that nothing stays.

Each test starts its own targets, bound to loopback and bounded in time, and looks only at processes that it started.
"""

import ctypes
import os
import platform
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pytest

if TYPE_CHECKING:
    from tracehound import LiveTrace, TableView

HERE: Final = Path(__file__).parent
TARGETS: Final = HERE / "targets"
SCRIPT: Final = Path(sys.executable).with_name("tracehound")
MAIN: Final = "import sys; from tracehound.cli import main; sys.exit(main())"
TRACEHOUND: Final = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-c", MAIN]
SYS_BPF: Final = {"x86_64": 321, "aarch64": 280}
NEXT_ID: Final = {"prog_id": 11, "map_id": 12, "link_id": 31}  # commands of bpf(2): BPF_*_GET_NEXT_ID

Row = dict[str, Any]


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip the live tests, with the reason, where no BPF program could be loaded at all."""
    reason = None
    if os.geteuid() != 0:
        reason = "live tests load BPF programs: run them as root"
    elif not Path("/sys/kernel/btf/vmlinux").exists():
        reason = "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing)"
    elif platform.machine() not in SYS_BPF:
        reason = f"bpf(2) has no known number on {platform.machine()}"
    if reason is not None:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


# ---- BPF objects and who holds them


class BpfObjects(NamedTuple):
    """Ids of BPF programs, maps and links."""

    prog_id: frozenset[int] = frozenset()
    map_id: frozenset[int] = frozenset()
    link_id: frozenset[int] = frozenset()

    def united(self, other: "BpfObjects") -> "BpfObjects":
        return BpfObjects(*(a | b for a, b in zip(self, other, strict=True)))

    def common(self, other: "BpfObjects") -> "BpfObjects":
        return BpfObjects(*(a & b for a, b in zip(self, other, strict=True)))


def held_by(pid: int) -> BpfObjects:
    """Return the BPF objects that a process has descriptors of; none if it is gone."""
    found: dict[str, set[int]] = {name: set() for name in NEXT_ID}
    try:
        entries = list(os.scandir(f"/proc/{pid}/fdinfo"))
    except OSError:
        return BpfObjects()
    for entry in entries:
        try:
            text = Path(entry.path).read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name].add(int(value))
    return BpfObjects(**{name: frozenset(ids) for name, ids in found.items()})


def existing() -> BpfObjects:
    """Return every BPF object of the machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = {}
    for name, command in NEXT_ID.items():
        ids: set[int] = set()
        attributes = ctypes.create_string_buffer(16)
        while libc.syscall(SYS_BPF[platform.machine()], command, attributes, len(attributes)) == 0:
            (last,) = struct.unpack_from("I", attributes.raw, 4)
            ids.add(last)
            struct.pack_into("I", attributes, 0, last)
        found[name] = frozenset(ids)
    return BpfObjects(**found)


def leftovers(of: BpfObjects, timeout_s: float = 20.0) -> BpfObjects:
    """Return which of these objects still exist; the kernel frees them a little after the last descriptor is closed."""
    deadline = time.monotonic() + timeout_s
    while any(left := of.common(existing())) and time.monotonic() < deadline:
        if not any(left := without_held(left)):
            break
        time.sleep(0.05)
    return left


def without_held(objects: BpfObjects) -> BpfObjects:
    """Return those of these objects that no other process holds: `doctor` looks at the maps of other tracehounds."""
    held = BpfObjects()
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            held = held.united(held_by(int(name)))
    return BpfObjects(*(mine - others for mine, others in zip(objects, held, strict=True)))


# ---- traces


class Traced(Protocol):
    def __call__(
        self, command: Sequence[object], meanwhile: Callable[["LiveTrace"], object] = ..., **settings: Any
    ) -> "LiveTrace": ...


def rows(table: "TableView") -> list[Row]:
    """Return a table's rows as dictionaries."""
    found: list[Row] = table.to_arrow().to_pylist()
    return found


@pytest.fixture(autouse=True, scope="session")
def state_folder() -> Iterator[Path]:
    """Keep `last` out of the user's own state folder."""
    with tempfile.TemporaryDirectory(prefix="tracehound-live-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        patch.delenv("SUDO_UID", raising=False)
        yield Path(folder)


@pytest.fixture(scope="session")
def traced(state_folder: Path) -> Traced:
    """Return a function that runs a command under the library, checks that nothing stays, and returns the trace.

    `meanwhile` is called with the trace while the command runs.
    """
    import tracehound

    def run(
        command: Sequence[object], meanwhile: Callable[["LiveTrace"], object] = lambda _: None, **settings: Any
    ) -> "LiveTrace":
        with tracehound.trace(command=[str(part) for part in command], **settings) as trace:
            held = held_by(os.getpid())
            meanwhile(trace)
            trace.wait()
        assert held.prog_id, "the trace held no BPF program while it ran"
        assert leftovers(held) == BpfObjects()
        return trace

    return run


# ---- command lines


class Finished(NamedTuple):
    """A `tracehound` that ended."""

    code: int
    out: str
    err: str
    pid: int
    objects: BpfObjects

    @property
    def lines(self) -> list[str]:
        """Standard error without empty lines."""
        return [line for line in self.err.splitlines() if line.strip()]


class Running:
    """A `tracehound` that runs; `finish` waits for it and checks what holds for every end of it."""

    def __init__(self, arguments: Sequence[object], environment: Mapping[str, str], popen: Mapping[str, Any]) -> None:
        self.objects = BpfObjects()
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        given: dict[str, Any] = {**streams, **popen}
        prefix = given.pop("prefix", TRACEHOUND)
        self.process = subprocess.Popen(
            [*map(str, prefix), *map(str, arguments)], env={**os.environ, **environment}, text=True, **given
        )
        self.pid = self.process.pid
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        while self.process.returncode is None:
            self.objects = self.objects.united(held_by(self.pid))
            time.sleep(0.02)

    def finish(self, timeout_s: float = 120.0) -> Finished:
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        finally:
            if self.process.returncode is None:
                self.process.kill()
                self.process.communicate()
        self._watcher.join(5)
        result = Finished(self.process.returncode, out or "", err or "", self.pid, self.objects)
        assert "Traceback (most recent call last)" not in result.out + result.err, result.err
        assert leftovers(result.objects) == BpfObjects()
        return result


class StartCli(Protocol):
    def __call__(self, *arguments: object, env: Mapping[str, str] = ..., **popen: Any) -> Running: ...


class RunCli(Protocol):
    def __call__(
        self, *arguments: object, env: Mapping[str, str] = ..., timeout_s: float = ..., **popen: Any
    ) -> Finished: ...


@pytest.fixture
def start_cli(state_folder: Path) -> Iterator[StartCli]:
    """Return a function that starts the command line; what still runs at the test's end is killed."""
    started: list[Running] = []

    def start(*arguments: object, env: Mapping[str, str] | None = None, **popen: Any) -> Running:
        started.append(Running(arguments, env or {}, popen))
        return started[-1]

    yield start
    for running in started:
        with running.process as process:  # closes its pipes, waits
            if process.poll() is None:
                process.kill()


@pytest.fixture
def run_cli(start_cli: StartCli) -> RunCli:
    """Return a function that runs the command line to its end."""

    def run(
        *arguments: object, env: Mapping[str, str] | None = None, timeout_s: float = 120.0, **popen: Any
    ) -> Finished:
        return start_cli(*arguments, env=env or {}, **popen).finish(timeout_s)

    return run


# ---- targets


@pytest.fixture(scope="session")
def python_target() -> Callable[..., list[str]]:
    """Return a function that makes the command of a Python program in `targets`."""

    def command(name: str, *arguments: object) -> list[str]:
        return [sys.executable, str(TARGETS / f"{name}.py"), *map(str, arguments)]

    return command


@pytest.fixture(scope="session")
def c_target(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that compiles a C program of `targets` and returns its path."""
    folder = tmp_path_factory.mktemp("targets")

    def compile_target(name: str) -> Path:
        compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
        binary = folder / name
        subprocess.run(
            [compiler, "-O1", "-Wall", "-Werror", "-pthread", "-o", binary, TARGETS / f"{name}.c"],
            check=True,
            timeout=60,
        )
        return binary

    return compile_target


def free_port() -> int:
    """Return a port of loopback that is free and stays so: none of those that the kernel gives to whoever asks for any.

    A connection to such a one, as to a server that is not up yet, may even be one to itself.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    given_to_nobody = range(10_000, first) if first > 11_000 else range(last + 1, 65_536)
    for port in random.sample(given_to_nobody, min(100, len(given_to_nobody))):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    pytest.fail("no free port of loopback")


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0, what: str = "it") -> None:
    """Poll until a condition holds; fail the test if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)
