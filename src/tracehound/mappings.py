"""Keeps what stacks will need of running programs: their memory as facts, their files open, before they are gone.

Looks at records as they are drained, ahead of decode: the facts about a process stand in the line before its stacks
are walked, with the time of the first stack that needs them. A process is listed when its first stack is seen, and
again, at most once a second, when a stack has an address that is in nothing known.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tracehound.btf import Layout
from tracehound.decode.stack_samples import CONTEXT_MARKS, Samples, read_samples
from tracehound.procfs import FactWriter
from tracehound.symbols.address_space import FileKey, Mapped, Space
from tracehound.symbols.mapped_files import MappedFiles
from tracehound.symbols.stack_module import StackModule
from tracehound.symbols.unwind import SAMPLE_NO_REGISTERS

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records
    from tracehound.decode.stacks import StackDecoder

AGAIN_NS: Final = 1_000_000_000
PROCESSES_LIMIT: Final = 1 << 14
PART_BYTES: Final = 4 << 20  # of a module in one record
PROT_READ_EXEC: Final = 5


class _Known:
    """What is known of one process: its memory, and when it was read."""

    __slots__ = ("has_own_code", "read_ns", "space")

    def __init__(self, mapped: Iterable[Mapped], read_ns: int) -> None:
        self.space = Space(tuple(sorted(mapped)))
        self.read_ns = read_ns
        self.has_own_code = any(one.file is None for one in self.space.mapped)


class Mappings:
    """Follows the memory of processes that have stacks. A context manager: it holds their files open."""

    def __init__(
        self,
        facts: FactWriter,
        layout: Layout,
        local_pid: Callable[[int], int | None] = lambda pid: pid,
        is_told: bool = False,
    ) -> None:
        """Put what is found into `facts`. `local_pid`: the pid in our /proc of one that the kernel tells; `is_told`:
        memory is told as it is mapped, of every process from its beginning, so no list is read before it is missed.
        """
        self.files = MappedFiles()
        self._facts = facts
        self._layout = layout
        self._local_pid = local_pid
        self._flags: Mapping[str, int] = layout.enum("mapping_flag")
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._is_told = is_told
        self._told: OrderedDict[int, None] = OrderedDict()  # processes all of whose memory was told as it was mapped

    def close(self) -> None:
        """Close all files."""
        self.files.close()

    def __enter__(self) -> "Mappings":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look_at(self, batches: "Sequence[Batch]") -> None:
        """Queue facts that the stacks of batches, as they were drained, need."""
        for batch in batches:
            if "fact_mapping" in batch.records:
                self._hold(batch.records["fact_mapping"])
        for batch in batches:
            self._look_at_events(batch)
            stacks = batch.records.get("call_stack")
            if stacks is not None and len(stacks):
                samples = read_samples(stacks)
                for pid in np.unique(stacks.fixed["pid"]).tolist():
                    rows = np.flatnonzero(stacks.fixed["pid"] == pid)
                    self._follow(pid, int(stacks.fixed["time_ns"][rows].min()), samples, rows)

    def _look_at_events(self, batch: "Batch") -> None:
        if "fork" in batch.records:
            forks = batch.records["fork"].fixed
            for parent, child in zip(forks["pid"].tolist(), forks["child_pid"].tolist(), strict=True):
                if parent in self._told and child != parent:
                    self._tell(child)
        for kind in ("exec", "exit"):
            for pid in np.unique(batch.records[kind].fixed["pid"]).tolist() if kind in batch.records else ():
                self._forget(pid)

    def follow(self, stacks: "StackDecoder", is_taped: bool) -> None:
        """Do what decode asks for by now: processes whose memory is to be read anew, and modules that a tape needs."""
        self.read_again(stacks.take_unknown())
        for key, module in stacks.take_modules():
            if is_taped:
                add_module(self._facts, key, module, time.monotonic_ns())

    def read_again(self, pids: Iterable[int]) -> None:
        """Read the memory of processes anew whose stacks led out of what is known."""
        now = time.monotonic_ns()
        for pid in pids:
            known = self._known.get(pid)
            if known is None or now - known.read_ns > AGAIN_NS:
                self._list(pid, now)

    def _follow(self, pid: int, time_ns: int, samples: Samples, rows: npt.NDArray[np.int64]) -> None:
        known = self._known.get(pid)
        is_told = self._is_told or pid in self._told
        if known is None and is_told:
            known = self._known[pid] = _Known((), time.monotonic_ns())
        is_due = known is None or time.monotonic_ns() - known.read_ns > AGAIN_NS
        if known is None or (is_due and not is_told and self._has_unknown(known, samples, rows)):
            known = self._list(pid, time_ns)
        local = self._local_pid(pid)
        if known.has_own_code and local is not None:
            piece = self.files.perf_map_piece(local)
            if piece:
                fields = {"pid": pid, "parts": 1, "content_size": len(piece)}
                self._facts.add("fact_module", time_ns, fields, piece)

    def _has_unknown(self, known: _Known, samples: Samples, rows: npt.NDArray[np.int64]) -> bool:
        """Tell whether a register or a call chain leads out of what is known."""
        walked = samples.walked[rows]
        addresses = [walked["ip"][(walked["flags"] & SAMPLE_NO_REGISTERS) == 0]]
        wanted = np.zeros(len(samples), bool)
        wanted[rows] = True
        chains = samples.chains_of(wanted)[rows]
        for at, count in chains[chains["count"] > 0].tolist():
            words = samples.content[at : at + 8 * count].copy().view("<u8")
            addresses.append(words[words < CONTEXT_MARKS])
        return bool((known.space.find(np.concatenate(addresses)) < 0).any())

    def _list(self, pid: int, time_ns: int) -> _Known:
        """Queue the whole memory of a process as it is now, as true from `time_ns` on."""
        local = self._local_pid(pid)
        mapped = self.files.list(local) if local is not None else []
        known = self._known[pid] = _Known(mapped, time.monotonic_ns())
        self._known.move_to_end(pid)
        while len(self._known) > PROCESSES_LIMIT:
            self._known.popitem(last=False)
        flags = self._flags["MAPPING_LISTED"] | self._flags["MAPPING_FIRST"]
        for one in mapped:
            add_mapping(self._facts, pid, time_ns, one, flags | self._flags["MAPPING_GENERATION"])
            flags = self._flags["MAPPING_LISTED"]
        return known

    def _hold(self, mappings: "Records") -> None:
        """Open the files of mappings that were seen when they were made."""
        from tracehound.decode.space_records import mapped_of

        flags = mappings.fixed["flags"]
        is_exec = (flags & self._flags["MAPPING_FIRST"] != 0) & (flags & self._flags["MAPPING_LISTED"] == 0)
        for pid in np.unique(mappings.fixed["pid"][is_exec]).tolist():
            self._tell(pid)
            self._known.pop(pid, None)
        for pid, mapped, is_listed in mapped_of(mappings, self._layout):
            local = self._local_pid(pid)
            if is_listed or local is None:
                continue
            if mapped.file is not None and mapped.file.inode:
                self.files.hold(local, mapped.start, mapped.end, mapped.file)
            known = self._known.get(pid)
            if known is not None:
                known.space = known.space.with_mapping(mapped.start, mapped.end, mapped)
                known.has_own_code |= mapped.file is None

    def _tell(self, pid: int) -> None:
        """Note that /proc has nothing to add, only the memory of a later program, with the wrong time."""
        self._told[pid] = None
        self._told.move_to_end(pid)
        while len(self._told) > PROCESSES_LIMIT:
            self._told.popitem(last=False)

    def _forget(self, pid: int) -> None:
        known, local = self._known.pop(pid, None), self._local_pid(pid)
        if known is not None and local is not None:
            self.files.forget(local)


def add_mapping(facts: FactWriter, pid: int, time_ns: int, mapped: Mapped, flags: int) -> None:
    """Queue executable memory of a process as a fact_mapping record."""
    key = mapped.file or FileKey(b"", (0, 0), 0, b"")
    fields = {
        "pid": pid,
        "start": mapped.start,
        "end": mapped.end,
        "offset": mapped.offset,
        "protection": PROT_READ_EXEC,
        "flags": flags,
        **_file_fields(key),
    }
    facts.add("fact_mapping", time_ns, fields, key.path)


def add_module(facts: FactWriter, key: FileKey, module: StackModule, time_ns: int) -> None:
    """Queue a module as fact_module records."""
    content = module.pack()
    pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    for part, piece in enumerate(pieces):
        sizes = {"part": part, "parts": len(pieces), "content_size": len(piece)}
        facts.add("fact_module", time_ns, sizes | _file_fields(key), key.path + piece)


def _file_fields(key: FileKey) -> dict[str, object]:
    return {
        "inode": key.inode,
        "inode_generation": key.generation,
        "device_major": key.device[0],
        "device_minor": key.device[1],
        "build_id_size": len(key.build_id),
        "build_id": np.frombuffer(key.build_id.ljust(24, b"\0"), np.uint8),
        "path_size": len(key.path),
    }
