"""What this machine offers, found by trying, never by version."""

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tracehound.errors import KernelError
from tracehound.kernel.bpf_object import can_load_bpf
from tracehound.kernel.privileged import KERNEL_BTF, LoadSettings, Privileged
from tracehound.kernel.probes import PROGRAMS, ProgramStatus

LOCKDOWN = Path("/sys/kernel/security/lockdown")


@dataclass(frozen=True, slots=True)
class Feature:
    """One line of `doctor`."""

    status: Literal["ok", "off", "warn"]
    name: str
    text: str


def describe_kernel(btf_path: str | None = None) -> str:
    """Return one line about the kernel and the user."""
    btf = "yes" if os.access(btf_path or KERNEL_BTF, os.R_OK) else "no"
    return f"kernel {platform.release()} {platform.machine()}, BTF {btf}, lockdown {lockdown()}, uid {os.geteuid()}"


def lockdown() -> str:
    """Return the kernel's lockdown mode, `none` where it has none."""
    try:
        words = LOCKDOWN.read_text().split()
    except OSError:
        return "none"
    return next((word.strip("[]") for word in words if word.startswith("[")), "none")


def probe_features(btf_path: str | None = None) -> list[Feature]:
    """Load and attach every program, then undo it, and say what works and what is lost."""
    found = [] if can_load_bpf() else [Feature("warn", "capabilities", "CAP_BPF and CAP_PERFMON are missing")]
    try:
        # nothing is traced: no process is marked, so the programs find nobody to watch
        every = frozenset(program.feature for program in PROGRAMS)
        with Privileged(LoadSettings(1 << 20, 1 << 20, btf_path, every)) as kernel:
            found += features_of(kernel.statuses)
    except KernelError as error:
        found.append(Feature("off", "tracing", str(error)))
    found.append(memlock())
    return found


def features_of(statuses: list[ProgramStatus]) -> list[Feature]:
    """Group the programs by the switch they serve: ok if all are attached, else off with each reason."""
    found = []
    for name in dict.fromkeys(program.feature for program in PROGRAMS):
        missing = [s for s in statuses if s.program.feature == name and not s.attached]
        if not missing:
            found.append(Feature("ok", name, "all programs loaded and attached"))
        for status in missing:
            found.append(
                Feature(
                    "warn" if status.stand_in else "off",
                    name,
                    f"{status.program.name}: {status.reason}; {status.program.lost_by_it}",
                )
            )
    return found


def memlock() -> Feature:
    """Tell whether RLIMIT_MEMLOCK matters: from 5.11 memory of BPF is charged to the cgroup instead."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Feature("ok", "RLIMIT_MEMLOCK", "unlimited")
    return Feature("warn", "RLIMIT_MEMLOCK", f"{soft >> 10} KiB; not needed on kernels from 5.11")
