"""SQL over Arrow tables and datasets by DuckDB, in this process, without any access to files or network.

Sources: duckdb.org "Securing DuckDB". The tables are handed in as objects, so the engine itself needs no file; then
access, extensions, spilling and settings are locked. Only statements that read are let through.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import QueryError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # else a table's name may mean a Python variable
}
_READING: Final = frozenset({"SELECT", "EXPLAIN", "MULTI"})  # MULTI: PIVOT


def run_query(query: str, sources: Mapping[str, Any]) -> "pa.Table":
    """Run one reading statement over `sources` (pyarrow tables or datasets by name); QueryError shows the place."""
    with locked_connection(sources) as connection:
        return query_on(connection, query)


def locked_connection(sources: Mapping[str, Any]) -> "duckdb.DuckDBPyConnection":
    """Return a new engine that can read `sources` and nothing else; more can be registered later."""
    import duckdb

    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute("SET TimeZone = 'UTC'")
    for name, source in sources.items():
        connection.register(name, source)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def query_on(connection: "duckdb.DuckDBPyConnection", query: str) -> "pa.Table":
    """Run one reading statement; QueryError shows the place."""
    import duckdb

    try:
        _check_reading(connection, query)
        return connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(_located(connection, query, str(error))) from error


def _check_reading(connection: "duckdb.DuckDBPyConnection", query: str) -> None:
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise QueryError(f"one SQL statement is needed, {len(statements)} were given")
    kind = statements[0].type.name
    if kind not in _READING:
        raise QueryError(f"a recording is read only: {kind} is refused, SELECT and EXPLAIN are not")


def _located(connection: "duckdb.DuckDBPyConnection", query: str, message: str) -> str:
    """Return the message with the line and a caret; relations leave them out, a plain execute does not."""
    import duckdb

    if "\nLINE " not in message:
        try:
            connection.execute(query)
        except duckdb.Error as error:
            message = str(error)
    return "\n".join(line for line in message.rstrip().splitlines() if line)
