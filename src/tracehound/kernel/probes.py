"""The one table of BPF programs: which object holds each, where it attaches, what is lost without it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracehound.errors import UsageError


@dataclass(frozen=True, slots=True)
class Program:
    """One program of a `bpf/*.bpf.c`; `feature` is the switch it serves.

    `stands_in`: it is attached while its feature is off. `instead_of`: it is loaded only where that program could not
    be attached; `lost_with_it` is what is lost then.
    """

    name: str
    object: str
    point: str
    feature: str
    lost_by_it: str
    stands_in: bool = False
    instead_of: str | None = None
    lost_with_it: str | None = None


NO_CHILDREN: Final = "children are not followed"
NO_EXECS: Final = "no exec rows, and nothing of CMD is traced"
NO_MOVES: Final = "who joins a traced cgroup is not seen"
NOT_SENT: Final = "no requests: what is sent is not seen"
NOT_RECEIVED: Final = "no requests: what is received is not seen"
OTHER_SOCKETS: Final = "nothing of UDP and unix sockets, no requests of those with kernel TLS, MPTCP or a sockmap"

PROGRAMS: Final = (
    Program("on_fork", "process", "sched_process_fork", "processes", NO_CHILDREN),
    Program("on_exec", "process", "sched_process_exec", "processes", NO_EXECS),
    Program("on_exit", "process", "sched_process_exit", "processes", "no exit rows"),
    Program("on_move", "process", "cgroup_attach_task", "processes", NO_MOVES),
    Program("on_mark", "process", "syscall", "processes", "a command cannot be followed from within a pid namespace"),
    Program("on_fork_untold", "process", "sched_process_fork", "processes", NO_CHILDREN, stands_in=True),
    Program("on_exec_untold", "process", "sched_process_exec", "processes", "nothing of CMD is traced", stands_in=True),
    Program(
        "on_exit_untold", "process", "sched_process_exit", "processes", "pids used again are traced", stands_in=True
    ),
    Program("on_move_untold", "process", "cgroup_attach_task", "processes", NO_MOVES, stands_in=True),
    Program("on_state", "connection", "inet_sock_set_state", "tcp", "no connections and listens"),
    Program("on_destroy", "connection", "tcp_destroy_sock", "tcp", "no close rows"),
    Program("on_retransmit", "connection", "tcp_retransmit_skb", "tcp", "no retransmits"),
    Program("on_task", "seed", "iter/task", "processes", "processes that were there before are not seen"),
    Program("on_file", "seed", "iter/task_file", "tcp", "what was connected before is seen at its next call"),
    Program("on_tcp", "seed", "iter/tcp", "tcp", "roles of connections from before are unknown"),
    Program("on_open", "seed", "iter/tcp", "tcp", "counters of open connections are not told"),
    Program("on_counted_file", "seed", "iter/task_file", "requests", "UDP and unix sockets from before: at first use"),
    Program("on_unix", "seed", "iter/unix", "requests", "exchange may differ at the ends of unix sockets from before"),
    Program("on_send", "data", "sock_send_length", "requests", NOT_SENT),
    Program("on_receive", "data", "sock_recv_length", "requests", NOT_RECEIVED),
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
    Program("on_question", "counted", "syscall", "requests", "UDP and unix sockets are not among open connections"),
    Program("on_transmit", "nat", "net_dev_queue", "nat", "no addresses after NAT: exchange differs at its two ends"),
    Program(
        "on_sys_enter", "descriptor", "sys_enter", "files", "file rows have no duration, connections no generation"
    ),
    Program("on_sys_exit", "descriptor", "sys_exit", "files", "no file rows"),
    Program("on_call_entry", "call", "uprobe", "calls", "no calls"),
    Program("on_call_return", "call", "uprobe", "calls", "calls have no duration and no return value"),
    Program("on_call_stack", "stack", "uprobe", "stacks", "calls have no stacks and no registers"),
    Program("on_watch", "watch", "perf_event", "calls", "no watched addresses"),
    Program("on_syscall_enter", "syscall", "sys_enter", "syscalls", "no system calls"),
    Program("on_syscall_exit", "syscall", "sys_exit", "syscalls", "system calls have no result"),
    # before 6.3
    Program("on_tcp_send", "data_fallback", "tcp_sendmsg", "requests", NOT_SENT, False, "on_send", OTHER_SOCKETS),
    Program(
        "on_tcp_send_page", "data_fallback", "tcp_sendpage", "requests", "gaps where files are sent", False, "on_send"
    ),
    Program(
        "on_tcp_receive", "data_fallback", "tcp_recvmsg", "requests", NOT_RECEIVED, False, "on_receive", OTHER_SOCKETS
    ),
    # before 5.17
    Program("on_fork_old", "process_fallback", "sched_process_fork", "processes", NO_CHILDREN, False, "on_fork"),
    Program("on_exec_old", "process_fallback", "sched_process_exec", "processes", NO_EXECS, False, "on_exec"),
    Program("on_exit_old", "process_fallback", "sched_process_exit", "processes", "no exit rows", False, "on_exit"),
    Program("on_move_old", "process_fallback", "cgroup_attach_task", "processes", NO_MOVES, False, "on_move"),
)

# Points of programs that are run on demand, or attached when they are asked for by name, and not with their feature.
RUN_ON_DEMAND: Final = frozenset(
    {"syscall", "iter/task", "iter/task_file", "iter/tcp", "iter/unix", "uprobe", "perf_event"}
)

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
    """Whether a program is attached, and if not, why; `stand_in` does its work instead."""

    program: Program
    attached: bool
    reason: str | None = None
    stand_in: Program | None = None


def is_wanted(program: Program, statuses: Sequence[ProgramStatus]) -> bool:
    """Tell whether a program is to be loaded, after what has become of those before it."""
    return program.instead_of is None or not any(
        status.attached and status.program.name == program.instead_of for status in statuses
    )


def with_stand_ins(statuses: Sequence[ProgramStatus]) -> list[ProgramStatus]:
    """Return the statuses, one for each loss.

    A program that another one stands in for says what is lost all the same, and is left out if that is nothing; so is
    a stand-in that could not be attached either.
    """
    stand_ins = {each.program.instead_of: each.program for each in reversed(statuses) if each.attached}
    found = []
    for status in statuses:
        instead_of = status.program.instead_of
        stand_in = None if instead_of else stand_ins.get(status.program.name)
        if stand_in is None and (instead_of is None or instead_of in stand_ins):
            found.append(status)
        elif stand_in is not None and stand_in.lost_with_it:
            program = replace(status.program, lost_by_it=stand_in.lost_with_it)
            found.append(replace(status, program=program, stand_in=stand_in))
    return found
