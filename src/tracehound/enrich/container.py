"""Fills `cgroup` and `container` of processes from `fact_cgroup`.

Container ids are the 64 hexadecimal digits that docker, containerd (CRI), CRI-O and podman put into the cgroup's
path; their monitors (conmon) are no containers. A path holds for rows from its fact on.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa

from tracehound.enrich.columns import Tables, fill_columns, int_column

SHORT_ID: Final = 12  # digits of an id that people are shown

# .../docker/ID, docker-ID.scope, cri-containerd-ID.scope, ...slice:cri-containerd:ID, crio-ID.scope, libpod-ID.scope
_ID: Final = re.compile(r"(?<![^/:-])(?<!conmon-)([0-9a-f]{64})(?:\.scope)?(?=/|$)")


def container_id(path: str | None) -> str | None:
    """Return the id of the innermost container in a cgroup's path, None if there is none."""
    found = _ID.findall(path) if path else []
    return found[-1] if found else None


class Containers:
    """Knows the paths of cgroups by their ids."""

    def __init__(self) -> None:
        self._paths: dict[int, tuple[int, str]] = {}  # id -> known since, path

    def add(self, tables: Tables) -> Tables:
        """Fill the two columns of `processes`."""
        facts = tables.get("fact_cgroup")
        if facts is not None:
            for fact in facts.to_pylist():  # one for each cgroup
                known = self._paths.get(fact["id"])
                if fact["path"] and (known is None or known[1] != fact["path"]):
                    self._paths[fact["id"]] = fact["time_ns"], fact["path"]
        processes = tables.get("processes")
        if processes is None or not self._paths:
            return tables
        ids, inverse = np.unique(int_column(processes, "cgroup_id"), return_inverse=True)
        known_since = [self._paths.get(number, (0, None)) for number in ids.tolist()]
        paths = [path for _, path in known_since]
        early = int_column(processes, "time_ns") < np.array([since for since, _ in known_since], np.int64)[inverse]
        at = pa.array(inverse, mask=early)
        columns = {
            "cgroup": pa.array(paths, pa.string()).take(at),
            "container": pa.array([container_id(path) for path in paths], pa.string()).take(at),
        }
        return tables | {"processes": fill_columns(processes, columns)}
