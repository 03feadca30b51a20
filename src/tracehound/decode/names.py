"""Answers of DNS -> `fact_name`: which address was told for which name, and to whom.

Reads what came from port 53, by UDP a message a datagram, by TCP behind its length. Sources: RFC 1035 (messages, names
with compression), RFC 3596 (AAAA), RFC 7766 (TCP), RFC 9619 (one question). A message names addresses for the name that
it was asked for, through its CNAMEs; one that breaks the format anywhere up to its last answer names nothing. Leaves
out EDNS and all behind the answers, other types (HTTPS hints, PTR), encrypted DNS, and whether anybody had asked.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from socket import AF_INET, AF_INET6, IPPROTO_UDP
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tracehound.btf import Layout
from tracehound.decode.addresses import format_address
from tracehound.errors import ProtocolError

if TYPE_CHECKING:
    from tracehound.batch import Batch, Records

PORT: Final = 53
RECEIVE: Final = 1  # enum direction
HEADER_BYTES: Final = 12
NAME_BYTES: Final = 255
LABEL_BYTES: Final = 63
POINTER: Final = 0xC0  # from here on a length is none but leads to the rest of the name
JUMPS: Final = 32  # from pointer to pointer within a name
ANSWERS: Final = 128  # a message with more of them names nothing
CHAIN: Final = 16  # CNAMEs from the name asked for to the one with the address
STREAMS: Final = 256  # TCP connections to port 53 at once; the oldest is forgotten
MESSAGE_BYTES: Final = 16384  # a longer one over TCP is passed over

# The flags of a header that decide: a response, of a standard query, without an error
_DECIDING: Final = 0xF80F
_RESPONSE: Final = 0x8000
_A, _CNAME, _AAAA, _ANY, _IN = 1, 5, 28, 255, 1
_FAMILIES: Final = {_A: (int(AF_INET), 4), _AAAA: (int(AF_INET6), 16)}
_ODD: Final = re.compile(rb"[^!-~]|[.\\]")

Kept = Callable[[int, int, int, bytes], None]  # cookie, time, position, what of a message is needed


class Answer(NamedTuple):
    """An address, and the name that was asked for."""

    name: str
    address: str


class _Record(NamedTuple):
    owner: bytes
    type: int
    class_: int
    start: int  # of its data
    stop: int


class Message:
    """A response of DNS, as far as its answers go. `answers` is empty for whatever else it may be."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._records: list[_Record] = []
        self._used: list[tuple[int, int]] = []  # what was read of names, by pointers too
        self.question = ""
        self.answers: list[Answer] = []
        try:
            self._read()
        except ProtocolError:
            self.answers = []

    def _read(self) -> None:
        data = self._data
        if len(data) < HEADER_BYTES:
            raise ProtocolError("no answer of DNS")
        flags, questions, answers = (int.from_bytes(data[at : at + 2]) for at in (2, 4, 6))
        if flags & _DECIDING != _RESPONSE or questions != 1 or not 0 < answers <= ANSWERS:
            raise ProtocolError("no answer of DNS")
        asked, at = self._name(HEADER_BYTES)
        type_, class_ = self._number(at), self._number(at + 2)
        at += 4
        for _ in range(answers):
            record = self._record(at)
            self._records.append(record)
            at = record.stop
        self.question = render(asked)
        if class_ not in (_IN, _ANY) or type_ not in (_A, _AAAA, _ANY) or not asked:
            return
        owners = self._chain(asked)
        for record in self._records:
            if record.type in _FAMILIES and type_ in (record.type, _ANY) and record.owner in owners:
                self._add_answer(record)

    def _add_answer(self, record: _Record) -> None:
        family, size = _FAMILIES[record.type]
        raw = self._data[record.start : record.stop]
        if record.class_ != _IN or len(raw) != size:
            raise ProtocolError("no answer of DNS")
        address = format_address(family, raw.ljust(16, b"\0"))
        if any(raw) and address is not None:  # not the address that means none
            self.answers.append(Answer(self.question, address))

    def _chain(self, asked: bytes) -> set[bytes]:
        """Return the names that the one asked for stands for, itself included."""
        aliases = {
            one.owner: self._name(one.start, one.stop)[0]
            for one in self._records
            if one.type == _CNAME and one.class_ == _IN
        }
        owners, name = {asked}, asked
        for _ in range(CHAIN):
            name = aliases.get(name, b"")
            if not name or name in owners:
                break
            owners.add(name)
        return owners

    def _record(self, at: int) -> _Record:
        owner, at = self._name(at)
        size = self._number(at + 8)
        start, stop = at + 10, at + 10 + size
        if stop > len(self._data):
            raise ProtocolError("no answer of DNS")
        return _Record(owner, self._number(at), self._number(at + 2), start, stop)

    def _number(self, at: int) -> int:
        if at + 2 > len(self._data):
            raise ProtocolError("no answer of DNS")
        return int.from_bytes(self._data[at : at + 2])

    def _name(self, at: int, stop: int | None = None) -> tuple[bytes, int]:
        """Return a name in lower case, each label behind its length, and where its place ends.

        Pointers lead back only, so there is no loop, and not many are followed. `stop`: where it has to end.
        """
        data, labels, size = self._data, list[bytes](), 0
        first, end, jumps = at, -1, 0
        while True:
            length = data[at] if at < len(data) else POINTER
            if length >= POINTER:
                target = self._number(at) & 0x3FFF
                end = at + 2 if end < 0 else end
                jumps += 1
                if not HEADER_BYTES <= target < first or jumps > JUMPS:
                    raise ProtocolError("no answer of DNS")
                self._used.append((first, at + 2))
                first = at = target
                continue
            at += 1 + length
            if length > LABEL_BYTES or at > len(data):
                raise ProtocolError("no answer of DNS")
            if not length:
                break
            labels.append(data[at - length - 1 : at].lower())
            size += 1 + length
            if size >= NAME_BYTES:
                raise ProtocolError("no answer of DNS")
        self._used.append((first, at))
        end = at if end < 0 else end
        if stop not in (None, end):
            raise ProtocolError("no answer of DNS")
        return b"".join(labels), end

    def needed(self) -> bytes:
        """Return the message with `x` for all that its answers do not need, of the same length."""
        data = self._data
        if not self.answers:
            return b"x" * len(data)
        made = bytearray(data[: self._records[-1].stop].ljust(len(data), b"x"))
        for record in self._records:
            if record.type not in _FAMILIES and record.type != _CNAME:
                made[record.start : record.stop] = b"x" * (record.stop - record.start)
        for start, stop in self._used:
            made[start:stop] = data[start:stop]
        return bytes(made)


def render(name: bytes) -> str:
    """Return a name as RFC 1035 (5.1) writes it, without the last dot: what is no plain character is escaped."""
    labels, at = list[str](), 0
    while at < len(name):
        label = name[at + 1 : at + 1 + name[at]]
        labels.append(_ODD.sub(_escape, label).decode("ascii"))
        at += 1 + name[at]
    return ".".join(labels)


def _escape(found: re.Match[bytes]) -> bytes:
    return b"\\" + found[0] if found[0] in b".\\" else b"\\%03d" % found[0][0]


class _Stream:
    """What was received of one TCP connection, up to a whole message."""

    __slots__ = ("data", "next", "skip_until")

    def __init__(self) -> None:
        self.data = b""
        self.next = 0  # position behind `data`
        self.skip_until = 0

    def take(self, start: int, data: bytes) -> Iterator[tuple[int, bytes]] | None:
        """Take bytes of a position; yield messages, each with its position. None: where one begins is not known."""
        if start > self.next and not self._skip_to(start):
            return None
        return self._messages(data[max(self.next - start, 0) :])

    def _skip_to(self, start: int) -> bool:
        """Step over bytes that did not come, if they lie within one message."""
        if len(self.data) >= 2:
            self.skip_until = self.next - len(self.data) + 2 + int.from_bytes(self.data[:2])
        self.data, self.next = b"", start
        return start <= self.skip_until

    def _messages(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        skipped = min(max(self.skip_until - self.next, 0), len(data))
        self.next += len(data)
        self.data += data[skipped:]
        while len(self.data) >= 2:
            size = 2 + int.from_bytes(self.data[:2])
            first = self.next - len(self.data)
            if size > MESSAGE_BYTES:
                self.skip_until = first + size
                self.data = self.data[size:]
            elif len(self.data) < size:
                break
            else:
                message, self.data = self.data[2:size], self.data[size:]
                yield first + 2, message


class Names:
    """Makes rows of `fact_name`; remembers the half messages of TCP connections to port 53."""

    def __init__(self, layout: Layout) -> None:
        flags = layout.enum("data_flag")
        self._names = flags.get("DATA_NAMES", 0)
        self._unread = flags["DATA_PEEK"] | flags["DATA_OPAQUE"]
        self._close = layout.enum("connection_event")["CONNECTION_CLOSE"]
        self._streams: OrderedDict[int, _Stream | None] = OrderedDict()
        self.keep: Kept | None = None  # is told of the messages that name something

    def decode(self, batch: "Batch") -> pa.RecordBatch | None:
        """Return the names that the answers of a batch tell, None if there are none."""
        data = batch.records.get("data")
        rows = [] if data is None else list(self._rows(data))
        if self._streams and "connection" in batch.records:
            records = batch.records["connection"].fixed
            for cookie in records["cookie"][records["event"] == self._close].tolist():
                self._streams.pop(cookie, None)
        if not rows:
            return None
        times, pids, names, addresses = zip(*rows, strict=True)
        columns = {
            "time_ns": pa.array(times, pa.int64()),
            "pid": pa.array(pids, pa.int64()),  # 0: a capture does not know
            "name": pa.array(names, pa.string()),
            "address": pa.array(addresses, pa.string()),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _rows(self, data: "Records") -> Iterator[tuple[int, int, str, str]]:
        fixed = data.fixed
        wanted = (fixed["remote_port"] == PORT) | (fixed["flags"] & self._names != 0)
        if not wanted.any():
            return
        wanted &= (fixed["direction"] == RECEIVE) & (fixed["flags"] & self._unread == 0) & (fixed["head_size"] != 0)
        wanted &= np.isin(fixed["family"], (int(AF_INET), int(AF_INET6)))
        for at in np.flatnonzero(wanted).tolist():
            record = fixed[at]
            payload = data.tails[data.offsets[at] : data.offsets[at + 1]]
            time_ns, pid = int(record["time_ns"]), int(record["pid"])
            for position, raw in self._messages(record, payload):
                message = Message(raw)
                if message.answers and self.keep is not None:
                    self._keep(record, position, message)
                yield from ((time_ns, pid, *answer) for answer in message.answers)

    def _messages(self, record: Any, payload: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that a record completes, each with its position."""
        end, size = int(record["position_end"]), int(record["call_size"])
        if record["transport"] == IPPROTO_UDP:
            if len(payload) == size:
                yield end - size, payload
            return
        cookie, start = int(record["cookie"]), end - size + int(record["offset"])
        stream = self._streams.setdefault(cookie, _Stream())
        if len(self._streams) > STREAMS:
            self._streams.popitem(last=False)
        found = None if stream is None else stream.take(start, payload[: int(record["head_size"])])
        if found is None:
            self._streams[cookie] = None  # never a guess where a message begins
            return
        yield from found

    def _keep(self, record: Any, position: int, message: Message) -> None:
        assert self.keep is not None
        kept, cookie, time_ns = message.needed(), int(record["cookie"]), int(record["time_ns"])
        if record["transport"] != IPPROTO_UDP:
            kept, position = len(kept).to_bytes(2) + kept, position - 2
        self.keep(cookie, time_ns, position, kept)
