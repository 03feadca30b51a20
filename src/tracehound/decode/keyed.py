"""What decode keeps of things that live longer than a batch: one structured row for each key, found by columns.

Rows stay in slots, and only an index of (key, slot) is sorted, so a batch costs 16 bytes of copying for each live
key.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]


class KeyedRows:
    """Structured rows by int64 key. Arguments and results are columns; a key occurs at most once in each call."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._rows: Rows = np.zeros(64, dtype)
        self._free: Int64s = np.arange(63, -1, -1)
        self._keys: Int64s = np.empty(0, np.int64)  # sorted
        self._slots: Int64s = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> Int64s:
        """Return all keys, sorted; not to be written to."""
        return self._keys

    def get(self, keys: Int64s) -> Rows:
        """Return a copy of the rows of keys that are all present, in the order of `keys`."""
        return self._rows[self._slots[np.searchsorted(self._keys, keys)]]

    def column(self, name: str, keys: Int64s) -> npt.NDArray[Any]:
        """Return one member of the rows of keys that are all present, in the order of `keys`."""
        return self._rows[name][self._slots[np.searchsorted(self._keys, keys)]]

    def contains(self, keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Tell of each key whether it has a row."""
        return np.isin(keys, self._keys)

    def put(self, keys: Int64s, rows: Rows) -> None:
        """Set the rows of `keys`, adding those that are new."""
        known = self.contains(keys)
        self._rows[self._slots[np.searchsorted(self._keys, keys[known])]] = rows[known]
        new_keys, new_rows = keys[~known], rows[~known]
        if not len(new_keys):
            return
        while len(self._free) < len(new_keys):
            self._grow()
        self._free, slots = np.split(self._free, [len(self._free) - len(new_keys)])
        self._rows[slots] = new_rows
        all_keys = np.concatenate((self._keys, new_keys))
        order = np.argsort(all_keys, kind="stable")
        self._keys, self._slots = all_keys[order], np.concatenate((self._slots, slots))[order]

    def remove(self, keys: npt.NDArray[Any]) -> None:
        """Forget the rows of those of `keys` that are present."""
        gone = np.isin(self._keys, keys)
        if gone.any():
            self._free = np.concatenate((self._free, self._slots[gone]))
            self._keys, self._slots = self._keys[~gone], self._slots[~gone]

    def _grow(self) -> None:
        size = len(self._rows)
        grown = np.zeros(2 * size, self._rows.dtype)  # what is not written to takes no memory yet
        grown[:size] = self._rows
        self._rows = grown
        self._free = np.concatenate((np.arange(2 * size - 1, size - 1, -1), self._free))
