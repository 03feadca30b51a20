"""Which tracehounds run on this machine, and how they fare: read from their BPF objects, which nothing of it disturbs.

A process is one if it holds maps of our names. How full its rings and tables are, what they lost and how long its
programs ran is read from the maps and from fdinfo. Leaves out what only that process knows: its backlog, the peaks.
"""

import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tracehound.btf import wire_layout
from tracehound.kernel.maps import map_keys, max_entries
from tracehound.kernel.privileged import TABLES
from tracehound.native import ffi, lib

OURS: Final = frozenset({"traced", "losses", "ring_sequence"})  # maps of which every trace has all
RINGS: Final = ("lifecycle", "data")
NAME_SIZE: Final = 16  # of a map, with its NUL


@dataclass(frozen=True, slots=True)
class RunningTrace:
    """A trace of another process.

    `tables`: entries and room; `rings`: bytes that wait and size, both by name; `lost`: by counter. `run_time_ns` is
    what its programs have taken, None if the kernel does not count that (sysctl kernel.bpf_stats_enabled).
    """

    pid: int
    command: str
    programs: int
    run_time_ns: int | None
    missed_runs: int
    tables: dict[str, tuple[int, int]] = field(default_factory=dict)
    rings: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return it as one line."""
        time = "" if self.run_time_ns is None else f", {self.run_time_ns / 1e9:.3f} s of run time"
        tables = ", ".join(f"{name} {used} of {room}" for name, (used, room) in self.tables.items())
        rings = ", ".join(
            f"{name} {used * 100 // size} % of {size >> 20} MiB" for name, (used, size) in self.rings.items()
        )
        lost = ", ".join(f"{name} {count}" for name, count in self.lost.items())
        state = f"{tables}; rings {rings or 'none'}; lost {lost or 'nothing'}"
        return f"{self.command}: {self.programs} programs{time}; {state}"


def find_running() -> list[RunningTrace]:
    """Return the traces of other processes, those whose descriptors we may read."""
    found = list[RunningTrace]()
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with suppress(OSError):
                found += examine_holder(int(name))
    return sorted(found, key=lambda each: each.pid)


def examine_holder(pid: int) -> Iterator[RunningTrace]:
    """Yield the traces of a process: each has a set of rings and tables of its own. Raises OSError."""
    programs, map_ids = dict[int, dict[str, str]](), list[int]()
    for fd in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
        with suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith("anon_inode:bpf"):
                lines = Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines()
                info = dict(line.split(":", 1) for line in lines if ":" in line)  # uprobe_multi links have a table
                if target.endswith("bpf-map") and "map_id" in info:  # not if the number is another file's by now
                    map_ids.append(int(info["map_id"]))
                elif target.endswith("bpf-prog") and "prog_id" in info:
                    programs[int(info["prog_id"])] = info
    if not map_ids:
        return
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    shown = " ".join(["tracehound", *command_words(command)])
    for maps in sets_of_maps(map_ids):
        try:
            run_time_ns = sum(int(each.get("run_time_ns", 0)) for each in programs.values())
            missed = sum(int(each.get("recursion_misses", 0)) for each in programs.values())
            yield RunningTrace(pid, shown, len(programs), run_time_ns or None, missed, *read_maps(maps))
        finally:
            for fd in maps.values():
                os.close(fd)


def command_words(argv: list[str]) -> list[str]:
    """Return what follows tracehound's name in a command line, without what may be secret: the command that it runs."""
    at = next((at for at, word in enumerate(argv) if Path(word).name == "tracehound"), None)
    if at is None:
        return ["(library)"]
    words = [word for word in argv[at + 1 :] if word]
    return [*words[: words.index("--")], "--", "..."] if "--" in words else words


def sets_of_maps(ids: list[int]) -> Iterator[dict[str, int]]:
    """Yield a descriptor of each map by name, of each trace; the caller's to close. Ids are in the order of making."""
    traces, found = list[dict[str, int]](), dict[str, int]()
    for number in sorted(set(ids)):
        fd = lib.bpf_map_get_fd_by_id(number)
        if fd < 0:
            continue
        raw = ffi.new("char[]", NAME_SIZE)
        name = ffi.string(raw).decode() if lib.bpf_map_name(fd, raw) == 0 else ""
        if name not in {*OURS, *RINGS, *TABLES}:
            os.close(fd)
            continue
        if name in found:  # the next trace of this process begins
            traces.append(found)
            found = {}
        found[name] = fd
    for each in (*traces, found):
        if each.keys() >= OURS:
            yield each
        else:
            for fd in each.values():
                os.close(fd)


def read_maps(
    maps: Mapping[str, int],
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]], dict[str, int]]:
    """Return the tables, rings and losses of a trace by its maps' descriptors."""
    tables = {
        name: (sum(1 for _ in map_keys(maps[name], size)), max_entries(maps[name]))
        for name, size in TABLES.items()
        if name in maps
    }
    rings = {name: (waiting_bytes(maps[name]), max_entries(maps[name])) for name in RINGS if name in maps}
    counters = {number: name for name, number in wire_layout().enum("loss_counter").items()}
    lost = dict[str, int]()
    values = ffi.new("uint64_t[]", lib.libbpf_num_possible_cpus())
    for number in range(max_entries(maps["losses"])):
        if lib.bpf_map_lookup_elem(maps["losses"], struct.pack("<I", number), values) == 0 and sum(values):
            lost[counters.get(number, str(number)).removeprefix("LOSS_").lower()] = sum(values)
    return tables, rings, lost


def waiting_bytes(ring_fd: int) -> int:
    """Return how many bytes wait in a ring buffer: its two positions are the first words of its first two pages."""
    with mmap.mmap(ring_fd, 2 * mmap.PAGESIZE, prot=mmap.PROT_READ) as pages:
        (consumed,), (produced,) = (struct.unpack_from("<Q", pages, at) for at in (0, mmap.PAGESIZE))
    return max(0, int(produced - consumed))
