"""A running trace: the kernel's rings, /proc and the iterators feed the line; its orders go back to the kernel."""

import os
import select
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tracehound.account import features_of, probe_rows, recording_source, ring_notes
from tracehound.batch import MERGE_LAG_NS
from tracehound.btf import wire_layout
from tracehound.config import IN_KERNEL, MIB, Settings
from tracehound.errors import KernelError, TargetError
from tracehound.housekeeping import Housekeeping
from tracehound.kernel.call_extras import CallExtras
from tracehound.kernel.call_options import CallOptions
from tracehound.kernel.call_points import Group, PointCounts
from tracehound.kernel.points import Point
from tracehound.kernel.privileged import TRACE_NONE, CaptureOrderWords, LoadSettings, Privileged
from tracehound.kernel.probes import DEFAULT_FEATURES, FEATURES
from tracehound.kernel.ring import Drain
from tracehound.kernel.syscalls import Total, Wishes
from tracehound.kernel.watch_places import Watch
from tracehound.line import Line, Read
from tracehound.pointing import Pointing
from tracehound.procfs import FactWriter, add_clock, add_config, add_point
from tracehound.resolve import Found, resolve
from tracehound.seeding import Seeding, is_by_cgroup
from tracehound.spawn import check_command, shell_exit_code, spawn
from tracehound.syscalls import FACT_POINT
from tracehound.target import Cgroup, Command, Host, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.mappings import Mappings
    from tracehound.sinks import Sink
    from tracehound.sources.tape import TapeWriter

PACE_S: Final = 0.025  # at most this often records are taken: small batches cost more than they bring
IDLE_S: Final = 0.2
FLUSH_NS: Final = 500_000_000  # rows older than 1 s are to be visible
HOUSEKEEPING_NS: Final = 1_000_000_000
ENDED_S: Final = 0.1  # how often it is looked whether a target has ended
NO_CALL_OPTIONS: Final = CallOptions()
ORPHANS_S: Final = 0.05  # after CMD ended its last sockets are still being torn down


class Trace:
    """One running trace: load, start, wait, stop. A context manager; leaving it undoes all of it."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        features: frozenset[str] = DEFAULT_FEATURES,
        lists_counted: bool = False,
        points: Sequence[Point] = (),
        call_options: CallOptions = NO_CALL_OPTIONS,
        syscalls: Wishes | None = None,
    ) -> None:
        """Prepare; nothing is loaded or started yet. `points`: calls of them become rows; the switch `calls` is on;
        `call_options`: what is taken at each, and what else is watched.

        `lists_counted`: UDP and unix sockets that are there are told even where nothing counts what they carry.
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
        self._lists_counted = lists_counted
        self._points = points
        self._syscalls = syscalls
        self.syscall_totals: tuple[list[Total], dict[str, int]] = ([], {})  # at the end
        self.pointing: Pointing | None = None  # once there are points
        self.point_counts: Sequence[tuple[Point, PointCounts]] = ()  # at the end, of each point that was there
        self.point_groups: Sequence[tuple[Point, Group]] = ()  # and what the kernel side counted
        self.watch_counts: Sequence[tuple[Watch, PointCounts]] = ()
        self._call_options = call_options
        if call_options.has_rings:
            self.features |= {"stacks"}
        self._extras: CallExtras | None = None
        self.layout = wire_layout()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_ns = 0
        self._early_signals: list[int] = []
        self._is_in_initial_namespace = True  # of pids: else the kernel's pids are not those of our /proc
        self.still_running: list[int] = []
        self.notes: list[str] = []  # what the user should be told of the start
        self.fill_notes: list[str] = []  # and at the end, of the rings
        self.failure: BaseException | None = None
        self.ending: dict[str, int | str] = {}  # for a tape: elapsed_ns and outcome, as the summary has them
        self._tape: TapeWriter | None = None
        self._line: Line | None = None
        self._kernel: Privileged | None = None
        self._drain: Drain | None = None
        self._facts = FactWriter(self.layout)
        self._listed: SimpleQueue[bytes] = SimpleQueue()  # records of iterators, for the line's thread
        self._asked: SimpleQueue[Future[pa.RecordBatch | None]] = SimpleQueue()  # who wants to see what is under way
        self._stopping = threading.Event()
        self._finished = threading.Event()  # not join(): a signal in it takes a thread for ended that still runs
        self._flushed = threading.Event()
        self._flush_after_ns = 0  # somebody waits until all up to this moment is visible
        self._thread = threading.Thread(target=self._work, name="tracehound-line", daemon=True)
        self._seeding: Seeding | None = None
        self._housekeeper: Housekeeping | None = None
        self._mappings: Mappings | None = None  # what stacks need of running programs

    @property
    def events(self) -> int:
        """How many records have been decoded."""
        return 0 if self._line is None else self._line.events

    def load(self) -> None:
        """Load and attach the programs; nothing is traced yet, but with a host. Raises KernelError."""
        by_cgroup = is_by_cgroup(self._found, self.settings)
        self._kernel = Privileged(
            LoadSettings(
                self.settings.ring_mib * MIB,
                self.settings.lifecycle_ring_mib * MIB,
                self.settings.btf,
                self.features,
                trace_all=self._found.is_host and not by_cgroup,
                trace_cgroups=by_cgroup,
                filters=tuple((f.name, f.is_only, f.value) for f in self.settings.filters if f.name in IN_KERNEL),
                seeds=not isinstance(self.target, Command),
                call_signal=self._call_options.signal,
                watch_rate=self._call_options.watch_rate,
                network_namespaces=() if isinstance(self.target, Command) else self._found.networks,
            )
        )
        is_host = self._found.is_host and not by_cgroup
        self._extras = CallExtras(self._kernel, self._call_options, is_host)
        if self._syscalls is not None:
            self._kernel.wish_syscalls(self._syscalls)
        if self._points:
            self.add_points(self._points)

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
        assert self._kernel is not None and self._extras is not None, "load() comes first"
        from tracehound.mappings import Mappings
        from tracehound.symbols.module_store import ModuleStore

        self._mappings = Mappings(self._facts, self.layout, self._local_pid, isinstance(self.target, Command))
        for path in {point.path for point in self._points}:
            self._mappings.files.keep(path)
        modules = ModuleStore(self._mappings.files.module_of)
        self._line = Line(self.settings, sinks, self.layout, self._tape, modules=modules)
        self._start_drain(self._kernel)
        add_config(self._facts, self.settings.to_text())
        add_clock(self._facts)
        self._extras.add_facts(self._facts)
        if self._syscalls is not None:
            add_point(self._facts, FACT_POINT, self._syscalls.settings.to_text())
        self._line.feed(*self._line.read(self._facts.take()))
        self._line.write_probes(probe_rows(self._kernel.statuses))
        self._housekeeper = Housekeeping(self._kernel, self._facts, self.layout)
        self._is_in_initial_namespace = self._kernel.mark_self(TRACE_NONE) == os.getpid()
        self._seeding = Seeding(
            self._kernel, self._found, self.settings, self._facts, self.layout, self._is_in_initial_namespace
        )
        self.started_ns = time.monotonic_ns()
        if isinstance(self.target, Command):
            self.process = spawn(self._kernel, self.target)
            while self._early_signals:
                self.signal(self._early_signals.pop(0))
        else:
            for raw in self._seeding.take_in(self.target, self._lists_counted or self._kernel.switches["requests"]):
                self._line.feed(*self._line.read(raw))
            self.notes += self._seeding.notes
        self._extras.start()
        self._thread.start()

    def _local_pid(self, pid: int) -> int | None:
        """Return the pid that our /proc has for one of the kernel's, None where that is not known."""
        return pid if self._is_in_initial_namespace else None

    def snapshot(self) -> int:
        """Ask for a `snapshot` row of each connection that is open now; returns the moment before which none is."""
        assert self._seeding is not None, "start() comes first"
        moment = time.monotonic_ns()
        self._listed.put(self._seeding.open_now())
        return moment

    def open_requests(self) -> "pa.RecordBatch | None":
        """Return the requests under way as rows of `requests` without an end, None if there are none."""
        if self._line is None or self._finished.is_set():
            return None
        answer: Future[pa.RecordBatch | None] = Future()
        self._asked.put(answer)
        while not (self._finished.wait(0) or answer.done()):
            with suppress(TimeoutError):
                answer.exception(IDLE_S)
        return answer.result(0) if answer.done() else None

    @property
    def switches(self) -> dict[str, bool]:
        """Which features are on; before the load: will be."""
        if self._kernel is None:
            return {feature: feature in self.features for feature in FEATURES}
        return self._kernel.switches

    def enable(self, feature: str) -> None:
        """Attach the programs of a feature, if it is not on. Raises UsageError, before the load KernelError."""
        kernel = self._loaded()
        is_new = not kernel.switches.get(feature, True)
        kernel.enable(feature)
        if self._drain is not None:
            self._drain.add(self._rings(kernel), kernel.limits_fd())
        if is_new and feature == "requests" and self._seeding is not None:
            self._listed.put(self._seeding.counted())

    def disable(self, feature: str) -> None:
        """Detach the programs of a feature, if it is on. Raises as `enable`."""
        self._loaded().disable(feature)

    def add_points(self, points: Sequence[Point]) -> None:
        """Attach points of `call` while the trace runs, and what serves them. Raises AttachError, UsageError."""
        self.enable("calls")
        if self.pointing is None:
            self.pointing = Pointing(self._loaded().call_points(), self.layout, self._listed.put)
        self.pointing.add(points)

    def remove_point(self, name: str) -> Sequence[Point]:
        """Detach the points that a text named, or one by its name; return them. Raises TargetError for none."""
        if self.pointing is None:
            raise TargetError(f"no point {name} is traced: there are no points")
        return self.pointing.remove(name)

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
        assert self._extras is not None
        self._extras.read_by(self._drain, self.settings.budgets.backlog_bytes)

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
        if self._extras is not None:
            self._extras.close()
        if self._mappings is not None:
            self._mappings.close()
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
        assert self._seeding is not None and self._mappings is not None and self._extras is not None
        arenas, drained = self._drain.take(), list[Read]()
        while arenas:  # each is given back as soon as it is read
            drained.append(self._line.read(arenas.pop(0)))
        for batch, _ in drained:
            if "exec" in batch.records:
                self._seeding.look_at(batch.records["exec"].fixed)
        self._mappings.look_at([batch for batch, _ in drained])
        while not self._listed.empty():
            self._line.feed(*self._line.read(self._listed.get()))
        facts = self._facts.take()
        if facts:
            self._line.feed(*self._line.read(facts))
        for read in drained:
            self._line.feed(*read)
        self._line.advance()
        self._extras.tend(batch for batch, _ in drained)
        self._mappings.follow(self._line.decoder.stacks, self._tape is not None)
        orders = self._line.decoder.take_orders()
        if orders:
            self._kernel.write_orders(CaptureOrderWords(*order) for order in orders)
        ended = self._line.decoder.take_ended()
        if ended:
            self._kernel.forget_orders(ended)
        while not self._asked.empty():
            self._asked.get().set_result(self._line.open_requests(time.monotonic_ns()))

    def _housekeeping(self) -> None:
        assert self._housekeeper is not None and self._line is not None
        self._tell_points()
        drained = {} if self._drain is None else self._drain.lost()
        counted = self._housekeeper.tick() | (self._extras.lost() if self._extras is not None else {})
        self._line.count_losses(time.monotonic_ns(), counted | drained)

    def _tell_points(self) -> None:
        if self.pointing is not None:
            self.notes += [f"{each.name} was too often reached, and is let go" for each in self.pointing.tick()]

    def _finish(self) -> None:
        assert self._drain is not None and self._kernel is not None and self._line is not None
        assert self._housekeeper is not None and self._extras is not None
        time.sleep(ORPHANS_S)
        if self._is_in_initial_namespace and not self._found.is_host:
            self.still_running = self._kernel.traced_pids()
        self._extras.stop()
        self._tell_points()
        self._kernel.detach()
        self._kernel.end_counted()
        self._drain.stop()
        if self._syscalls is not None:
            self.syscall_totals = self._kernel.syscall_totals(self._syscalls)
        if self.pointing is not None:
            self.point_counts, self.point_groups = self.pointing.counts, self.pointing.groups
        self.fill_notes = ring_notes(self._drain.counters(), self.settings) + self._extras.notes()
        self.watch_counts = self._extras.counts()
        self._take()
        self._housekeeping()
        self._housekeeper.add_ring_ends()
        self._line.feed(*self._line.read(self._facts.take()))
        self._line.write_probes(probe_rows(self._kernel.statuses, self._kernel.runs()))
        self._line.finish(time.monotonic_ns())
        if self._mappings is not None:
            self._mappings.follow(self._line.decoder.stacks, self._tape is not None)
            self._line.feed(*self._line.read(self._facts.take()))  # for the tape
        self._line.flush()
