"""Names of code that a process made, as compilers at run time write them to /tmp/perf-PID.map.

Source: linux tools/perf/Documentation/jit-interface.txt.
"""

from bisect import bisect_right
from typing import Final

ENTRIES_LIMIT: Final = 1 << 20
LINE_LIMIT: Final = 1 << 16
OVERLAPS: Final = 8  # entries before an address that are looked at: memory is used again


class PerfMap:
    """What one process wrote; of entries that overlap the later one holds."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._entries: dict[int, tuple[int, int, str]] = {}  # start -> (end, number, name)
        self._count = 0
        self._rest = b""

    def add(self, text: bytes) -> None:
        """Take the next piece of the file; lines that are none are passed over."""
        *lines, rest = (self._rest + text).split(b"\n")
        self._rest = rest[-LINE_LIMIT:]
        for line in lines:
            parts = line.split(None, 2)
            if len(parts) != 3 or len(self._entries) >= ENTRIES_LIMIT:
                continue
            try:
                start, size = int(parts[0], 16), int(parts[1], 16)
            except ValueError:
                continue
            if start >= 0 and size > 0 and start + size < 1 << 64:
                self._count += 1
                self._entries[start] = start + size, self._count, parts[2].decode("utf-8", "backslashreplace").strip()
        self._starts = []

    def at(self, address: int) -> tuple[str, int] | None:
        """Return (name, bytes from its start) of the code that holds an address, or None."""
        if not self._starts:
            self._starts = sorted(self._entries)
        index = bisect_right(self._starts, address)
        newest, found = 0, None
        for start in self._starts[max(index - OVERLAPS, 0) : index]:
            end, number, name = self._entries[start]
            if address < end and number > newest:
                newest, found = number, (name, address - start)
        return found
