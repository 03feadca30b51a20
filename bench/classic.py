"""What tracing adds to a read of 64 bytes: tracehound against classic tracepoints that capture the same.

    python -m bench.classic [ROUNDS]

Classic is how tracers do it that hook system calls: a program on sys_enter_read keeps the arguments in a hash map, one
on sys_exit_read takes them out again and copies the payload into a ring buffer, without waking anybody. It knows no
socket and no position. Both filter by a hash map of processes, both rings are drained by C every 4 ms.

A C program reads what another process has already written to its TCP connection, 64 bytes a call, so nothing but the
read is timed. Series are interleaved; the least of each is taken; a second untraced series shows the noise. Each side
must deliver a record a read, or its timing does not count. tracefs is mounted in a mount namespace of the bench's own
if it is missing. Gate: tracehound adds at most 0.6 of what classic adds. Needs root, clang and libbpf's headers.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench._gates import Gates, rounds_from
from bench._tracefs import need_tracefs

from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.kernel.privileged import TRACE_ON, LoadSettings, Privileged
from tracehound.kernel.ring import Drain

MIB: Final = 1 << 20
READS: Final = 1000  # of one timing: 64 KB, which a receive buffer has room for
TIMINGS: Final = 12  # of one series in one round
UNTRACED: Final = "untraced"
AGAIN: Final = "untraced again"
CLASSIC: Final = "classic"
OURS: Final = "tracehound"
SERIES: Final = (UNTRACED, AGAIN, CLASSIC, OURS)
LIMIT: Final = 0.6

BPF: Final = r"""
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct arguments { __u64 fd, buffer; };
struct record { __u64 time_ns, id, fd, size; __u8 payload[64]; };
struct enter { __u64 common; __u32 number, hole; __u64 fd, buffer, count; };
struct leave { __u64 common; __u32 number, hole; __s64 result; };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} traced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct arguments);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} ring SEC(".maps");

SEC("tracepoint/syscalls/sys_enter_read")
int on_enter_read(struct enter *enter)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	struct arguments arguments = {enter->fd, enter->buffer};

	if (bpf_map_lookup_elem(&traced, &tgid))
		bpf_map_update_elem(&calls, &id, &arguments, BPF_ANY);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_read")
int on_exit_read(struct leave *leave)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct arguments *arguments;
	struct record *record;
	__u32 size = sizeof(record->payload);

	arguments = bpf_map_lookup_elem(&calls, &id);
	if (!arguments)
		return 0;
	if (leave->result > 0) {
		record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
		if (record) {
			record->time_ns = bpf_ktime_get_ns();
			record->id = id;
			record->fd = arguments->fd;
			record->size = leave->result;
			if (leave->result < size)
				size = leave->result & 63;
			bpf_probe_read_user(record->payload, size, (void *)arguments->buffer);
			bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
		}
	}
	bpf_map_delete_elem(&calls, &id);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
"""

# loads and attaches, traces the process it is given, drains until its input ends, then says how many records came
LOADER: Final = r"""
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static long records;

static int on_record(void *context, void *data, size_t size)
{
	records += ((__u64 *)data)[3] == 64; /* not those of the target's orders */
	return 0;
}

int main(int argc, char **argv)
{
	struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
	unsigned int pid = atoi(argv[2]), on = 1;
	struct pollfd input = {.fd = 0, .events = POLLIN};
	struct bpf_program *program;
	struct ring_buffer *ring;

	if (!object || bpf_object__load(object))
		return 1;
	bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "traced"), &pid, &on, BPF_ANY);
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "ring"), on_record, NULL, NULL);
	bpf_object__for_each_program(program, object)
		if (libbpf_get_error(bpf_program__attach(program)))
			return 1;
	puts("ready");
	fflush(stdout);
	while (!poll(&input, 1, 4))
		ring_buffer__consume(ring);
	ring_buffer__consume(ring);
	printf("%ld\n", records);
	return 0;
}
"""

# a child writes n times 64 bytes when it is told to; then n reads of them are timed
TARGET: Final = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

static void serve(int order, int client)
{
	static char data[64 * 4096];
	int n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (n = 0; n < 4096; n++) /* what is recognised is captured whole */
		strcpy(data + 64 * n, "GET /orders HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n");
	while (read(order, &n, sizeof(n)) == sizeof(n))
		for (int left = n * 64, wrote; left > 0; left -= wrote)
			if ((wrote = write(client, data, left)) <= 0)
				exit(1);
	exit(0);
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server;
	int order[2], room = 4 << 20, waiting, n, i;
	char buffer[64];
	double start;

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	bind(listener, (struct sockaddr *)&address, sizeof(address));
	listen(listener, 1);
	getsockname(listener, (struct sockaddr *)&address, &length);
	connect(client, (struct sockaddr *)&address, sizeof(address));
	server = accept(listener, NULL, NULL);
	if (pipe(order))
		return 1;
	if (!fork())
		serve(order[0], client);
	while (scanf("%d", &n) == 1) {
		if (write(order[1], &n, sizeof(n)) != sizeof(n))
			return 1;
		do {
			usleep(200);
			ioctl(server, FIONREAD, &waiting);
		} while (waiting < n * 64);
		start = now();
		for (i = 0; i < n; i++)
			if (read(server, buffer, 64) != 64)
				return 1;
		printf("%.1f\n", (now() - start) / n);
		fflush(stdout);
	}
	return 0;
}
"""


class Programs:
    """The compiled pieces, and the one target that all series time."""

    def __init__(self, folder: Path) -> None:
        self.object = folder / "classic.bpf.o"
        include = f"-I/usr/include/{sys.implementation._multiarch}"
        compile_text(BPF, ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", include, "-c"], self.object)
        self.loader = compile_text(LOADER, ["cc", "-O2"], folder / "loader", "-lbpf")
        program = compile_text(TARGET, ["cc", "-O2"], folder / "target")
        self.target = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time_read(self) -> float:
        """Return ns per read, the least of some timings."""
        assert self.target.stdin and self.target.stdout
        least = float("inf")
        for _ in range(TIMINGS):
            print(READS, file=self.target.stdin, flush=True)
            least = min(least, float(self.target.stdout.readline()))
        return least

    def close(self) -> None:
        """End the target."""
        assert self.target.stdin
        self.target.stdin.close()
        self.target.wait()


def compile_text(text: str, command: list[str], target: Path, *libraries: str) -> Path:
    """Compile C text; returns `target`."""
    subprocess.run([*command, "-x", "c", "-", "-o", target, *libraries], input=text, text=True, check=True)
    return target


def time_untraced(programs: Programs) -> tuple[float, int]:
    """Return ns per read, and that every read counts."""
    return programs.time_read(), READS * TIMINGS


def time_classic(programs: Programs) -> tuple[float, int]:
    """Return ns per read under the classic programs, and the records that came."""
    command = [str(programs.loader), str(programs.object), str(programs.target.pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loader:
        assert loader.stdin and loader.stdout
        if loader.stdout.readline() != "ready\n":
            raise SystemExit("the classic programs cannot be loaded")
        least = programs.time_read()
        loader.stdin.close()
        return least, int(loader.stdout.readline())


def time_ours(programs: Programs) -> tuple[float, int]:
    """Return ns per read under tracehound, and the records with 64 bytes that came."""
    with Privileged(LoadSettings(32 * MIB, 4 * MIB)) as kernel:
        fds = kernel.ring_fds()
        with Drain([(fds["lifecycle"], 4 * MIB, 1), (fds["data"], 32 * MIB, 2)]) as drain:
            kernel.mark(programs.target.pid, TRACE_ON)
            least = programs.time_read()
            drain.stop()
            return least, count_data(drain.take())


def count_data(arenas: list[Any]) -> int:
    """Return how many records have a payload of 64 bytes."""
    batches = [split(raw, wire_layout()) for raw in arenas]
    return sum(
        int((batch.records["data"].fixed["head_size"] == 64).sum()) for batch in batches if "data" in batch.records
    )


WAYS: Final = {UNTRACED: time_untraced, AGAIN: time_untraced, CLASSIC: time_classic, OURS: time_ours}


def measure(programs: Programs, rounds: int) -> dict[str, list[float]]:
    """Return ns per read, by series, a value a round; a round in which a side lost records is left out."""
    found: dict[str, list[float]] = {name: [] for name in SERIES}
    for number in range(rounds + 1):
        times = {}
        for name in random.Random(number).sample(SERIES, len(SERIES)):
            times[name], records = WAYS[name](programs)
            if records != READS * TIMINGS:
                print(f"round {number}: {name} delivered {records} of {READS * TIMINGS} records, left out")
                break
        if number and len(times) == len(SERIES):
            for name, value in times.items():
                found[name].append(value)
    return found


@contextmanager
def prepared() -> Iterator[Programs]:
    """Compile all and start the target."""
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(Path(folder))
        try:
            yield programs
        finally:
            programs.close()


def main() -> None:
    """Print both sides and the gate."""
    if os.geteuid() != 0:
        sys.exit("needs root: it loads BPF programs")
    need_tracefs("classic")
    rounds = rounds_from(sys.argv, 12)
    began = time.monotonic()
    with prepared() as programs:
        found = measure(programs, rounds)
    if not found[OURS]:
        sys.exit("records were lost in every round: this machine is too busy")
    print(f"{len(found[OURS])} interleaved rounds in {time.monotonic() - began:.0f} s: ns per read of 64 B from TCP")
    base = min(*found[UNTRACED], *found[AGAIN])
    print(f"{'':16}{'least':>8}{'added':>8}{'median':>8}")
    for name, values in found.items():
        print(f"{name:16}{min(values):8.0f}{min(values) - base:8.0f}{statistics.median(values):8.0f}")
    print(f"noise (least of the two untraced series): {abs(min(found[UNTRACED]) - min(found[AGAIN])):.0f} ns")
    gates = Gates()
    ratio = (min(found[OURS]) - base) / (min(found[CLASSIC]) - base)
    gates.at_most("ns added to a read of 64 B, tracehound / classic enter+exit tracepoints", ratio, LIMIT)
    gates.exit()


if __name__ == "__main__":
    main()
