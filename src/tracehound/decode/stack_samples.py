"""call_stack records as the walker takes them: registers picked by their mask, uretprobes' slots repaired, by columns.

Sources: linux arch/x86/include/uapi/asm/perf_regs.h; include/uapi/linux/perf_event.h (enum perf_callchain_context).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tracehound.symbols.unwind import CHAIN, SAMPLE, SAMPLE_NO_REGISTERS, SAMPLE_PATCHED

if TYPE_CHECKING:
    from tracehound.batch import Records

ABI_64: Final = 2
PERF_BP, PERF_SP, PERF_IP = 6, 7, 8  # bits of the mask
CONTEXT_USER: Final = np.uint64((1 << 64) - 512)
CONTEXT_MARKS: Final = np.uint64((1 << 64) - 4095)  # from here on a word of a chain is a mark

Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(slots=True)
class Samples:
    """Stacks to be walked. `walked`: SAMPLE[n], without ranges; `content`: uint8[bytes], which they point into.

    `chain_at`, `chain_count`: int64[n], the words of each call chain, with marks. `damaged` counts records whose
    sizes cannot be.
    """

    walked: npt.NDArray[np.void]
    content: npt.NDArray[np.uint8]
    chain_at: Int64s
    chain_count: Int64s
    damaged: int = 0

    def __len__(self) -> int:
        return len(self.walked)

    def take(self, rows: slice) -> "Samples":
        """Return some of them; the content stays the same."""
        return Samples(self.walked[rows], self.content, self.chain_at[rows], self.chain_count[rows])

    def chains_of(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
        """Return CHAIN[n]: the user side of the chains of those that are wanted, count 0 for the others."""
        chains = np.zeros(len(self), CHAIN)
        rows = np.flatnonzero(wanted & (self.chain_count > 0))
        if not len(rows):
            return chains
        counts = self.chain_count[rows]
        firsts = np.cumsum(counts) - counts
        of = np.repeat(np.arange(len(rows)), counts)
        index = np.arange(len(of)) - firsts[of]
        words = _words(self.content, self.chain_at[rows][of] + 8 * index)
        begins = np.minimum.reduceat(np.where(words == CONTEXT_USER, index + 1, counts[of]), firsts)
        is_end = (words >= CONTEXT_MARKS) & (index >= begins[of])
        ends = np.minimum.reduceat(np.where(is_end, index, counts[of]), firsts)
        chains["at"][rows] = self.chain_at[rows] + 8 * begins
        chains["count"][rows] = np.maximum(ends - begins, 0)
        return chains


def read_samples(records: "Records") -> Samples:
    """Return the samples of call_stack records, in their order; what cannot be is a sample without registers."""
    fixed = records.fixed
    content = np.frombuffer(records.tails, np.uint8)
    starts = records.offsets[:-1].astype(np.int64)
    registers, chain, slots, stack = (
        fixed[name].astype(np.int64) for name in ("register_count", "chain_count", "slot_count", "stack_size")
    )
    fits = 8 * (registers + chain + 2 * slots) + stack <= np.diff(records.offsets)
    registers, chain, slots, stack = (np.where(fits, column, 0) for column in (registers, chain, slots, stack))
    walked = np.zeros(len(fixed), SAMPLE)
    chain_at = starts + 8 * registers
    slots_at = chain_at + 8 * chain
    walked["stack_at"] = slots_at + 16 * slots
    walked["stack_size"] = stack
    has_registers = fits & (fixed["abi"] == ABI_64)
    for mask in np.unique(fixed["abi_registers"]).tolist():
        rows = np.flatnonzero((fixed["abi_registers"] == mask) & has_registers)
        if not all(mask >> bit & 1 for bit in (PERF_BP, PERF_SP, PERF_IP)):
            has_registers[rows] = False
            continue
        is_whole = registers[rows] == int(mask).bit_count()
        has_registers[rows[~is_whole]] = False
        rows = rows[is_whole]
        for name, bit in (("bp", PERF_BP), ("sp", PERF_SP), ("ip", PERF_IP)):
            place = (mask & (1 << bit) - 1).bit_count()
            walked[name][rows] = _words(content, starts[rows] + 8 * place)
    walked["flags"] = np.where(has_registers, 0, SAMPLE_NO_REGISTERS)
    content = _repaired(walked, content, slots_at, np.where(has_registers, slots, 0))
    return Samples(walked, content, chain_at, chain, int(np.count_nonzero(~fits)))


def _words(content: npt.NDArray[np.uint8], at: Int64s) -> Words:
    """Return the little-endian words at these bytes, which need not be aligned."""
    found: Words = content[at[:, None] + np.arange(8)].view("<u8")[:, 0]
    return found


def _repaired(
    walked: npt.NDArray[np.void], content: npt.NDArray[np.uint8], slots_at: Int64s, counts: Int64s
) -> npt.NDArray[np.uint8]:
    """Return the content with the return addresses that uretprobes had replaced put back, and flag those stacks."""
    of = np.repeat(np.arange(len(counts)), counts)
    if not len(of):
        return content
    at = slots_at[of] + 16 * (np.arange(len(of)) - (np.cumsum(counts) - counts)[of])
    places = _words(content, at) - walked["sp"][of]  # wraps where a slot is below the copy: then it is far beyond it
    sizes = walked["stack_size"][of].astype(np.uint64)
    inside = (places < sizes) & (sizes - np.minimum(places, sizes) >= 8)
    content = content.copy()
    target = (walked["stack_at"][of] + places)[inside].astype(np.int64)
    content[target[:, None] + np.arange(8)] = content[at[inside][:, None] + np.arange(8, 16)]
    walked["flags"][of[inside]] |= SAMPLE_PATCHED
    return content
