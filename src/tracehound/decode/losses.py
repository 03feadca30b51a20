"""What was lost, and where: `losses` rows.

Every reservation in a ring takes the next number of its (ring, cpu), also one that fails, so a missing number is a
lost record (D1). Records of one cpu may be stamped a little out of order: a number counts as missing when it did
not come within `loss_grace_ns` of the first record with a higher number, and one that comes later than that is not
looked at. Numbers that the drain threw away are told by `fact_drop`; `fact_ring` tells the next number, so a lost
tail is found too. All is decided by record times alone. Each lost record is in exactly one row: the kernel's own
counts of what these two already tell (`ring_full`, `backlog_full`) make no row. The facts' own ring is never lossy
and not checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.btf import Layout
from tracehound.decode.settings import DecodeSettings
from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    from tracehound.batch import Batch

Int64s = npt.NDArray[np.int64]

_LAST: Final = np.iinfo(np.int64).max
_NO_SEQUENCE: Final = np.iinfo(np.uint64).max  # RING_SEQ_NONE: the record came by an iterator
CLOCK_STEP_NS: Final = 1_000_000  # between two anchors, beyond what slewing explains
SLEW: Final = 0.001  # adjtimex(2) slews by at most 500 ppm; twice that for the error of reading
STAGES: Final = {
    "ring_full": "ring",
    "backlog_full": "drain",
    "capture_limited": "capture",
    **dict.fromkeys(
        ("packet_dropped", "packet_damaged", "packet_unread", "fragment_lost", "connection_shed"), "capture"
    ),
}


class Loss(NamedTuple):
    """One row of `losses`."""

    stage: str
    counter: str
    lost: int
    first_ns: int
    last_ns: int
    cpu: int | None = None
    connection: int | None = None


def loss_rows(losses: Sequence[Loss | tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows in the order given; a tuple has the members of `Loss`."""
    names = ("stage", "counter", "count", "first_ns", "last_ns", "cpu", "connection")
    columns = dict(zip(names, zip(*losses, strict=True), strict=True)) if losses else {}
    return build(TABLES["losses"], len(losses), columns | {"time_ns": columns["last_ns"]} if losses else {})


class Rises:
    """Counters that only rise, told as rows when they did; for what is counted outside of the records."""

    def __init__(self, time_ns: int = 0) -> None:
        self._before: dict[tuple[str, str], int] = {}
        self._since_ns = time_ns

    def take(self, counters: Mapping[tuple[str, str], int], time_ns: int) -> list[Loss]:
        """Return what rose since the last time; `counters`: (stage, counter) -> count from the beginning."""
        rises = {name: count - self._before.get(name, 0) for name, count in counters.items()}
        since_ns, self._since_ns = self._since_ns or time_ns, time_ns
        self._before |= counters
        return [Loss(*name, rise, since_ns, time_ns) for name, rise in rises.items() if rise > 0]


@dataclass(slots=True)
class _Spans:
    """Runs of numbers of one ring and cpu, in parallel int64 columns."""

    first: Int64s
    last: Int64s  # first - 1 for a mark, which only tells that all below was given out
    count: Int64s  # of them accounted for
    time_ns: Int64s  # when that was known: of its oldest record
    first_ns: Int64s  # of its first record
    last_ns: Int64s

    def take(self, rows: Any) -> "_Spans":
        """Return the rows of an index or mask."""
        return _Spans(*(getattr(self, name)[rows] for name in self.__slots__))

    def join(self, other: "_Spans") -> "_Spans":
        """Return the rows of both."""
        return _Spans(*(np.concatenate((getattr(self, name), getattr(other, name))) for name in self.__slots__))


class _Sequence:
    """The numbers of one (ring, cpu)."""

    def __init__(self) -> None:
        self._done = 0  # all below this is settled
        self._done_ns = -1  # time of the record before it
        self._waiting = _Spans(*(np.empty(0, np.int64) for _ in range(6)))

    def add(self, spans: _Spans) -> None:
        """Take what came; settled numbers are too late."""
        fresh = spans.take((spans.last >= self._done) | (spans.last < spans.first))
        self._waiting = self._waiting.join(fresh) if len(self._waiting.first) else fresh

    def settle(self, watermark_ns: int, grace_ns: int) -> list[tuple[int, int, int, int]]:
        """Return (when it was settled, count, first_ns, last_ns) of each run of numbers that are lost for good."""
        spans = self._waiting
        if not len(spans.first):
            return []
        spans = spans.take(np.lexsort((spans.last, spans.first)))
        known_ns = np.minimum.accumulate(spans.time_ns[::-1])[::-1]  # first record with this or a higher number
        in_time = spans.time_ns <= known_ns + grace_ns
        spans, known_ns = spans.take(in_time), known_ns[in_time]
        final = (
            len(known_ns) if watermark_ns == _LAST else int(np.searchsorted(known_ns, watermark_ns - grace_ns, "right"))
        )
        final = self._whole_clusters(spans, final)
        self._waiting = spans.take(slice(final, None))
        return self._missing(spans.take(slice(0, final)), known_ns[:final] + grace_ns)

    def _whole_clusters(self, spans: _Spans, final: int) -> int:
        """Return `final`, or less: spans that overlap are settled together."""
        if final in (0, len(spans.first)):
            return final
        reach = np.maximum.accumulate(spans.last)
        starts = np.flatnonzero(np.append(True, spans.first[1:] > reach[:-1]))
        return int(starts[np.searchsorted(starts, final, "right") - 1])

    def _missing(self, spans: _Spans, settled_ns: Int64s) -> list[tuple[int, int, int, int]]:
        if not len(spans.first):
            return []
        reach = np.maximum.accumulate(np.maximum(spans.last, self._done - 1))
        before = np.append(self._done - 1, reach[:-1])
        starts = np.flatnonzero(np.append(True, spans.first[1:] > reach[:-1]))
        gaps = spans.first[starts] - before[starts] - 1
        covered = np.add.reduceat(spans.count, starts)
        ends = np.append(starts[1:], len(reach)) - 1
        inner = reach[ends] - np.maximum(spans.first[starts], self._done) + 1 - covered
        latest = _latest(spans, reach)
        before_ns = np.append(self._done_ns, latest[ends[:-1]])
        hit = gaps > 0
        found = [
            (int(settled_ns[end]), int(gap), int(since if since >= 0 else spans.first_ns[at]), int(spans.first_ns[at]))
            for at, end, gap, since in zip(starts[hit], ends[hit], gaps[hit], before_ns[hit], strict=True)
        ]
        found += [
            (int(settled_ns[end]), int(lost), int(spans.first_ns[at]), int(latest[end]))
            for at, end, lost in zip(starts[inner > 0], ends[inner > 0], inner[inner > 0], strict=True)
        ]
        self._done, self._done_ns = int(reach[-1]) + 1, int(latest[-1])
        return found


def _latest(spans: _Spans, reach: Int64s) -> Int64s:
    """Return for each span the last_ns of the one up to it that reaches furthest."""
    further = np.append(True, reach[1:] > reach[:-1])
    at: Int64s = np.maximum.accumulate(np.where(further, np.arange(len(reach)), 0))
    return spans.last_ns[at]


class Losses:
    """Finds losses in the numbers of records and in what the drain and the kernel's counters tell."""

    def __init__(self, layout: Layout, settings: DecodeSettings) -> None:
        self._facts = layout.enum("ring_id")["RING_FACT"]
        self._rings = {name: number >> 8 for number, name in layout.kinds.items()}
        self._counters = {
            number: name.removeprefix("LOSS_").lower() for name, number in layout.enum("loss_counter").items()
        }
        self._grace_ns = settings.loss_grace_ns
        self._sequences: dict[tuple[int, int], _Sequence] = {}
        self._clock: tuple[int, int] | None = None  # (monotonic_ns, realtime_ns) of the last anchor

    def decode(self, batch: "Batch") -> list[Loss]:
        """Return what is known to be lost by the end of a batch."""
        for (ring, cpu), spans in self._spans(batch).items():
            self._sequences.setdefault((ring, cpu), _Sequence()).add(spans)
        return _in_order(self._settle(batch.watermark_ns) + self._told(batch))

    def finish(self) -> list[Loss]:
        """Return what else is lost, when nothing more will come."""
        return _in_order(self._settle(_LAST))

    def _settle(self, watermark_ns: int) -> list[tuple[int, Loss]]:
        return [
            (settled_ns, Loss("ring", "ring_full", count, first_ns, last_ns, cpu))
            for (_, cpu), sequence in sorted(self._sequences.items())
            for settled_ns, count, first_ns, last_ns in sequence.settle(watermark_ns, self._grace_ns)
        ]

    def _spans(self, batch: "Batch") -> dict[tuple[int, int], _Spans]:
        """Return what a batch tells of the numbers of each (ring, cpu)."""
        parts: dict[int, list[npt.NDArray[np.void]]] = {}
        for name, records in batch.records.items():
            if self._rings[name] != self._facts:
                numbered = records.fixed["ring_seq"] != _NO_SEQUENCE
                parts.setdefault(self._rings[name], []).append(
                    records.fixed if numbered.all() else records.fixed[numbered]
                )
        found: dict[tuple[int, int], _Spans] = {}
        for ring, kinds in parts.items():
            cpus, numbers, times = (
                np.concatenate([fixed[name] for fixed in kinds]).astype(np.int64)
                for name in ("cpu", "ring_seq", "time_ns")
            )
            for cpu in np.flatnonzero(np.bincount(cpus)).tolist():
                mine = cpus == cpu
                found[ring, cpu] = _record_spans(numbers[mine], times[mine], self._grace_ns)
        for name, spans_of in (("fact_drop", _drop_spans), ("fact_ring", _mark_spans)):
            for fact in batch.records[name].fixed if name in batch.records else ():  # few
                key = int(fact["ring"]), int(fact["cpu"])
                told = spans_of(fact.reshape(1))
                found[key] = found[key].join(told) if key in found else told
        return found

    def _told(self, batch: "Batch") -> list[tuple[int, Loss]]:
        """Return what facts, which are few, say in so many words: records thrown away, counters, steps of the clock."""
        found: list[tuple[int, Loss]] = []
        for name in ("fact_drop", "fact_loss"):
            for row in batch.records[name].fixed if name in batch.records else ():
                counter = self._counters.get(int(row["counter"]), str(row["counter"]))
                if name == "fact_loss" and counter in ("ring_full", "backlog_full"):
                    continue
                cpu = int(row["cpu"]) if name == "fact_drop" else None
                count, first_ns, last_ns = (int(row[member]) for member in ("count", "first_ns", "last_ns"))
                loss = Loss(STAGES.get(counter, "kernel"), counter, count, first_ns, last_ns, cpu)
                found.append((int(row["time_ns"]), loss))
        for row in batch.records["fact_clock"].fixed if "fact_clock" in batch.records else ():
            step = self._clock_step(int(row["monotonic_ns"]), int(row["realtime_ns"]))
            if step is not None:
                found.append((int(row["time_ns"]), step))
        return [(time_ns, loss) for time_ns, loss in found if loss.lost]

    def _clock_step(self, monotonic_ns: int, realtime_ns: int) -> Loss | None:
        before, self._clock = self._clock, (monotonic_ns, realtime_ns)
        if before is None:
            return None
        passed_ns = monotonic_ns - before[0]
        step_ns = realtime_ns - before[1] - passed_ns
        if abs(step_ns) <= CLOCK_STEP_NS + SLEW * passed_ns:
            return None
        return Loss("clock", "clock_step", 1, before[0], monotonic_ns)


def _in_order(found: list[tuple[int, Loss]]) -> list[Loss]:
    """Return losses in the order in which they were known, the same however the records were cut."""
    return [loss for _, loss in sorted(found, key=lambda one: (one[0], one[1].last_ns, one[1].cpu or 0))]


def _record_spans(numbers: Int64s, times: Int64s, grace_ns: int) -> _Spans:
    """Return records as runs of consecutive numbers, or one by one if some are out of order by more than the grace."""
    if np.any(numbers[1:] < numbers[:-1]):
        order = np.argsort(numbers, kind="stable")
        numbers, times = numbers[order], times[order]
    if np.any(times[1:] < times[:-1]):
        known_ns = np.minimum.accumulate(times[::-1])[::-1]
        if np.any(times > known_ns + grace_ns):
            return _Spans(numbers, numbers, np.ones_like(numbers), times, times, times)
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1] + 1))
    ends = np.append(starts[1:], len(numbers)) - 1
    oldest_ns = np.minimum.reduceat(times, starts)
    return _Spans(numbers[starts], numbers[ends], ends - starts + 1, oldest_ns, times[starts], times[ends])


def _drop_spans(drops: npt.NDArray[np.void]) -> _Spans:
    names = ("first_seq", "last_seq", "count", "time_ns", "first_ns", "last_ns")
    return _Spans(*(drops[name].astype(np.int64) for name in names))


def _mark_spans(rings: npt.NDArray[np.void]) -> _Spans:
    number, time_ns = rings["next_seq"].astype(np.int64), rings["time_ns"].astype(np.int64)
    return _Spans(number, number - 1, np.zeros(len(number), np.int64), time_ns, time_ns, time_ns)
