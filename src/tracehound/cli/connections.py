"""Show the connections that are open now: TCP, UDP and unix sockets.

Asks the kernel once, by iterators, who holds each connection and what its counters say. Nothing is traced before or
after. A connection's role is known from who listens: the side whose port is a listening one is the server. The kernel
keeps no counters of UDP and unix sockets.

examples:
  sudo tracehound connections --pid 4242
  sudo tracehound connections --cgroup system.slice/nginx.service --role server
  sudo tracehound connections --all --format json
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracehound.cli._command import Command
from tracehound.cli._options import add_format
from tracehound.cli._target import add_target_arguments, target_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.target import Target

Row = dict[str, Any]
SHOWN: Final = (
    "process",
    "fd",
    "role",
    "local",
    "remote",
    "state",
    "sent",
    "received",
    "srtt",
)
NOT_COUNTED: Final = ("bytes_sent", "bytes_received", "send_calls", "receive_calls", "retransmits")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target_arguments(parser)
    parser.add_argument("--role", choices=("client", "server"), metavar="R", help="only those: client, server")
    add_format(parser, "table", "json")
    parser.add_argument("--btf", metavar="FILE", help="the kernel's BTF, if not the running kernel's own")


def run(options: argparse.Namespace) -> int:
    """Print the open connections of the target."""
    found = open_connections(target_of(options), options.btf)
    rows = [row for row in found if options.role in (None, row["role"])]
    if options.format == "json":
        sys.stdout.writelines(json.dumps(row, default=str) + "\n" for row in rows)
    else:
        sys.stdout.write(table_of(rows))
    return 0


def open_connections(target: "Target", btf: str | None = None) -> list[Row]:
    """Return rows of `connections`, by process and address; raises TargetError and KernelError."""
    from tracehound.agent import Trace
    from tracehound.config import Settings

    kept = _Rows()
    settings = Settings(ring_mib=1, lifecycle_ring_mib=1, btf=btf)
    with Trace(target, settings, frozenset({"processes", "tcp"}), lists_counted=True) as trace:
        trace.load()
        trace.start([kept])
        trace.stop()
    open_now: dict[int, Row] = {}
    for row in sorted(kept.rows, key=lambda row: row["time_ns"]):
        if row["event"] in ("close", "error"):
            open_now.pop(row["connection"], None)
        else:
            open_now[row["connection"]] = row if row["transport"] == "tcp" else row | dict.fromkeys(NOT_COUNTED)
    return sorted(open_now.values(), key=lambda row: (row["pid"] or 0, row["local_port"] or 0, row["connection"]))


class _Rows:
    """A sink that keeps the rows of `connections`."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        if "connections" in tables:
            self.rows += tables["connections"].to_pylist()

    def flush(self) -> None:
        pass

    def take_losses(self) -> None:
        return None

    def close(self) -> None:
        pass


def table_of(rows: Sequence[Row]) -> str:
    """Return the rows as aligned lines, no wider than the terminal; one line that says so if there are none."""
    from tracehound.sinks.console import columns_of, cut, printable, width_of

    if not rows:
        return "no open connections\n"
    lines = [SHOWN, *(tuple(printable(text) for text in _texts(row)) for row in rows)]
    widths = [max(width_of(line[at]) for line in lines) for at in range(len(SHOWN))]
    room = columns_of(sys.stdout, 1 << 16)
    while len(widths) > 1 and sum(widths) + 2 * len(widths) > room:
        widths.pop()
    text = ""
    for line in lines:
        padded = (cell + " " * (width - width_of(cell)) for cell, width in zip(line, widths, strict=False))
        text += cut(" " + "  ".join(padded).rstrip(), room) + "\n"
    return text


def _texts(row: Row) -> tuple[str, ...]:
    from tracehound.sinks.console import address, duration, size

    def end(side: str) -> str:
        if row["transport"] == "unix":
            return str(row[f"{side}_path"] or "unix")
        if row["transport"] == "udp" and row[f"{side}_port"] is None:
            return "udp"
        return address(row[f"{side}_ip"] or "?", row[f"{side}_port"])

    srtt = duration(row["srtt_us"] * 1000) if row["srtt_us"] else ""
    return (
        f"{row['service'] or row['comm'] or '?'}[{row['pid'] or '?'}]",
        "" if row["fd"] is None else str(row["fd"]),
        row["role"] or "?",
        end("local"),
        end("remote"),
        row["state"] or ("?" if row["transport"] == "tcp" else row["transport"]),
        "" if row["bytes_sent"] is None else size(row["bytes_sent"]),
        "" if row["bytes_received"] is None else size(row["bytes_received"]),
        srtt,
    )


COMMAND: Final = Command("connections", "show the connections that are open now", __doc__, add_arguments, run)
