"""Finds on this machine what a target names: processes, cgroups, containers, and the networks they are in.

A container is found by what its runtime leaves in the paths of its cgroups: docker, containerd, CRI-O and podman put
the container's id there, LXC and systemd-nspawn its name; docker's and podman's own files tell the names of ids. Errors
say what was looked for and what is near. Sources: proc(5), cgroups(7).
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracehound.errors import TargetError
from tracehound.target import Cgroup, Container, Host, Processes

NEAR: Final = 3
OWN_NETWORK: Final = "/proc/self/ns/net"
DOCKER: Final = "/var/lib/docker/containers"
PODMAN: Final = ("/var/lib/containers/storage/overlay-containers/containers.json",)
_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_NAMED: Final = re.compile(r"/(?:lxc\.payload\.|lxc/|machine-|libpod_parent/)([^/]+?)(?:\.scope)?(?=/|$)")
_ESCAPE: Final = re.compile(r"\\(\d{3})")  # how /proc/self/mounts writes blanks


@dataclass(frozen=True, slots=True)
class Found:
    """What a target is on this machine.

    `pids`: roots whose trees are traced, in our pid namespace. `cgroup`: a version-2 cgroup's folder. `networks`: a
    file of each network namespace that the target is in.
    """

    pids: tuple[int, ...] = ()
    cgroup: str | None = None
    is_host: bool = False
    networks: tuple[str, ...] = (OWN_NETWORK,)

    @property
    def cgroup_id(self) -> int | None:
        """The kernel's id of the cgroup; raises TargetError if it has gone."""
        if self.cgroup is None:
            return None
        try:
            return os.stat(self.cgroup).st_ino
        except OSError:
            raise TargetError(f"the cgroup {self.cgroup} is gone") from None


def resolve(target: Processes | Cgroup | Container | Host) -> Found:
    """Find a target; raises TargetError, with near matches, if it is not there."""
    match target:
        case Processes(pids):
            return _processes(pids)
        case Cgroup(path):
            folder = find_cgroup(path)
            return Found(cgroup=str(folder), networks=networks_of(pids_below(folder)))
        case Container(name):
            return find_container(name)
    return Found(is_host=True, networks=networks_of(all_pids()))


# ---- processes


def all_pids() -> list[int]:
    """Return the processes that /proc shows."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def comm_of(pid: int) -> str | None:
    """Return the name of a process, None if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return None


def _processes(pids: tuple[int, ...]) -> Found:
    for pid in pids:
        if not 0 < pid < 1 << 31 or not Path(f"/proc/{pid}").exists():
            raise TargetError(f"no process {pid}{near_processes(str(pid))}")
        if pid == os.getpid():
            raise TargetError(f"process {pid} is tracehound itself, which is never traced")
        leader = _thread_group(pid)
        if leader not in (None, pid):
            raise TargetError(f"{pid} is a thread of process {leader}. Write: --pid {leader}")
    return Found(pids=pids, networks=networks_of([*pids, *_descendants(pids)]))


def _thread_group(pid: int) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return None


def near_processes(given: str) -> str:
    """Return a sentence about running processes with a similar number or name, "" if there is none."""
    names = {str(pid): comm_of(pid) or "?" for pid in all_pids()}
    if given.isdecimal():
        similar = [pid for pid in names if len(pid) > 1 and (given.startswith(pid) or pid.startswith(given))]
        similar.sort(key=lambda pid: abs(len(pid) - len(given)))
        similar += difflib.get_close_matches(given, names, NEAR, 0.7)
    else:
        similar = [pid for pid, name in names.items() if given and given in name]
        close = difflib.get_close_matches(given, set(names.values()), NEAR, 0.6)
        similar += [pid for pid, name in names.items() if name in close]
    words = [f"{pid} ({names[pid]})" for pid in dict.fromkeys(similar)][:NEAR]
    return f". Running with a similar name or number: {', '.join(words)}" if words else ""


def _descendants(pids: Iterable[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        with suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            children.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(pid)
    found, waiting = list[int](), list(pids)
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def networks_of(pids: Iterable[int]) -> tuple[str, ...]:
    """Return one file for each network namespace that these processes are in; our own if there is no process."""
    found: dict[int, str] = {}
    for pid in sorted(pids):
        path = f"/proc/{pid}/ns/net"
        with suppress(OSError):
            found.setdefault(os.stat(path).st_ino, path)
    own = os.stat(OWN_NETWORK).st_ino
    if own in found or not found:
        found[own] = OWN_NETWORK
    return tuple(found.values())


# ---- cgroups


def cgroup_mounts() -> list[Path]:
    """Return where version-2 cgroups are mounted."""
    found = []
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, where, kind, *_ = line.split(" ")
        if kind == "cgroup2":
            found.append(Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), where)))
    return found


def find_cgroup(path: str) -> Path:
    """Return the folder of a version-2 cgroup; raises TargetError with the near ones."""
    mounts = cgroup_mounts()
    if not mounts:
        raise TargetError(f"no cgroup {path}: no version-2 cgroups are mounted. Try: --pid N")
    for folder in (Path(path), *(mount / path.lstrip("/") for mount in mounts)):
        if not folder.is_dir():
            continue
        resolved = folder.resolve()
        if any(resolved == mount or mount in resolved.parents for mount in mounts):
            return resolved
        if (resolved / "cgroup.procs").exists():
            raise TargetError(f"{path} is a cgroup of version 1, which the kernel side cannot follow. Try: --pid N")
    raise TargetError(f"no cgroup {path}{_near_cgroups(path, mounts)}")


def _near_cgroups(path: str, mounts: Iterable[Path]) -> str:
    for mount in mounts:
        wanted = Path(path) if path.startswith(str(mount)) else mount / path.lstrip("/")
        parent = wanted.parent
        while not parent.is_dir():
            parent = parent.parent
        names = [each.name for each in parent.iterdir() if each.is_dir()]
        near = difflib.get_close_matches(wanted.name, names, NEAR, 0.5)
        if near:
            return f". Near: {', '.join(str(parent / name) for name in near)}"
    return ""


def pids_below(folder: Path) -> list[int]:
    """Return the processes in a cgroup and below it."""
    found: list[int] = []
    for at, _, files in os.walk(folder):
        if "cgroup.procs" in files:
            with suppress(OSError):
                found += [int(pid) for pid in (Path(at) / "cgroup.procs").read_text().split()]
    return [pid for pid in found if pid]


# ---- containers


@dataclass(slots=True)
class _Seen:
    """A container as its processes show it."""

    pids: list[int]
    cgroup: str = ""  # of version 2, if its path names the container


def find_container(name: str) -> Found:
    """Return a running container by its name or the beginning of its id; raises TargetError with the near ones."""
    seen, names = _containers(), dict(_names_of_ids())
    labels = {key: names.get(key, key[:12] if _ID.fullmatch(key) else key) for key in seen}
    matching = [key for key, label in labels.items() if name in (key, label)]
    if not matching and len(name) >= 4:
        matching = [key for key in seen if _ID.fullmatch(key) and key.startswith(name)]
    if not matching:
        near = difflib.get_close_matches(name, labels.values(), NEAR, 0.4) or sorted(labels.values())[:NEAR]
        running = f". Running: {', '.join(near)}" if near else ""
        raise TargetError(f"no running container {name}{running}")
    if len(matching) > 1:
        raise TargetError(f"several containers are {name}: {', '.join(key[:24] for key in matching)}")
    found = seen[matching[0]]
    networks = networks_of(found.pids)
    for mount in cgroup_mounts():
        folder = mount / found.cgroup.lstrip("/")
        if found.cgroup and folder.is_dir():
            return Found(cgroup=str(folder), networks=networks)
    return Found(pids=tuple(found.pids), networks=networks)


def _containers() -> dict[str, _Seen]:
    """Return running containers by id, or by name where there is no id."""
    found: dict[str, _Seen] = {}
    for pid in all_pids():
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for key, cgroup in dict(container_of(line) for line in lines).items():
            if key:
                seen = found.setdefault(key, _Seen([]))
                if pid not in seen.pids:
                    seen.pids.append(pid)
                seen.cgroup = seen.cgroup or cgroup
    return found


def container_of(line: str) -> tuple[str, str]:
    """Return the container in a line of /proc/PID/cgroup and the version-2 path down to it; "" for none."""
    number, _, path = line.split(":", 2)
    matches = [match for match in _ID.finditer(path) if not path[: match.start()].endswith("conmon-")]
    match = matches[-1] if matches else next(iter(_NAMED.finditer(path)), None)
    if match is None:
        return "", ""
    end = path.find("/", match.end())
    return match[1] if match.re is _NAMED else match[0], (path[:end] if end >= 0 else path) if number == "0" else ""


def _names_of_ids(docker: str = DOCKER, podman: Iterable[str] = PODMAN) -> Iterator[tuple[str, str]]:
    for config in Path(docker).glob("*/config.v2.json"):
        with suppress(OSError, ValueError):
            yield config.parent.name, str(json.loads(config.read_text())["Name"]).lstrip("/")
    for storage in podman:
        with suppress(OSError, ValueError, TypeError):
            for entry in json.loads(Path(storage).read_text()):
                for name in entry.get("names", ()):
                    yield entry["id"], name
