"""Tables from literal rows, for the tests of the enrichers."""

from typing import Any

import pyarrow as pa

from tracehound.protocols import load_protocols
from tracehound.tables import TABLES, build, requests_columns

FACTS = {
    "fact_process": ("time_ns", "pid", "start_ns", "ppid", "ns_pid", "uid", "comm", "exe", "argv", "cgroup", "service"),
    "fact_cgroup": ("time_ns", "id", "path"),
    "fact_clock": ("time_ns", "monotonic_ns", "realtime_ns"),
}
TEXTS = ("comm", "exe", "cgroup", "service", "path")


def table(name: str, *rows: dict[str, Any]) -> pa.RecordBatch:
    """Make a table; what a row leaves out is null."""
    if name in FACTS:
        types = {column: pa.string() if column in TEXTS else pa.int64() for column in FACTS[name]} | {
            "argv": pa.list_(pa.string())
        }
        return pa.RecordBatch.from_pydict({c: pa.array([row.get(c) for row in rows], types[c]) for c in FACTS[name]})
    columns = TABLES[name]
    if name == "requests":
        columns = requests_columns(c for p in load_protocols() for c in (*p.request_extras, *p.response_extras))
    unknown = {key for row in rows for key in row} - {column.name for column in columns}
    assert not unknown, unknown
    return build(columns, len(rows), {c.name: [row.get(c.name) for row in rows] for c in columns})


def column(tables: dict[str, pa.RecordBatch], name: str, *columns: str) -> list[Any]:
    """Return one column as a list, several as a list of tuples."""
    found = [tables[name].column(one).to_pylist() for one in columns]
    return found[0] if len(found) == 1 else list(zip(*found, strict=True))
