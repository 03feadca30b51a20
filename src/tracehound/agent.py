"""Wires the line, kernel -> drain -> merge -> decode -> enrich -> sinks: the only module that knows all stages.

`Line` is everything between raw records and rows, without root, clock or thread; `Trace` feeds it from the kernel.
"""

import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tracehound.batch import Batch, Merge, split
from tracehound.btf import Layout, wire_layout
from tracehound.config import MIB, Settings
from tracehound.errors import KernelError, TargetError
from tracehound.kernel.bpf_object import ProgramRuns
from tracehound.kernel.privileged import TRACE_NONE, TRACE_SPAWNER, CaptureOrderWords, LoadSettings, Privileged
from tracehound.kernel.probes import DEFAULT_FEATURES, FEATURES, ProgramStatus, check_features
from tracehound.kernel.ring import Drain
from tracehound.procfs import FactWriter, add_cgroup, add_clock, boot_id, read_process
from tracehound.protocols import load_protocols
from tracehound.target import Command

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.sinks import Sink, Source

PACE_S: Final = 0.025  # at most this often records are taken: small batches cost more than they bring
IDLE_S: Final = 0.2
FLUSH_NS: Final = 500_000_000  # rows older than 1 s are to be visible
HOUSEKEEPING_NS: Final = 1_000_000_000
SAME_START_NS: Final = 30_000_000  # /proc tells a start to 10 ms: farther off it is another process
ORPHANS_S: Final = 0.05  # after CMD ended its last sockets are still being torn down

# Between these two a child gets the spawner's mark: no other thread may spawn then.
SPAWN_LOCK: Final = threading.Lock()


class Line:
    """Records in, rows out. Gives the same rows however its input is cut."""

    def __init__(self, settings: Settings, sinks: Sequence["Sink"], layout: Layout | None = None) -> None:
        from tracehound import decode, enrich
        from tracehound.decode.losses import Rises

        self.layout = layout or wire_layout()
        protocols = load_protocols()
        budgets = settings.budgets
        decode_settings = decode.DecodeSettings(
            response_timeout_ns=int(settings.response_timeout_s * 1e9),
            window_bytes=min(MIB, budgets.windows_bytes // 4),
            windows_bytes=budgets.windows_bytes,
            waiting_requests=budgets.waiting_requests,
        )
        self.decoder = decode.Decoder(self.layout, protocols, decode_settings)
        self.enrichers = enrich.make_enrichers(protocols, redact=settings.redact)
        self.merge = Merge(self.layout)
        self.sinks = sinks
        self.events = 0
        self._rises = Rises()

    def feed(self, batch: Batch) -> None:
        """Take records of one ring, in the order in which they were read."""
        self.merge.push(batch)

    def advance(self) -> None:
        """Decode what is complete and hand its rows to the sinks."""
        batch = self.merge.take()
        if batch is not None:
            self._decode(batch)

    def finish(self, time_ns: int) -> None:
        """Decode all that is left, end what is under way, and hand the rows to the sinks."""
        batch = self.merge.flush()
        if batch is not None:
            self._decode(batch)
        self.write(self.decoder.finish(time_ns))

    def _decode(self, batch: Batch) -> None:
        self.events += sum(len(records.fixed) for kind, records in batch.records.items() if not kind.startswith("fact"))
        self.write(self.decoder.decode(batch))

    def write(self, tables: dict[str, "pa.RecordBatch"]) -> None:
        """Enrich, redact, hand to every sink."""
        for enricher in self.enrichers:
            tables = enricher.add(tables)
        public = {name: rows for name, rows in tables.items() if not name.startswith("fact_") and rows.num_rows}
        if public:
            for sink in self.sinks:
                sink.write(public)

    def count_losses(self, time_ns: int, counters: Mapping[tuple[str, str], int] | None = None) -> None:
        """Write rows for what was counted here, and in `counters` by (stage, counter), since the last time."""
        from tracehound.decode.losses import loss_rows

        ours = {("split", "damaged"): self.merge.damaged, ("merge", "late"): self.merge.late}
        rows = self._rises.take(ours | dict(counters or {}), time_ns)
        if rows:
            self.write({"losses": loss_rows(rows)})

    def flush(self) -> None:
        """Make all rows written so far visible to readers; what a sink could not keep becomes rows of `losses`."""
        for sink in self.sinks:
            sink.flush()
            losses = sink.take_losses()
            if losses is not None:
                self.write({"losses": losses})


class Trace:
    """One running trace of a command: load, start, wait, stop. A context manager; leaving it undoes all of it."""

    def __init__(self, target: Command, settings: Settings) -> None:
        """Prepare; nothing is loaded or started yet. Raises TargetError when the command is not there."""
        check_command(target)
        self.target = target
        self.settings = settings
        self.layout = wire_layout()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_ns = 0
        self._is_in_initial_namespace = True  # of pids: else the kernel's pids are not those of our /proc
        self.still_running: list[int] = []
        self.failure: BaseException | None = None
        self._line: Line | None = None
        self._kernel: Privileged | None = None
        self._drain: Drain | None = None
        self._facts = FactWriter(self.layout)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tracehound-line", daemon=True)
        self._losses: list[int] = []
        self._losses_ns = 0
        self._cgroups: set[int] = set()
        self._ordered: set[int] = set()
        self._close_event = self.layout.enum("connection_event")["CONNECTION_CLOSE"]

    @property
    def events(self) -> int:
        """How many records have been decoded."""
        return 0 if self._line is None else self._line.events

    def load(self) -> None:
        """Load and attach the programs; nothing is traced yet. Raises KernelError."""
        sizes = (self.settings.ring_mib * MIB, self.settings.lifecycle_ring_mib * MIB)
        self._kernel = Privileged(LoadSettings(*sizes, self.settings.btf, features_of(self.settings)))

    def start(self, sinks: Sequence["Sink"]) -> None:
        """Start the command, and hand its rows to `sinks` from a thread; they stay the caller's to close.

        Raises TargetError when the command cannot be started, KernelError when its rings cannot be read.
        """
        assert self._kernel is not None, "load() comes first"
        self._line = Line(self.settings, sinks, self.layout)
        self._start_drain(self._kernel)
        add_clock(self._facts)
        first = split(self._facts.take(), self.layout)
        self._line.feed(first)
        self._line.write({**self._line.decoder.facts(first), "probes": probe_rows(self._kernel.statuses)})
        self._losses, self._losses_ns = self._kernel.losses(), time.monotonic_ns()
        self._is_in_initial_namespace = self._kernel.mark_self(TRACE_NONE) == os.getpid()
        self.started_ns = time.monotonic_ns()
        self.process = spawn(self._kernel, self.target)
        self._thread.start()

    @property
    def switches(self) -> dict[str, bool]:
        """Which features are on; before the load: will be."""
        return start_switches(self.settings) if self._kernel is None else self._kernel.switches

    def enable(self, feature: str) -> None:
        """Attach the programs of a feature, if it is not on. Raises UsageError, before the load KernelError."""
        kernel = self._loaded()
        kernel.enable(feature)
        if self._drain is not None:
            self._drain.add(self._rings(kernel), kernel.limits_fd())

    def disable(self, feature: str) -> None:
        """Detach the programs of a feature, if it is on. Raises as `enable`."""
        self._loaded().disable(feature)

    def _loaded(self) -> Privileged:
        if self._kernel is None:
            raise KernelError("nothing can be switched before the programs are loaded")
        return self._kernel

    def _rings(self, kernel: Privileged) -> list[tuple[int, int, int]]:
        sizes = {"lifecycle": self.settings.lifecycle_ring_mib * MIB, "data": self.settings.ring_mib * MIB}
        ring_ids = self.layout.enum("ring_id")
        return [(fd, sizes[name], ring_ids[f"RING_{name.upper()}"]) for name, fd in kernel.ring_fds().items()]

    def _start_drain(self, kernel: Privileged) -> None:
        self._drain = Drain(
            self._rings(kernel),
            budget_bytes=self.settings.budgets.backlog_bytes,
            lifecycle_budget_bytes=self.settings.budgets.lifecycle_backlog_bytes,
            limit_map_fd=kernel.limits_fd(),
        )

    def wait(self) -> int:
        """Wait for the command's end; return its exit code, 128+N for signal N."""
        assert self.process is not None
        return shell_exit_code(self.process.wait())

    def signal(self, number: int) -> None:
        """Pass a signal on to the command, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self) -> None:
        """End the trace: detach, drain, decode the rest, flush, unload. Idempotent; raises what failed on the way."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join()
        self._undo()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _undo(self) -> None:
        if self._drain is not None:
            self._drain.close()
            self._drain = None
        if self._kernel is not None:
            self._kernel.close()

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the line's own thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._run()
            self._finish()
        except BaseException as error:  # kept, and raised by stop() in the caller's thread
            self.failure = error

    def _run(self) -> None:
        assert self._drain is not None and self._line is not None
        poller = select.poll()
        poller.register(self._drain.wake_fd, select.POLLIN)
        next_flush = next_housekeeping = 0
        while not self._stopping.is_set():
            poller.poll(IDLE_S * 1000)
            self._take()
            now = time.monotonic_ns()
            if now >= next_housekeeping:
                self._housekeeping()
                next_housekeeping = now + HOUSEKEEPING_NS
            if now >= next_flush:
                self._line.flush()
                next_flush = now + FLUSH_NS
            self._stopping.wait(PACE_S)

    def _take(self) -> None:
        """Move what the drain has through the line, and give the kernel the orders that come out."""
        assert self._drain is not None and self._kernel is not None and self._line is not None
        arenas, batches = self._drain.take(), list[Batch]()
        while arenas:  # each is given back as soon as it is read
            batches.append(split(arenas.pop(0), self.layout))
        for batch in batches:
            if "exec" in batch.records:
                self._look_at(batch.records["exec"].fixed)
        facts = self._facts.take()
        if facts:
            self._line.feed(split(facts, self.layout))
        for batch in batches:
            self._line.feed(batch)
        self._line.advance()
        orders = self._line.decoder.take_orders()
        if orders:
            self._ordered.update(order.cookie for order in orders)
            self._kernel.write_orders(CaptureOrderWords(*order) for order in orders)
        for batch in batches:
            if "connection" in batch.records and self._ordered:
                self._forget(batch.records["connection"].fixed)

    def _forget(self, connections: np.ndarray) -> None:
        """Delete the orders of sockets that are gone."""
        closed = connections["cookie"][connections["event"] == self._close_event]
        gone = self._ordered.intersection(closed.tolist())
        self._ordered -= gone
        if self._kernel is not None and gone:
            self._kernel.forget_orders(gone)

    def _look_at(self, execs: np.ndarray) -> None:
        """Read what only /proc knows of programs just started, before it is too late."""
        columns = (execs[name].tolist() for name in ("pid", "ns_pid", "start_ns", "time_ns", "cgroup_id"))
        for pid, ns_pid, start_ns, time_ns, cgroup in zip(*columns, strict=True):
            found = read_process(pid if self._is_in_initial_namespace else ns_pid)
            if found is None or abs(found.start_ns - start_ns) > SAME_START_NS:
                continue
            replace(found, pid=pid, start_ns=start_ns).add_to(self._facts, time_ns)
            if cgroup not in self._cgroups:
                self._cgroups.add(cgroup)
                add_cgroup(self._facts, time_ns, cgroup, found.cgroup)

    def _housekeeping(self) -> None:
        """Once a second: a clock anchor, and what the kernel side has lost since the last time."""
        assert self._kernel is not None and self._line is not None
        add_clock(self._facts)
        now, counters = time.monotonic_ns(), self._kernel.losses()
        quiet = {self.layout.enum("loss_counter")[f"LOSS_{name}"] for name in ("RING_FULL", "OPAQUE_BYTES")}
        for number, (before, after) in enumerate(zip(self._losses, counters, strict=True)):
            if after > before and number not in quiet:
                times = {"first_ns": self._losses_ns, "last_ns": now}
                self._facts.add("fact_loss", now, {"counter": number, "count": after - before} | times)
        self._losses, self._losses_ns = counters, now
        counted = self._kernel.lost() | ({} if self._drain is None else self._drain.lost())
        self._line.count_losses(now, counted)

    def _finish(self) -> None:
        assert self._drain is not None and self._kernel is not None and self._line is not None
        time.sleep(ORPHANS_S)
        self.still_running = self._kernel.traced_pids() if self._is_in_initial_namespace else []
        self._kernel.detach()
        self._drain.stop()
        self._take()
        self._housekeeping()
        now = time.monotonic_ns()
        for name in self._kernel.ring_fds():
            ring = self.layout.enum("ring_id")[f"RING_{name.upper()}"]
            for cpu, next_seq in enumerate(self._kernel.ring_sequences(ring)):
                self._facts.add("fact_ring", now, {"ring": ring, "next_seq": next_seq}, cpu=cpu)
        self._line.feed(split(self._facts.take(), self.layout))
        self._line.write({"probes": probe_rows(self._kernel.statuses, self._kernel.runs())})
        self._line.finish(now)
        self._line.flush()


def probe_rows(statuses: Sequence[ProgramStatus], runs: Mapping[str, ProgramRuns] | None = None) -> "pa.RecordBatch":
    """Return the rows of `probes`: which programs are attached, if not why and what is lost; with `runs` their counts.

    The kernel counts runs and their time only with kernel.bpf_stats_enabled: else they are null.
    """
    from tracehound.tables import TABLES, build

    found = [(runs or {}).get(status.program.name) for status in statuses]
    counted = [run if run is not None and run.hits else None for run in found]
    values = {
        "time_ns": [time.monotonic_ns()] * len(statuses),
        "program": [status.program.name for status in statuses],
        "point": [status.program.point for status in statuses],
        "attached": [status.attached for status in statuses],
        "reason": [status.reason for status in statuses],
        "lost_by_it": [None if status.attached else status.program.lost_by_it for status in statuses],
        "hits": [run and run.hits for run in counted],
        "misses": [run and run.misses for run in found],
        "run_time_ns": [run and run.run_time_ns for run in counted],
    }
    return build(TABLES["probes"], len(statuses), values)


def features_of(settings: Settings) -> frozenset[str]:
    """Return the features that are on at the start; raises UsageError for a name that is none."""
    return DEFAULT_FEATURES - check_features(settings.off)


def start_switches(settings: Settings) -> dict[str, bool]:
    """Return which features are on at the start, and which are off."""
    features = features_of(settings)
    return {feature: feature in features for feature in FEATURES}


def recording_source(target: Command, settings: Settings | None = None) -> "Source":
    """Return what a sink is told of a trace when it is opened: the tables' schemas, and the facts of this machine."""
    import platform
    from importlib.metadata import version

    from tracehound import tables
    from tracehound.recording import Facts
    from tracehound.sinks import Source

    extras = [column for p in load_protocols() for column in (*p.request_extras, *p.response_extras)]
    columns = dict(tables.TABLES) | {"requests": tables.requests_columns(extras)}
    schemas = {name: tables.arrow_schema(each) for name, each in columns.items()}
    facts = Facts(
        host=platform.node(),
        boot_id=boot_id(),
        version=version("tracehound"),
        command=target.argv,
        kernel=platform.release(),
        switches=start_switches(settings or Settings()),
        clock_anchors=((time.monotonic_ns(), time.time_ns()),),
    )
    return Source(schemas, facts)


def check_command(target: Command) -> None:
    """Raise TargetError if the command cannot be found (exit code 127) or executed (126)."""
    program = target.argv[0]
    if shutil.which(program) is not None:
        return
    if os.sep in program and Path(program).is_dir():
        raise TargetError(f"cannot run {program}: it is a directory", 126)
    if os.sep in program and Path(program).exists():
        raise TargetError(f"cannot run {program}: it is not executable. Try: chmod +x {program}", 126)
    raise TargetError(f"no such command: {program}", 127)


def spawn(kernel: Privileged, target: Command) -> "subprocess.Popen[bytes]":
    """Start the command so that it is traced from its fork on; raises TargetError."""
    ids = user_ids(target.user) if target.user else {}
    with SPAWN_LOCK:
        kernel.mark_self(TRACE_SPAWNER)
        try:
            env = None if target.env is None else dict(target.env)
            return subprocess.Popen(target.argv, env=env, cwd=target.cwd, **ids)  # type: ignore[call-overload, no-any-return]
        except OSError as error:
            raise TargetError(f"cannot run {target.argv[0]}: {error.strerror}", 126) from error
        finally:
            kernel.mark_self(TRACE_NONE)


def user_ids(name: str) -> dict[str, object]:
    """Return what subprocess needs to run as a user; raises TargetError."""
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise TargetError(f"no such user: {name}") from None
    groups = os.getgrouplist(name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def shell_exit_code(returncode: int) -> int:
    """Return a process's exit code as a shell gives it: 128+N for signal N."""
    return 128 - returncode if returncode < 0 else returncode
