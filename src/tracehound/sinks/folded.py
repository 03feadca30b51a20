"""Folded stacks: one line a distinct stack, its functions from the root on, `;` between them, a blank, its weight.

The form that flamegraph.pl, speedscope and inferno read. Behind a name: `_[k]` kernel, `_[p]` Python, `_[j]` made at
run time, `_[i]` inlined. The first function is the process; a second one in brackets is why the stack has no root.
"""

from functools import lru_cache
from typing import Final

from tracehound.sinks._profile import Function, Profile, outermost_first
from tracehound.sinks._profile_sink import open_profile
from tracehound.sinks._sink import Sink, SinkKind, Source

MARKS: Final = {"kernel": "_[k]", "python": "_[p]", "jit": "_[j]"}


def folded(profile: Profile) -> bytes:
    """Return a profile as folded stacks; those that weigh nothing are left out."""
    weights: dict[str, int] = {}
    for stack in profile.stacks:
        if stack.weight:
            line = ";".join(map(_label, outermost_first(profile, stack)))
            weights[line] = weights.get(line, 0) + stack.weight
    return "".join(f"{line} {weight}\n" for line, weight in weights.items()).encode()


@lru_cache(maxsize=1 << 16)
def _label(function: Function) -> str:
    mark = MARKS.get(function.kind, "") or "_[i]" * function.is_inlined
    return function.name.replace(";", ":") + mark


def _open(path: str, source: Source) -> Sink:
    return open_profile("folded", path, source)


SINK: Final = SinkKind("folded", "stacks of calls, one line each with their count, written at the end", _open)
