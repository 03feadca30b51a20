"""fork, exec and exit records -> rows of `processes`.

`start` rows are about the child; an exec record with EXEC_PREEXISTING is a process that was there before the trace,
whose `start` row is `preexisting`. One that was seen in both ways, because it was forked while the trace began, has one
`start` row, the earlier. A process is (pid, start_ns), so a reused pid is never mixed up. The exit record's
end gives its duration alone; parent, user and cgroup of an exit, and the time of the previous exec, come from what
was seen of the process before, which is forgotten at its exit: the state is bounded by the live pids. Leaves out
the name of the cgroup, container and service (enrich).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.btf import Layout
from tracehound.decode.addresses import name_column, signal_name, text_column
from tracehound.decode.keyed import KeyedRows
from tracehound.decode.tails import tail_pieces, to_arguments, to_text
from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records

KINDS: Final = ("fork", "exec", "exit")
_EVENTS: Final = pa.array(["start", "exec", "exit", None, "start"])
_FORK, _EXEC, _EXIT, _STATE, _SEED = range(5)
_PROCESS: Final = np.dtype(
    [("start_ns", "i8"), ("ppid", "i8"), ("uid", "i8"), ("cgroup_id", "i8"), ("exec_ns", "i8"), ("started", "?")]
)  # -1: not known; exec_ns: of the last exec; started: its `start` row was written

Int64s = npt.NDArray[np.int64]
Column = npt.NDArray[Any]


class Processes:
    """Decodes process records; keeps one small row for each live process."""

    def __init__(self, layout: Layout) -> None:
        self._dtypes = [layout.dtypes[kind] for kind in KINDS]
        self._oom_kill = layout.enum("exit_flag")["EXIT_OOM_KILL"]
        self._preexisting = layout.enum("exec_flag")["EXEC_PREEXISTING"]
        self._live = KeyedRows(_PROCESS)

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the rows of a batch in the order of time, None if there are none."""
        records = [batch.records.get(kind) for kind in KINDS]
        fixed = [np.empty(0, dtype) if r is None else r.fixed for r, dtype in zip(records, self._dtypes, strict=True)]
        events = _Events(fixed, self._preexisting)
        if not events.count:
            return None
        before = self._follow(events)
        order = events.order
        values: dict[str, Any] = {
            "time_ns": events.time_ns[order],
            "pid": events.pid[order],
            "tid": events.tid[order],
            "ns_pid": _nullable(events.concatenate("child_ns_pid", "ns_pid", 0)[order], 0),
            "process_start_ns": events.start_ns[order],
            "comm": text_column(np.concatenate([part["comm"] for part in fixed])[order]),
            "preexisting": events.kind[order] == _SEED,
            "event": _EVENTS.take(pa.array(events.kind[order])),
            **{name: _nullable(before[name], -1) for name in ("ppid", "uid", "cgroup_id")},
            **self._exec_columns(records[_EXEC], len(fixed[_FORK]), len(fixed[_EXIT]), order),
            **self._exit_columns(fixed[_EXIT], events.count, order),
            "duration_ns": _nullable(before["duration_ns"], -1),
        }
        found = build(TABLES["processes"], events.count, values)
        return found.filter(pa.array(~before["repeated"])) if before["repeated"].any() else found

    def _follow(self, events: "_Events") -> Mapping[str, Column]:
        """Move the live processes through the events; return columns in output order that depend on earlier events."""
        pids = np.unique(events.pid)
        known_pids = pids[self._live.contains(pids)]
        known = self._live.get(known_pids)
        pid = np.concatenate((events.pid, known_pids))
        kind = np.concatenate((events.kind, np.full(len(known), _STATE)))
        start_ns = np.concatenate((events.start_ns, known["start_ns"]))
        time_ns = np.concatenate((events.time_ns, known["exec_ns"]))
        rank = np.concatenate((events.rank, np.full(len(known), -1)))
        walk = np.lexsort((rank, pid))
        same = (pid[walk][1:] == pid[walk][:-1]) & (start_ns[walk][1:] == start_ns[walk][:-1])
        group = np.concatenate(([0], np.cumsum(~same)))
        filled = {
            name: _fill(np.concatenate((events.state_column(name), known[name]))[walk], group)
            for name in ("ppid", "uid", "cgroup_id")
        }
        is_exec = ((kind == _EXEC) | (kind == _STATE))[walk]
        exec_ns = _fill(np.where(is_exec, time_ns[walk], -1), group)
        duration_ns = _durations(kind[walk], time_ns[walk], start_ns[walk], exec_ns, group)
        is_start = np.isin(kind, (_FORK, _SEED))
        is_start[len(events.kind) :] = known["started"]
        starts = _running_counts(is_start[walk], group)
        repeated = is_start[walk] & (starts > 1) & (kind[walk] != _STATE)
        kept = {"start_ns": start_ns[walk], "exec_ns": exec_ns, "started": starts > 0, **filled}
        self._keep(pid[walk], kind[walk], kept)
        back = np.empty(len(walk), np.int64)
        back[walk] = np.arange(len(walk))
        place = back[events.order]
        columns: dict[str, Column] = {**filled, "duration_ns": duration_ns, "repeated": repeated}
        return {name: column[place] for name, column in columns.items()}

    def _keep(self, pid: Int64s, kind: Int64s, columns: Mapping[str, Column]) -> None:
        last = np.flatnonzero(np.append(pid[1:] != pid[:-1], True))
        ended = kind[last] == _EXIT
        self._live.remove(pid[last[ended]])
        kept = last[~ended]
        rows = np.empty(len(kept), _PROCESS)
        for name, column in columns.items():
            rows[name] = column[kept]
        self._live.put(pid[kept], rows)

    def _exec_columns(self, execs: "Records | None", forks: int, exits: int, order: Int64s) -> dict[str, pa.Array]:
        if execs is None:
            return {}
        exe, argv = tail_pieces(execs, ("exe_size", "argv_size"))

        def among_all(column: pa.Array) -> pa.Array:
            empty = [pa.nulls(count, column.type) for count in (forks, exits)]
            return pa.concat_arrays([empty[0], column, empty[1]]).take(pa.array(order))

        return {"exe": among_all(to_text(exe)), "argv": among_all(to_arguments(argv))}

    def _exit_columns(self, exits: npt.NDArray[np.void], rows: int, order: Int64s) -> dict[str, pa.Array]:
        signals = exits["signal"].astype(np.int64)
        reasons = ((exits["flags"] & self._oom_kill) != 0).astype(np.int64)
        columns = {
            "exit_code": _nullable(np.where(signals == 0, exits["exit_code"].astype(np.int64), -1), -1),
            "signal": name_column(signals, signal_name),
            "reason": pa.array(["none", "oom_kill"]).take(pa.array(reasons)),
        }
        before = rows - len(exits)
        return {
            name: pa.concat_arrays([pa.nulls(before, column.type), column]).take(pa.array(order))
            for name, column in columns.items()
        }


class _Events:
    """The records of the three kinds one after another, as columns; `order` is their order in time."""

    def __init__(self, fixed: list[npt.NDArray[np.void]], preexisting: int) -> None:
        self._fixed = fixed
        self.count = sum(len(part) for part in fixed)
        self.kind = np.repeat(np.arange(3), [len(part) for part in fixed])
        forks, execs = len(fixed[_FORK]), fixed[_EXEC]
        self.kind[forks : forks + len(execs)][(execs["flags"] & preexisting) != 0] = _SEED
        self.time_ns = self.concatenate("time_ns", "time_ns", "time_ns")
        self.pid = self.concatenate("child_pid", "pid", "pid")
        self.tid = self.concatenate("child_pid", "tid", "tid")
        self.start_ns = self.concatenate("start_ns", "start_ns", "start_ns")
        cpu, sequence = (self.concatenate(name, name, name) for name in ("cpu", "ring_seq"))
        self.order: Int64s = np.lexsort((sequence, cpu, self.time_ns))
        self.rank = np.empty(self.count, np.int64)
        self.rank[self.order] = np.arange(self.count)

    def concatenate(self, *members: str | int) -> Int64s:
        """Return one int64 column: for each kind the member of that name, or a number for all of its records."""
        parts = (
            part[member] if isinstance(member, str) else np.full(len(part), member)
            for part, member in zip(self._fixed, members, strict=True)
        )
        return np.concatenate([np.asarray(part).astype(np.int64) for part in parts])

    def state_column(self, name: str) -> Int64s:
        """Return ppid, uid or cgroup_id as the records themselves say it; -1 where they do not."""
        return self.concatenate("pid" if name == "ppid" else name, name, -1)


def _fill(column: Int64s, group: Int64s) -> Int64s:
    """Replace each -1 by the nearest earlier value of its group that is none."""
    at = np.maximum.accumulate(np.where(column != -1, np.arange(len(column)), 0))
    return np.where(group[at] == group, column[at], -1)


def _running_counts(flags: npt.NDArray[np.bool_], group: Int64s) -> Int64s:
    """Return for each row how many of its group up to it are set; rows of a group are neighbours."""
    counts = np.cumsum(flags)
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    before: Int64s = counts[first] - flags[first]
    found: Int64s = counts - before[group]
    return found


def _durations(kind: Int64s, time_ns: Int64s, start_ns: Int64s, exec_ns: Int64s, group: Int64s) -> Int64s:
    """Exit: since the start; exec: since the previous exec, -1 for the first."""
    previous = np.concatenate(([-1], exec_ns[:-1]))
    previous[np.concatenate(([True], group[1:] != group[:-1]))] = -1
    since = np.where(kind == _EXIT, start_ns, np.where(kind == _EXEC, previous, -1))
    return np.where(since != -1, np.maximum(time_ns - since, 0), -1)


def _nullable(column: Int64s, null: int) -> pa.Array:
    return pa.array(column, mask=column == null)
