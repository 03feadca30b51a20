"""What has to hold before anything is loaded: BTF, no lockdown that hides the kernel's memory, and who we are."""

import os
from pathlib import Path
from typing import Final

from tracehound.errors import KernelError, NotSupported
from tracehound.kernel.bpf_object import BpfObject, ObjectOptions
from tracehound.native import ffi, lib

INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO
KERNEL_BTF: Final = "/sys/kernel/btf/vmlinux"
LOCKDOWN: Final = Path("/sys/kernel/security/lockdown")
UNMARKED: Final = 0  # TRACE_NONE of enum trace_mode


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


def is_in_initial_pid_namespace() -> bool:
    """Tell whether the pids that we know are those of the kernel."""
    return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE


def run_mark(program_fd: int, mode: int) -> int:
    """Run `on_mark` for this process; return its pid in the initial pid namespace. Raises KernelError."""
    mark = ffi.new("uint32_t[2]", [mode, 0])
    status = lib.bpf_run_here(program_fd, mark, 8)
    if status:
        raise KernelError(f"cannot mark this process for tracing: {os.strerror(-status)}", -status)
    return int(mark[1])


def own_pid(btf_path: str | None = None) -> int:
    """Return the pid of this process in the initial pid namespace, so that it never traces itself.

    In another namespace only the kernel can tell, asked by a program of its own: what is loaded for the trace has the
    pid as a constant. Raises LoadError, NotSupported.
    """
    if is_in_initial_pid_namespace():
        return os.getpid()
    with BpfObject("process", ObjectOptions(btf_path=btf_path)) as process:
        if "on_mark" not in process.programs():
            raise NotSupported(
                "a cgroup or the host cannot be traced from within a pid namespace on this kernel, which is older than "
                "5.14; run tracehound outside of the container"
            )
        return run_mark(process.program_fd("on_mark"), UNMARKED)
