"""Records of another version's layout as this version has them: by the names in both BTFs.

A member that the other layout lacks is zero, and the columns that it alone fills are named, so that they can be made
null. A kind that this version does not know keeps its records, which nothing decodes, so that their numbers do not
count as lost. Values of enums are told apart by name; bits of flags are taken as they are: none changes its meaning.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tracehound.batch import Batch, Records
from tracehound.btf import Layout
from tracehound.errors import LayoutError

HEADER: Final = ("time_ns", "pid", "tid", "size", "kind", "cpu", "ring_seq")
PADDING: Final = "reserved"

# Members with values of an enum
ENUMS: Final[Mapping[tuple[str, str], str]] = {
    ("data", "verdict"): "l7_protocol",
    ("data", "strength"): "l7_match",
    ("data", "direction"): "direction",
    ("data", "capture_class"): "capture_class",
    ("data", "role"): "connection_role",
    ("connection", "event"): "connection_event",
    ("connection", "role"): "connection_role",
    ("fact_drop", "ring"): "ring_id",
    ("fact_drop", "counter"): "loss_counter",
    ("fact_ring", "ring"): "ring_id",
    ("fact_loss", "counter"): "loss_counter",
}
NOTHING: Final = ("l7_protocol", "l7_match", "connection_role")  # 0 says that nothing is known

# Columns that say nothing without a member; none where zero is null anyway, and others may know it
_ENDS: Final = ("connections", "listens", "requests")
COLUMNS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("fork", "child_ns_pid"): (),
    ("fork", "uid"): ("processes.uid",),
    ("fork", "cgroup_id"): ("processes.cgroup_id", "processes.cgroup", "processes.container"),
    ("fork", "comm"): (),
    ("exec", "uid"): ("processes.uid",),
    ("exec", "cgroup_id"): ("processes.cgroup_id", "processes.cgroup", "processes.container"),
    ("exec", "ppid"): ("processes.ppid",),
    ("exec", "ns_pid"): (),
    ("exec", "comm"): (),
    ("exec", "exe_size"): ("processes.exe", "processes.argv"),
    ("exec", "argv_size"): ("processes.argv",),
    ("exit", "exit_code"): ("processes.exit_code",),
    ("exit", "signal"): ("processes.signal", "processes.exit_code"),
    ("exit", "flags"): ("processes.reason",),
    ("exit", "start_ns"): ("processes.duration_ns",),
    ("connection", "retransmits"): ("connections.retransmits",),
    ("connection", "srtt_us"): ("connections.srtt_us",),
    ("connection", "error"): ("connections.error",),
    ("connection", "state"): ("connections.state",),
    ("connection", "bytes_sent"): ("connections.bytes_sent",),
    ("connection", "bytes_received"): ("connections.bytes_received",),
    ("connection", "send_calls"): ("connections.send_calls",),
    ("connection", "receive_calls"): ("connections.receive_calls",),
    ("connection", "started_ns"): ("connections.connect_ns",),
    ("connection", "established_ns"): ("connections.connect_ns",),
    ("connection", "first_read_ns"): ("connections.first_read_ns",),
    ("connection", "first_write_ns"): ("connections.first_write_ns",),
    ("connection", "last_read_start_ns"): ("connections.last_read_start_ns",),
    ("connection", "backlog"): ("listens.backlog",),
    ("connection", "local_address"): tuple(f"{table}.local_ip" for table in _ENDS),
    ("connection", "remote_address"): ("connections.remote_ip", "requests.remote_ip", "requests.exchange"),
    ("connection", "local_port"): tuple(f"{table}.local_port" for table in _ENDS),
    ("connection", "remote_port"): ("connections.remote_port", "requests.remote_port", "requests.exchange"),
    ("connection", "base_sent"): ("requests.exchange",),
    ("connection", "base_received"): ("requests.exchange",),
    ("connection", "role"): ("connections.role",),
    ("connection", "slot"): (),
    ("unix", "peer_pid"): ("connections.peer_pid",),
    ("unix", "local_path"): ("connections.local_path",),
    ("unix", "remote_path"): ("connections.remote_path",),
    ("unix", "peer_cookie"): ("requests.exchange",),
    ("retransmit", "state"): ("retransmits.state",),
    ("retransmit", "sequence"): ("retransmits.sequence",),
    ("retransmit", "size_bytes"): ("retransmits.size_bytes",),
    ("nat", "actual_remote_address"): ("connections.actual_remote_ip",),
    ("nat", "actual_remote_port"): ("connections.actual_remote_port",),
    ("data", "fd"): ("connections.fd", "connections.generation"),
    ("open", "duration_ns"): ("files.duration_ns",),
    ("open", "open_flags"): ("files.flags", "files.mode"),
    ("open", "mode"): ("files.mode",),
    ("open", "result"): ("files.fd", "files.errno"),
    ("open", "path_size"): ("files.path", "files.resolved_path"),
    ("open", "place_size"): ("files.resolved_path", "files.path"),
    ("fact_process", "service_size"): (),
}


def _header_of(dtype: np.dtype[np.void]) -> list[object]:
    """Return types and offsets of the members of the header, None for one that is not there."""
    fields = dtype.fields
    return [fields[name][:2] if fields is not None and name in fields else None for name in HEADER]


def _is_alike(theirs: np.dtype[np.void], ours: np.dtype[np.void], name: str) -> bool:
    """Tell whether both have a member of this name that holds the same sort of thing."""
    if name not in (theirs.names or ()):
        return False
    one, other = theirs[name], ours[name]
    return len(one.shape) == len(other.shape) and (one.base.kind in "iu") == (other.base.kind in "iu")


class Versions:
    """How records of `theirs` become records of `layout`: ours, and the kinds that only theirs knows."""

    def __init__(self, theirs: Layout, ours: Layout) -> None:
        """Compare both. Raises LayoutError if their header is another one: then no record can be read."""
        header = _header_of(ours.btf.dtype("record_header"))
        if any(_header_of(dtype) != header for dtype in (theirs.btf.dtype("record_header"), *theirs.dtypes.values())):
            raise LayoutError("its records begin with another header")
        self.are_equal = theirs.btf.data == ours.btf.data
        self.layout = ours if self.are_equal else Layout(ours.btf, theirs.btf)
        own = ours.dtypes
        self.unknown_kinds = tuple(name for name in theirs.dtypes if name not in own)
        self.missing_kinds = tuple(name for name in own if name not in theirs.dtypes)
        self._missing = {
            kind: tuple(name for name in dtype.names or () if not _is_alike(theirs.dtypes[kind], dtype, name))
            for kind, dtype in own.items()
            if kind in theirs.dtypes
        }
        self._values = {} if self.are_equal else self._translations(theirs, ours)
        names = list(theirs.kinds.values())
        self._tick_columns = [names.index(name) if name in names else -1 for name in self.layout.kinds.values()]

    @property
    def missing_members(self) -> tuple[str, ...]:
        """Members of known kinds that the other layout lacks, as `connection.srtt_us`."""
        return tuple(f"{kind}.{name}" for kind, names in self._missing.items() for name in names if name != PADDING)

    @property
    def null_columns(self) -> tuple[str, ...]:
        """Columns that say nothing without these members, as `connections.srtt_us`; they are to be null."""
        found = (COLUMNS.get((kind, name), ()) for kind, names in self._missing.items() for name in names)
        return tuple(dict.fromkeys(column for columns in found for column in columns))

    @staticmethod
    def _translations(theirs: Layout, ours: Layout) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
        """Return for each member of an enum whose numbers differ a table: their number -> ours."""
        tables = {}
        for member, enum in ENUMS.items():
            try:
                their_names = theirs.enum(enum)
            except LayoutError:
                continue
            our_names = ours.enum(enum)
            if all(our_names.get(name) == number for name, number in their_names.items()):
                continue
            table = np.zeros(256, np.int64) if enum in NOTHING else np.full(256, 255)
            for name, number in their_names.items():
                if 0 <= number < len(table) and name in our_names:
                    table[number] = our_names[name]
            tables[member] = table
        return tables

    def convert(self, batch: Batch) -> Batch:
        """Return a batch that was split by their layout as one of `layout`."""
        if self.are_equal:
            return batch
        records = {kind: self._convert(kind, found) for kind, found in batch.records.items()}
        ticks = batch.rows_before_tick
        if ticks is not None:
            padded = np.column_stack((ticks, np.zeros(len(ticks), np.int64)))  # -1: the column of zeros
            ticks = np.ascontiguousarray(padded[:, self._tick_columns])
        return Batch(records, batch.watermark_ns, batch.damaged, ticks)

    def _convert(self, kind: str, records: Records) -> Records:
        if kind in self.unknown_kinds:
            return records
        fixed = np.zeros(len(records), self.layout.dtypes[kind])
        for name in fixed.dtype.names or ():
            if name in self._missing[kind]:
                continue
            column = records.fixed[name]
            if (kind, name) in self._values:
                table = self._values[kind, name]
                column = table[np.minimum(column, len(table) - 1)]
            target = fixed[name]
            if column.ndim == 2:  # an array of another length: what both have
                both = min(column.shape[1], target.shape[1])
                target[:, :both] = column[:, :both]
            else:
                target[...] = column
        return Records(fixed, records.offsets, records.tails)
