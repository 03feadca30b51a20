"""Records -> rows: one batch of numpy records in, Arrow tables out.

A function of the records alone: no clock, no timer, no /proc; time is that of the records and the watermark.
Cutting the stream into other batches gives the same rows in the same order within each table.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracehound.decode.calls import Calls, rows_in_order
from tracehound.decode.connections import Connections
from tracehound.decode.descriptors import Generations
from tracehound.decode.facts import decode_facts
from tracehound.decode.files import Files
from tracehound.decode.losses import Loss, Losses, loss_rows
from tracehound.decode.names import Kept, Names
from tracehound.decode.nat import Translations
from tracehound.decode.parsing import CaptureOrder
from tracehound.decode.payloads import Payloads
from tracehound.decode.processes import Processes
from tracehound.decode.registers import Registers
from tracehound.decode.requests import Requests, RequestsResult
from tracehound.decode.settings import DecodeSettings
from tracehound.decode.stacks import StackDecoder
from tracehound.decode.syscalls import Syscalls
from tracehound.decode.watches import Watches

if TYPE_CHECKING:
    import pyarrow as pa

    from tracehound.batch import Batch
    from tracehound.btf import Layout
    from tracehound.decode.exchange import Connection
    from tracehound.protocols._protocol import Protocol
    from tracehound.symbols.module_store import ModuleStore

__all__ = ["CaptureOrder", "DecodeSettings", "Decoder"]


class Decoder:
    """Decodes the batches of one trace, in order."""

    def __init__(
        self,
        layout: "Layout",
        protocols: "Sequence[Protocol]",
        settings: DecodeSettings,
        modules: "ModuleStore | None" = None,
    ) -> None:
        """`modules`: where stacks get their tables from, beside the records."""
        self._processes = Processes(layout)
        self._translations = Translations()
        self._requests = Requests(layout, protocols, settings, translations=self._translations)
        self._generations = Generations()
        self._connections = Connections(
            layout, settings, self._requests.protocols_of, self._translations, self._generations
        )
        self._files = Files(layout)
        self._calls = Calls(layout)
        self._syscalls = Syscalls(layout)
        self._watches = Watches(layout)
        self._registers = Registers()
        self._losses = Losses(layout, settings)
        self._names = Names(layout)
        self._payloads = Payloads(layout) if settings.payloads else None
        self.stacks = StackDecoder(layout, modules)

    def decode(self, batch: "Batch") -> "dict[str, pa.RecordBatch]":
        """Return the tables that have rows, and `fact_process`, `fact_cgroup`, `fact_clock`, `fact_name` for enrich."""
        tables = decode_facts(batch)
        processes = self._processes.decode(batch)
        if processes is not None:
            tables["processes"] = processes
        payloads = self._payloads.decode(batch) if self._payloads is not None else None
        if payloads is not None:
            tables["payloads"] = payloads
        files = self._files.decode(batch)
        if files is not None:
            tables["files"] = files
        self._registers.take(batch)
        stacks = self.stacks.take(batch)
        if stacks is not None:
            tables["stacks"] = stacks
        functions = self._calls.decode(self._syscalls.functions_only(batch))
        others = self._watches.decode(batch), self._syscalls.decode(batch)
        calls = self._filled(rows_in_order([functions, *others]))
        if calls is not None:
            tables["calls"] = calls
        self._translations.take(batch)
        self._generations.take(batch)
        result = self._requests.decode(batch)
        names = self._names.decode(batch)
        if names is not None:
            tables["fact_name"] = names
        tables |= self._connections.decode(batch)
        return tables | _tables_of(result, self._losses.decode(batch))

    def _filled(self, calls: "pa.RecordBatch | None") -> "pa.RecordBatch | None":
        """Return rows of `calls` with what came with the stacks of their hits."""
        return self.stacks.fill(self._registers.fill(calls))

    def keep_connections(self, known: "dict[int, Connection]") -> None:
        """Keep the connections that have requests in this map, by cookie, before any record is decoded."""
        self._requests.keep_connections(known)

    def keep_names(self, keep: Kept) -> None:
        """Tell of each answer of DNS that names something what of its bytes that needs."""
        self._names.keep = keep

    @staticmethod
    def facts(batch: "Batch") -> "dict[str, pa.RecordBatch]":
        """Return the facts of a batch alone, for rows that come before its records are decoded."""
        return decode_facts(batch)

    def finish(self, time_ns: int) -> "dict[str, pa.RecordBatch]":
        """Return the rows that only the end of the trace, at `time_ns`, makes true: requests without answer, waiting
        opens and accepts, a `snapshot` of each connection still open, losses at the end of a ring."""
        result = self._requests.finish(time_ns)
        tables = self._connections.finish(time_ns)
        calls = self._filled(rows_in_order([self._calls.finish(time_ns), self._syscalls.finish(time_ns)]))
        if calls is not None:
            tables["calls"] = calls
        return tables | _tables_of(result, self._losses.finish())

    def open_requests(self, time_ns: int) -> "dict[str, pa.RecordBatch]":
        """Return the requests that wait for an answer or its end, as a table `requests`, empty if there are none."""
        rows = self._requests.open_requests(time_ns)
        return {} if rows is None else {"requests": rows}

    def take_orders(self) -> list[CaptureOrder]:
        """Return what the kernel shall capture of connections from now on, and forget it."""
        orders = list(self._requests.orders)
        self._requests.orders.clear()
        return orders

    def take_ended(self) -> list[int]:
        """Return the sockets that are gone, of those that an order was for, and forget them; after `take_orders`."""
        ended = list(self._requests.ended)
        self._requests.ended.clear()
        return ended


def _tables_of(result: RequestsResult, losses: list[Loss]) -> "dict[str, pa.RecordBatch]":
    tables = {}
    if result.requests is not None and result.requests.num_rows:
        tables["requests"] = result.requests
    every: list[tuple[Any, ...]] = [*losses, *result.losses]
    if every:
        tables["losses"] = loss_rows(every)
    return tables
