"""What a record costs the reader: the C drain against a Python callback per record, on the same ring.

    python -m bench.drain [ROUNDS]

A BPF program fills a real BPF ring buffer (BPF_PROG_TEST_RUN); then the backlog is read and let go by one of
- callback: libbpf's ring_buffer__consume with a cffi `extern "Python"` callback that unpacks the record's members with
  `struct` and copies its tail, the usual way to do it in Python. Two of them: one throws each record away before the
  next (the cheapest that a callback can be), one keeps them all for later work, as the drain does;
- drain: the drain's C, into arenas, all kept;
- drain + split + merge: the same, then into columns in the order of time, ready for decode.
The ways alternate in one run; the least of each counts (noise only adds). Gates: the drain costs at most 1/25 of a
callback at 64 bytes, 1/5 at 1 KiB, by either definition of the callback, on either backlog. Needs root and clang.
"""

import importlib
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from bench._gates import Gates, rounds_from
from cffi import FFI

from tracehound.batch import Merge, split
from tracehound.btf import wire_layout
from tracehound.kernel.ring import take_arenas
from tracehound.native import ffi, lib

ROOT: Final = Path(__file__).parents[1]
RING_BYTES: Final = 16 << 20  # the default of the data ring; half full the kernel side wakes the drain
BACKLOGS: Final = {RING_BYTES // 2: "a half full ring", 1 << 20: "25 ms of 40 MiB/s"}
GATES: Final = {64: 25.0, 1024: 5.0}
# kind and fixed size of the records: 64 bytes have room for a small one only
KINDS: Final = {64: "fact_cgroup", 1024: "data"}
THROWS: Final = "callback, throws away"
KEEPS: Final = "callback, keeps"
DRAIN: Final = "drain"

PRODUCER: Final = """
#include "wire.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

struct order {
	__u64 count, kind, time_ns;
};

#define PRODUCE(bytes)                                                                             \\
	static long put_##bytes(__u32 index, struct order *order)                                       \\
	{                                                                                              \\
		struct record_header *header = bpf_ringbuf_reserve(&ring, bytes, 0);                        \\
                                                                                                   \\
		if (!header)                                                                               \\
			return 1;                                                                              \\
		header->time_ns = order->time_ns + index;                                                  \\
		header->size = bytes;                                                                       \\
		header->kind = order->kind;                                                                \\
		header->cpu = 0;                                                                           \\
		header->ring_seq = index;                                                                  \\
		bpf_ringbuf_submit(header, BPF_RB_NO_WAKEUP);                                              \\
		return 0;                                                                                  \\
	}                                                                                              \\
	SEC("syscall") int produce_##bytes(struct order *order)                                         \\
	{                                                                                              \\
		struct order copy = *order;                                                                \\
                                                                                                   \\
		return bpf_loop(copy.count, put_##bytes, &copy, 0);                                         \\
	}

PRODUCE(64)
PRODUCE(1024)

char producer_license[] SEC("license") = "GPL";
"""

READER_HEADER: Final = """
int reader_open(const char *path);
int reader_fill(uint32_t size, uint32_t count, uint32_t kind, uint64_t time_ns);
int reader_consume(void);
extern "Python" int on_record(void *context, void *data, size_t size);
"""

READER: Final = """
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static int on_record(void *context, void *data, size_t size);
static struct bpf_object *object;
static struct ring_buffer *reader;

static int reader_open(const char *path)
{
	int fd;

	object = bpf_object__open_file(path, NULL);
	if (!object || bpf_object__load(object))
		return -1;
	fd = bpf_object__find_map_fd_by_name(object, "ring");
	reader = ring_buffer__new(fd, on_record, NULL, NULL);
	return reader ? fd : -1;
}

static int reader_fill(uint32_t size, uint32_t count, uint32_t kind, uint64_t time_ns)
{
	struct { uint64_t count, kind, time_ns; } order = {count, kind, time_ns};
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &order, .ctx_size_in = sizeof(order));
	const char *name = size == 64 ? "produce_64" : "produce_1024";
	int fd = bpf_program__fd(bpf_object__find_program_by_name(object, name));

	int error = bpf_prog_test_run_opts(fd, &options);

	return error ? error : (int)options.retval;
}

static int reader_consume(void)
{
	return ring_buffer__consume(reader);
}
"""


def build_reader(folder: Path) -> Any:
    """Compile the producer and the callback reader; return the reader's module."""
    source, target = folder / "producer.bpf.c", folder / "producer.bpf.o"
    source.write_text(PRODUCER.replace("RING_BYTES", str(RING_BYTES)))
    include = [f"-I{ROOT / 'bpf' / 'include'}", f"-I/usr/include/{sys.implementation._multiarch}"]
    subprocess.run(
        ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", *include, "-c", source, "-o", target], check=True
    )
    builder = FFI()
    builder.cdef(READER_HEADER)
    builder.set_source("callback_reader", READER, libraries=["bpf"], extra_compile_args=["-O2"])
    builder.compile(tmpdir=str(folder))
    sys.path.insert(0, str(folder))
    return importlib.import_module("callback_reader")


def define_callback(module: Any, ways: "Ways") -> None:
    """Let the callback do what its users do: unpack the members, copy the tail, and keep them if that is wanted."""
    layout, buffer = wire_layout(), module.ffi.buffer
    dtypes = {size: layout.dtypes[kind] for size, kind in KINDS.items()}
    by_size = {size: (unpacker(dtype).unpack_from, dtype.itemsize) for size, dtype in dtypes.items()}
    keep = ways.kept.append

    @module.ffi.def_extern()  # type: ignore[untyped-decorator]
    def on_record(_context: Any, data: Any, size: int) -> int:
        record = buffer(data, size)
        unpack, fixed_size = by_size[size]
        found = (unpack(record), record[fixed_size:])
        if ways.is_keeping:
            keep(found)
        return 0


def unpacker(dtype: np.dtype[np.void]) -> struct.Struct:
    """Return the struct that unpacks a record without holes, a value per member."""
    codes = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i4": "i", "i8": "q"}
    assert dtype.fields is not None
    return struct.Struct("<" + "".join(codes[member[0].str[1:]] for member in dtype.fields.values()))


class Ways:
    """The ways to read the ring; each reads all and returns how many records it saw."""

    def __init__(self, reader: Any, ring_fd: int) -> None:
        self._reader = reader
        self.kept: list[object] = []
        self.is_keeping = False
        define_callback(reader, self)
        self._layout = wire_layout()
        self._drain = lib.drain_new(1 << 30, 1 << 20, -1)
        status = lib.drain_add_ring(self._drain, ring_fd, RING_BYTES, self._layout.enum("ring_id")["RING_DATA"])
        if status:
            raise SystemExit(f"cannot map the ring: {status}")

    def all(self) -> dict[str, Callable[[], int]]:
        """Return the ways by name."""
        return {THROWS: self.throw, KEEPS: self.keep, DRAIN: self.drain, "drain + split + merge": self.merge}

    def throw(self) -> int:
        """Read by libbpf and a Python callback that lets each record go."""
        self.is_keeping = False
        return int(self._reader.lib.reader_consume())

    def keep(self) -> int:
        """Read by libbpf and a Python callback that keeps all records; then let them go."""
        self.is_keeping = True
        count = int(self._reader.lib.reader_consume())
        self.kept.clear()
        return count

    def drain(self) -> int:
        """Read into arenas."""
        before = self._records()
        lib.drain_pass(self._drain, time.monotonic_ns())
        take_arenas(self._drain)
        return self._records() - before

    def merge(self) -> int:
        """Read into columns in the order of time."""
        merge = Merge(self._layout)
        lib.drain_pass(self._drain, time.monotonic_ns())
        arenas = take_arenas(self._drain)
        while arenas:
            merge.push(split(arenas.pop(0), self._layout))
        batch = merge.flush()
        return sum(len(records) for records in batch.records.values()) - 1 if batch else 0  # less the tick

    def _records(self) -> int:
        counters = ffi.new("struct drain_counters *")
        lib.drain_read_counters(self._drain, counters)
        return int(counters.data.records)


def measure(reader: Any, ways: Ways, size: int, backlog: int, rounds: int) -> dict[str, float]:
    """Return the least ns per record of each way for records of `size` bytes."""
    kind = next(number for number, name in wire_layout().kinds.items() if name == KINDS[size])
    count = backlog // (size + 8)
    seen: dict[str, list[float]] = {name: [] for name in ways.all()}
    for number in range(rounds + 1):
        for name, read in ways.all().items():
            filled = reader.lib.reader_fill(size, count, kind, time.monotonic_ns())
            if filled != count:
                raise SystemExit(f"the producer wrote {filled} of {count} records")
            start = time.perf_counter_ns()
            records = read()
            elapsed = time.perf_counter_ns() - start
            if records != count:
                raise SystemExit(f"{name} saw {records} of {count} records")
            if number:  # the first warms up
                seen[name].append(elapsed / count)
    return {name: min(values) for name, values in seen.items()}


def state(gates: Gates, size: int, where: str, found: dict[str, float]) -> None:
    """Print what was found for records of one size, and its gates."""
    for name, value in found.items():
        ratios = f"{found[THROWS] / value:8.1f}{found[KEEPS] / value:8.1f}"
        print(f"  {size:>4} B  {name:<24} {value:8.1f} {ratios}")
    for name in (THROWS, KEEPS):
        gates.at_least(f"{size} B, {where}: {name} / drain", found[name] / found[DRAIN], GATES[size])


def main() -> None:
    """Measure, print, and tell whether the gates hold."""
    rounds = rounds_from(sys.argv, 25)
    gates = Gates()
    with tempfile.TemporaryDirectory() as folder:
        reader = build_reader(Path(folder))
        ring_fd = reader.lib.reader_open(str(Path(folder) / "producer.bpf.o").encode())
        if ring_fd < 0:
            raise SystemExit("cannot load the producer")
        ways = Ways(reader, ring_fd)
        print(
            f"records in a BPF ring buffer, least of {rounds} rounds: ns per record, times cheaper than each callback"
        )
        for backlog, meaning in BACKLOGS.items():
            print(f"backlog of {backlog >> 20} MiB ({meaning})")
            for size in GATES:
                state(gates, size, f"{backlog >> 20} MiB", measure(reader, ways, size, backlog, rounds))
    gates.exit()


if __name__ == "__main__":
    main()
