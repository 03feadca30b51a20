"""The only place of privileged acts: loading, attaching, reading and writing BPF maps.

One class that takes and returns plain data and descriptors, so that it can stand behind a socket later.
"""

import mmap
import os
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tracehound.btf import wire_layout
from tracehound.errors import AttachError, KernelError, LoadError, NotSupported
from tracehound.kernel.bpf_object import BpfObject, ObjectOptions
from tracehound.kernel.iterators import find_listeners, in_network_namespace
from tracehound.kernel.probes import OBJECTS, PROGRAMS, RUN_ON_DEMAND, ProgramStatus, is_wanted, with_stand_ins
from tracehound.native import ffi, lib

TRACE_NONE: Final = 0
TRACE_SPAWNER: Final = 1
TRACE_PENDING: Final = 2
TRACE_ON: Final = 3
ORDER: Final = struct.Struct("<QQII")  # struct capture_order: skip_until[2], capture_class, reserved
EPOCHS: Final = 1024
DEFAULT_FEATURES: Final = frozenset({"processes", "tcp", "requests"})
FILTER: Final = struct.Struct("<III16s")  # struct filter_key: kind, is_only, number, comm
FILTER_KINDS: Final = {"uid": 0, "pid": 1, "comm": 2, "port": 3}  # enum filter_kind
INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO
KERNEL_BTF: Final = "/sys/kernel/btf/vmlinux"
LOCKDOWN: Final = Path("/sys/kernel/security/lockdown")


class LoadSettings(NamedTuple):
    """What is fixed before loading: ring sizes in bytes (powers of two), a kernel BTF instead of the running one's."""

    ring_bytes: int
    lifecycle_ring_bytes: int
    btf_path: str | None = None
    features: frozenset[str] = DEFAULT_FEATURES
    trace_all: bool = False
    trace_cgroups: bool = False
    filters: tuple[tuple[str, bool, int | str], ...] = ()  # (uid, pid, comm or port; only that, else not that; value)
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
        self.statuses: list[ProgramStatus] = []
        self.maps: dict[str, int] = {}
        self._objects: list[BpfObject] = []
        self._cpus = lib.libbpf_num_possible_cpus()
        self._mapped: list[mmap.mmap] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self._load(settings)
            self._epochs = self._map_array("order_epoch", EPOCHS * 4)
            undo.pop_all()

    def _load(self, settings: LoadSettings) -> None:
        options = {
            "config": {
                "config_own_tgid": os.getpid(),
                "config_trace_all": settings.trace_all,
                "config_trace_cgroups": settings.trace_cgroups,
                "config_filters_only": filter_mask(settings.filters, True),
                "config_filters_no": filter_mask(settings.filters, False),
            },
            "sizes": {"data": settings.ring_bytes, "lifecycle": settings.lifecycle_ring_bytes},
            "btf_path": settings.btf_path,
        }
        filtered = False
        for name in OBJECTS:
            wanted = [p for p in PROGRAMS if p.object == name and p.feature in settings.features]
            wanted = [program for program in wanted if is_wanted(program, self.statuses)]
            if not wanted:
                continue
            try:
                loaded = BpfObject(name, ObjectOptions(shared=dict(self.maps), **options))  # type: ignore[arg-type]
            except LoadError as error:
                self.statuses += [ProgramStatus(program, False, str(error)) for program in wanted]
                continue
            self._objects.append(loaded)
            for map_name, fd in loaded.maps.items():
                if "." not in map_name:
                    self.maps.setdefault(map_name, fd)
            reasons = {refusal.program: refusal.reason for refusal in loaded.refusals}
            for program in wanted:
                reason = reasons.get(program.name)
                if reason is None and program.point not in RUN_ON_DEMAND:
                    reason = self._attach(loaded, program.name)
                self.statuses.append(ProgramStatus(program, reason is None, reason))
            if "filters" in self.maps and not filtered:
                filtered = True
                self._write_filters(settings.filters)
            if name == "seed":
                find_listeners(self, settings.network_namespaces)
        self.statuses = with_stand_ins(self.statuses)
        if not any(status.attached for status in self.statuses):
            raise LoadError(f"no BPF program could be attached; the first: {self.statuses[0].reason}")

    def _write_filters(self, filters: Iterable[tuple[str, bool, int | str]]) -> None:
        for kind, is_only, value in filters:
            number, comm = (0, value.encode()[:15]) if isinstance(value, str) else (value, b"")
            self._update("filters", FILTER.pack(FILTER_KINDS[kind], is_only, number, comm), struct.pack("<I", 1))

    @staticmethod
    def _attach(loaded: BpfObject, program: str) -> str | None:
        try:
            loaded.attach(program)
        except AttachError as error:
            return str(error)
        return None

    def ring_fds(self) -> dict[str, int]:
        """Return the descriptors of the rings by name: lifecycle, data."""
        return {name: self.maps[name] for name in ("lifecycle", "data") if name in self.maps}

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
        if program_fd is None:
            return self._mark_by_pid(mode)
        mark = ffi.new("uint32_t[2]", [mode, 0])
        status = lib.bpf_run_here(program_fd, mark, 8)
        if status:
            raise KernelError(f"cannot mark this process for tracing: {os.strerror(-status)}", -status)
        return int(mark[1])

    def end_counted(self) -> None:
        """Write close records of the UDP and unix sockets that are gone; no hook tells of those."""
        for each in self._objects:
            if each.name == "counted" and "on_second" in each.programs():
                lib.bpf_run_here(each.program_fd("on_second"), ffi.NULL, 0)

    def _marking_fd(self) -> int | None:
        """Return the program that marks who runs it, None before 5.14; raises LoadError if CMD cannot be followed."""
        for status in self.statuses:
            if status.program.name in ("on_fork", "on_exec") and not status.attached:
                raise LoadError(f"a command cannot be followed: {status.program.name}: {status.reason}")
        loaded = (each for each in self._objects if "on_mark" in each.programs())
        return next((each.program_fd("on_mark") for each in loaded), None)

    def _mark_by_pid(self, mode: int) -> int:
        """Mark this process by its pid, which only in the initial pid namespace is the kernel's."""
        if os.stat("/proc/self/ns/pid").st_ino != INITIAL_PID_NAMESPACE:
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
        loaded = next((each for each in self._objects if program and each.name == program.object), None)
        if loaded is None or program is None or name not in loaded.programs():
            return None
        if network_namespace is None:
            return loaded.open_iterator(name)
        return in_network_namespace(network_namespace, lambda: loaded.open_iterator(name))

    def traced_pids(self) -> list[int]:
        """Return the processes that are traced now."""
        fd, found, key = self.maps["traced"], list[int](), ffi.new("uint32_t *")
        following = lib.bpf_map_get_next_key(fd, ffi.NULL, key)
        while following == 0:
            found.append(int(key[0]))
            following = lib.bpf_map_get_next_key(fd, key, key)
        return found

    def write_orders(self, orders: Iterable[CaptureOrderWords]) -> None:
        """Tell the kernel what to capture of sockets; takes effect at each socket's next call."""
        fd = self.maps["orders"]
        for order in orders:
            words = ORDER.pack(order.skip_until_sent, order.skip_until_received, order.capture_class, 0)
            if lib.bpf_map_update_elem(fd, struct.pack("<Q", order.cookie), words, 0) == 0:
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

    def run_times(self) -> dict[str, tuple[int, int]]:
        """Return (ns spent, runs) of each program; zeros unless the kernel counts them (kernel.bpf_stats_enabled)."""
        return {name: each.run_time(name) for each in self._objects for name in each.programs()}

    def _per_cpu(self, name: str, index: int) -> list[int]:
        values = ffi.new("uint64_t[]", self._cpus)
        if name in self.maps and lib.bpf_map_lookup_elem(self.maps[name], struct.pack("<I", index), values) == 0:
            return list(values)
        return [0] * self._cpus

    def _update(self, name: str, key: bytes, value: bytes) -> None:
        if lib.bpf_map_update_elem(self.maps[name], key, value, 0):
            code = ffi.errno
            raise KernelError(f"cannot write the BPF map {name}: {os.strerror(code)}", code)

    def _map_array(self, name: str, size: int) -> mmap.mmap | bytearray:
        if name not in self.maps:
            return bytearray(size)
        rounded = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._mapped.append(mmap.mmap(self.maps[name], rounded))
        return self._mapped[-1]

    def detach(self) -> None:
        """Stop all programs; rings and maps stay readable."""
        for each in self._objects:
            each.detach()

    def close(self) -> None:
        """Detach, unload, close every descriptor; idempotent."""
        self._epochs = bytearray(EPOCHS * 4)
        while self._mapped:
            self._mapped.pop().close()
        while self._objects:
            self._objects.pop().close()
        self.maps = {}

    def __enter__(self) -> "Privileged":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def filter_mask(filters: Iterable[tuple[str, bool, int | str]], is_only: bool) -> int:
    """Return the bits of the kinds that have a filter of that sense."""
    return sum({1 << FILTER_KINDS[kind] for kind, sense, _ in filters if sense == is_only})


def check_btf(path: str | None) -> None:
    """Raise NotSupported, naming what would mend it, if there is no kernel BTF at `path` or on this kernel."""
    wanted = path or KERNEL_BTF
    if not os.access(wanted, os.R_OK):
        hint = "name another file" if path else "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, or name a BTF file"
        raise NotSupported(f"cannot load BPF programs: no kernel BTF at {wanted}; {hint} with --btf FILE")


def check_lockdown() -> None:
    """Raise NotSupported if this kernel's lockdown keeps BPF from reading the kernel's memory."""
    try:
        is_secret = "[confidentiality]" in LOCKDOWN.read_text()
    except OSError:
        return
    if is_secret:
        raise NotSupported(
            "cannot load BPF programs: the kernel is in lockdown (confidentiality) and lets nobody read its memory; "
            "boot with lockdown=integrity or without lockdown"
        )
