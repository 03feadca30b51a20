"""Tell what works on this machine, and what is missing where something does not.

Each program of tracehound is loaded, attached and taken away again; nothing is traced.

examples:
  sudo tracehound doctor
  sudo tracehound doctor --json
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from tracehound.cli._command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracehound.kernel.features import Feature


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--btf", metavar="FILE", help="BTF of the kernel, if not /sys/kernel/btf/vmlinux")


def run(options: argparse.Namespace) -> int:
    """Probe and print."""
    from tracehound.kernel.features import describe_kernel, probe_features

    kernel, features = describe_kernel(options.btf), probe_features(options.btf)
    print(as_json(kernel, features) if options.json else as_text(kernel, features))
    return 0


def as_json(kernel: str, features: "Sequence[Feature]") -> str:
    """Return what was found as one JSON object."""
    found = [{"status": feature.status, "name": feature.name, "text": feature.text} for feature in features]
    return json.dumps({"kernel": kernel, "features": found}, ensure_ascii=False)


def as_text(kernel: str, features: "Sequence[Feature]") -> str:
    """Return what was found as lines: all that works in one, then a line each for the rest."""
    working = [feature.name for feature in features if feature.status == "ok"]
    others = [feature for feature in features if feature.status != "ok"]
    width = max((len(feature.name) for feature in others), default=0)
    lines = [f" {kernel}"]
    if working:
        lines.append(f" ok    {', '.join(working)}")
    lines += [f" {feature.status:<5} {feature.name:<{width}}  {feature.text}" for feature in others]
    return "\n".join(lines)


COMMAND: Final = Command("doctor", "tell what works on this machine", __doc__, add_arguments, run)
