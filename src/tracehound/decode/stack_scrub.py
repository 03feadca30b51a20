"""What of a copied stack leads to callers, and nothing else: for tapes that are handed on.

A stack holds whatever functions keep in variables. Of its words those stay that are addresses of code or of the stack
itself; of registers the three that a walk begins with. So the scrubbed stack gives the same frames.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from tracehound.decode.stack_samples import CONTEXT_MARKS, PERF_BP, PERF_IP, PERF_SP

STACK_REACH: Final = 8 << 20  # bytes above the stack pointer that count as the stack
NOT_ZERO: Final = 1  # instead of a value: it leads nowhere, as most values, and 0 would say that the stack ends there

Words = npt.NDArray[np.uint64]


class Code:
    """Addresses of code, of all processes of a tape."""

    def __init__(self, starts: Words, ends: Words) -> None:
        """Take uint64[n] each; they may overlap."""
        order = np.argsort(starts)
        self._starts = starts[order]
        self._ends = np.maximum.accumulate(ends[order]) if len(ends) else ends

    def holds(self, words: Words) -> npt.NDArray[np.bool_]:
        """Tell of each word whether it may be an address of code, or one behind it."""
        if not len(self._starts):
            return np.zeros(len(words), bool)
        at = np.searchsorted(self._starts, words, "right") - 1
        found: npt.NDArray[np.bool_] = (at >= 0) & (words <= self._ends[np.maximum(at, 0)])
        return found


def without_values(record: np.void, tail: bytes, code: Code) -> bytes:
    """Return the tail of a call_stack record without what is no address, of the same length."""
    count = len(tail) // 8
    words = np.frombuffer(tail, "<u8", count).copy()
    registers, chain = (min(int(record[name]), count) for name in ("register_count", "chain_count"))
    mask, first = int(record["abi_registers"]), {}
    for bit in (PERF_BP, PERF_SP, PERF_IP):
        place = (mask & (1 << bit) - 1).bit_count()
        if mask >> bit & 1 and place < registers:
            first[bit] = place
    sp = int(words[first[PERF_SP]]) if PERF_SP in first else 0
    stays = code.holds(words)
    if sp:
        stays |= (words >= np.uint64(sp)) & (words - np.uint64(sp) < np.uint64(STACK_REACH))
    stays[registers : registers + chain] |= words[registers : registers + chain] >= CONTEXT_MARKS
    stays[[place for bit, place in first.items() if bit in (PERF_SP, PERF_IP)]] = True
    words[~stays & (words != 0)] = NOT_ZERO
    others = np.ones(count, bool)
    others[list(first.values())] = False
    others[registers:] = False
    words[others] = 0
    return words.tobytes() + bytes(len(tail) - 8 * count)
