"""What user space reads from the machine, as `fact_*` records of wire.h.

Decode sees the machine only through these records, so a replay needs neither `/proc` nor a clock. A process that has
vanished gives no fact. Sources: proc(5), cgroups(7).
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tracehound.btf import Layout

CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
CLOCK_READINGS: Final = 5


class FactWriter:
    """Makes raw records, each padded to 8 bytes, in one queue that is emptied by `take`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._numbers = {name: number for number, name in layout.kinds.items()}
        self._pending: list[bytes] = []
        self._written = 0

    def add(self, kind: str, time_ns: int, fields: Mapping[str, object], tail: bytes = b"", cpu: int = 0) -> None:
        """Queue one record of `kind`; raises KeyError for a kind or field that wire.h lacks."""
        record = np.zeros((), self._layout.dtypes[kind])
        size = record.dtype.itemsize + len(tail)
        header = {"time_ns": time_ns, "size": size, "kind": self._numbers[kind], "cpu": cpu, "ring_seq": self._written}
        for name, value in (header | dict(fields)).items():
            record[name] = value
        self._pending.append(record.tobytes() + tail + bytes(-size % 8))
        self._written += 1

    def take(self) -> bytes:
        """Return all queued records and forget them."""
        taken = b"".join(self._pending)
        self._pending.clear()
        return taken


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What `/proc/PID` says of a process; texts as bytes, `argv` with a NUL after each argument."""

    pid: int
    start_ns: int
    ppid: int
    ns_pid: int
    uid: int
    comm: bytes
    exe: bytes
    argv: bytes
    cgroup: bytes
    service: bytes

    def add_to(self, facts: FactWriter, time_ns: int) -> None:
        """Queue these as a `fact_process` record of that time."""
        sizes = {f"{name}_size": len(getattr(self, name)) for name in ("exe", "argv", "cgroup", "service")}
        numbers = {name: getattr(self, name) for name in ("pid", "start_ns", "ppid", "ns_pid", "uid", "comm")}
        facts.add("fact_process", time_ns, numbers | sizes, self.exe + self.argv + self.cgroup + self.service)


def read_process(pid: int) -> ProcessFacts | None:
    """Read one process, None if it is gone or hidden; `start_ns` is to 10 ms (what stat gives), on CLOCK_MONOTONIC."""
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_bytes()
        status = dict(line.split(b":", 1) for line in (folder / "status").read_bytes().splitlines() if b":" in line)
        exe = os.fsencode(os.readlink(folder / "exe"))
        argv = (folder / "cmdline").read_bytes()[:4096]
        cgroup = _cgroup_v2((folder / "cgroup").read_bytes())
        environ = (folder / "environ").read_bytes()
    except OSError:
        return None
    comm, rest = stat[stat.index(b"(") + 1 : stat.rindex(b")")], stat[stat.rindex(b")") + 2 :].split()
    boot_offset_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return ProcessFacts(
        pid=pid,
        start_ns=int(rest[19]) * 1_000_000_000 // CLOCK_TICKS - boot_offset_ns,
        ppid=int(rest[1]),
        ns_pid=int(status.get(b"NSpid", b"%d" % pid).split()[-1]),
        uid=int(status[b"Uid"].split()[0]),
        comm=comm[:16],
        exe=exe,
        argv=argv,
        cgroup=cgroup,
        service=_variable(environ, b"OTEL_SERVICE_NAME"),
    )


def _cgroup_v2(text: bytes) -> bytes:
    return next((line[3:] for line in text.splitlines() if line.startswith(b"0::")), b"")


def _variable(environ: bytes, name: bytes) -> bytes:
    start = name + b"="
    return next((item[len(start) :] for item in environ.split(b"\0") if item.startswith(start)), b"")


def add_seed(facts: FactWriter, record: np.void, found: ProcessFacts | None) -> None:
    """Queue the exec record of a process that was there before, with exe and argv as /proc tells them."""
    exe, argv = (found.exe, found.argv) if found else (b"", b"")
    fields = {name: record[name] for name in record.dtype.names or () if name != "size"}
    facts.add("exec", record["time_ns"], fields | {"exe_size": len(exe), "argv_size": len(argv)}, exe + argv)


def add_clock(facts: FactWriter) -> None:
    """Queue a clock anchor: one moment by both clocks.

    The closest of some readings: one in which we had to wait for a CPU looks as if the clock had been stepped.
    """
    _, middle, wall = min(read_clocks() for _ in range(CLOCK_READINGS))
    facts.add("fact_clock", time.monotonic_ns(), {"monotonic_ns": middle, "realtime_ns": wall})


def read_clocks() -> tuple[int, int, int]:
    """Return how long reading both clocks took, the middle of that by the monotonic one, and the other."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return after - before, (before + after) // 2, wall


def add_config(facts: FactWriter, text: str) -> None:
    """Queue the settings of a trace, a text of JSON."""
    encoded = text.encode()
    facts.add("fact_config", time.monotonic_ns(), {"text_size": len(encoded)}, encoded)


def add_point(facts: FactWriter, number: int, text: str) -> None:
    """Queue what a point of `call` is, a text of JSON."""
    encoded = text.encode()
    facts.add("fact_point", time.monotonic_ns(), {"point": number, "text_size": len(encoded)}, encoded)


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def add_cgroup(facts: FactWriter, time_ns: int, number: int, path: bytes) -> None:
    """Queue the path of one version-2 cgroup, whose id the kernel side knows."""
    facts.add("fact_cgroup", time_ns, {"id": number, "path_size": len(path)}, path)
