"""The command line with a decoder that fails at its first records: shows what a mistake of ours does to the command."""

import sys
from typing import Any

from tracehound.cli import main
from tracehound.decode.processes import Processes


def fail(*_: Any) -> None:
    raise RuntimeError("planted mistake")


if __name__ == "__main__":
    Processes.decode = fail  # type: ignore[method-assign, assignment]
    sys.exit(main())
