"""The points of `call` in a running trace: added, told to decode, removed, turned off when they are too many."""

import json
from collections.abc import Callable, Iterable, Sequence

from tracehound.btf import Layout
from tracehound.errors import TargetError
from tracehound.kernel.arguments import near
from tracehound.kernel.call_points import CallPoints, Group, PointCounts
from tracehound.kernel.points import Point
from tracehound.procfs import FactWriter, add_point


class Pointing:
    """Points by their numbers; any thread may call."""

    def __init__(self, kernel: CallPoints, layout: Layout, feed: Callable[[bytes], None]) -> None:
        """Take `feed`, which hands records to the line from any thread."""
        self._kernel = kernel
        self._layout = layout
        self._feed = feed
        self._points: dict[int, Point] = {}
        self._removed: set[int] = set()
        self.off: list[Point] = []  # were above their ceiling

    def add(self, points: Iterable[Point]) -> None:
        """Attach points; raises AttachError, UsageError for too many."""
        self._kernel.add(points, self._tell)

    def _tell(self, numbered: dict[int, Point]) -> None:
        facts = FactWriter(self._layout)
        for number, point in numbered.items():
            add_point(facts, number, json.dumps(point.facts()))
        self._feed(facts.take())
        self._points |= numbered

    def remove(self, name: str) -> list[Point]:
        """Detach the points of that name, or that a text named; raises TargetError if there are none."""
        here = {number: point for number, point in self._points.items() if number not in self._removed}
        found = [number for number, point in here.items() if name in (point.name, point.asked, *point.names)]
        if not found:
            known = {text for point in here.values() for text in (point.name, point.asked, *point.names)}
            raise TargetError(f"no point {name} is traced{near(name, known)}")
        self._kernel.remove(found)
        self._removed.update(found)
        return [self._points[number] for number in found]

    def tick(self) -> list[Point]:
        """Detach the points that were above their ceiling; return those that now were."""
        found = self._kernel.turned_off()
        self._removed.update(found)
        self.off += found.values()
        return list(found.values())

    @property
    def counts(self) -> Sequence[tuple[Point, PointCounts]]:
        """All points that were ever added, in that order, and what was counted of them until now."""
        return [(point, self._kernel.counts(number)) for number, point in sorted(self._points.items())]

    @property
    def groups(self) -> Sequence[tuple[Point, Group]]:
        """What was counted in the kernel until now."""
        found = sorted(self._kernel.groups(), key=lambda group: (group.point, -group.count, group.key, group.slot))
        return [(self._points[group.point], group) for group in found if group.point in self._points]
