"""What this machine offers, found by trying, never by version."""

import os
import platform
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tracehound.errors import KernelError
from tracehound.kernel.bpf_object import effective_capabilities
from tracehound.kernel.preconditions import KERNEL_BTF
from tracehound.kernel.privileged import LoadSettings, Privileged
from tracehound.kernel.probes import FEATURES, PROGRAMS, ProgramStatus

LOCKDOWN = Path("/sys/kernel/security/lockdown")
TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
SYS_ADMIN, PERFMON, BPF = 21, 38, 39
CAPABILITIES: Final = (  # name, bit, what it gives; source: capabilities(7)
    ("CAP_BPF", BPF, "without it no BPF program is loaded, and nothing is traced"),
    ("CAP_PERFMON", PERFMON, "without it no BPF program may read the kernel's memory, and nothing is traced"),
    ("CAP_NET_ADMIN", 12, "without it sockets that were there before are not listed where the kernel asks for it"),
    ("CAP_SYS_PTRACE", 19, "without it descriptors, exe and environment of other users' processes are not read"),
    ("CAP_DAC_READ_SEARCH", 2, "without it files of other users' processes are not read: no symbols, no service names"),
    ("CAP_SYS_RESOURCE", 24, "without it RLIMIT_MEMLOCK cannot be raised, which kernels before 5.11 need"),
)


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
    found: list[Feature] = []
    try:
        # nothing is traced: no process is marked, so the programs find nobody to watch
        with Privileged(LoadSettings(1 << 20, 1 << 20, btf_path, frozenset(FEATURES))) as kernel:
            found += features_of(kernel.statuses)
            found.append(tables(kernel.occupancy()))
    except KernelError as error:
        found.append(Feature("off", "tracing", str(error)))
        found.append(Feature("ok", "query", "recordings can be read without any right"))
    return [*found, *missing_capabilities(effective_capabilities()), *restrictions(), memlock()]


def missing_capabilities(effective: int) -> list[Feature]:
    """Return a line for each capability that is missing, with what it would give."""
    if effective >> SYS_ADMIN & 1:
        effective |= 1 << BPF | 1 << PERFMON
    return [Feature("warn", name, f"missing: {text}") for name, bit, text in CAPABILITIES if not effective >> bit & 1]


def restrictions() -> list[Feature]:
    """Return what this kernel or this mount namespace withholds: lockdown, tracefs."""
    found = []
    if lockdown() == "confidentiality":
        text = "confidentiality: the kernel lets no BPF program read its memory; boot with lockdown=integrity or none"
        found.append(Feature("off", "lockdown", text))
    if not any((folder / "events").is_dir() for folder in TRACEFS):
        found.append(Feature("off", "tracefs", f"not mounted at {TRACEFS[0]}; nothing here needs it"))
    return found


def tables(occupancy: Mapping[str, tuple[int, int]]) -> Feature:
    """Say how much room there is in the tables that can fill up."""
    rooms = ", ".join(f"{name} {used} of {room}" for name, (used, room) in occupancy.items())
    return Feature("ok", "tables", rooms)


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
