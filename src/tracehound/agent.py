"""Wires the line, kernel -> drain -> merge -> decode -> enrich -> sinks: the only module that knows all stages.

`Line` is everything between raw records and rows, without root, clock or thread; `Trace` feeds it from the kernel.
"""

import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracehound.batch import MERGE_LAG_NS, Batch, Merge, Raw, split
from tracehound.btf import Layout, wire_layout
from tracehound.config import BY_ROW, IN_KERNEL, MIB, Filter, Settings
from tracehound.errors import KernelError, NotSupported, TargetError
from tracehound.kernel.bpf_object import ProgramRuns
from tracehound.kernel.iterators import list_open, seed_all_processes, seed_processes, seed_sockets
from tracehound.kernel.netfilter import has_nat
from tracehound.kernel.privileged import TRACE_NONE, CaptureOrderWords, LoadSettings, Privileged
from tracehound.kernel.probes import DEFAULT_FEATURES, FEATURES, ProgramStatus, check_features
from tracehound.kernel.ring import Drain
from tracehound.procfs import (
    FactWriter,
    ProcessFacts,
    add_cgroup,
    add_clock,
    add_config,
    add_seed,
    boot_id,
    read_process,
)
from tracehound.protocols import Protocol, load_protocols
from tracehound.resolve import Found, resolve
from tracehound.spawn import check_command, shell_exit_code, spawn
from tracehound.target import Cgroup, Command, Host, Processes, Target, describe

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.sinks import Sink, Source
    from tracehound.sources.tape import Packed, TapeWriter

PACE_S: Final = 0.025  # at most this often records are taken: small batches cost more than they bring
IDLE_S: Final = 0.2
FLUSH_NS: Final = 500_000_000  # rows older than 1 s are to be visible
HOUSEKEEPING_NS: Final = 1_000_000_000
SAME_START_NS: Final = 30_000_000  # /proc tells a start to 10 ms: farther off it is another process
ENDED_S: Final = 0.1  # how often it is looked whether a target has ended
ROOT_CGROUP: Final = 1  # its id: every process is in it or below
ORPHANS_S: Final = 0.05  # after CMD ended its last sockets are still being torn down


class Read(NamedTuple):
    """Records of one ring, sorted by kind, and as a frame of the tape if there is one."""

    batch: Batch
    packed: "Packed | None" = None


class Line:
    """Records in, rows out. Gives the same rows however its input is cut.

    A tape, if there is one, gets all that comes in, in the order in which it does.
    """

    def __init__(
        self,
        settings: Settings,
        sinks: Sequence["Sink"],
        layout: Layout | None = None,
        tape: "TapeWriter | None" = None,
        protocols: Sequence[Protocol] | None = None,
    ) -> None:
        from tracehound import decode, enrich
        from tracehound.decode.losses import Rises

        self.layout = layout or wire_layout()
        protocols = protocols or load_protocols()
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
        self.sinks = sinks if tape is None else [*sinks, tape]
        self._row_filters = [each for each in settings.filters if each.name in BY_ROW]
        self.events = 0
        self._rises = Rises()
        self._tape = tape
        self._first_facts: dict[str, pa.RecordBatch] | None = {}  # until something is decoded

    def read(self, raw: Raw) -> Read:
        """Sort raw records of one ring by kind, for `feed`; they can be given back afterwards."""
        batch = split(raw, self.layout)
        if self._tape is None:
            return Read(batch)
        return Read(batch, self._tape.pack(raw, sum(map(len, batch.records.values()))))

    def feed(self, batch: Batch, packed: "Packed | None" = None) -> None:
        """Take records of one ring, in the order in which they were read."""
        if self._tape is not None and packed is not None:
            newest = (int(records.fixed["time_ns"].max()) for records in batch.records.values() if len(records))
            self._tape.put(packed, max(newest, default=0))
        if self._first_facts is not None:
            self._first_facts |= self.decoder.facts(batch)
        self.merge.push(batch)

    def advance(self) -> None:
        """Decode what is complete and hand its rows to the sinks."""
        batch = self.merge.take()
        if batch is not None:
            self._decode(batch)

    def finish(self, time_ns: int) -> None:
        """Decode all that is left, end what is under way, and hand the rows to the sinks."""
        if self._tape is not None:
            self._tape.put_finish(time_ns)
        batch = self.merge.flush()
        if batch is not None:
            self._decode(batch)
        self.write(self.decoder.finish(time_ns))

    def _decode(self, batch: Batch) -> None:
        self._first_facts = None
        self.events += sum(len(records.fixed) for kind, records in batch.records.items() if not kind.startswith("fact"))
        self.write(self.decoder.decode(batch))

    def write(self, tables: dict[str, "pa.RecordBatch"]) -> None:
        """Enrich, redact, hand to every sink."""
        for enricher in self.enrichers:
            tables = enricher.add(tables)
        if self._row_filters and "requests" in tables:
            tables = tables | {"requests": filtered(tables["requests"], self._row_filters)}
        public = {name: rows for name, rows in tables.items() if not name.startswith("fact_") and rows.num_rows}
        if public:
            for sink in self.sinks:
                sink.write(public)

    def write_probes(self, rows: "pa.RecordBatch") -> None:
        """Write rows of `probes`; those at the start come before any record is decoded, but know its clock."""
        if self._tape is not None:
            self._tape.put_probes(rows)
        self.write({**(self._first_facts or {}), "probes": rows})

    def count_losses(self, time_ns: int, counters: Mapping[tuple[str, str], int] | None = None) -> None:
        """Write rows for what was counted here, and in `counters` by (stage, counter), since the last time."""
        from tracehound.decode.losses import loss_rows

        if self._tape is not None:
            self._tape.put_counts(time_ns, counters or {})
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
    """One running trace: load, start, wait, stop. A context manager; leaving it undoes all of it."""

    def __init__(self, target: Target, settings: Settings, features: frozenset[str] = DEFAULT_FEATURES) -> None:
        """Prepare; nothing is loaded or started yet.

        Raises TargetError when what is to be traced is not there, UsageError for a switch that there is not.
        """
        self.features = features_of(settings, features)  # on at the start
        self._found = Found()
        if isinstance(target, Command):
            check_command(target)
        else:
            self._found = resolve(target)
        self.target = target
        self.settings = settings
        self.layout = wire_layout()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_ns = 0
        self._early_signals: list[int] = []
        self._is_in_initial_namespace = True  # of pids: else the kernel's pids are not those of our /proc
        self.still_running: list[int] = []
        self.notes: list[str] = []  # what the user should be told of the start
        self.failure: BaseException | None = None
        self.ending: dict[str, int | str] = {}  # for a tape: elapsed_ns and outcome, as the summary has them
        self._tape: TapeWriter | None = None
        self._line: Line | None = None
        self._kernel: Privileged | None = None
        self._drain: Drain | None = None
        self._facts = FactWriter(self.layout)
        self._listed: SimpleQueue[bytes] = SimpleQueue()  # records of iterators, for the line's thread
        self._stopping = threading.Event()
        self._finished = threading.Event()  # not join(): a signal in it takes a thread for ended that still runs
        self._flushed = threading.Event()
        self._flush_after_ns = 0  # somebody waits until all up to this moment is visible
        self._thread = threading.Thread(target=self._work, name="tracehound-line", daemon=True)
        self._losses: list[int] = []
        self._losses_ns = 0
        self._cgroups: set[int] = set()

    @property
    def events(self) -> int:
        """How many records have been decoded."""
        return 0 if self._line is None else self._line.events

    def load(self) -> None:
        """Load and attach the programs; nothing is traced yet, but with a host. Raises KernelError."""
        self._kernel = Privileged(
            LoadSettings(
                self.settings.ring_mib * MIB,
                self.settings.lifecycle_ring_mib * MIB,
                self.settings.btf,
                self.features,
                trace_all=self._found.is_host and not self._is_by_cgroup(),
                trace_cgroups=self._is_by_cgroup(),
                filters=tuple((f.name, f.is_only, f.value) for f in self.settings.filters if f.name in IN_KERNEL),
                network_namespaces=() if isinstance(self.target, Command) else self._found.networks,
            )
        )

    def open_tape(self, path: str | os.PathLike[str]) -> None:
        """Keep all records in a new file, after the load and before the start; raises SinkError."""
        from tracehound.recording import state_folder
        from tracehound.sources.tape import TapeWriter

        facts = recording_source(self.target, True, self.switches).facts
        self._tape = TapeWriter(path, facts, self.layout, self.settings.tape_mib * MIB, state_folder()[1])

    def start(self, sinks: Sequence["Sink"]) -> None:
        """Start the command, or take in what runs; hand its rows to `sinks` from a thread; they stay the caller's.

        Raises TargetError when the command cannot be started or the target has gone, KernelError when its rings cannot
        be read.
        """
        assert self._kernel is not None, "load() comes first"
        self._line = Line(self.settings, sinks, self.layout, self._tape)
        self._start_drain(self._kernel)
        add_config(self._facts, self.settings.to_text())
        add_clock(self._facts)
        self._line.feed(*self._line.read(self._facts.take()))
        self._line.write_probes(probe_rows(self._kernel.statuses))
        self._losses, self._losses_ns = self._kernel.losses(), time.monotonic_ns()
        self._is_in_initial_namespace = self._kernel.mark_self(TRACE_NONE) == os.getpid()
        self.started_ns = time.monotonic_ns()
        if isinstance(self.target, Command):
            self.process = spawn(self._kernel, self.target)
            while self._early_signals:
                self.signal(self._early_signals.pop(0))
        else:
            self._seed(self._kernel, self._line)
        self._thread.start()

    def _is_by_cgroup(self) -> bool:
        """Tell whether cgroups decide who is traced: of a host whose processes are filtered it is the root."""
        names = {each.name for each in self.settings.filters}
        return self._found.cgroup is not None or (self._found.is_host and bool(names & {"uid", "pid", "comm"}))

    def _seed(self, kernel: Privileged, line: Line) -> None:
        """Take in the target's processes and sockets: from here on the programs tell what happens to them."""
        refused = [each for each in kernel.statuses if each.program.name == "on_task" and not each.attached]
        if refused and isinstance(self.target, Processes):
            raise NotSupported(f"processes that run cannot be joined on this kernel: on_task: {refused[0].reason}")
        kernel.add_target_pids(self._found.pids)
        if self._is_by_cgroup():
            kernel.add_target_cgroup(self._found.cgroup_id or ROOT_CGROUP)
        is_all = self._found.is_host and not self._is_by_cgroup()
        raw = seed_all_processes(kernel) if is_all else seed_processes(kernel)
        records = split(raw, self.layout).records.get("exec")
        if records is not None:
            self._check_pids(records.fixed)
            if kernel.switches["processes"]:
                line.feed(*line.read(self._seed_records(records.fixed)))
        elif self._found.pids:
            self._check_pids(np.empty(0, self.layout.dtypes["exec"]))
        if kernel.switches["tcp"]:
            line.feed(*line.read(seed_sockets(kernel, self._found.networks)))

    def _check_pids(self, processes: np.ndarray) -> None:
        """Raise TargetError if a process ended before it was traced; note pids that are others in the kernel."""
        kernel_pids = dict(zip(processes["ns_pid"].tolist(), processes["pid"].tolist(), strict=True))
        if self._is_in_initial_namespace:
            kernel_pids = {pid: pid for pid in processes["pid"].tolist()}
        for pid in self._found.pids if isinstance(self.target, Processes) else ():
            if pid not in kernel_pids and self.settings.filters:
                continue  # left out, but for its children
            if pid not in kernel_pids:
                raise TargetError(f"process {pid} ended before it could be traced")
            if kernel_pids[pid] != pid:
                self.notes.append(f"pid {pid} here is {kernel_pids[pid]} in the initial pid namespace, as in the rows")

    def _seed_records(self, processes: np.ndarray) -> bytes:
        """Return the records of processes that were there before, with what /proc knows of them."""
        seeds = FactWriter(self.layout)
        for row, found in zip(processes, self._look_at(processes), strict=True):
            add_seed(seeds, row, found)
        return seeds.take()

    def snapshot(self) -> int:
        """Ask for a `snapshot` row of each connection that is open now; returns the moment before which none is."""
        assert self._kernel is not None, "load() comes first"
        moment = time.monotonic_ns()
        self._listed.put(list_open(self._kernel, self._found.networks))
        return moment

    @property
    def switches(self) -> dict[str, bool]:
        """Which features are on; before the load: will be."""
        if self._kernel is None:
            return {feature: feature in self.features for feature in FEATURES}
        return self._kernel.switches

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

    def wait_flushed(self, timeout_s: float) -> bool:
        """Wait until all that has happened by now is decoded and visible to readers; False: not in that time."""
        self._flushed.clear()
        self._flush_after_ns = time.monotonic_ns() + MERGE_LAG_NS
        return self._flushed.wait(timeout_s)

    def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Wait until what is traced has ended, or tracing failed; False: the time is over and it has not."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.has_ended():
            left = ENDED_S if until is None else min(ENDED_S, until - time.monotonic())
            if left <= 0:
                return False
            self._stopping.wait(left)
        return True

    def has_ended(self) -> bool:
        """Tell whether the target is gone; a host never is, nor an empty cgroup."""
        if self.failure is not None or self._stopping.is_set() or self._kernel is None:
            return True
        match self.target:
            case Command():
                return self.process is not None and self.process.poll() is not None
            case Cgroup():
                return not os.path.isdir(self._found.cgroup or "")
            case Host():
                return False
        return not self._kernel.traced_pids()

    def signal(self, number: int) -> None:
        """Pass a signal on to the command, if it still runs; one that comes while it is being started waits for it."""
        if self.process is None:
            self._early_signals.append(number)
        elif self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self) -> None:
        """End the trace: detach, drain, decode the rest, flush, unload. Idempotent; raises what failed on the way."""
        ended_ns = time.monotonic_ns()
        if self._thread.is_alive():
            self._stopping.set()
            self._finished.wait()
        if self._tape is not None and self._thread.ident is None:
            self._tape.discard()
        elif self._tape is not None:
            self._tape.ending = {"elapsed_ns": ended_ns - self.started_ns, "outcome": ""} | self.ending
            self._tape.close()
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
        finally:
            self._finished.set()

    def _run(self) -> None:
        assert self._drain is not None and self._kernel is not None and self._line is not None
        poller = select.poll()
        poller.register(self._drain.wake_fd, select.POLLIN)
        next_flush = next_housekeeping = 0
        while not self._stopping.is_set():
            poller.poll(IDLE_S * 1000)
            self._take()
            now = time.monotonic_ns()
            if now >= next_housekeeping:
                self._kernel.end_counted()
                self._housekeeping()
                next_housekeeping = now + HOUSEKEEPING_NS
            wanted = self._flush_after_ns
            if now >= next_flush or (wanted and self._line.merge.watermark_ns >= wanted):
                self._line.flush()
                next_flush = now + FLUSH_NS
                if wanted and self._line.merge.watermark_ns >= wanted:
                    self._flush_after_ns = 0
                    self._flushed.set()
            self._stopping.wait(PACE_S)

    def _take(self) -> None:
        """Move what the drain has through the line, and give the kernel the orders that come out."""
        assert self._drain is not None and self._kernel is not None and self._line is not None
        arenas, drained = self._drain.take(), list[Read]()
        while arenas:  # each is given back as soon as it is read
            drained.append(self._line.read(arenas.pop(0)))
        for batch, _ in drained:
            if "exec" in batch.records:
                self._look_at(batch.records["exec"].fixed)
        while not self._listed.empty():
            self._line.feed(*self._line.read(self._listed.get()))
        facts = self._facts.take()
        if facts:
            self._line.feed(*self._line.read(facts))
        for read in drained:
            self._line.feed(*read)
        self._line.advance()
        orders = self._line.decoder.take_orders()
        if orders:
            self._kernel.write_orders(CaptureOrderWords(*order) for order in orders)
        ended = self._line.decoder.take_ended()
        if ended:
            self._kernel.forget_orders(ended)

    def _look_at(self, execs: np.ndarray) -> list[ProcessFacts | None]:
        """Read what only /proc knows of programs just started, before it is too late; None for one that is gone."""
        all_found = list[ProcessFacts | None]()
        columns = (execs[name].tolist() for name in ("pid", "ns_pid", "start_ns", "time_ns", "cgroup_id"))
        for pid, ns_pid, start_ns, time_ns, cgroup in zip(*columns, strict=True):
            found = read_process(pid if self._is_in_initial_namespace else ns_pid)
            if found is None or abs(found.start_ns - start_ns) > SAME_START_NS:
                all_found.append(None)
                continue
            all_found.append(found)
            replace(found, pid=pid, start_ns=start_ns).add_to(self._facts, time_ns)
            if cgroup not in self._cgroups:
                self._cgroups.add(cgroup)
                add_cgroup(self._facts, time_ns, cgroup, found.cgroup)
        return all_found

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
        if self._is_in_initial_namespace and not self._found.is_host:
            self.still_running = self._kernel.traced_pids()
        self._kernel.detach()
        self._kernel.end_counted()
        self._drain.stop()
        self._take()
        self._housekeeping()
        now = time.monotonic_ns()
        for name in self._kernel.ring_fds():
            ring = self.layout.enum("ring_id")[f"RING_{name.upper()}"]
            for cpu, next_seq in enumerate(self._kernel.ring_sequences(ring)):
                self._facts.add("fact_ring", now, {"ring": ring, "next_seq": next_seq}, cpu=cpu)
        self._line.feed(*self._line.read(self._facts.take()))
        self._line.write_probes(probe_rows(self._kernel.statuses, self._kernel.runs()))
        self._line.finish(now)
        self._line.flush()


def filtered(rows: "pa.RecordBatch", filters: Sequence[Filter]) -> "pa.RecordBatch":
    """Return the rows that pass: one of the wanted values of each name, none of the unwanted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, is_only in {(each.name, each.is_only) for each in filters}:
        values = [each.value for each in filters if (each.name, each.is_only) == (name, is_only)]
        hit = pc.is_in(rows[name], value_set=pa.array(values, rows.schema.field(name).type))
        rows = rows.filter(hit if is_only else pc.invert(hit))
    return rows


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


def public_target(target: Target, redact: bool) -> Target:
    """Return the target as it may be kept and shown: without the secrets in a command's arguments."""
    from tracehound.enrich import clean_arguments

    if redact and isinstance(target, Command):
        return replace(target, argv=tuple(clean_arguments(target.argv)))
    return target


def features_of(settings: Settings, wanted: frozenset[str] = DEFAULT_FEATURES) -> frozenset[str]:
    """Return which of the wanted features, and of those that the settings add, are on at the start.

    Raises UsageError for a name in `off` that is no feature.
    """
    off = check_features(settings.off)
    added = {"files"} if settings.files else set[str]()
    if settings.nat or (settings.nat is None and "nat" not in off and has_nat()):
        added.add("nat")
    return (wanted | added) - off


def recording_source(target: Target, redact: bool = True, switches: Mapping[str, bool] | None = None) -> "Source":
    """Return what a sink is told of a trace when it is opened: the tables' schemas, and the facts of this machine."""
    import platform
    from importlib.metadata import version

    from tracehound.recording import Facts
    from tracehound.sinks import Source

    shown = public_target(target, redact)
    facts = Facts(
        host=platform.node(),
        boot_id=boot_id(),
        version=version("tracehound"),
        command=shown.argv if isinstance(shown, Command) else (describe(shown),),
        kernel=platform.release(),
        switches=dict(switches or {}),
        clock_anchors=((time.monotonic_ns(), time.time_ns()),),
    )
    return Source(public_schemas(), facts)


def public_schemas() -> "dict[str, pa.Schema]":
    """Return the schemas of all tables, `requests` with the columns of every protocol."""
    from tracehound import tables

    extras = [column for p in load_protocols() for column in (*p.request_extras, *p.response_extras)]
    columns = dict(tables.TABLES) | {"requests": tables.requests_columns(extras)}
    return {name: tables.arrow_schema(each) for name, each in columns.items()}
