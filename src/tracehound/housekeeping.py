"""What is looked after while a trace runs, once a second and at its end: clock anchors, losses, ends of sockets."""

import time
from typing import Final

from tracehound.btf import Layout
from tracehound.kernel.privileged import Privileged
from tracehound.procfs import FactWriter, add_clock

QUIET: Final = ("RING_FULL", "OPAQUE_BYTES")  # counters that show otherwise: as gaps in ring_seq, in `connections`


class Housekeeping:
    """Turns what the kernel side has counted into facts; `facts` gets them."""

    def __init__(self, kernel: Privileged, facts: FactWriter, layout: Layout) -> None:
        """Note where the counters stand; what they had before is not of this trace."""
        self._kernel = kernel
        self._facts = facts
        self._layout = layout
        counters = layout.enum("loss_counter")
        self._quiet = {counters[f"LOSS_{name}"] for name in QUIET}
        self._losses, self._losses_ns = kernel.losses(), time.monotonic_ns()

    def tick(self) -> dict[tuple[str, str], int]:
        """Add a clock anchor and what was lost since the last time; return what else was lost, by stage and counter."""
        add_clock(self._facts)
        now, counters = time.monotonic_ns(), self._kernel.losses()
        for number, (before, after) in enumerate(zip(self._losses, counters, strict=True)):
            if after > before and number not in self._quiet:
                times = {"first_ns": self._losses_ns, "last_ns": now}
                self._facts.add("fact_loss", now, {"counter": number, "count": after - before} | times)
        self._losses, self._losses_ns = counters, now
        return self._kernel.lost()

    def add_ring_ends(self) -> None:
        """Add where the numbers of each ring end, so that what was lost last shows too."""
        now, rings = time.monotonic_ns(), self._layout.enum("ring_id")
        for name in self._kernel.numbered_rings():
            ring = rings[f"RING_{name.upper()}"]
            for cpu, next_seq in enumerate(self._kernel.ring_sequences(ring)):
                self._facts.add("fact_ring", now, {"ring": ring, "next_seq": next_seq}, cpu=cpu)
