"""fact_* records -> Arrow tables for enrich: what user space read from the machine.

They are no public tables: names begin with `fact_`. `fact_clock`: time_ns, monotonic_ns, realtime_ns.
`fact_process`: time_ns, pid, start_ns, ppid, ns_pid, uid, comm, exe, argv, cgroup, service. `fact_cgroup`: time_ns,
id, path. Numbers are int64, texts string, argv list<string>; an empty text is null.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracehound.decode.addresses import text_column
from tracehound.decode.tails import tail_pieces, to_arguments, to_text

if TYPE_CHECKING:
    from tracehound.batch import Batch

# Table -> its numbers and the pieces of its tail
_FACTS: Final = {
    "fact_clock": (("monotonic_ns", "realtime_ns"), ()),
    "fact_process": (("pid", "start_ns", "ppid", "ns_pid", "uid"), ("exe", "argv", "cgroup", "service")),
    "fact_cgroup": (("id",), ("path",)),
}


def decode_facts(batch: "Batch") -> dict[str, pa.RecordBatch]:
    """Return the tables that have rows, each in the order of time."""
    tables = {}
    for kind, (numbers, texts) in _FACTS.items():
        records = batch.records.get(kind)
        if records is None:
            continue
        columns: dict[str, Any] = {
            name: pa.array(records.fixed[name].astype(np.int64)) for name in ("time_ns", *numbers)
        }
        if kind == "fact_process":
            columns["comm"] = text_column(records.fixed["comm"])
        pieces = tail_pieces(records, [f"{name}_size" for name in texts])
        for name, piece in zip(texts, pieces, strict=True):
            columns[name] = to_arguments(piece) if name == "argv" else to_text(piece)
        tables[kind] = pa.RecordBatch.from_pydict(columns)
    return tables
