"""Tell what works on this machine, and what is missing where something does not.

Each program of tracehound is loaded, attached and taken away again; nothing is traced. Other tracehounds that run are
listed with the fill of their rings and tables, their losses and the run time of their programs. With --pid: what is
known of a process and its connections, what a trace of it shows in a moment (--seconds), and what it would not show.

examples:
  sudo tracehound doctor
  sudo tracehound doctor --pid 4242
  sudo tracehound doctor --pid 4242 --seconds 10
  sudo tracehound doctor --json
"""

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from tracehound.cli._command import Command
from tracehound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracehound.cli._process import ProcessReport
    from tracehound.kernel.features import Feature
    from tracehound.kernel.others import RunningTrace
WATCH_S: Final = 1.0
WATCH_MAX_S: Final = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--btf", metavar="FILE", help="BTF of the kernel, if not /sys/kernel/btf/vmlinux")
    parser.add_argument("--pid", type=int, metavar="N", help="look at this process too")
    parser.add_argument(
        "--seconds", type=float, metavar="S", default=WATCH_S, help="trace that process so long (default 1; 0: not)"
    )


def run(options: argparse.Namespace) -> int:
    """Probe and print."""
    from tracehound.cli._process import examine
    from tracehound.cli._watch import watch
    from tracehound.kernel.features import describe_kernel, probe_features
    from tracehound.kernel.others import find_running

    if not 0 <= options.seconds <= WATCH_MAX_S:
        raise UsageError(f"--seconds is 0 to {WATCH_MAX_S:g}, not {options.seconds:g}")
    process = None if options.pid is None else examine(options.pid)
    kernel, features, others = describe_kernel(options.btf), probe_features(options.btf), find_running()
    if process is not None and options.seconds:
        process = replace(process, watched=watch(options.pid, options.seconds, options.btf))
    show = as_json if options.json else as_text
    print(show(kernel, features, process, others))
    return 0


def as_json(
    kernel: str,
    features: "Sequence[Feature]",
    process: "ProcessReport | None" = None,
    others: "Sequence[RunningTrace]" = (),
) -> str:
    """Return what was found as one JSON object."""
    found = [{"status": feature.status, "name": feature.name, "text": feature.text} for feature in features]
    content: dict[str, object] = {"kernel": kernel, "features": found, "running": [asdict(each) for each in others]}
    if process is not None:
        content["process"] = asdict(process)
    return json.dumps(content, ensure_ascii=False)


def as_text(
    kernel: str,
    features: "Sequence[Feature]",
    process: "ProcessReport | None" = None,
    others: "Sequence[RunningTrace]" = (),
) -> str:
    """Return lines: all that works in one, then one each for the rest and for other traces, then the process."""
    working = [feature.name for feature in features if feature.status == "ok"]
    troubles = [feature for feature in features if feature.status != "ok"]
    width = max((len(feature.name) for feature in troubles), default=0)
    lines = [f" {kernel}"]
    if working:
        lines.append(f" ok    {', '.join(working)}")
    lines += [f" {feature.status:<5} {feature.name:<{width}}  {feature.text}" for feature in troubles]
    lines += [f" runs  {each.pid}  {each.text()}" for each in others]
    return "\n".join(lines if process is None else [*lines, "", *process.lines()])


COMMAND: Final = Command("doctor", "tell what works on this machine", __doc__, add_arguments, run)
