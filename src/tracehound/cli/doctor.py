"""Tell what works on this machine, and what is missing where something does not.

Each program of tracehound is loaded, attached and taken away again; nothing is traced. With --pid: what is known of a
process and its connections, and what a trace of it would not show.

examples:
  sudo tracehound doctor
  sudo tracehound doctor --pid 4242
  sudo tracehound doctor --json
"""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tracehound.cli._command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracehound.cli._process import ProcessReport
    from tracehound.kernel.features import Feature


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--btf", metavar="FILE", help="BTF of the kernel, if not /sys/kernel/btf/vmlinux")
    parser.add_argument("--pid", type=int, metavar="N", help="look at this process too")


def run(options: argparse.Namespace) -> int:
    """Probe and print."""
    from tracehound.cli._process import examine
    from tracehound.kernel.features import describe_kernel, probe_features

    process = None if options.pid is None else examine(options.pid)
    kernel, features = describe_kernel(options.btf), probe_features(options.btf)
    print(as_json(kernel, features, process) if options.json else as_text(kernel, features, process))
    return 0


def as_json(kernel: str, features: "Sequence[Feature]", process: "ProcessReport | None" = None) -> str:
    """Return what was found as one JSON object."""
    found = [{"status": feature.status, "name": feature.name, "text": feature.text} for feature in features]
    content: dict[str, object] = {"kernel": kernel, "features": found}
    if process is not None:
        content["process"] = asdict(process)
    return json.dumps(content, ensure_ascii=False)


def as_text(kernel: str, features: "Sequence[Feature]", process: "ProcessReport | None" = None) -> str:
    """Return what was found as lines: all that works in one, then a line each for the rest, then the process."""
    working = [feature.name for feature in features if feature.status == "ok"]
    others = [feature for feature in features if feature.status != "ok"]
    width = max((len(feature.name) for feature in others), default=0)
    lines = [f" {kernel}"]
    if working:
        lines.append(f" ok    {', '.join(working)}")
    lines += [f" {feature.status:<5} {feature.name:<{width}}  {feature.text}" for feature in others]
    return "\n".join(lines if process is None else [*lines, "", *process.lines()])


COMMAND: Final = Command("doctor", "tell what works on this machine", __doc__, add_arguments, run)
