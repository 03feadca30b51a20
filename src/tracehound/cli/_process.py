"""What `doctor --pid` says of a process: who it is, its connections, and what a trace of it would not show.

Read from /proc (proc(5)) at one moment; a process that belongs to another user needs CAP_SYS_PTRACE. What its
connections carry is seen by a short trace (`_watch`); what they have carried before, nobody has looked at.
"""

import difflib
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from tracehound.cli._watch import Watched
from tracehound.errors import TargetError

STATES: Final = {1: "established", 2: "syn-sent", 3: "syn-received", 4: "fin-wait-1", 5: "fin-wait-2", 6: "time-wait",
                 7: "close", 8: "close-wait", 9: "last-ack", 10: "listen", 11: "closing"}  # fmt: skip
LISTEN: Final = 10
SHOWN: Final = 20  # connections in the text; JSON has all
TLS: Final = re.compile(r"/(libssl|libgnutls|libnss3|libssl3|libnspr4|libs2n)[^/]*\.so")
SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
RUNTIMES: Final = (  # runtime, what its executable or a library that it maps is called
    ("cpython", re.compile(r"/(python3?(\.\d+)?|libpython3\.\d+\.so[\d.]*)$")),
    ("nodejs", re.compile(r"/(node|nodejs|libnode\.so[\d.]*)$")),
    ("jvm", re.compile(r"/libjvm\.so$")),
    ("ruby", re.compile(r"/(ruby[\d.]*|libruby[^/]*\.so[\d.]*)$")),
)
GO: Final = b"\xff Go buildinf:"  # the beginning of what the Go linker says of a program
GO_SEARCH_BYTES: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A socket of a process; `role` is server if the process listens on its local port, None if that is not known."""

    fd: int
    transport: str
    local: str
    remote: str | None
    state: str | None
    role: str | None


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """A process as /proc shows it; `argv` with its secrets blanked, `missing` what a trace would not show, and why."""

    pid: int
    ns_pid: int
    comm: str
    exe: str | None
    argv: list[str]
    uid: int
    cgroup: str | None
    container: str | None
    tls_libraries: list[str]
    connections: list[OpenConnection]
    missing: list[str]
    runtime: str | None = None
    watched: Watched | None = None

    def lines(self) -> list[str]:
        """Return it as text."""
        from tracehound.sinks.console import printable

        found = [f" process {self.pid}  {self.comm}, uid {self.uid}" + self._inner_pid()]
        about = {
            "exe": self.exe,
            "runtime": self.runtime,
            "argv": " ".join(self.argv),
            "cgroup": self.cgroup,
            "container": self.container,
        }
        about["TLS"] = ", ".join(self.tls_libraries)
        found += [f"   {name:<9} {printable(text)}" for name, text in about.items() if text]
        found.append(f"   {len(self.connections)} sockets")
        for one in self.connections[:SHOWN]:
            arrow = "" if one.remote is None else f" {'<-' if one.role == 'server' else '->'} {one.remote}"
            carries = self.watched.text_of(one.fd) if self.watched else ""
            found.append(
                f"     fd {one.fd:<4} {one.transport:<5} {one.local}{arrow}  {one.state or ''}  {carries}".rstrip()
            )
        if len(self.connections) > SHOWN:
            found.append(f"     and {len(self.connections) - SHOWN} more: --json shows all")
        found += self.watched.lines() if self.watched else []
        return found + [f"   missing   {text}" for text in self.missing]

    def _inner_pid(self) -> str:
        return f", pid {self.ns_pid} in its own namespace" if self.ns_pid != self.pid else ""


def examine(pid: int) -> ProcessReport:
    """Look at a process; raises TargetError, with near matches, if there is none."""
    from tracehound.enrich.container import container_id
    from tracehound.enrich.secrets import clean_arguments

    folder = Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    except OSError:
        raise TargetError(f"no process {pid}{similar(pid)}") from None
    argv = (_read(folder / "cmdline") or "").split("\0")[:-1]
    cgroup = next((line[3:] for line in (_read(folder / "cgroup") or "").splitlines() if line.startswith("0::")), None)
    descriptors = _descriptors(folder)
    mapped = {line.split()[-1] for line in (_read(folder / "maps") or "").splitlines() if "/" in line}
    libraries = sorted(path for path in mapped if TLS.search(path))
    connections = _connections(folder, descriptors or {})
    return ProcessReport(
        pid=pid,
        ns_pid=int(status.get("NSpid", str(pid)).split()[-1]),
        comm=status["Name"].strip(),
        exe=_link(folder / "exe"),
        argv=clean_arguments(argv),
        uid=int(status["Uid"].split()[0]),
        cgroup=cgroup,
        container=container_id(cgroup),
        tls_libraries=libraries,
        connections=connections,
        missing=list(_missing(descriptors, connections, libraries)),
        runtime=_runtime(folder, mapped),
    )


def _runtime(folder: Path, mapped: set[str]) -> str | None:
    """Return what runs the program's code, None if that is the processor itself or is not known."""
    paths = {*mapped, _link(folder / "exe") or ""}
    for name, pattern in RUNTIMES:
        if any(pattern.search(path) for path in paths):
            return name
    with suppress(OSError, ValueError), open(folder / "exe", "rb") as file:
        size = min(os.fstat(file.fileno()).st_size, GO_SEARCH_BYTES)
        with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as program:
            return "go" if program.find(GO) >= 0 else None
    return None


def similar(pid: int) -> str:
    """Return which processes have a similar number, for an error's end."""
    running = [entry.name for entry in os.scandir("/proc") if entry.name.isdigit()]
    near = difflib.get_close_matches(str(pid), running, 3, 0.6)
    names = [f"{each} ({name.strip()})" for each in near if (name := _read(Path(f"/proc/{each}/comm")))]
    return f". Running with a similar number: {', '.join(names)}" if names else ""


def _missing(
    descriptors: dict[int, str] | None, connections: list[OpenConnection], libraries: list[str]
) -> Iterator[str]:
    if descriptors is None:
        yield "descriptors and connections of this process: CAP_SYS_PTRACE is missing"
    is_open = sum(one.transport == "tcp" and one.remote is not None for one in connections)
    if is_open:
        yield f"what {is_open} open connections carried so far; requests on them are marked joined_midstream"
    if libraries:
        yield "what stands inside TLS: its connections are shown, with protocol `tls`"
    if descriptors and any("io_uring" in target for target in descriptors.values()):
        yield "what io_uring moves: its bytes are counted, not read"


def _descriptors(folder: Path) -> dict[int, str] | None:
    try:
        names = [int(entry.name) for entry in os.scandir(folder / "fd")]
    except OSError:
        return None
    return {fd: target for fd in sorted(names) if (target := _link(folder / "fd" / str(fd)))}


def _connections(folder: Path, descriptors: dict[int, str]) -> list[OpenConnection]:
    fd_of = {match[1]: fd for fd, target in reversed(descriptors.items()) if (match := SOCKET.fullmatch(target))}
    found, listening = [], set()
    for name in ("tcp", "tcp6", "udp", "udp6") if fd_of else ():
        for line in (_read(folder / "net" / name) or "").splitlines()[1:]:
            fields = line.split()
            if fields[9] not in fd_of:
                continue
            state, local, remote = int(fields[3], 16), *map(_endpoint, fields[1:3])
            if state == LISTEN:
                listening.add(local[1])
            found.append((fd_of[fields[9]], name[:3], local, remote, state))
    inet = [
        OpenConnection(
            fd, transport, _text(local), _text(remote) if remote[1] else None,
            STATES.get(state) if transport == "tcp" else None,
            ("server" if local[1] in listening else "client") if transport == "tcp" and remote[1] else None,
        )
        for fd, transport, local, remote, state in found
    ]  # fmt: skip
    return sorted([*inet, *_unix(folder, fd_of)], key=lambda one: one.fd)


def _unix(folder: Path, fd_of: dict[str, int]) -> Iterator[OpenConnection]:
    for line in (_read(folder / "net" / "unix") or "").splitlines()[1:] if fd_of else ():
        fields = line.split(maxsplit=7)
        if fields[6] in fd_of:
            yield OpenConnection(fd_of[fields[6]], "unix", fields[7] if len(fields) > 7 else "", None, None, None)


def _endpoint(text: str) -> tuple[bytes, int]:
    """Return the address of `0100007F:1F90`, words in the machine's order, and its port."""
    address, port = text.split(":")
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    return b"".join(word.to_bytes(4, "little") for word in words), int(port, 16)


def _text(endpoint: tuple[bytes, int]) -> str:
    address, port = endpoint
    if len(address) == 4:
        return f"{IPv4Address(address)}:{port}"
    inner = IPv6Address(address).ipv4_mapped
    return f"{inner}:{port}" if inner else f"[{IPv6Address(address)}]:{port}"


def _read(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return None


def _link(path: Path) -> str | None:
    with suppress(OSError):
        return os.readlink(path)
    return None
