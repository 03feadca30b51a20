"""Reading BPF maps by their descriptors."""

from collections.abc import Iterator
from pathlib import Path

from tracehound.native import ffi, lib


def map_keys(map_fd: int, size: int) -> Iterator[bytes]:
    """Yield the keys of a hash map, of `size` bytes."""
    key = ffi.new("char[]", size)
    following = lib.bpf_map_get_next_key(map_fd, ffi.NULL, key)
    for _ in range(max_entries(map_fd)):  # a key that goes meanwhile makes the walk begin again
        if following:
            return
        yield bytes(ffi.buffer(key))
        following = lib.bpf_map_get_next_key(map_fd, key, key)


def max_entries(map_fd: int) -> int:
    """Return how many entries a map has room for; source: its fdinfo."""
    text = Path(f"/proc/self/fdinfo/{map_fd}").read_text()
    return int(next(line.split(":")[1] for line in text.splitlines() if line.startswith("max_entries:")))
