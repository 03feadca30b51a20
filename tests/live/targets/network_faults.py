"""What goes wrong between two ends, by name: `unshare --net network_faults.py RESULT`, a network namespace of its own.

RESULT gets for each case the ports of its connection, the processes of both ends and what they counted.
"""

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

THREADS, REQUESTS = 50, 40
SLOW_BYTES = 4 << 20
OUTAGE_S = 0.7
TCP_INFO_TOTAL_RETRANS = 100  # offset in struct tcp_info
told: dict[str, dict[str, Any]] = {}


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=10)


def drop(port: int) -> None:
    chain = "add table inet faults; add chain inet faults input { type filter hook input priority 0; }"
    run("nft", f"{chain}; add rule inet faults input tcp dport {port} drop")


def pass_again() -> None:
    run("nft", "delete table inet faults")


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode()


def reply(size: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size


def receive(connection: socket.socket, size: int, pause_s: float = 0.0) -> None:
    while size:
        data = connection.recv(min(size, 1 << 16))
        assert data, f"end of stream, {size} bytes early"
        size -= len(data)
        time.sleep(pause_s)


def pair(case: str, host: str = "127.0.0.1", bound: str | None = None) -> tuple[socket.socket, socket.socket]:
    """Return client and server end of a new connection on a new listener."""
    family = socket.AF_INET6 if ":" in (bound or host) else socket.AF_INET
    with socket.create_server((bound or host, 0), family=family, dualstack_ipv6=bound == "::") as listener:
        client = socket.create_connection((host, listener.getsockname()[1]), 10)
        server, _ = listener.accept()
    server.settimeout(10)
    told[case] = {"client": client.getsockname()[1], "server": server.getsockname()[1], "pid": os.getpid()}
    return client, server


def exchange(client: socket.socket, server: socket.socket, path: str) -> None:
    client.sendall(get(path))
    receive(server, len(get(path)))
    server.sendall(reply(10))
    receive(client, len(reply(10)))


def close(*connections: socket.socket) -> None:
    for connection in connections:
        connection.close()


# ---- the cases


def refused(host: str, case: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
    with socket.socket(family) as client:
        assert client.connect_ex((host, port)) == errno.ECONNREFUSED
    told[case] = {"server": port, "pid": os.getpid()}


def timed_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        port = listener.getsockname()[1]
        drop(port)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
        assert client.connect_ex(("127.0.0.1", port)) == errno.ETIMEDOUT
        pass_again()
    told["timed_out"] = {"server": port, "pid": os.getpid()}


def retransmitted() -> None:
    client, server = pair("retransmitted")
    exchange(client, server, "/retransmitted/0")
    drop(told["retransmitted"]["server"])
    client.sendall(get("/retransmitted/1"))
    time.sleep(OUTAGE_S)
    pass_again()
    receive(server, len(get("/retransmitted/1")))
    server.sendall(reply(10))
    receive(client, len(reply(10)))
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    told["retransmitted"]["retransmits"] = struct.unpack_from("I", info, TCP_INFO_TOTAL_RETRANS)[0]
    close(client, server)


def reset_by_server() -> None:
    client, server = pair("reset_by_server")
    client.sendall(get("/reset_by_server/0"))
    receive(server, len(get("/reset_by_server/0")))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    try:
        raise SystemExit(f"no reset but {client.recv(1)!r}")
    except ConnectionResetError:
        client.close()


def ipv6() -> None:
    for case, host, bound in (("ipv6", "::1", "::1"), ("dual_stack", "127.0.0.1", "::")):
        client, server = pair(case, host, bound)
        exchange(client, server, f"/{case}/0")
        close(client, server)


def fork(work: Callable[[], None]) -> int:
    """Fork; the child does this, then waits to be killed."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        work()
        os.write(writable, b"x")
        signal.pause()
    os.close(writable)
    assert os.read(readable, 1) == b"x"
    os.close(readable)
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def client_killed() -> None:
    """In the middle of a request's body."""
    client, server = pair("client_killed")
    head = b"POST /client_killed/0 HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n"
    pid = fork(lambda: client.sendall(head + b"x" * 100))
    client.close()
    receive(server, len(head) + 100)
    kill(pid)
    assert server.recv(1) == b""
    server.close()
    told["client_killed"] |= {"killed": pid, "bytes": len(head) + 100}


def server_killed() -> None:
    """In the middle of a response's body."""
    client, server = pair("server_killed")
    client.sendall(get("/server_killed/0"))

    def work() -> None:
        receive(server, len(get("/server_killed/0")))
        server.sendall(reply(1000)[:-900])

    pid = fork(work)
    server.close()
    receive(client, len(reply(1000)) - 900)
    kill(pid)
    assert client.recv(1) == b""
    client.close()
    told["server_killed"] |= {"killed": pid, "bytes": len(reply(1000)) - 900}


def slow_reader() -> None:
    client, server = pair("slow_reader")
    client.sendall(get("/slow_reader/0"))
    receive(server, len(get("/slow_reader/0")))
    server.settimeout(None)
    writer = threading.Thread(target=server.sendall, args=(reply(SLOW_BYTES),))
    began = time.monotonic_ns()
    writer.start()
    receive(client, len(reply(SLOW_BYTES)), pause_s=0.005)
    writer.join()
    told["slow_reader"] |= {"bytes": len(reply(SLOW_BYTES)), "duration_ns": time.monotonic_ns() - began}
    close(client, server)


def many_threads() -> None:
    """Both ends of many connections in the threads of one process."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=THREADS)

    def serve(connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(4096):
                assert request.endswith(b"\r\n\r\n")
                connection.sendall(reply(int(request.split()[1].split(b"/")[3])))

    def call(thread: int) -> int:
        with socket.create_connection(listener.getsockname(), 10) as client:
            for number in range(REQUESTS):
                client.sendall(get(f"/many_threads/{thread}/{number}"))
                receive(client, len(reply(number)))
        return threading.get_native_id()

    with listener, ThreadPoolExecutor(2 * THREADS) as threads:
        calls = [threads.submit(call, thread) for thread in range(THREADS)]
        serving = [threads.submit(serve, listener.accept()[0]) for _ in range(THREADS)]
        tids = [each.result() for each in calls]
        for each in serving:
            each.result()
        port = listener.getsockname()[1]
    told["many_threads"] = {"server": port, "pid": os.getpid(), "tids": tids, "requests": REQUESTS}


CASES = (timed_out, retransmitted, reset_by_server, ipv6, client_killed, server_killed, slow_reader, many_threads)


def main() -> None:
    signal.alarm(60)
    run("ip", "link", "set", "lo", "up")
    refused("127.0.0.1", "refused")
    refused("::1", "refused_ipv6")
    for case in CASES:
        case()
    Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
