"""Records that tell of processes' memory -> changes of their spaces, in the order of time; modules and perf maps too.

There are few of them: they are taken one by one, and those of processes of which no memory is known are left out
before. A process that was there before the trace has an exec record that is no exec.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from tracehound.btf import Layout
from tracehound.decode.tails import tail_pieces
from tracehound.symbols.address_space import SPECIAL, FileKey, Mapped, Spaces, is_file
from tracehound.symbols.module_store import ModuleStore
from tracehound.symbols.perf_map import PerfMap

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records

PROT_EXEC: Final = 4
PERF_MAPS_LIMIT: Final = 4096  # processes
PARTS_LIMIT: Final = 4096  # of a module
CONTENT_LIMIT: Final = 256 << 20  # bytes of modules that are not whole yet


class SpaceRecords:
    """Takes what tells of memory out of batches."""

    def __init__(self, layout: Layout, spaces: Spaces, modules: ModuleStore) -> None:
        flags = layout.enum("mapping_flag")
        self._first, self._listed = flags["MAPPING_FIRST"], flags["MAPPING_LISTED"]
        self._executing: set[int] = set()  # told by their first mapping; the exec record comes behind their others
        self._preexisting = layout.enum("exec_flag")["EXEC_PREEXISTING"]
        self._spaces = spaces
        self._modules = modules
        self.perf_maps: dict[int, PerfMap] = {}  # of pids
        self._told: set[int] = set()  # processes whose execs come with their mappings
        self._parts: dict[FileKey, list[bytes]] = {}
        self._parts_bytes = 0

    def take(self, batch: "Batch") -> None:
        """Apply what a batch tells."""
        self.learn_modules(batch, perf_maps=True)
        mappings = batch.records.get("fact_mapping")
        if mappings is None and not len(self._spaces):
            return
        changes: list[tuple[int, int, int]] = []  # time, order of kinds, row
        kinds = [batch.records.get(kind) for kind in ("fork", "exec", "fact_mapping", "exit")]
        known = self._spaces.pids()
        if mappings is not None:
            known = np.union1d(known, mappings.fixed["pid"])
        if kinds[0] is not None:
            known = np.union1d(known, kinds[0].fixed["child_pid"])  # which may have been forked from one that is known
        for order, records in enumerate(kinds):
            if records is not None:
                fixed = records.fixed
                rows = np.arange(len(fixed)) if records is mappings else np.flatnonzero(np.isin(fixed["pid"], known))
                changes += [(int(fixed["time_ns"][row]), order, row) for row in rows.tolist()]
        paths = [] if mappings is None else tail_pieces(mappings, ["path_size"])[0].to_pylist()
        for time_ns, order, row in sorted(changes):
            fixed = kinds[order].fixed[row]  # type: ignore[union-attr]
            if order == 0:
                self._spaces.fork(int(fixed["pid"]), int(fixed["child_pid"]), int(fixed["start_ns"]), time_ns)
            elif order == 1 and not int(fixed["flags"]) & self._preexisting:
                if int(fixed["pid"]) not in self._executing:
                    self._spaces.clear(int(fixed["pid"]), int(fixed["start_ns"]), time_ns)
                self._executing.discard(int(fixed["pid"]))
                self.perf_maps.pop(int(fixed["pid"]), None)
            elif order == 2:
                self._map(fixed, paths[row], time_ns)
            elif order == 3:
                self._spaces.exit(int(fixed["pid"]), time_ns)
                self._executing.discard(int(fixed["pid"]))

    def _map(self, row: np.void, path: bytes, time_ns: int) -> None:
        pid, start_ns = int(row["pid"]), int(row["start_ns"])
        if int(row["flags"]) & self._first:
            self._spaces.clear(pid, start_ns, time_ns)
            if not int(row["flags"]) & self._listed:
                self._executing.add(pid)
        is_executable = bool(int(row["protection"]) & PROT_EXEC)
        self._spaces.map(pid, start_ns, time_ns, _mapped_of(row, path), is_executable)

    def learn_modules(self, batch: "Batch", perf_maps: bool = False) -> None:
        """Take the modules of a batch, whenever they stand; `perf_maps`: also what processes wrote of their code."""
        records = batch.records.get("fact_module")
        if records is None:
            return
        paths, contents = tail_pieces(records, ["path_size", "content_size"])
        for row, path, content in zip(records.fixed, paths.to_pylist(), contents.to_pylist(), strict=True):
            if not int(row["pid"]):
                self._learn_part(_key_of(row, path), int(row["part"]), int(row["parts"]), content)
            elif perf_maps:
                self._learn_perf_map(int(row["pid"]), content)

    def _learn_perf_map(self, pid: int, text: bytes) -> None:
        if pid in self.perf_maps or len(self.perf_maps) < PERF_MAPS_LIMIT:
            self.perf_maps.setdefault(pid, PerfMap()).add(text)

    def _learn_part(self, key: FileKey, part: int, parts: int, content: bytes) -> None:
        """Take a part; they come in order, or the module is not there."""
        known = self._parts.setdefault(key, [])
        if part != len(known) or part >= parts or parts > PARTS_LIMIT:
            self._parts_bytes -= sum(map(len, self._parts.pop(key)))
            return
        known.append(content)
        self._parts_bytes += len(content)
        if len(known) == parts or self._parts_bytes > CONTENT_LIMIT:
            self._parts_bytes -= sum(map(len, self._parts.pop(key)))
            if len(known) == parts:
                self._modules.learn(key, b"".join(known))


def mapped_of(records: "Records", layout: Layout) -> list[tuple[int, Mapped, bool]]:
    """Return (pid, memory, whether it was read from a list) of each fact_mapping record of executable memory."""
    listed = layout.enum("mapping_flag")["MAPPING_LISTED"]
    (paths,) = tail_pieces(records, ["path_size"])
    return [
        (int(row["pid"]), _mapped_of(row, path), bool(int(row["flags"]) & listed))
        for row, path in zip(records.fixed, paths.to_pylist(), strict=True)
        if int(row["protection"]) & PROT_EXEC and row["end"] > row["start"]
    ]


def _mapped_of(row: np.void, path: bytes) -> Mapped:
    file = _key_of(row, path) if is_file(int(row["inode"]), path) else None
    offset = 0 if path in SPECIAL else int(row["offset"])
    return Mapped(int(row["start"]), int(row["end"]), offset, file)


def _key_of(row: np.void, path: bytes) -> FileKey:
    size = min(int(row["build_id_size"]), 20)
    device = int(row["device_major"]), int(row["device_minor"])
    return FileKey(row["build_id"].tobytes()[:size], device, int(row["inode"]), path, int(row["inode_generation"]))
