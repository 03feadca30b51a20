"""Data records -> `payloads`: the captured bytes themselves, one row for each contiguous piece. Off by default.

What is captured is what the parsers need (`docs/protocols.md`): rows have the bytes that came, `size_bytes` tells how
many the call moved. Peeked bytes are left out, they come again. Not redacted: these are the raw bytes.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.btf import Layout
from tracehound.decode.addresses import name_column, transport_column
from tracehound.decode.tails import tail_pieces
from tracehound.tables import TABLES, build

if TYPE_CHECKING:
    from tracehound.batch import Batch

DIRECTIONS: Final = {0: "send", 1: "receive"}  # enum direction
NO_PROTOCOL: Final = ("L7_NONE", "L7_AMBIGUOUS")


class Payloads:
    """Makes rows of `payloads`; remembers the attempt of each live socket, which is half of `connection`."""

    def __init__(self, layout: Layout) -> None:
        self._peek = layout.enum("data_flag")["DATA_PEEK"]
        self._close = layout.enum("connection_event")["CONNECTION_CLOSE"]
        numbers = layout.enum("l7_protocol")
        self._protocols = {
            number: name.removeprefix("L7_").lower() for name, number in numbers.items() if name not in NO_PROTOCOL
        }
        self._attempts: dict[int, int] = {}

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the rows of a batch, None if it has no data."""
        ended = self._learn(batch)
        data = batch.records.get("data")
        table = None
        if data is not None:
            heads, tails = tail_pieces(data, ("head_size", "tail_size"))
            fixed = data.fixed
            wanted = (fixed["cookie"] != 0) & (fixed["flags"] & self._peek == 0)
            has_tail = wanted & (fixed["tail_size"] != 0)
            wanted &= (fixed["head_size"] != 0) | ~has_tail
            end = fixed["position_end"].astype(np.int64)
            start = end - fixed["call_size"] + fixed["offset"]
            rows = np.concatenate((np.flatnonzero(wanted), np.flatnonzero(has_tail)))
            position = np.concatenate((start[wanted], (end - fixed["tail_size"])[has_tail]))
            pieces = pa.concat_arrays([heads.filter(pa.array(wanted)), tails.filter(pa.array(has_tail))])
            order = np.argsort(rows, kind="stable")
            table = self._rows(fixed[rows[order]], position[order], pieces.take(pa.array(order)))
        for cookie in ended:
            self._attempts.pop(cookie, None)
        return table

    def _learn(self, batch: "Batch") -> list[int]:
        """Take over the attempts of a batch's connections; return the cookies of those that end in it."""
        records = batch.records.get("connection")
        if records is None:
            return []
        cookies, attempts, events = (records.fixed[name].tolist() for name in ("cookie", "attempt", "event"))
        self._attempts.update(zip(cookies, attempts, strict=True))
        return [cookie for cookie, event in zip(cookies, events, strict=True) if event == self._close]

    def _rows(self, records: Any, position: Any, pieces: pa.Array) -> pa.RecordBatch | None:
        if not len(records):
            return None
        attempts = [self._attempts.get(cookie, 0) & 0xFF for cookie in records["cookie"].tolist()]
        is_packet = records["pid"] == 0  # of a capture: no process's
        is_tcp = (records["family"] != 1) & (records["transport"] == 6)
        passed = position - (records["position_end"].astype(np.int64) - records["call_size"])
        sequence = (records["sequence"].astype(np.int64) + passed) & 0xFFFFFFFF
        values = {
            "time_ns": records["time_ns"],
            "pid": pa.array(records["pid"], mask=is_packet),
            "tid": pa.array(records["tid"], mask=records["tid"] == 0),
            "preexisting": np.zeros(len(records), np.bool_),
            "connection": records["cookie"].astype(np.int64) << 8 | np.array(attempts, np.int64),
            "direction": name_column(records["direction"], DIRECTIONS.get),
            "source": name_column(is_packet, lambda captured: "packet" if captured else "syscall"),
            "protocol": name_column(records["verdict"], self._protocols.get),
            "transport": transport_column(records["family"], records["transport"]),
            "position": position,
            "tcp_sequence": pa.array(sequence, mask=~is_tcp),
            "size_bytes": records["call_size"],
            "captured_bytes": pc.binary_length(pieces),
            "message_type": ["unknown"] * len(records),
            "bytes": pieces.cast(pa.binary()),
        }
        return build(TABLES["payloads"], len(records), values)
