"""How long attaching takes beside many open sockets, and whether each is told once: SOCKETS (50,000) in 3 processes.

    python bench/attach.py [SOCKETS]

The sockets are idle loopback connections, both ends in the same process. Printed: the time to load and attach, to take
in the processes and sockets (until then new connections are not told), and to list what is open, each against the time
that reading /proc/net/tcp takes. Needs root; fails if a socket is missing or told twice.
"""

import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tracehound.batch import split
from tracehound.btf import wire_layout
from tracehound.kernel.iterators import list_open, seed_processes, seed_sockets
from tracehound.kernel.privileged import LoadSettings, Privileged

MIB = 1 << 20
PROCESSES = 3
NETWORKS = ("/proc/self/ns/net",)
TARGET = """
import resource, signal, socket, sys
signal.alarm(120)
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
kept = []
for _ in range(int(sys.argv[1])):
    kept.append(socket.create_connection(listener.getsockname()))
    kept.append(listener.accept()[0])
print("ready", flush=True)
sys.stdin.read()
"""


def connections(raw: bytes) -> Counter[int]:
    """Return how often each connection is in the records."""
    layout = wire_layout()
    records = split(raw, layout).records["connection"].fixed
    shots = records[records["event"] == layout.enum("connection_event")["CONNECTION_SNAPSHOT"]]
    return Counter(np.asarray(shots["cookie"]).tolist())


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    pairs = min(wanted // (2 * PROCESSES), (most - 100) // 2)
    command = [sys.executable, "-c", TARGET, str(pairs)]
    pipe = subprocess.PIPE
    targets = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(PROCESSES)]
    try:
        for target in targets:
            assert target.stdout is not None and target.stdout.readline() == "ready\n"
        return measure([target.pid for target in targets], 2 * PROCESSES * pairs)
    finally:
        for target in targets:
            target.communicate()


def measure(pids: list[int], sockets: int) -> int:
    """Print the times; return 1 if the sockets told are not those that there are."""
    start = time.perf_counter()
    Path("/proc/net/tcp").read_bytes()
    proc_s = time.perf_counter() - start
    times = [time.perf_counter()]
    with Privileged(LoadSettings(16 * MIB, 4 * MIB, network_namespaces=NETWORKS)) as kernel:
        times.append(time.perf_counter())
        kernel.add_target_pids(pids)
        seed_processes(kernel)
        told = connections(seed_sockets(kernel, NETWORKS))
        times.append(time.perf_counter())
        listed = connections(list_open(kernel, NETWORKS))
        times.append(time.perf_counter())
    print(f"{sockets:,} sockets in {PROCESSES} processes; /proc/net/tcp alone {proc_s * 1e3:.0f} ms")
    for name, begin, end in zip(("load and attach", "take in", "list open"), times, times[1:], strict=False):
        print(f"{name:16} {(end - begin) * 1e3:6.0f} ms  {(end - begin) / proc_s:5.2f} of /proc/net/tcp")
    for name, found in (("take in", told), ("list open", listed)):
        if len(found) != sockets or set(found.values()) != {1}:
            print(f"{name}: {len(found)} sockets were told, {max(found.values(), default=0)} times at most")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
