"""The only place of privileged acts: loading, attaching, reading and writing BPF maps.

One class that takes and returns plain data and descriptors, so that it can stand behind a socket later.
"""

import mmap
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

from tracehound.btf import wire_layout
from tracehound.errors import AttachError, KernelError, LoadError, NotSupported
from tracehound.kernel.bpf_object import BpfObject, ObjectOptions, ProgramRuns
from tracehound.kernel.call_points import ATTACH_TYPES, CallPoints, call_sizes
from tracehound.kernel.iterators import find_listeners, in_network_namespace
from tracehound.kernel.maps import map_keys, max_entries
from tracehound.kernel.preconditions import (
    check_btf,
    check_lockdown,
    is_in_initial_pid_namespace,
    own_pid,
    run_mark,
)
from tracehound.kernel.probes import (
    DEFAULT_FEATURES,
    FEATURES,
    PROGRAMS,
    RUN_ON_DEMAND,
    Program,
    ProgramStatus,
    check_features,
    is_wanted,
    with_stand_ins,
)
from tracehound.kernel.syscalls import Total, Wishes, read_notes, read_totals, write_wishes
from tracehound.native import ffi, lib

TRACE_NONE: Final = 0
TRACE_SPAWNER: Final = 1
TRACE_PENDING: Final = 2
TRACE_ON: Final = 3
ORDER: Final = struct.Struct("<QQII")  # struct capture_order: skip_until[2], capture_class, reserved
EPOCHS: Final = 1024
FILTER: Final = struct.Struct("<III16s")  # struct filter_key: kind, is_only, number, comm
FILTER_KINDS: Final = {"uid": 0, "pid": 1, "comm": 2, "port": 3}  # enum filter_kind
TABLES: Final = {"traced": 4, "counted": 8, "orders": 8}  # hash maps that can fill up: size of a key


class LoadSettings(NamedTuple):
    """What is fixed before loading: ring sizes in bytes (powers of two), a kernel BTF instead of the running one's."""

    ring_bytes: int
    lifecycle_ring_bytes: int
    btf_path: str | None = None
    features: frozenset[str] = DEFAULT_FEATURES  # on at the start
    trace_all: bool = False
    trace_cgroups: bool = False
    filters: tuple[tuple[str, bool, int | str], ...] = ()  # (uid, pid, comm or port; only that, else not that; value)
    seeds: bool = False  # what is there is taken in, until `end_seeding`
    watch_rate: int = 1  # hits of a watched address in a second
    call_signal: int = 0  # what a process gets when it has reached a point, 0: nothing
    network_namespaces: tuple[str, ...] = ()  # whose listeners are to be known before data is captured, as paths


@dataclass(frozen=True, slots=True)
class CaptureOrderWords:
    """What the kernel shall capture of one socket from now on."""

    cookie: int
    capture_class: int
    skip_until_sent: int
    skip_until_received: int


class Privileged:
    """Owns the loaded objects and their links. A context manager: all attached or all undone."""

    def __init__(self, settings: LoadSettings) -> None:
        """Load and attach every program of the wanted features.

        Raises PermissionDenied, NotSupported without BTF or under lockdown, and LoadError when no program at all can
        be loaded.
        """
        check_lockdown()
        check_btf(settings.btf_path)
        check_features(settings.features)
        self.maps: dict[str, int] = {}
        self._settings = settings
        self._switches = dict.fromkeys(FEATURES, False)
        self._switching = threading.Lock()
        self._is_over = False
        self._orders_refused = 0
        self._objects: dict[str, BpfObject] = {}
        self._call_points: CallPoints | None = None
        self._reasons: dict[str, str] = {}  # why a program, or all of an object, is not there
        self._own_pid = own_pid(settings.btf_path) if settings.trace_all or settings.trace_cgroups else os.getpid()
        self._cpus = lib.libbpf_num_possible_cpus()
        self._mapped: list[mmap.mmap] = []
        self._epochs: mmap.mmap | bytearray = bytearray(EPOCHS * 4)
        with ExitStack() as undo:
            undo.callback(self.close)
            for feature in FEATURES:
                if feature == "requests":  # the roles of what it captures are to be known
                    self._find_listeners()
                self._switch(feature, feature in settings.features)
            if not any(each.attached() for each in self._objects.values()):
                raise LoadError(f"no BPF program could be attached; the first: {next(iter(self._reasons.values()))}")
            undo.pop_all()

    # ---- switches --------------------------------------------------------------------------------------------------

    @property
    def switches(self) -> dict[str, bool]:
        """Which features are on."""
        return dict(self._switches)

    @property
    def statuses(self) -> list[ProgramStatus]:
        """What has become of each program that is wanted now."""
        return with_stand_ins(self._tried(self._switches))

    def _tried(self, switches: Mapping[str, bool]) -> list[ProgramStatus]:
        """Return what has become of each program that was tried when these features were switched on or off."""
        found: list[ProgramStatus] = []
        for program in PROGRAMS:
            if switches[program.feature] is not program.stands_in and is_wanted(program, found):
                reason = self._reasons.get(program.name) or self._reasons.get(program.object)
                found.append(ProgramStatus(program, reason is None, reason))
        return found

    def enable(self, feature: str) -> None:
        """Attach the programs of a feature, now and if it is not on; `statuses` tells which could not be."""
        check_features([feature])
        with self._switching:
            if not self._is_over and not self._switches[feature]:
                self._switch(feature, True)

    def disable(self, feature: str) -> None:
        """Detach the programs of a feature, if it is on; its maps stay."""
        check_features([feature])
        with self._switching:
            if not self._is_over and self._switches[feature]:
                self._switch(feature, False)

    def _switch(self, feature: str, is_on: bool) -> None:
        """Attach what serves a feature that is on or off, then detach the other programs: nobody is lost between."""
        programs = [program for program in PROGRAMS if program.feature == feature]
        for program in programs:
            if program.stands_in is not is_on and is_wanted(program, self._tried(self._switches | {feature: is_on})):
                self._attach(program)
        for program in programs:
            if program.stands_in is is_on and program.object in self._objects:
                self._objects[program.object].detach(program.name)
        self._switches[feature] = is_on

    def _attach(self, program: Program) -> None:
        loaded = self._load(program.object)
        if loaded is None or program.point in RUN_ON_DEMAND or program.name not in loaded.programs():
            return
        self._reasons.pop(program.name, None)
        try:
            loaded.attach(program.name)
        except AttachError as error:
            self._reasons[program.name] = str(error)

    def _load(self, name: str) -> BpfObject | None:
        """Return an object, loaded on first use; the first that has a map shares it with those after it."""
        if name in self._objects or name in self._reasons:
            return self._objects.get(name)
        settings = self._settings
        options = ObjectOptions(
            config={
                "config_own_tgid": self._own_pid,
                "config_trace_all": settings.trace_all,
                "config_trace_cgroups": settings.trace_cgroups,
                "config_call_stacks": "stacks" in settings.features,
                "config_call_signal": settings.call_signal,
                "config_watch_rate": settings.watch_rate,
                "config_filters_only": filter_mask(settings.filters, True),
                "config_filters_no": filter_mask(settings.filters, False),
                "config_call_scratches": call_sizes()["call_scratches"],
            },
            sizes={"data": settings.ring_bytes, "lifecycle": settings.lifecycle_ring_bytes, **call_sizes()},
            shared=dict(self.maps),
            btf_path=settings.btf_path,
            attach_types=ATTACH_TYPES,
        )
        try:
            loaded = BpfObject(name, options)
        except LoadError as error:
            self._reasons[name] = str(error)
            return None
        self._objects[name] = loaded
        self._reasons |= {refusal.program: refusal.reason for refusal in loaded.refusals}
        is_first_with_filters = "filters" in loaded.maps and "filters" not in self.maps
        is_first_with_seeding = "seeding" in loaded.maps and "seeding" not in self.maps
        for map_name, fd in loaded.maps.items():
            if "." not in map_name:
                self.maps.setdefault(map_name, fd)
        if is_first_with_filters:
            self._write_filters(settings.filters)
        if is_first_with_seeding and settings.seeds:
            self._set_seeding(1)
        if not self._mapped and "order_epoch" in self.maps:
            self._epochs = self._map_array("order_epoch", EPOCHS * 4)
        return loaded

    def _write_filters(self, filters: Iterable[tuple[str, bool, int | str]]) -> None:
        for kind, is_only, value in filters:
            number, comm = (0, value.encode()[:15]) if isinstance(value, str) else (value, b"")
            self._update("filters", FILTER.pack(FILTER_KINDS[kind], is_only, number, comm), struct.pack("<I", 1))

    def _find_listeners(self) -> None:
        if self._settings.network_namespaces and self._load("seed") is not None:
            find_listeners(self, self._settings.network_namespaces)

    # ---- maps ------------------------------------------------------------------------------------------------------

    def ring_fds(self) -> dict[str, int]:
        """Return the descriptors of the rings by name: lifecycle, data."""
        return {name: self.maps[name] for name in ("lifecycle", "data") if name in self.maps}

    def numbered_rings(self) -> tuple[str, ...]:
        """Return the rings whose records are numbered: also those of stacks, which are a CPU's."""
        return (*self.ring_fds(), *(("stack",) if "call_stacks" in self.maps else ()))

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map; raises LoadError if the program that has it could not be loaded."""
        if name not in self.maps:
            reasons = "; ".join(self._reasons.values())
            raise LoadError(f"there is no BPF map {name}: {reasons or 'its feature is off'}")
        return self.maps[name]

    def limits_fd(self) -> int:
        """Return the descriptor of the map with the overload limit, -1 if there is none."""
        return self.maps.get("limits", -1)

    def mark(self, pid: int, mode: int) -> None:
        """Set how a process is traced, by its pid in the initial pid namespace; raises KernelError."""
        self._update("traced", struct.pack("<I", pid), struct.pack("<I", mode))

    def mark_self(self, mode: int) -> int:
        """Set how children of this process are traced, 0: no longer; return its pid in the initial pid namespace.

        The kernel finds out who we are: in a pid namespace of its own a process cannot. Raises KernelError.
        """
        program_fd = self._marking_fd()
        return self._mark_by_pid(mode) if program_fd is None else run_mark(program_fd, mode)

    def call_points(self) -> CallPoints:
        """Return the points of `call`, made at first use; raises LoadError where there can be none."""
        if self._call_points is None:
            loaded = self._load("call")
            if loaded is None or "on_call_entry" not in loaded.programs():
                raise LoadError(f"no calls: {self._reasons.get('call') or self._reasons.get('on_call_entry')}")
            self._call_points = CallPoints(loaded, self._objects.get("stack"))
        return self._call_points

    def program_fd(self, name: str, program: str) -> int:
        """Return the descriptor of a program of an object, loaded if it is not; raises LoadError."""
        loaded = self._load(name)
        if loaded is None or program not in loaded.programs():
            raise LoadError(f"no {program}: {self._reasons.get(name) or self._reasons.get(program)}")
        return loaded.program_fd(program)

    def stacks_lost(self, number: int) -> int:
        """Return how many hits of a point have no stack because there was no room."""
        return sum(self._per_cpu("call_stacks_lost", number))

    def wish_syscalls(self, wishes: Wishes) -> None:
        """Say which system calls are wanted, and switch them on; raises LoadError where they cannot be seen."""
        self.enable("syscalls")
        loaded = self._objects.get("syscall")
        missing = [name for name in ("on_syscall_enter", "on_syscall_exit") if name in self._reasons]
        if loaded is None or missing:
            raise LoadError(f"no system calls: {self._reasons.get('syscall') or self._reasons[missing[0]]}")
        write_wishes(wishes, self._update)

    def syscall_totals(self, wishes: Wishes) -> tuple[list[Total], dict[str, int]]:
        """Return what was counted of each system call, and what was noticed."""
        return read_totals(self.maps, wishes), read_notes(self.maps)

    def end_counted(self) -> None:
        """Write close records of the UDP and unix sockets that are gone; no hook tells of those."""
        self._run_counted("on_second")

    def tell_counted(self) -> None:
        """Write a snapshot record of each UDP and unix socket that is open, with what it has moved."""
        self._run_counted("on_question")

    def _run_counted(self, name: str) -> None:
        counted = self._objects.get("counted")
        if counted is not None and name in counted.programs():
            lib.bpf_run_here(counted.program_fd(name), ffi.NULL, 0)

    def end_seeding(self) -> None:
        """Say that what was there before is told: UDP and unix sockets that are used first from now on are new."""
        self._set_seeding(0)

    def _set_seeding(self, value: int) -> None:
        if "seeding" in self.maps:
            self._update("seeding", struct.pack("<I", 0), struct.pack("<I", value))

    def _marking_fd(self) -> int | None:
        """Return the program that marks who runs it, None before 5.14; raises LoadError if CMD cannot be followed."""
        for status in self.statuses:
            if status.program.name in ("on_fork", "on_exec") and not status.attached:
                raise LoadError(f"a command cannot be followed: {status.program.name}: {status.reason}")
        loaded = self._objects.get("process")
        return loaded.program_fd("on_mark") if loaded is not None and "on_mark" in loaded.programs() else None

    def _mark_by_pid(self, mode: int) -> int:
        """Mark this process by its pid, which only in the initial pid namespace is the kernel's."""
        if not is_in_initial_pid_namespace():
            raise NotSupported(
                "a command cannot be followed from within a pid namespace on this kernel, which is older than 5.14; "
                "run tracehound outside of the container"
            )
        if mode == TRACE_NONE:
            lib.bpf_map_delete_elem(self.maps["traced"], struct.pack("<I", os.getpid()))
        else:
            self.mark(os.getpid(), mode)
        return os.getpid()

    def add_target_pids(self, pids: Iterable[int]) -> None:
        """Name processes, by their pids in our own namespace, that the next seeding takes in; raises KernelError."""
        for pid in pids:
            self._update("target_pids", struct.pack("<I", pid), struct.pack("<I", 1))

    def add_target_cgroup(self, number: int) -> None:
        """Trace what is and will be in a version-2 cgroup and below it, by its id; raises KernelError."""
        self._update("target_cgroups", struct.pack("<Q", number), struct.pack("<I", 1))

    def know_listeners(self, network_namespace: int) -> None:
        """Say that all listening ports of a network namespace, by its inode, are known; raises KernelError."""
        self._update("listeners", struct.pack("<II", network_namespace, 0), struct.pack("<I", 0))

    def open_iterator(self, name: str, network_namespace: str | None = None) -> int | None:
        """Return a new descriptor of what an iterator program lists, the caller's to close; None if it is not loaded.

        `network_namespace`: the file of another namespace whose sockets are listed. Raises KernelError.
        """
        program = next((program for program in PROGRAMS if program.name == name), None)
        loaded = self._load(program.object) if program and not self._is_over else None
        if loaded is None or name not in loaded.programs():
            return None
        if network_namespace is None:
            return loaded.open_iterator(name)
        return in_network_namespace(network_namespace, lambda: loaded.open_iterator(name))

    def traced_pids(self) -> list[int]:
        """Return the processes that are traced now."""
        return [int.from_bytes(key, "little") for key in self._keys("traced", 4)]

    def _keys(self, name: str, size: int) -> Iterator[bytes]:
        if name in self.maps:
            yield from map_keys(self.maps[name], size)

    def occupancy(self) -> dict[str, tuple[int, int]]:
        """Return how many entries each table has that can fill up, and how many it has room for."""
        sizes = {name: size for name, size in TABLES.items() if name in self.maps}
        return {
            name: (sum(1 for _ in self._keys(name, size)), max_entries(self.maps[name])) for name, size in sizes.items()
        }

    def lost(self) -> dict[tuple[str, str], int]:
        """Return what else was lost so far, by (stage, counter) of a `losses` row: full tables, runs left out."""
        missed = sum(run.misses for run in self.runs().values())
        return {("orders", "table_full"): self._orders_refused, ("kernel", "program_missed"): missed}

    def write_orders(self, orders: Iterable[CaptureOrderWords]) -> None:
        """Tell the kernel what to capture of sockets; takes effect at each socket's next call."""
        fd = self.maps["orders"]
        for order in orders:
            words = ORDER.pack(order.skip_until_sent, order.skip_until_received, order.capture_class, 0)
            if lib.bpf_map_update_elem(fd, struct.pack("<Q", order.cookie), words, 0):
                self._orders_refused += 1
            else:
                at = (order.cookie % EPOCHS) * 4
                (epoch,) = struct.unpack_from("<I", self._epochs, at)
                struct.pack_into("<I", self._epochs, at, (epoch + 1) & 0xFFFFFFFF)

    def forget_orders(self, cookies: Iterable[int]) -> None:
        """Delete the orders of sockets that are gone."""
        fd = self.maps["orders"]
        for cookie in cookies:
            lib.bpf_map_delete_elem(fd, struct.pack("<Q", cookie))

    def losses(self) -> list[int]:
        """Return the kernel side's loss counters, by the numbers of `enum loss_counter`, summed over CPUs."""
        return [sum(self._per_cpu("losses", n)) for n in range(wire_layout().enum("loss_counter")["LOSS_COUNTERS"])]

    def ring_sequences(self, ring: int) -> list[int]:
        """Return, per CPU, the next ring_seq of a ring (`enum ring_id`)."""
        return self._per_cpu("ring_sequence", ring)

    def runs(self) -> dict[str, ProgramRuns]:
        """Return the kernel's own account of each loaded program, by name."""
        return {name: each.runs(name) for each in self._objects.values() for name in each.programs()}

    def _per_cpu(self, name: str, index: int) -> list[int]:
        values = ffi.new("uint64_t[]", self._cpus)
        if name in self.maps and lib.bpf_map_lookup_elem(self.maps[name], struct.pack("<I", index), values) == 0:
            return list(values)
        return [0] * self._cpus

    def _update(self, name: str, key: bytes, value: bytes) -> None:
        if lib.bpf_map_update_elem(self.maps[name], key, value, 0):
            code = ffi.errno
            raise KernelError(f"cannot write the BPF map {name}: {os.strerror(code)}", code)

    def _map_array(self, name: str, size: int) -> mmap.mmap:
        rounded = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._mapped.append(mmap.mmap(self.maps[name], rounded))
        return self._mapped[-1]

    def detach(self) -> None:
        """Stop all programs for good; rings, maps and counts stay readable."""
        with self._switching:
            if self._call_points is not None:
                self._call_points.detach()
            for each in self._objects.values():
                for name in each.attached():
                    each.detach(name)
            self._is_over = True

    def close(self) -> None:
        """Detach, unload, close every descriptor; idempotent."""
        self.detach()
        self._epochs = bytearray(EPOCHS * 4)
        while self._mapped:
            self._mapped.pop().close()
        while self._objects:
            self._objects.popitem()[1].close()
        self.maps = {}

    def __enter__(self) -> "Privileged":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def filter_mask(filters: Iterable[tuple[str, bool, int | str]], is_only: bool) -> int:
    """Return the bits of the kinds that have a filter of that sense."""
    return sum({1 << FILTER_KINDS[kind] for kind, sense, _ in filters if sense == is_only})
