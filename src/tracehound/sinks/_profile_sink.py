"""The sink behind `flame`, `folded` and `pprof`: it collects while the trace runs, and writes when it is closed."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tracehound.errors import SinkError
from tracehound.recording import loss_counter
from tracehound.sinks._profile import COUNT, Profile, Stacks, weight_of
from tracehound.sinks._sink import Source, lost_rows

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = {"html": "flame", "folded": "folded", "pprof": "pprof"}  # form -> the module that writes it


def writer(form: str) -> Callable[[Profile], bytes]:
    """Return what makes the bytes of a form of `FORMATS`."""
    name = FORMATS[form]
    found: Callable[[Profile], bytes] = getattr(import_module(f"tracehound.sinks.{name}"), name)
    return found


class ProfileSink:
    """One file to be; it is made when this is opened, so that a wrong path is told before the trace."""

    def __init__(self, form: str, path: str, source: Source, weight: str = COUNT) -> None:
        """Raises SinkError, UsageError for a weight that there is not."""
        self.path = path
        self.failure: str | None = None  # why it could not be written
        self.stacks = Stacks(weight_of(weight))
        self._source = source
        self._write = writer(form)
        self._lost: Counter[str] = Counter()
        self._last_ns: int | None = None
        try:
            self._file = open(sys.stdout.fileno() if path == "-" else path, "wb", closefd=path != "-")  # noqa: SIM115
        except OSError as error:
            raise SinkError(f"cannot write {path}: {error.strerror}") from error

    def write(self, tables: "Mapping[str, pa.RecordBatch]") -> None:
        """Collect stacks and their weights."""
        self.stacks.write(tables)
        if "calls" in tables and tables["calls"].num_rows:
            self._last_ns = tables["calls"]["time_ns"][-1].as_py()

    def flush(self) -> None:
        """Do nothing: the file is written at the end."""

    def take_losses(self) -> "pa.RecordBatch | None":
        """Return how many stacks the file did not take."""
        lost, self._lost = self._lost, Counter()
        return lost_rows(lost, self._last_ns)

    def close(self) -> None:
        """Write the file; may be called twice."""
        if self._file.closed:
            return
        profile = self.stacks.profile(self._source.facts)
        try:
            with self._file:
                self._file.write(self._write(profile))
        except OSError as error:
            self.failure = error.strerror
            self._lost[loss_counter(error)] += len(profile.stacks)


def open_profile(form: str, path: str, source: Source, weight: str = COUNT) -> ProfileSink:
    """Open a file of stacks in a form of `FORMATS`; `-` is standard output."""
    return ProfileSink(form, os.fspath(path), source, weight)
