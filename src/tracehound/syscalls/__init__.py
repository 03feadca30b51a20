"""What the system calls of Linux are: names, numbers, arguments, groups, what is copied of each, how each is shown."""

from tracehound.syscalls.hit import Hit
from tracehound.syscalls.plan import LIMIT_DEFAULT, Plan, plan
from tracehound.syscalls.render import Shown, render, result_text
from tracehound.syscalls.settings import FACT_POINT, SYSCALLS_MAX, SyscallSettings
from tracehound.syscalls.table import Argument, Call, calls, find_calls, numbers

__all__ = [
    "FACT_POINT",
    "LIMIT_DEFAULT",
    "SYSCALLS_MAX",
    "Argument",
    "Call",
    "Hit",
    "Plan",
    "Shown",
    "SyscallSettings",
    "calls",
    "find_calls",
    "numbers",
    "plan",
    "render",
    "result_text",
]
