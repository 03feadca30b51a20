"""The one table of BPF programs: which object holds each, where it attaches, what is lost without it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tracehound.errors import UsageError


@dataclass(frozen=True, slots=True)
class Program:
    """One program of a `bpf/*.bpf.c`; `feature` is the switch it serves.

    `stands_in`: it is attached while its feature is off.
    """

    name: str
    object: str
    point: str
    feature: str
    lost_by_it: str
    stands_in: bool = False


PROGRAMS: Final = (
    Program("on_fork", "process", "sched_process_fork", "processes", "children are not followed"),
    Program("on_exec", "process", "sched_process_exec", "processes", "no exec rows, and nothing of CMD is traced"),
    Program("on_exit", "process", "sched_process_exit", "processes", "no exit rows"),
    Program("on_move", "process", "cgroup_attach_task", "processes", "who joins a traced cgroup is not seen"),
    Program("on_mark", "process", "syscall", "processes", "a command cannot be followed from its start"),
    Program("on_fork_untold", "process", "sched_process_fork", "processes", "children are not followed", True),
    Program("on_exec_untold", "process", "sched_process_exec", "processes", "nothing of CMD is traced", True),
    Program("on_exit_untold", "process", "sched_process_exit", "processes", "pids used again are traced", True),
    Program(
        "on_move_untold", "process", "cgroup_attach_task", "processes", "who joins a traced cgroup is not seen", True
    ),
    Program("on_state", "connection", "inet_sock_set_state", "tcp", "no connections and listens"),
    Program("on_destroy", "connection", "tcp_destroy_sock", "tcp", "no close rows"),
    Program("on_retransmit", "connection", "tcp_retransmit_skb", "tcp", "no retransmits"),
    Program("on_task", "seed", "iter/task", "processes", "processes that were there before are not seen"),
    Program("on_file", "seed", "iter/task_file", "tcp", "what was connected before is seen at its next call"),
    Program("on_tcp", "seed", "iter/tcp", "tcp", "roles of connections from before are unknown"),
    Program("on_open", "seed", "iter/tcp", "tcp", "counters of open connections are not told"),
    Program("on_send", "data", "sock_send_length", "requests", "no requests: what is sent is not seen"),
    Program("on_receive", "data", "sock_recv_length", "requests", "no requests: what is received is not seen"),
    Program(
        "on_send_locked", "data_exact", "tcp_sendmsg_locked", "requests", "sends by several threads may be disputed"
    ),
    Program(
        "on_receive_locked",
        "data_exact",
        "tcp_rcv_space_adjust",
        "requests",
        "receives by several threads may be disputed, bytes taken by splice show as a gap",
    ),
    Program("on_second", "counted", "syscall", "requests", "no close rows of UDP and unix sockets"),
    Program("on_transmit", "nat", "net_dev_queue", "nat", "no addresses after NAT: exchange differs at its two ends"),
    Program(
        "on_sys_enter", "descriptor", "sys_enter", "files", "file rows have no duration, connections no generation"
    ),
    Program("on_sys_exit", "descriptor", "sys_exit", "files", "no file rows"),
)

# Points of programs that are run on demand and not attached.
RUN_ON_DEMAND: Final = frozenset({"syscall", "iter/task", "iter/task_file", "iter/tcp"})

# The switches, in the order in which their programs are attached.
FEATURES: Final = tuple(dict.fromkeys(program.feature for program in PROGRAMS))

# On at the start unless told otherwise.
DEFAULT_FEATURES: Final = frozenset({"processes", "tcp", "requests"})


def check_features(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set; raises UsageError for one that is no switch."""
    given = frozenset(names)
    unknown = sorted(given.difference(FEATURES))
    if unknown:
        raise UsageError(f"no such switch: {', '.join(unknown)}. Switches: {', '.join(FEATURES)}")
    return given


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """Whether a program is attached, and if not, why."""

    program: Program
    attached: bool
    reason: str | None = None
