"""Fills what a row knows of its process by (pid, time): `ns_pid`, `process_start_ns`, `comm`, `service`.

The service is OTEL_SERVICE_NAME where a `fact_process` tells it, else the script's stem for interpreters, else the
name of the program, as it was called where its file has several names; a process that has not called exec yet has its
parent's. Every exec begins a new name, so a row before it keeps the older one. An `accept` row may be older than the
process that serves it: it takes that process's first name. Leaves out names that a program gives itself later (prctl).
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.enrich.columns import Int64s, Tables, fill_columns, int_column

FILLED: Final = ("ns_pid", "process_start_ns", "comm", "service")
NAMES_OF_ONE_PID: Final = 64
ENDED_KEPT: Final = 16_384  # processes that ended: rows about them may still come
COMM_BYTES: Final = 15
SAME_START_NS: Final = 20_000_000  # /proc tells starts to 10 ms

_INTERPRETER: Final = re.compile(r"(python|pypy|nodejs|node|deno|bun|ruby|perl|php|bash|dash|zsh|ksh|sh|java)[\d.-]*")
_NO_SCRIPT: Final = {
    "python": ("-c",),
    "pypy": ("-c",),
    "node": ("-e", "-p", "--eval", "--print"),
    "nodejs": ("-e", "-p"),
    "perl": ("-e", "-E"),
    "ruby": ("-e",),
    "php": ("-r",),
    "bash": ("-c",),
    "dash": ("-c",),
    "zsh": ("-c",),
    "ksh": ("-c",),
    "sh": ("-c",),
}
_VALUE_FOLLOWS: Final = {
    "python": ("-W", "-X", "--check-hash-based-pycs"),
    "pypy": ("-W", "-X"),
    "node": ("-r", "--require", "--import", "--loader"),
    "ruby": ("-I", "-r", "-C"),
    "perl": ("-I",),
    "php": ("-c", "-d", "-z"),
    "bash": ("-o", "-O", "--rcfile", "--init-file"),
    "dash": ("-o",),
    "sh": ("-o",),
    "java": ("-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"),
    "nodejs": ("-r", "--require"),
}
_SHELLS: Final = ("bash", "dash", "zsh", "ksh", "sh")
# one-letter options together, the last of them with what follows as code: -lc, -Ic, -ne
_CODE_BUNDLES: Final = dict.fromkeys(("python", "pypy", *_SHELLS), re.compile("-[a-zA-Z]*c"))
_CODE_BUNDLES.update(dict.fromkeys(("perl", "ruby"), re.compile("-[a-zA-Z]*[eE]")))
_OPTION_BUNDLE: Final = re.compile("-[a-zA-Z]*[oO]")  # of a shell; what follows is its value: -euo pipefail
_NAME_FOLLOWS: Final = {"python": "-m", "pypy": "-m", "java": "-jar", "php": "-f"}


def service_name(exe: str | None, argv: Sequence[str] | None, comm: str | None = None) -> str | None:
    """Return the script's stem for interpreters, else the program's name; None if nothing is known.

    That is the executable's, but for one that was called by another name of it, a link (redis-server, busybox's httpd):
    the first argument and `comm`, which the kernel takes from the path that was executed, then both say that name.
    """
    path = exe or (argv[0] if argv else "")
    name = _base(path.removesuffix(" (deleted)"))
    interpreter = _INTERPRETER.fullmatch(name)
    if interpreter is None and argv and comm:
        title = argv[0].partition(" ")[0].rstrip(":")  # of a program that writes a title there only the first word
        called = next((each for each in map(_base, (argv[0], title)) if each[:COMM_BYTES] == comm), name)
        if called != name:
            name, interpreter = called, _INTERPRETER.fullmatch(called)
    script = _script(interpreter[1], argv[1:]) if interpreter and argv else None
    return script or name or None


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2].lstrip("-")


def _script(interpreter: str, arguments: Sequence[str]) -> str | None:
    """Return the stem of the first argument that is no option; None where the program is given in another way."""
    named = _NAME_FOLLOWS.get(interpreter)
    waiting = iter(arguments)
    for argument in waiting:
        if argument == named:
            following = next(waiting, None)
            return following if following is None or argument == "-m" else _stem(following)
        if named == "-m" and argument.startswith("-m"):
            return argument[2:]
        code = _CODE_BUNDLES.get(interpreter)
        if argument in _NO_SCRIPT.get(interpreter, ()) or (code and code.fullmatch(argument)):
            return None
        is_shells = interpreter in _SHELLS and _OPTION_BUNDLE.fullmatch(argument)
        if is_shells or argument in _VALUE_FOLLOWS.get(interpreter, ()):
            next(waiting, None)
        elif argument == "--":
            following = next(waiting, None)
            return None if following is None else _stem(following)
        elif not argument.startswith("-"):
            return argument.rpartition(".")[2] if interpreter == "java" else _stem(argument)
    return None


def _stem(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    if stem in ("__main__", ""):
        return folder.rpartition("/")[2] or None
    return stem


@dataclass(frozen=True, slots=True)
class _Name:
    """What is known of a process from some moment on."""

    process_start_ns: int
    ns_pid: int | None = None
    comm: str | None = None
    service: str | None = None
    has_exec: bool = False


@dataclass(slots=True)
class _History:
    since_ns: list[int] = field(default_factory=list)
    names: list[_Name] = field(default_factory=list)

    def set(self, time_ns: int, name: _Name) -> None:
        """Let a name hold from a time on; one that comes late holds from the last one's."""
        time_ns = max(time_ns, self.since_ns[-1]) if self.since_ns else time_ns
        if self.since_ns and self.since_ns[-1] == time_ns:
            self.names[-1] = name
            return
        self.since_ns.append(time_ns)
        self.names.append(name)
        del self.since_ns[:-NAMES_OF_ONE_PID], self.names[:-NAMES_OF_ONE_PID]

    def at(self, time_ns: int) -> _Name | None:
        """Return the name that held at a time."""
        found = bisect_right(self.since_ns, time_ns)
        return self.names[found - 1] if found else None


class ProcessNames:
    """Knows the names of processes over time; costs Python only for each process event, arrays for other rows."""

    def __init__(self) -> None:
        self._histories: dict[int, _History] = {}
        self._ended: deque[tuple[int, int]] = deque()  # pid, start

    def add(self, tables: Tables) -> Tables:
        """Learn from `processes` and `fact_process`, then fill every table that has a process."""
        for row in _events(tables):
            self._learn(row)
        filled = {
            name: self._fill(table, clip=name == "connections")
            for name, table in tables.items()
            if len(table) and "service" in table.schema.names and "pid" in table.schema.names and name != "fact_process"
        }
        self._forget()
        return tables | filled

    def _learn(self, row: dict[str, Any]) -> None:
        pid, time_ns, start_ns = row["pid"], row["time_ns"], row.get("process_start_ns") or 0
        history = self._histories.setdefault(pid, _History())
        known = history.names[-1] if history.names else None
        event = row.get("event", "fact")
        if known is not None and abs(known.process_start_ns - start_ns) > SAME_START_NS:
            known = None
        if event == "start" and row["preexisting"]:  # its name holds since it began
            name = _Name(
                start_ns,
                row["ns_pid"],
                row["comm"],
                service_name(row["exe"], row["argv"], row["comm"]),
                bool(row["exe"]),
            )
            history.set(min(start_ns, time_ns), name)
        elif event == "start":
            parent = self._histories.get(row["ppid"])
            inherited = parent.at(time_ns) if parent else None
            history.set(time_ns, _Name(start_ns, row["ns_pid"], row["comm"], inherited.service if inherited else None))
        elif event == "exec":
            ns_pid = row["ns_pid"] or (known.ns_pid if known else None)
            history.set(
                time_ns, _Name(start_ns, ns_pid, row["comm"], service_name(row["exe"], row["argv"], row["comm"]), True)
            )
        elif event == "exit":
            if known is None:
                history.set(time_ns, _Name(start_ns, None, row["comm"]))
            self._ended.append((pid, start_ns))
        else:
            history.set(time_ns, _with_fact(known, row))

    def _fill(self, table: pa.RecordBatch, clip: bool) -> pa.RecordBatch:
        pids, time_ns = int_column(table, "pid"), int_column(table, "time_ns")
        clipped = _is_accept(table) if clip else np.zeros(len(table), bool)
        order = np.argsort(pids, kind="stable")
        distinct, starts = np.unique(pids[order], return_index=True)
        names: list[_Name] = []
        at = np.full(len(table), -1)
        for pid, rows in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
            history = self._histories.get(pid)
            if history is not None and history.names:
                found = np.searchsorted(history.since_ns, time_ns[rows], side="right") - 1
                found = np.where(clipped[rows], np.maximum(found, 0), found)
                at[rows] = np.where(found >= 0, found + len(names), -1)
                names += history.names
        index = pa.array(at, mask=at < 0)
        columns = {"process_start_ns": [name.process_start_ns or None for name in names]}
        columns |= {member: [getattr(name, member) for name in names] for member in FILLED if member not in columns}
        return fill_columns(
            table,
            {name: pa.array(values, table.schema.field(name).type).take(index) for name, values in columns.items()},
        )

    def _forget(self) -> None:
        while len(self._ended) > ENDED_KEPT:
            pid, start_ns = self._ended.popleft()
            history = self._histories.get(pid)
            if history is not None and history.names and history.names[-1].process_start_ns == start_ns:
                del self._histories[pid]


def _with_fact(known: _Name | None, fact: dict[str, Any]) -> _Name:
    """Return a name with what /proc told: OTEL_SERVICE_NAME always, else a service only where no exec told one."""
    if known is None:
        known = _Name(fact["process_start_ns"])
    service = (
        known.service if known.has_exec else service_name(fact["exe"], fact["argv"], fact["comm"]) or known.service
    )
    return replace(
        known,
        ns_pid=known.ns_pid or fact["ns_pid"] or None,
        comm=known.comm or fact["comm"],
        service=fact["service"] or service,
        has_exec=True,
    )


def _events(tables: Tables) -> Iterator[dict[str, Any]]:
    """Yield process events and facts in the order of time, an event before a fact of the same moment."""
    wanted = {
        "processes": [
            "time_ns",
            "pid",
            "ppid",
            "ns_pid",
            "process_start_ns",
            "comm",
            "event",
            "exe",
            "argv",
            "preexisting",
        ],
        "fact_process": ["time_ns", "pid", "ns_pid", "start_ns", "comm", "exe", "argv", "service"],
    }
    found: list[dict[str, Any]] = []
    for name, columns in wanted.items():
        if name in tables:
            found += tables[name].select(columns).to_pylist()
    for row in found:
        if "start_ns" in row:
            row["process_start_ns"] = row.pop("start_ns")
    yield from sorted(found, key=lambda row: row["time_ns"])


def _is_accept(table: pa.RecordBatch) -> Int64s:
    mask: Int64s = pc.equal(table.column("event"), "accept").to_numpy(zero_copy_only=False)
    return mask
