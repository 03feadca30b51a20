"""Options of `call` beside its points: stacks, registers, a signal, watched addresses."""

import argparse
from typing import TYPE_CHECKING

from tracehound.errors import UsageError

if TYPE_CHECKING:
    from tracehound.kernel.call_options import CallOptions


def add_call_options(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser."""
    group = parser.add_argument_group("at each hit")
    group.add_argument("--stack", action="store_true", help="copy the stack, for the calls that led there")
    group.add_argument("--stack-size", type=int, metavar="N", help="bytes of it, 512 to 65000 (default: 8192)")
    group.add_argument("--regs", action="store_true", help="show all registers")
    group.add_argument("--reg", action="append", metavar="NAME", help="show this one (rdi,rsi: several); repeatable")
    group.add_argument("--signal", metavar="SIG", help="send this to the process then: STOP, USR1, 10 ...")
    group.add_argument("--resume", action="store_true", help="continue it as soon as its hit was read")
    group.add_argument("--perf-pages", type=int, metavar="N", help="pages of the rings of stacks, one ring a CPU")
    group = parser.add_argument_group("hardware breakpoints, of --pid; four at once")
    group.add_argument(
        "--watch",
        action="append",
        metavar="ADDR[:r|w|rw|x][:LEN]",
        help="show who reads, writes or runs 0xADDRESS, LIB:SYMBOL or LIB+0xOFFSET; repeatable",
    )
    group.add_argument("--watch-rate", type=int, metavar="N", help="end one with more hits a second (default: 10000)")
    group.add_argument("--allow-kernel-address", action="store_true", help="watch one of the kernel, at your own risk")


def call_options_of(options: argparse.Namespace) -> "CallOptions":
    """Return what was asked for; raises UsageError, and TargetError for what a process does not have."""
    from tracehound.kernel.call_options import WATCH_RATE_DEFAULT, CallOptions, parse_registers, parse_signal
    from tracehound.kernel.perf import STACK_BYTES_DEFAULT, default_pages, own_registers
    from tracehound.kernel.watch_places import Watch, find_watches

    watches: tuple[Watch, ...] = ()
    if options.watch:
        if len(options.pid or ()) != 1:
            raise UsageError("--watch needs one running process: --pid N")
        watches = find_watches(options.watch, options.pid[0], options.allow_kernel_address)
    has_stack = options.stack or options.stack_size is not None
    return CallOptions(
        registers=tuple(own_registers()) if options.regs else parse_registers(options.reg or ()),
        stack_bytes=(STACK_BYTES_DEFAULT if options.stack_size is None else options.stack_size) if has_stack else 0,
        perf_pages=default_pages() if options.perf_pages is None else options.perf_pages,
        signal=parse_signal(options.signal) if options.signal else 0,
        resumes=options.resume,
        watches=watches,
        watch_rate=WATCH_RATE_DEFAULT if options.watch_rate is None else options.watch_rate,
    )
