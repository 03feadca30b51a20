"""Rows by key: put, get and remove against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracehound.decode.keyed import KeyedRows

DTYPE = np.dtype([("value", "i8"), ("name", "S4")])


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(-5, 300), max_size=120)), max_size=20))
def test_like_a_dict(steps: list[tuple[bool, set[int]]]) -> None:
    rows, model = KeyedRows(DTYPE), dict[int, int]()
    for number, (is_put, chosen) in enumerate(steps):
        keys = np.array(list(chosen), np.int64)
        if is_put:
            given_rows = np.zeros(len(keys), DTYPE)
            given_rows["value"] = keys * 1_000 + number
            rows.put(keys, given_rows)
            model |= {key: key * 1_000 + number for key in chosen}
        else:
            rows.remove(keys)
            model = {key: value for key, value in model.items() if key not in chosen}
        assert rows.keys().tolist() == sorted(model)
        assert rows.contains(keys).tolist() == [key in model for key in keys.tolist()]
        known = np.array(sorted(model, reverse=True), np.int64)
        assert rows.get(known)["value"].tolist() == rows.column("value", known).tolist() == [model[k] for k in known]
        assert len(rows) == len(model)


def test_a_copy_is_returned() -> None:
    rows, keys = KeyedRows(DTYPE), np.array([1], np.int64)
    rows.put(keys, np.zeros(1, DTYPE))
    rows.get(keys)["value"] = 9
    assert rows.column("value", keys).tolist() == [0]
