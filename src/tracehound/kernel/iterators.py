"""Reads what was there before the trace, and what is open now, by the iterator programs of bpf/seed.bpf.c.

The programs are attached by then; so what the iterators do not tell any more, the programs tell. Order: listeners
(before data is captured, for the roles), processes until none is new, their TCP sockets, those that wait to be
accepted, once more the TCP sockets, for those that moved meanwhile, then UDP and unix sockets. Leaves out what only
/proc knows (exe, argv).
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from tracehound.errors import KernelError

READ_SIZE: Final = 1 << 20
PASSES_MAX: Final = 32  # generations of processes that one seeding follows
CLONE_NEWNET: Final = 0x40000000
OWN_NETWORK: Final = "/proc/self/ns/net"

Result = TypeVar("Result")


class Kernel(Protocol):
    """What of `Privileged` is needed here."""

    def open_iterator(self, name: str, network_namespace: str | None = None) -> int | None:
        """Return a descriptor of what a program lists, None if the program is not loaded."""

    def know_listeners(self, network_namespace: int) -> None:
        """Say that the listeners of a network namespace are complete."""


def read_iterator(kernel: Kernel, name: str, network_namespace: str | None = None) -> bytes:
    """Run an iterator to its end; return the records that it wrote, nothing if it is not loaded. Raises KernelError."""
    fd = kernel.open_iterator(name, network_namespace)
    if fd is None:
        return b""
    pieces = list[bytes]()
    try:
        while True:
            try:
                piece = os.read(fd, READ_SIZE)
            except BlockingIOError:  # a million objects without a record: go on
                continue
            except OSError as error:
                raise KernelError(f"cannot list by {name}: {error.strerror}", error.errno or 0) from error
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
    finally:
        os.close(fd)


def find_listeners(kernel: Kernel, network_namespaces: Iterable[str]) -> None:
    """Fill the set of listening ports, which tells the roles of connections that are joined in mid-stream."""
    for path in network_namespaces:
        try:
            number = os.stat(path).st_ino
            read_iterator(kernel, "on_tcp", path)
        except (OSError, KernelError):
            continue  # its last process has ended, or it is not ours to enter: roles stay unknown
        kernel.know_listeners(number)


def seed_processes(kernel: Kernel) -> bytes:
    """Return the records of the target's processes, and take these into the set of those traced."""
    found = []
    for _ in range(PASSES_MAX):  # a child may have a lower pid than its parent
        records = read_iterator(kernel, "on_task")
        if not records:
            break
        found.append(records)
    return b"".join(found)


def seed_all_processes(kernel: Kernel) -> bytes:
    """Return the records of every process but our own."""
    return read_iterator(kernel, "on_task")


def seed_sockets(kernel: Kernel, network_namespaces: Iterable[str]) -> bytes:
    """Return the records of listening sockets and connections of the traced processes, each once."""
    found = [read_iterator(kernel, "on_file"), *_read_each(kernel, "on_tcp", network_namespaces)]
    return b"".join([*found, read_iterator(kernel, "on_file")])


def seed_counted(kernel: Kernel, network_namespaces: Iterable[str]) -> bytes:
    """Return the records of the traced processes' UDP and unix sockets, each once."""
    for _ in _read_each(kernel, "on_unix", network_namespaces):  # cookies: it writes nothing
        pass
    return read_iterator(kernel, "on_counted_file")


def list_open(kernel: Kernel, network_namespaces: Iterable[str]) -> bytes:
    """Return a snapshot record of every traced TCP connection that is open now, its counters of this moment."""
    return b"".join(_read_each(kernel, "on_open", network_namespaces))


def _read_each(kernel: Kernel, name: str, network_namespaces: Iterable[str]) -> Iterator[bytes]:
    for path in network_namespaces:
        with suppress(KernelError):  # its last process has ended, or it is not ours to enter
            yield read_iterator(kernel, name, path)


def in_network_namespace(path: str, act: Callable[[], Result]) -> Result:
    """Return what `act` returns in a thread of its own that is in another network namespace; raises KernelError."""
    outcome: list[Result] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            enter_network_namespace(path)
            outcome.append(act())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="tracehound-netns")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return outcome[0]


def enter_network_namespace(path: str) -> None:
    """Move this thread to a network namespace, unless it is there; raises KernelError."""
    try:
        if os.path.samefile(path, f"/proc/thread-self/{OWN_NETWORK.removeprefix('/proc/self/')}"):
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise KernelError(f"cannot open the network namespace {path}: {error.strerror}", error.errno or 0) from error
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
            code = ctypes.get_errno()
            raise KernelError(f"cannot enter the network namespace {path}: {os.strerror(code)}", code)
    finally:
        os.close(fd)
