"""Feeds many seeded inputs to parsers, streams and drain; goes on where the last run of the same seed ended.

    python -m tests.soak [--inputs N] [--seed N] [--jobs N] [--minutes N] [--state FILE]
    python -m tests.soak --kind NAME --from N --inputs 1      again one input, with its traceback

A line every ten seconds says how many inputs there were and how many a second. Exit code 1 at the first input that
fails, or when a worker's memory grows.
"""

import argparse
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.soak.kinds import KINDS

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = 200  # inputs that a worker is given at once
SETTLED: Final = 20  # blocks after which a worker has all the memory it needs
GROWTH_BYTES: Final = 64 << 20
REPORT_S: Final = 10.0
SEED_SHIFT: Final = 40


class Block(NamedTuple):
    """Inputs of one kind: which, and how many."""

    kind: str
    first: int
    size: int


class Outcome(NamedTuple):
    """What a worker says of a block: who it is, its memory, and the input that failed, if one did."""

    pid: int
    resident_bytes: int
    failed: int | None = None
    text: str = ""


def run_block(block: Block, seed: int) -> Outcome:
    """Feed the inputs of one block."""
    feed, _ = KINDS[block.kind]
    for number in range(block.first, block.first + block.size):
        try:
            feed(seed << SEED_SHIFT | number)
        except Exception:
            return Outcome(os.getpid(), 0, number, traceback.format_exc())
    return Outcome(os.getpid(), int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE)


class Memory:
    """Watches that no worker grows."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._settled: dict[int, int] = {}

    def look(self, outcome: Outcome) -> str:
        """Take what a worker says; returns what is wrong, else nothing."""
        pid, resident = outcome.pid, outcome.resident_bytes
        self._blocks[pid] = self._blocks.get(pid, 0) + 1
        if self._blocks[pid] <= SETTLED:
            self._settled[pid] = max(resident, self._settled.get(pid, 0))
        grown = resident - self._settled[pid]
        return f"a worker grew by {grown >> 20} MiB to {resident >> 20} MiB" if grown > GROWTH_BYTES else ""


class Soak:
    """The state of one run: what is done, and what is next."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.seed, self.inputs, self.state = options.seed, options.inputs, options.state
        self.done = dict.fromkeys(KINDS, 0)
        self.seconds = 0.0
        if self.state.exists():
            kept = json.loads(self.state.read_text())
            if kept["seed"] != self.seed:
                sys.exit(f"{self.state} is of seed {kept['seed']}: name another --state, or delete it")
            self.done |= kept["done"]
            self.seconds = kept["seconds"]
        self.given = dict(self.done)
        self._kept_seconds, self._began = self.seconds, time.monotonic()

    def next_block(self) -> Block | None:
        """Return what is to be done next: of the kind that is farthest behind its share."""
        behind = {kind: self.given[kind] / (share * self.inputs) for kind, (_, share) in KINDS.items()}
        kind = min(behind, key=behind.__getitem__)
        left = round(KINDS[kind][1] * self.inputs) - self.given[kind]
        if left <= 0:
            return None
        block = Block(kind, self.given[kind], min(left, BLOCK))
        self.given[kind] += block.size
        return block

    def finish(self, block: Block) -> None:
        """Note a block; blocks of a kind end in their order."""
        self.done[block.kind] = block.first + block.size
        self.seconds = self._kept_seconds + time.monotonic() - self._began

    def save(self) -> None:
        """Keep the state, whole or not at all."""
        self.state.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.state.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"seed": self.seed, "done": self.done, "seconds": round(self.seconds)}))
        unfinished.replace(self.state)

    def replay(self, kind: str, number: int) -> str:
        """Return how to try one input again."""
        return f".venv/bin/python -m tests.soak --seed {self.seed} --kind {kind} --from {number} --inputs 1"


def run(soak: Soak, jobs: int, minutes: float) -> int:
    """Run until all is done, or the time is over, or an input fails; returns the exit code."""
    waiting: deque[tuple[Block, Future[Outcome]]] = deque()
    memory, began, reported, before = Memory(), time.monotonic(), time.monotonic(), sum(soak.done.values())
    with ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        while True:
            while len(waiting) < 3 * jobs and time.monotonic() - began < minutes * 60:
                block = soak.next_block()
                if block is None:
                    break
                waiting.append((block, pool.submit(run_block, block, soak.seed)))
            if not waiting:
                break
            try:
                wrong = settle(soak, *waiting[0], memory)
            except BrokenProcessPool:
                suspects = sorted({(block.kind, block.first) for block, _ in waiting})
                wrong = f"a worker died in one of these blocks of {BLOCK}: {suspects}"
            if wrong:
                for _, future in waiting:
                    future.cancel()
                print(wrong, flush=True)
                return 1
            waiting.popleft()
            if time.monotonic() - reported >= REPORT_S:
                reported = time.monotonic()
                report(soak, (sum(soak.done.values()) - before) / (reported - began))
    report(soak, (sum(soak.done.values()) - before) / max(time.monotonic() - began, 0.001))
    print(*(f"  {kind:20}{count:>12,}" for kind, count in soak.done.items()), sep="\n")
    return 0


def settle(soak: Soak, block: Block, future: "Future[Outcome]", memory: Memory) -> str:
    """Wait for one block; returns what is wrong, else nothing."""
    outcome = future.result()
    if outcome.failed is not None:
        return f"{outcome.text}\nagain: {soak.replay(block.kind, outcome.failed)}"
    soak.finish(block)
    soak.save()
    return memory.look(outcome)


def report(soak: Soak, rate: float) -> None:
    """Print a line."""
    done = sum(soak.done.values())
    print(f"{done:>12,} of {soak.inputs:,} inputs, {rate:,.0f} a second, seed {soak.seed}", flush=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "soak.json")
    parser.add_argument("--kind", choices=sorted(KINDS))
    parser.add_argument("--from", type=int, default=0, dest="first")
    return parser.parse_args()


def main() -> int:
    """Run, or try inputs of one kind again in this process."""
    options: Any = arguments()
    if options.kind is None:
        try:
            return run(Soak(options), options.jobs, options.minutes)
        except KeyboardInterrupt:
            print("interrupted: the next run goes on from here")
            return 130
    outcome = run_block(Block(options.kind, options.first, options.inputs), options.seed)
    print(outcome.text or f"{options.inputs} inputs of {options.kind} from {options.first} on hold")
    return 0 if outcome.failed is None else 1


if __name__ == "__main__":
    sys.exit(main())
