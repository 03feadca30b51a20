"""Takes in what ran before the trace, and asks /proc about the programs that start during it.

The kernel's side of it is `kernel/iterators.py`; here its records get what only /proc knows, and a target whose
processes have gone, or have other pids in the kernel, is told.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from tracehound.batch import split
from tracehound.btf import Layout
from tracehound.config import Settings
from tracehound.errors import NotSupported, TargetError
from tracehound.kernel.iterators import (
    list_open,
    seed_all_processes,
    seed_counted,
    seed_processes,
    seed_sockets,
)
from tracehound.kernel.privileged import Privileged
from tracehound.procfs import FactWriter, ProcessFacts, add_cgroup, add_seed, read_process
from tracehound.resolve import Found
from tracehound.target import Processes, Target

SAME_START_NS: Final = 30_000_000  # /proc tells a start to 10 ms: farther off it is another process
OUTSIDE: Final = (
    "processes that run already outside of this pid namespace are not listed, and of a cgroup not traced: "
    "run tracehound outside of the container to see them"
)
ROOT_CGROUP: Final = 1  # its id: every process is in it or below


def is_by_cgroup(found: Found, settings: Settings) -> bool:
    """Tell whether cgroups decide who is traced: of a host whose processes are filtered it is the root."""
    names = {each.name for each in settings.filters}
    return found.cgroup is not None or (found.is_host and bool(names & {"uid", "pid", "comm"}))


class Seeding:
    """What there is of a target on this machine, as records; `facts` gets what /proc says of it."""

    def __init__(
        self,
        kernel: Privileged,
        found: Found,
        settings: Settings,
        facts: FactWriter,
        layout: Layout,
        is_in_initial_namespace: bool,
    ) -> None:
        """Prepare. `is_in_initial_namespace`: of pids; else the kernel's pids are not those of our /proc."""
        self._kernel = kernel
        self._found = found
        self._settings = settings
        self._facts = facts
        self._layout = layout
        self._is_in_initial_namespace = is_in_initial_namespace
        self._cgroups: set[int] = set()
        self.notes: list[str] = []  # what the user should be told

    def take_in(self, target: Target, with_counted: bool) -> Iterator[bytes]:
        """Yield the records of the target's processes and sockets: from here on the programs tell what happens to them.

        `with_counted`: UDP and unix sockets too. Raises TargetError for a process that has ended, NotSupported where
        the kernel lists none, KernelError.
        """
        kernel = self._kernel
        refused = [each for each in kernel.statuses if each.program.name == "on_task" and not each.attached]
        if refused and isinstance(target, Processes):
            raise NotSupported(f"processes that run cannot be joined on this kernel: on_task: {refused[0].reason}")
        kernel.add_target_pids(self._found.pids)
        by_cgroup = is_by_cgroup(self._found, self._settings)
        if by_cgroup:
            kernel.add_target_cgroup(self._found.cgroup_id or ROOT_CGROUP)
        if not self._is_in_initial_namespace and not isinstance(target, Processes):
            self.notes.append(OUTSIDE)
        is_all = self._found.is_host and not by_cgroup
        raw = seed_all_processes(kernel) if is_all else seed_processes(kernel)
        records = split(raw, self._layout).records.get("exec")
        if records is not None:
            self._check_pids(target, records.fixed)
            if kernel.switches["processes"]:
                yield self._with_facts(records.fixed)
        elif self._found.pids:
            self._check_pids(target, np.empty(0, self._layout.dtypes["exec"]))
        if kernel.switches["tcp"]:
            yield seed_sockets(kernel, self._found.networks)
        if with_counted:
            yield self.counted()
        kernel.end_seeding()

    def counted(self) -> bytes:
        """Return the records of UDP and unix sockets that are not known yet."""
        return seed_counted(self._kernel, self._found.networks)

    def open_now(self) -> bytes:
        """Return a snapshot record of each TCP connection that is open now; those of others come by their ring."""
        self._kernel.tell_counted()
        return list_open(self._kernel, self._found.networks)

    def look_at(self, execs: np.ndarray) -> list[ProcessFacts | None]:
        """Read what only /proc knows of programs just started, before it is too late; None for one that is gone.

        `execs`: structured rows of `exec` records. What is found is also a fact.
        """
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

    def _check_pids(self, target: Target, processes: np.ndarray) -> None:
        """Raise TargetError if a process ended before it was traced; note pids that are others in the kernel."""
        kernel_pids = dict(zip(processes["ns_pid"].tolist(), processes["pid"].tolist(), strict=True))
        if self._is_in_initial_namespace:
            kernel_pids = {pid: pid for pid in processes["pid"].tolist()}
        for pid in self._found.pids if isinstance(target, Processes) else ():
            if pid not in kernel_pids and self._settings.filters:
                continue  # left out, but for its children
            if pid not in kernel_pids:
                raise TargetError(f"process {pid} ended before it could be traced")
            if kernel_pids[pid] != pid:
                self.notes.append(f"pid {pid} here is {kernel_pids[pid]} in the initial pid namespace, as in the rows")

    def _with_facts(self, processes: np.ndarray) -> bytes:
        """Return the records of processes that were there before, with what /proc knows of them."""
        seeds = FactWriter(self._layout)
        for row, found in zip(processes, self.look_at(processes), strict=True):
            add_seed(seeds, row, found)
        return seeds.take()
