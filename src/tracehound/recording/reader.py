"""A recording opened for reading, also while it is being written: tables as Arrow, SQL by DuckDB."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tracehound.errors import QueryError, RecordingError, TargetError
from tracehound.recording import manifest as manifests
from tracehound.recording.manifest import Manifest
from tracehound.recording.parts import ARROWS, PARQUET, list_parts, read_stream

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES: Final = 10
_Result = TypeVar("_Result")


class _Moved(Exception):  # noqa: N818 - not an error: the writer replaced a file between listing and reading
    """A listed file is gone; list again."""


class Recording:
    """A recording in `directory`; each call sees what has been flushed by then. Raises RecordingError."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._manifest = manifests.read(self.directory)
        self.damaged: dict[Path, str] = {}  # files that were left out, and why
        self._checked: set[Path] = set()

    @property
    def manifest(self) -> Manifest:
        """The manifest as it is now."""
        self._manifest = manifests.read(self.directory)
        return self._manifest

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables, empty ones too."""
        return tuple(self._manifest.schemas)

    def schema(self, name: str) -> "pa.Schema":
        """Return the schema of a table; raises TargetError."""
        try:
            return self._manifest.schemas[name]
        except KeyError:
            raise TargetError(f"no table {name}. Tables: {', '.join(self.tables)}") from None

    def table(self, name: str) -> "pa.Table":
        """Return all rows of a table, in the order in which they were written; raises TargetError."""
        return self._retry(lambda: self._read(name))

    def sql(self, query: str) -> "pa.Table":
        """Run one SELECT over the tables by name; raises QueryError, which shows the place."""
        from tracehound.recording.sql import run_query

        return self._retry(lambda: self._query(query, run_query))

    def _retry(self, read: Callable[[], _Result]) -> _Result:
        for _ in range(_TRIES):
            try:
                return read()
            except (FileNotFoundError, _Moved):
                continue
        raise RecordingError(f"{self.directory}: its files are replaced faster than they can be read")

    def _query(self, query: str, run_query: "Callable[[str, dict[str, Any]], pa.Table]") -> "pa.Table":
        files: list[Path] = []
        sources = {name: self._source(name, files) for name in self.tables}
        try:
            return run_query(query, sources)
        except QueryError as error:
            if not all(path.exists() for path in files):
                raise _Moved from error
            raise

    def _source(self, name: str, files: list[Path]) -> Any:
        """Return a table as what DuckDB scans: Parquet files stay on disk, the rows not yet in them are in memory."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        schema = self.schema(name)
        paths: list[Path] = []
        batches: list[pa.RecordBatch] = []
        for piece in self._pieces(name):
            if isinstance(piece, Path):
                paths.append(piece)
            else:
                batches += piece
        rows = pa.Table.from_batches(batches, schema)
        if not paths:
            return rows
        files += paths
        parquet = ds.dataset([str(path) for path in paths], schema=schema, format=PARQUET)
        return ds.dataset([parquet, ds.InMemoryDataset(rows)]) if rows.num_rows else parquet

    def _read(self, name: str) -> "pa.Table":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self.schema(name)
        tables = []
        for piece in self._pieces(name):
            if isinstance(piece, Path):
                try:
                    tables.append(pq.read_table(piece, schema=schema))
                except (pa.ArrowException, PermissionError) as error:
                    raise RecordingError(f"cannot read {piece}: {error}") from error
            else:
                tables.append(pa.Table.from_batches(piece, schema))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def _pieces(self, name: str) -> "Iterator[Path | list[pa.RecordBatch]]":
        """Give the parts of a table: paths of Parquet files, and the batches of rows not yet in one."""
        schema = self.schema(name)
        for part in list_parts(self.directory / name):
            path = self.directory / name / part.name
            if part.kind == ARROWS:
                try:
                    yield read_stream(path, schema)
                    continue
                except FileNotFoundError:  # it became Parquet since it was listed
                    path = path.with_suffix(f".{PARQUET}")
                except OSError as error:
                    raise RecordingError(f"cannot read {path}: {error.strerror}") from error
            if self._is_whole(path):
                yield path

    def _is_whole(self, path: Path) -> bool:
        """Tell whether a Parquet file has its footer; one that has not goes to `damaged`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if path not in self._checked:
            try:
                pq.read_metadata(path)
            except pa.ArrowInvalid as error:
                self.damaged[path] = str(error)
            except PermissionError as error:
                raise RecordingError(f"cannot read {path}: {error.strerror}") from error
            self._checked.add(path)
        return path not in self.damaged
