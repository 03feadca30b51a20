"""Rows and facts that the tests of recordings share."""

from typing import Any

import numpy as np
import pyarrow as pa

from tracehound.recording import Facts
from tracehound.tables import TABLES, arrow_schema, build

FACTS = Facts("box", "4f1c", "0.1.0", ("python", "shop.py"), {"tcp": True}, ((1, 1_700_000_000_000_000_000),), "6.18")
SCHEMAS = {name: arrow_schema(columns) for name, columns in TABLES.items()}


def requests(first: int, count: int, **values: Any) -> pa.RecordBatch:
    """Return `count` rows of `requests` whose `request` and `time_ns` rise from `first`."""
    numbers = np.arange(first, first + count)
    resources = [f"/orders/{number}" for number in numbers]
    return build(TABLES["requests"], count, {"time_ns": numbers, "request": numbers, "resource": resources, **values})


def listens(first: int, count: int) -> pa.RecordBatch:
    """Return `count` rows of `listens`."""
    return build(TABLES["listens"], count, {"time_ns": np.arange(first, first + count), "event": ["open"] * count})


def losses(counter: str, count: int) -> pa.RecordBatch:
    """Return one row of `losses`."""
    return build(TABLES["losses"], 1, {"time_ns": [5], "stage": ["ring"], "counter": [counter], "count": [count]})
