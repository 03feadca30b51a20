"""What a trace says of itself: which features are on, what has become of each program, how full its rings were.

Also what a recording is told of it: the target, this machine, the tables' schemas.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracehound.config import MIB, Settings
from tracehound.kernel.bpf_object import ProgramRuns
from tracehound.kernel.netfilter import has_nat
from tracehound.kernel.probes import DEFAULT_FEATURES, ProgramStatus, check_features
from tracehound.procfs import boot_id
from tracehound.protocols import load_protocols
from tracehound.target import Command, Target, describe

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.sinks import Source

NOTED_FROM: Final = 0.5  # fill of a ring that is worth a line
RING_OPTIONS: Final = {"lifecycle": "lifecycle-ring-mib", "data": "ring-mib"}


def features_of(settings: Settings, wanted: frozenset[str] = DEFAULT_FEATURES) -> frozenset[str]:
    """Return which of the wanted features, and of those that the settings add, are on at the start.

    Raises UsageError for a name in `off` that is no feature.
    """
    off = check_features(settings.off)
    added = {"files"} if settings.files else set[str]()
    if settings.nat or (settings.nat is None and "nat" not in off and has_nat()):
        added.add("nat")
    return (wanted | added) - off


def probe_rows(statuses: Sequence[ProgramStatus], runs: Mapping[str, ProgramRuns] | None = None) -> "pa.RecordBatch":
    """Return the rows of `probes`: which programs are attached, if not why and what is lost; with `runs` their counts.

    The kernel counts runs and their time only with kernel.bpf_stats_enabled: else they are null.
    """
    from tracehound.tables import TABLES, build

    found = [(runs or {}).get(status.program.name) for status in statuses]
    counted = [run if run is not None and run.hits else None for run in found]
    values = {
        "time_ns": [time.monotonic_ns()] * len(statuses),
        "program": [status.program.name for status in statuses],
        "point": [status.program.point for status in statuses],
        "attached": [status.attached for status in statuses],
        "reason": [status.reason for status in statuses],
        "lost_by_it": [None if status.attached else status.program.lost_by_it for status in statuses],
        "hits": [run and run.hits for run in counted],
        "misses": [run and run.misses for run in found],
        "run_time_ns": [run and run.run_time_ns for run in counted],
    }
    return build(TABLES["probes"], len(statuses), values)


def ring_notes(counters: Mapping[str, int], settings: Settings) -> list[str]:
    """Return a line for each ring that was half full or more, by the drain's counters: more load would lose records."""
    sizes = {"lifecycle": settings.lifecycle_ring_mib * MIB, "data": settings.ring_mib * MIB}
    peaks = {name: counters[f"{name}_ring_peak_bytes"] for name in sizes}
    return [
        f"the {name} ring was up to {100 * peak // sizes[name]} % full of {sizes[name] // MIB} MiB: "
        f"--{RING_OPTIONS[name]} makes it larger"
        for name, peak in peaks.items()
        if peak and peak >= sizes[name] * NOTED_FROM
    ]


def public_target(target: Target, redact: bool) -> Target:
    """Return the target as it may be kept and shown: without the secrets in a command's arguments."""
    from tracehound.enrich import clean_arguments

    if redact and isinstance(target, Command):
        return replace(target, argv=tuple(clean_arguments(target.argv)))
    return target


def recording_source(
    target: Target, redact: bool = True, switches: Mapping[str, bool] | None = None, payloads: bool = False
) -> "Source":
    """Return what a sink is told of a trace when it is opened: the tables' schemas, and the facts of this machine.

    Its note `redacted` is "false" if secrets may stand in its rows: `redact` is off, or `payloads` on.
    """
    import platform
    from importlib.metadata import version

    from tracehound.recording import Facts
    from tracehound.sinks import Source

    shown = public_target(target, redact)
    facts = Facts(
        host=platform.node(),
        boot_id=boot_id(),
        version=version("tracehound"),
        command=shown.argv if isinstance(shown, Command) else (describe(shown),),
        kernel=platform.release(),
        switches=dict(switches or {}),
        clock_anchors=((time.monotonic_ns(), time.time_ns()),),
        notes={"redacted": str(redact and not payloads).lower()},
    )
    return Source(public_schemas(), facts)


def public_schemas() -> "dict[str, pa.Schema]":
    """Return the schemas of all tables, `requests` with the columns of every protocol."""
    from tracehound import tables

    extras = [column for p in load_protocols() for column in (*p.request_extras, *p.response_extras)]
    columns = dict(tables.TABLES) | {"requests": tables.requests_columns(extras)}
    return {name: tables.arrow_schema(each) for name, each in columns.items()}
