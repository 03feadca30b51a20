"""The tables that users see: the public data contract, as Arrow schemas.

Schemas are stated as plain tuples and become pyarrow ones on first use, so that importing this module costs nothing.
Times, durations, positions, sizes and ids are int64 (nanoseconds, bytes); `time_ns` is CLOCK_MONOTONIC at the moment a
row became true. `docs/tables.md` is generated from this file.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """One column: its name, its type (a key of `TYPES`) and what it says."""

    name: str
    type: str
    doc: str


TYPES: Final = (
    "int64", "uint64", "int32", "string", "bool", "binary", "timestamp", "exchange", "strings", "arguments",
    "registers", "frames",
)  # fmt: skip

COMMON: Final = (
    Column("time_ns", "int64", "when the row became true, CLOCK_MONOTONIC"),
    Column("wall_time", "timestamp", "the same moment by the wall clock, from the newest clock anchor"),
    Column("pid", "int32", "thread group, in the initial pid namespace"),
    Column("ns_pid", "int32", "the same in the process's own pid namespace"),
    Column("tid", "int32", "thread; null where the kernel acted for the owner"),
    Column("process_start_ns", "int64", "when the process started: with pid, its identity"),
    Column("comm", "string", "the thread group's name in the kernel"),
    Column("service", "string", "OTEL_SERVICE_NAME, else the script's stem, else the executable's name"),
    Column("preexisting", "bool", "was there before the trace began"),
)

PROCESSES: Final = (
    Column("event", "string", "start (fork), exec, exit (last thread gone)"),
    Column("ppid", "int32", "parent"),
    Column("exe", "string", "path of the executable; null for start"),
    Column("argv", "strings", "the first 4 KiB of the arguments; null but for exec"),
    Column("uid", "int64", "user"),
    Column("cgroup_id", "int64", "id of its cgroup (version 2)"),
    Column("cgroup", "string", "path of its cgroup"),
    Column("container", "string", "container id found in the cgroup's path"),
    Column("exit_code", "int32", "null unless it exited by itself"),
    Column("signal", "string", "signal that ended it, else null"),
    Column("reason", "string", "none, oom_kill; null unless exit"),
    Column("duration_ns", "int64", "exit: since fork; exec: since the previous exec"),
)

ENDPOINTS: Final = (
    Column("transport", "string", "tcp, udp, unix"),
    Column("role", "string", "client, server; null if unknown"),
    Column("family", "string", "ipv4, ipv6, unix"),
    Column("local_ip", "string", "address of this end"),
    Column("local_port", "int32", "port of this end"),
    Column("remote_ip", "string", "address of the other end"),
    Column("remote_port", "int32", "port of the other end"),
)

CONNECTIONS: Final = (
    Column("event", "string", "open, accept, error, close, snapshot"),
    Column("connection", "int64", "one cookie and attempt"),
    Column("cookie", "uint64", "the kernel's id of the socket; never 0"),
    *ENDPOINTS,
    Column("actual_remote_ip", "string", "remote address after NAT; null if there was none"),
    Column("actual_remote_port", "int32", "remote port after NAT; null if there was none"),
    Column("remote_name", "string", "name of the remote address, from an answer of DNS that was seen before"),
    Column("local_path", "string", "unix: path of this end"),
    Column("remote_path", "string", "unix: path of the other end"),
    Column("peer_pid", "int32", "unix: process of the other end"),
    Column("fd", "int32", "descriptor of its first call"),
    Column(
        "generation",
        "int64",
        "how often the descriptor's slot was given up before: with fd, its identity; null unless files is on",
    ),
    Column("connect_ns", "int64", "SYN to established"),
    Column("first_read_ns", "int64", "first read with data; null while requests is off"),
    Column("first_write_ns", "int64", "first write; null while requests is off"),
    Column("last_read_start_ns", "int64", "first read with data after the last write; null while requests is off"),
    Column("send_calls", "int64", "calls that sent"),
    Column("receive_calls", "int64", "calls that received"),
    Column("bytes_sent", "int64", "payload sent, without SYN, FIN and retransmissions"),
    Column("bytes_received", "int64", "payload received"),
    Column("retransmits", "int64", "segments sent again"),
    Column("srtt_us", "int64", "smoothed round trip"),
    Column("state", "string", "TCP state"),
    Column("error", "string", "errno name, else null"),
    Column("protocol", "string", "protocol found in its bytes"),
    Column("why", "string", "why the protocol is unknown"),
)

LISTENS: Final = (
    Column("event", "string", "open, close"),
    Column("cookie", "uint64", "the kernel's id of the socket"),
    Column("family", "string", "ipv4, ipv6, unix"),
    Column("local_ip", "string", "address"),
    Column("local_port", "int32", "port"),
    Column("local_path", "string", "unix: path"),
    Column("backlog", "int32", "longest accept queue asked for"),
)

RETRANSMITS: Final = (
    Column("connection", "int64", "which connection"),
    Column("state", "string", "TCP state"),
    Column("sequence", "int64", "TCP sequence number"),
    Column("size_bytes", "int64", "of the segment"),
)

FILES: Final = (
    Column("path", "string", "as given"),
    Column(
        "resolved_path",
        "string",
        "absolute: what was opened, links followed; if that failed, the path behind its directory",
    ),
    Column("path_truncated", "bool", "path was longer than the 4,096 bytes that are kept"),
    Column("flags", "strings", "open flags by name"),
    Column("mode", "int32", "mode bits asked for; null unless it may create"),
    Column("fd", "int32", "descriptor, null if it failed"),
    Column("errno", "string", "errno name, else null"),
    Column("duration_ns", "int64", "of the call"),
)

REQUESTS: Final = (
    Column("request", "int64", "id of the row"),
    Column("protocol", "string", "http1, redis, ..."),
    Column("role", "string", "client, server; null if unknown"),
    Column("connection", "int64", "connection it travelled on"),
    Column("local_ip", "string", "address of this end"),
    Column("local_port", "int32", "port of this end"),
    Column("remote_ip", "string", "address of the other end"),
    Column("remote_port", "int32", "port of the other end"),
    Column("exchange", "exchange", "id that both ends of one call compute alone"),
    Column("stream_id", "int64", "stream within the connection"),
    Column("operation", "string", "method, command, ..."),
    Column("resource", "string", "path, table, key, topic, ..."),
    Column("route", "string", "resource with its ids templated"),
    Column("statement", "string", "SQL or other statement, redacted"),
    Column("statement_id", "string", "name of a prepared statement"),
    Column("status", "int32", "the protocol's numeric status"),
    Column("outcome", "string", "ok, client_error, server_error, no_response, unknown"),
    Column("error_type", "string", "the protocol's word for the error"),
    Column("error_message", "string", "the error's text, redacted"),
    Column("request_bytes", "int64", "size on the wire"),
    Column("response_bytes", "int64", "size on the wire"),
    Column("request_position", "int64", "stream position of its first byte"),
    Column("response_position", "int64", "stream position of the response's first byte"),
    Column("start_ns", "int64", "client: the call that wrote its first byte; server: the call that read it"),
    Column("first_response_ns", "int64", "client: the read with the response's first byte; server: its first write"),
    Column("end_ns", "int64", "exit of the call with the last byte"),
    Column("duration_ns", "int64", "end_ns - start_ns"),
    Column("tls", "bool", "it travelled in TLS"),
    Column("truncated", "bool", "some of it was not captured"),
    Column("gap", "bool", "bytes of its connection were lost while it was under way"),
    Column("prepared_unknown", "bool", "its statement was prepared before the trace"),
    Column("joined_midstream", "bool", "its connection was there before the trace"),
    Column(
        "peer_service",
        "string",
        "service of the other end; if it is not known its container's short id, or a name of its address (DNS seen)",
    ),
    Column("peer_service_inferred", "bool", "peer_service is a guess from the address: a name of DNS"),
    Column("goroutine", "int64", "Go"),
    Column("task", "int64", "asyncio"),
    Column("trace_id", "string", "W3C trace id"),
    Column("parent_span_id", "string", "W3C parent id"),
    Column("trace_flags", "int32", "W3C trace flags"),
)

PAYLOADS: Final = (
    Column("connection", "int64", "which connection"),
    Column("direction", "string", "send, receive"),
    Column("source", "string", "syscall, packet, openssl, ..."),
    Column("protocol", "string", "protocol of the connection"),
    Column("transport", "string", "tcp, udp, unix"),
    Column("position", "int64", "byte in the stream"),
    Column("tcp_sequence", "int64", "TCP sequence number"),
    Column("size_bytes", "int64", "of the call"),
    Column("captured_bytes", "int64", "of them kept"),
    Column("message_type", "string", "request, response, unknown"),
    Column("request", "int64", "row of requests"),
    Column("goroutine", "int64", "Go"),
    Column("task", "int64", "asyncio"),
    Column("trace_id", "string", "W3C trace id"),
    Column("bytes", "binary", "the bytes"),
)

CALLS: Final = (
    Column("call", "int64", "one call of a point; unique in a trace"),
    Column(
        "event",
        "string",
        "call (of a function whose returns are seen), entry (the place was reached), watch (of an address)",
    ),
    Column("point", "string", "which point, LIB:SYMBOL"),
    Column("module", "string", "path of the file"),
    Column("symbol", "string", "function that the place lies in"),
    Column("file_offset", "int64", "of the place in the file"),
    Column("ip", "int64", "address of the place in memory"),
    Column("bp", "int64", "frame pointer register at the entry"),
    Column("sp", "int64", "stack pointer at the entry"),
    Column("caller_ip", "int64", "return address; null for event entry"),
    Column("entry_ns", "int64", "when it began"),
    Column("return_ns", "int64", "when it returned; null if that was not seen"),
    Column("duration_ns", "int64", "return_ns - entry_ns"),
    Column("args", "arguments", "the arguments: name, type, value as text (buf: hex; null: could not be read)"),
    Column("return_value", "int64", "register of the return value; a system call's result: -1 if it failed"),
    Column("registers", "registers", "registers at the entry: name, value; with --regs and --reg"),
    Column("stack_id", "int64", "its stack, a row of `stacks`; with --stack, null if that was lost"),
    Column("errno", "string", "name of an error whose negative number was returned; of a system call: of its error"),
    Column("cpu", "int32", "CPU of its entry"),
    Column("incomplete", "bool", "its return was not seen: longjmp, exit, exec, a tail call, a loss, the trace's end"),
)

STACKS: Final = (
    Column("stack_id", "int64", "hash of its status and frames: the same stack has the same id everywhere"),
    Column(
        "status",
        "string",
        "complete; fp_used, patched: complete too, but with frames found by frame pointer, or with return addresses "
        "put back that a uretprobe had replaced; truncated: the rest was not copied; no_mapping, bad_cfi, max_depth: "
        "why it ends; no_user_regs: nothing to begin with",
    ),
    Column("depth", "int32", "how many frames were found, without inlined ones"),
    Column(
        "frames",
        "frames",
        "innermost first, each with kind (native, python, jit, kernel), build_id, file, file_offset (of the "
        "instruction; of a caller, of its call's last byte), address, symbol, symbol_offset, source, line, inlined "
        "(into the next frame), guessed (found by frame pointer alone)",
    ),
)

PROBES: Final = (
    Column("time_ns", "int64", "when that was so: one row at the start, one with its counts at the end"),
    Column("wall_time", "timestamp", "the same moment by the wall clock"),
    Column("program", "string", "BPF program"),
    Column("point", "string", "where it is attached"),
    Column("target", "string", "process or file, null for the kernel"),
    Column("attached", "bool", "whether it is"),
    Column("reason", "string", "why not"),
    Column("lost_by_it", "string", "what is missing without it"),
    Column("hits", "int64", "runs, if the kernel counts them (kernel.bpf_stats_enabled)"),
    Column("misses", "int64", "runs that the kernel skipped"),
    Column("run_time_ns", "int64", "time in it, if the kernel counts that"),
)

LOSSES: Final = (
    Column("time_ns", "int64", "end of the interval"),
    Column("wall_time", "timestamp", "the same moment by the wall clock"),
    Column("stage", "string", "kernel, ring, drain, stream, parse, pairing, recording, capture"),
    Column("counter", "string", "ring_full, backlog_full, gap, parse_error, ..."),
    Column("count", "int64", "how many (bytes for gap)"),
    Column("first_ns", "int64", "start of the interval"),
    Column("last_ns", "int64", "end of the interval"),
    Column("cpu", "int32", "null if not of one"),
    Column("connection", "int64", "null if not of one"),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "processes": (*COMMON, *PROCESSES),
    "connections": (*COMMON, *CONNECTIONS),
    "listens": (*COMMON, *LISTENS),
    "retransmits": (*COMMON, *RETRANSMITS),
    "files": (*COMMON, *FILES),
    "requests": (*COMMON, *REQUESTS),
    "payloads": (*COMMON, *PAYLOADS),
    "calls": (*COMMON, *CALLS),
    "stacks": STACKS,
    "probes": PROBES,
    "losses": LOSSES,
}


FRAME: Final = (  # members of a frame of `stacks`
    ("kind", "string"), ("build_id", "string"), ("file", "string"), ("file_offset", "int64"), ("address", "int64"),
    ("symbol", "string"), ("symbol_offset", "int64"), ("source", "string"), ("line", "int32"), ("inlined", "bool"),
    ("guessed", "bool"),
)  # fmt: skip


@cache
def arrow_type(name: str) -> "pa.DataType":
    """Return the Arrow type of a column type of `TYPES`."""
    import pyarrow as pa

    return {
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "int32": pa.int32(),
        "string": pa.string(),
        "bool": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("ns", "UTC"),
        "exchange": pa.binary(16),
        "strings": pa.list_(pa.string()),
        "arguments": pa.list_(pa.struct([(name, pa.string()) for name in ("name", "type", "value")])),
        "registers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.int64())])),
        "frames": pa.list_(pa.struct(FRAME)),
    }[name]


def requests_columns(extras: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of `requests` with the protocols' extra ones, each name once; raises ValueError on a clash."""
    columns = list(TABLES["requests"])
    known = {column.name: column.type for column in columns}
    for column in extras:
        if known.setdefault(column.name, column.type) != column.type:
            raise ValueError(f"column {column.name} is {known[column.name]} and {column.type}")
        if column.name not in {c.name for c in columns}:
            columns.append(column)
    return tuple(columns)


@cache
def arrow_schema(columns: tuple[Column, ...]) -> "pa.Schema":
    """Return the columns as a pyarrow schema."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def build(columns: tuple[Column, ...], rows: int, values: Mapping[str, Sequence[Any] | Any]) -> "pa.RecordBatch":
    """Build one record batch of `rows` rows with every column of `columns`; those not in `values` are null.

    A value is a pyarrow array, a numpy array (with or without mask) or a sequence, of length `rows`.
    """
    import pyarrow as pa

    schema = arrow_schema(columns)
    unknown = values.keys() - set(schema.names)
    if unknown:
        raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
    arrays = []
    for column in schema:
        given = values.get(column.name)
        if given is None:
            arrays.append(pa.nulls(rows, column.type))
        elif isinstance(given, pa.Array):
            arrays.append(given if given.type == column.type else given.cast(column.type))
        else:
            arrays.append(pa.array(given, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
