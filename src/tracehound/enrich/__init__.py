"""Adds to rows what they do not know by themselves, and cleans them of secrets.

Each enricher has `add(tables) -> tables`: it learns from the same tables (`fact_*`, processes, listens,
connections), fills columns that decode left null, and opens no file and no socket. What is learned holds for rows
from its time on, so the rows do not depend on how the records were cut into batches. The order matters: peers are
named by services, and where those are not known by names seen.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tracehound.enrich.clock import WallClock
from tracehound.enrich.container import Containers
from tracehound.enrich.name import SeenNames
from tracehound.enrich.peer import Peers
from tracehound.enrich.process import ProcessNames
from tracehound.enrich.redact import Redactor
from tracehound.enrich.route import Routes
from tracehound.enrich.secrets import clean_argument, clean_arguments

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.protocols import Protocol as L7Protocol

__all__ = [
    "Containers",
    "Enricher",
    "Peers",
    "ProcessNames",
    "Redactor",
    "Routes",
    "SeenNames",
    "WallClock",
    "clean_argument",
    "clean_arguments",
    "make_enrichers",
]


class Enricher(Protocol):
    """One step between decode and the sinks."""

    def add(self, tables: "dict[str, pa.RecordBatch]") -> "dict[str, pa.RecordBatch]":
        """Return the tables with columns filled or cleaned; those given are not changed."""
        ...


def make_enrichers(protocols: "Sequence[L7Protocol]", redact: bool = True) -> list[Enricher]:
    """Return new enrichers of one trace in the order in which they are to be called, the redactor last."""
    enrichers: list[Enricher] = [ProcessNames(), WallClock(), Containers(), Peers(), SeenNames(), Routes(protocols)]
    return [*enrichers, Redactor(protocols)] if redact else enrichers
