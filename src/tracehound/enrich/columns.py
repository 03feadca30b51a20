"""Reading and replacing columns of a record batch."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Tables = dict[str, pa.RecordBatch]
Int64s = npt.NDArray[np.int64]


def int_column(table: pa.RecordBatch, name: str, null: int = -1) -> Int64s:
    """Return a column of numbers as int64, `null` where it is null."""
    column = table.column(name).cast(pa.int64()).fill_null(null)
    numbers: Int64s = column.to_numpy(zero_copy_only=False)
    return numbers


def replace_columns(table: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return the table with these columns instead of its own ones of the same names, cast to their types."""
    schema = table.schema
    arrays = [
        table.column(at) if field.name not in columns else columns[field.name].cast(field.type)
        for at, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fill_columns(table: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return the table with the nulls of its own columns of these names filled."""
    return replace_columns(
        table,
        {
            name: column
            if table.column(name).null_count == len(table)
            else pc.coalesce(table.column(name), column.cast(table.schema.field(name).type))
            for name, column in columns.items()
        },
    )
