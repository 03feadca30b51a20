"""open records -> rows of `files`.

Sources: open(2), openat2(2), include/uapi/asm-generic/fcntl.h (the kernel side translates other architectures' flags).
`resolved_path` of an open that succeeded is the path of what was opened, symbolic links followed; of one that failed
it is the path as given behind the directory at which it begins, and `..` in it is left alone, for what it means
depends on links. It is null where the kernel side could not know it. Leaves out descriptors that were there before.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.btf import Layout
from tracehound.decode.addresses import errno_name, name_column
from tracehound.decode.tails import tail_pieces, to_text
from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    from tracehound.batch import Batch

ACCESS_MODES: Final = ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE")
O_CREAT: Final = 0o100
O_TMPFILE: Final = 0o20000000
FLAGS: Final = (  # what has several bits comes before what is one of them
    ("O_CREAT", O_CREAT),
    ("O_EXCL", 0o200),
    ("O_NOCTTY", 0o400),
    ("O_TRUNC", 0o1000),
    ("O_APPEND", 0o2000),
    ("O_NONBLOCK", 0o4000),
    ("O_SYNC", 0o4010000),
    ("O_DSYNC", 0o10000),
    ("O_ASYNC", 0o20000),
    ("O_DIRECT", 0o40000),
    ("O_LARGEFILE", 0o100000),
    ("O_TMPFILE", O_TMPFILE | 0o200000),
    ("O_DIRECTORY", 0o200000),
    ("O_NOFOLLOW", 0o400000),
    ("O_NOATIME", 0o1000000),
    ("O_CLOEXEC", 0o2000000),
    ("O_PATH", 0o10000000),
)
RESTARTS: Final = 512  # ERESTARTSYS and its kin: a signal came, which the program sees as EINTR or not at all
EINTR: Final = 4

Bools = npt.NDArray[np.bool_]


class Files:
    """Decodes open records; keeps nothing."""

    def __init__(self, layout: Layout) -> None:
        flags = layout.enum("open_flag")
        self._truncated, self._fault = flags["OPEN_PATH_TRUNCATED"], flags["OPEN_PATH_FAULT"]
        self._resolved, self._unknown = flags["OPEN_RESOLVED"], flags["OPEN_PLACE_UNKNOWN"]

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the rows of a batch in the order of time, None if there are none."""
        records = batch.records.get("open")
        if records is None:
            return None
        fixed = records.fixed
        place, path = tail_pieces(records, ("place_size", "path_size"))
        paths = to_text(path)
        result = fixed["result"].astype(np.int64)
        errors = np.where(result <= -RESTARTS, EINTR, -np.minimum(result, 0))
        creates = fixed["open_flags"] & (O_CREAT | O_TMPFILE) != 0
        duration_ns = fixed["duration_ns"].astype(np.int64)
        values: dict[str, Any] = {
            "time_ns": fixed["time_ns"],
            "pid": fixed["pid"],
            "tid": fixed["tid"],
            "preexisting": np.zeros(len(fixed), bool),
            "path": paths,
            "resolved_path": self._resolve(fixed["flags"], to_text(place), paths),
            "path_truncated": fixed["flags"] & self._truncated != 0,
            "flags": flags_column(fixed["open_flags"]),
            "mode": _nullable((fixed["mode"] & 0o7777).astype(np.int64), creates),
            "fd": _nullable(result, result >= 0),
            "errno": name_column(errors, errno_name),
            "duration_ns": _nullable(duration_ns, duration_ns != 0),
        }
        return build(TABLES["files"], len(fixed), values)

    def _resolve(self, flags: npt.NDArray[np.uint32], places: pa.Array, paths: pa.Array) -> pa.Array:
        """Return absolute paths: places as they are, or with the paths that begin there."""
        is_absolute = pc.fill_null(pc.starts_with(paths, "/"), False)
        behind = pc.binary_join_element_wise(pc.fill_null(places, ""), paths, "/")
        behind = pc.if_else(is_absolute, paths, behind)
        known = (flags & (self._unknown | self._fault)) == 0
        behind = pc.if_else(pc.or_(is_absolute, pa.array(known)), behind, pa.scalar(None, pa.string()))
        return pc.if_else(pa.array((flags & self._resolved) != 0), places, behind)


def flags_column(flags: npt.NDArray[np.uint32]) -> pa.Array:
    """Return open flags by name, the access mode first."""
    distinct, inverse = np.unique(flags, return_inverse=True)
    names = [flag_names(int(number)) for number in distinct]
    return pa.array(names, pa.list_(pa.string())).take(pa.array(inverse))


def flag_names(flags: int) -> list[str]:
    """Return the names of one open's flags; bits without a name are one octal number at the end."""
    names, flags = [ACCESS_MODES[flags & 3]], flags & ~3
    for name, bits in FLAGS:
        if flags & bits == bits:
            names.append(name)
            flags &= ~bits
    return [*names, f"{flags:#o}"] if flags else names


def _nullable(column: npt.NDArray[Any], valid: Bools) -> pa.Array:
    return pa.array(column, mask=~valid)
