"""Raw records in, rows out: merge, decode, enrich, redact, sinks; without root, clock or thread.

The same for a running trace, which feeds it from the kernel (`agent`), and for a tape or a capture (`replay`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tracehound.batch import Batch, Merge, Raw, in_parts, split
from tracehound.btf import Layout, wire_layout
from tracehound.config import BY_ROW, MIB, Filter, Settings
from tracehound.protocols import Protocol, load_protocols

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.sinks import Sink
    from tracehound.sources.tape import Packed, TapeWriter
    from tracehound.symbols.module_store import ModuleStore

AT_ONCE: Final = 8192  # records that are decoded together, if more have waited: what is made of them is larger


class Read(NamedTuple):
    """Records of one ring, sorted by kind, and as a frame of the tape if there is one."""

    batch: Batch
    packed: "Packed | None" = None


class Line:
    """Records in, rows out. Gives the same rows however its input is cut.

    A tape, if there is one, gets all that comes in, in the order in which it does.
    """

    def __init__(
        self,
        settings: Settings,
        sinks: Sequence["Sink"],
        layout: Layout | None = None,
        tape: "TapeWriter | None" = None,
        protocols: Sequence[Protocol] | None = None,
        modules: "ModuleStore | None" = None,
    ) -> None:
        from tracehound import decode, enrich
        from tracehound.decode.losses import Rises

        self.layout = layout or wire_layout()
        protocols = protocols or load_protocols()
        budgets = settings.budgets
        decode_settings = decode.DecodeSettings(
            response_timeout_ns=int(settings.response_timeout_s * 1e9),
            window_bytes=min(MIB, budgets.windows_bytes // 4),
            windows_bytes=budgets.windows_bytes,
            waiting_requests=budgets.waiting_requests,
            payloads=settings.payloads,
        )
        self.decoder = decode.Decoder(self.layout, protocols, decode_settings, modules)
        self.enrichers = enrich.make_enrichers(protocols, redact=settings.redact)
        self.merge = Merge(self.layout)
        self.sinks = sinks
        self._row_filters = [each for each in settings.filters if each.name in BY_ROW]
        self.events = 0
        self._rises = Rises()
        self._tape = tape
        self._first_facts: dict[str, pa.RecordBatch] | None = {}  # until something is decoded

    def read(self, raw: Raw) -> Read:
        """Sort raw records of one ring by kind, for `feed`; they can be given back afterwards."""
        batch = split(raw, self.layout)
        if self._tape is None:
            return Read(batch)
        return Read(batch, self._tape.pack(raw, sum(map(len, batch.records.values()))))

    def feed(self, batch: Batch, packed: "Packed | None" = None) -> None:
        """Take records of one ring, in the order in which they were read."""
        if self._tape is not None and packed is not None:
            newest = (int(records.fixed["time_ns"].max()) for records in batch.records.values() if len(records))
            self._tape.put(packed, max(newest, default=0))
        if self._first_facts is not None:
            self._first_facts |= self.decoder.facts(batch)
        self.merge.push(batch)

    def advance(self) -> None:
        """Decode what is complete and hand its rows to the sinks."""
        batch = self.merge.take()
        if batch is not None:
            self._decode(batch)

    def finish(self, time_ns: int) -> None:
        """Decode all that is left, end what is under way, and hand the rows to the sinks."""
        if self._tape is not None:
            self._tape.put_finish(time_ns)
        batch = self.merge.flush()
        if batch is not None:
            self._decode(batch)
        self.write(self.decoder.finish(time_ns))

    def break_off(self) -> int:
        """End where the input broke off: what is under way ends at the last moment that is complete.

        Records after it are left out: others that came before them, or tell of them, may be missing. Return how many.
        """
        self.write(self.decoder.finish(max(self.merge.watermark_ns, 0)))
        return self.merge.waiting

    def _decode(self, batch: Batch) -> None:
        self._first_facts = None
        self.events += sum(len(records.fixed) for kind, records in batch.records.items() if not kind.startswith("fact"))
        for part in in_parts(batch, AT_ONCE):
            self.write(self.decoder.decode(part))

    def write(self, tables: dict[str, "pa.RecordBatch"]) -> None:
        """Enrich, redact, hand to every sink."""
        tables = self._enriched(tables)
        public = {name: rows for name, rows in tables.items() if not name.startswith("fact_") and rows.num_rows}
        if public:
            for sink in self._outputs():
                sink.write(public)

    def _outputs(self) -> "tuple[Sink, ...]":
        """Return the sinks as they are now: a loop over rows may begin or end meanwhile."""
        return (*self.sinks, self._tape) if self._tape is not None else tuple(self.sinks)

    def _enriched(self, tables: dict[str, "pa.RecordBatch"]) -> dict[str, "pa.RecordBatch"]:
        for enricher in self.enrichers:
            tables = enricher.add(tables)
        if self._row_filters and "requests" in tables:
            tables = tables | {"requests": filtered(tables["requests"], self._row_filters)}
        return tables

    def open_requests(self, time_ns: int) -> "pa.RecordBatch | None":
        """Return the requests under way as rows of `requests` without an end, None if there are none."""
        tables = self.decoder.open_requests(time_ns)
        return self._enriched(tables)["requests"] if tables else None

    def write_probes(self, rows: "pa.RecordBatch") -> None:
        """Write rows of `probes`; those at the start come before any record is decoded, but know its clock."""
        if self._tape is not None:
            self._tape.put_probes(rows)
        self.write({**(self._first_facts or {}), "probes": rows})

    def count_losses(self, time_ns: int, counters: Mapping[tuple[str, str], int] | None = None) -> None:
        """Write rows for what was counted here, and in `counters` by (stage, counter), since the last time."""
        from tracehound.decode.losses import loss_rows

        if self._tape is not None:
            self._tape.put_counts(time_ns, counters or {})
        ours = {
            ("split", "damaged"): self.merge.damaged,
            ("merge", "late"): self.merge.late,
            ("stack", "damaged"): self.decoder.stacks.damaged,
            ("stack", "table_full"): self.decoder.stacks.unwritten,
        }
        rows = self._rises.take(ours | dict(counters or {}), time_ns)
        if rows:
            self.write({"losses": loss_rows(rows)})

    def flush(self) -> None:
        """Make all rows written so far visible to readers; what a sink could not keep becomes rows of `losses`."""
        import pyarrow as pa

        for sink in self._outputs():
            sink.flush()
            losses = sink.take_losses()
            if losses is not None:
                self.write({"losses": losses})
        pa.default_memory_pool().release_unused()  # after a burst it would keep what the burst took


def filtered(rows: "pa.RecordBatch", filters: Sequence[Filter]) -> "pa.RecordBatch":
    """Return the rows that pass: one of the wanted values of each name, none of the unwanted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, is_only in {(each.name, each.is_only) for each in filters}:
        values = [each.value for each in filters if (each.name, each.is_only) == (name, is_only)]
        hit = pc.is_in(rows[name], value_set=pa.array(values, rows.schema.field(name).type))
        rows = rows.filter(hit if is_only else pc.invert(hit))
    return rows
