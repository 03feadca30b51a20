"""A flame graph as one HTML page: stacks of calls, as wide as they weigh; it needs no network and no other file.

The page holds the tree of functions as numbers in the order of a walk (depth, function, weight), draws what is wider
than a pixel or two, and says what it left out. Its style and script are `_page/`; a Content-Security-Policy names them
by their hashes and allows nothing else, so that no name of a traced program can become code.
"""

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracehound.errors import QueryError, UsageError
from tracehound.sinks._profile import PROCESS, STATUS, WHOLE, Function, Profile, Stacks, outermost_first, weight_of
from tracehound.sinks._profile_sink import open_profile
from tracehound.sinks._sink import Sink, SinkKind, Source

if TYPE_CHECKING:
    from tracehound.recording import Recording

NODES_MAX: Final = 1 << 20  # of a page; the lightest are left out
_ROOT: Final = Function("all", PROCESS)
_KINDS: Final = {"native": "native", "kernel": "kernel", "python": "Python", "jit": "made at run time"}
_SUMS: Final = """\
select coalesce(service, comm, '?') as process, stack_id, count(*) as n,
  coalesce(sum(weight) filter (weight >= 0), 0)::bigint as total, count(*) filter (weight >= 0) as weighed
from ({rows}) group by all"""
_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{command}</h1>
<p class="facts">{facts}</p>
<p class="chips">{chips}</p>
</header>
<div class="tools" role="toolbar" aria-label="View">
<button id="back" type="button" title="One step back (Esc)" disabled>Back</button>
<button id="all" type="button" title="Show all" disabled>All</button>
<button id="turn" type="button" title="Root at the bottom, or at the top">Icicle</button>
<input id="search" type="search" placeholder="Search: regular expression (/)" spellcheck="false" autocomplete="off"
 aria-label="Search functions and files by a regular expression">
<output id="matched" for="search"></output>
</div>
<main>
<div id="graph" aria-label="Flame graph: Tab and arrows move, Enter zooms, Esc goes back"></div>
</main>
<footer><p id="detail" aria-live="polite"></p></footer>
<noscript><p>This page draws with JavaScript, which is off here.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


class _Tree(NamedTuple):
    """Nodes in the order of a walk from the root; `rows`: of `calls`. `left_out`: nodes too light to be kept."""

    functions: list[Function]
    depths: list[int]
    names: list[int]
    weights: list[int]
    rows: list[int]
    left_out: int


def flame(profile: Profile) -> bytes:
    """Return a profile as a page."""
    about, style, script = profile.about, _page_file("flame.css"), _page_file("flame.js")
    tree = _tree(profile)
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    page = _PAGE.format(
        policy=policy,
        title=escape(f"{about.command} - tracehound"),
        style=style,
        script=script,
        command=escape(about.command or "?"),
        facts=_facts(profile),
        chips=_chips(profile, tree),
        data=_data(profile, tree),
    )
    return page.encode()


@cache
def _page_file(name: str) -> str:
    return (files("tracehound.sinks") / "_page" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _tree(profile: Profile) -> _Tree:
    """Merge stacks from the root on: neighbours of a sorted list share their first functions."""
    numbers: dict[Function, int] = {_ROOT: 0}
    paths = []
    for stack in profile.stacks:
        if stack.weight:
            path = [numbers.setdefault(each, len(numbers)) for each in outermost_first(profile, stack)]
            paths.append((path, stack.weight, stack.rows))
    paths.sort(key=lambda each: each[0])
    depths, names, weights, rows = [0], [0], [0], [0]
    open_nodes, before = [0], list[int]()
    for path, weight, count in paths:
        shared = next((at for at, (a, b) in enumerate(zip(path, before, strict=False)) if a != b), None)
        shared = min(len(path), len(before)) if shared is None else shared
        del open_nodes[shared + 1 :]
        for name in path[shared:]:
            open_nodes.append(len(depths))
            depths.append(len(open_nodes) - 1)
            names.append(name)
            weights.append(0)
            rows.append(0)
        for node in open_nodes:
            weights[node] += weight
            rows[node] += count
        before = path
    left_out = len(depths) - NODES_MAX
    if left_out <= 0:
        return _Tree(list(numbers), depths, names, weights, rows, 0)
    # of equal weights the first is kept: a parent stands before its children
    kept = np.sort(np.argsort(-np.array(weights, float), kind="stable")[:NODES_MAX])
    depths, names, weights, rows = (np.array(each)[kept].tolist() for each in (depths, names, weights, rows))
    return _Tree(list(numbers), depths, names, weights, rows, left_out)


def _facts(profile: Profile) -> str:
    about = profile.about
    words = [f"{sum(stack.rows for stack in profile.stacks):,} calls in {len(profile.stacks):,} distinct stacks"]
    words.append(f"width: {'number of calls' if about.weight == weight_of('count').name else about.weight}")
    if about.host:
        words.append(f"{about.host}{f', Linux {about.kernel}' if about.kernel else ''}")
    if about.started_ns:
        words.append(f"{datetime.fromtimestamp(about.started_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC")
    words.append(f"tracehound {about.version}")
    return " · ".join(map(escape, words))


def _chips(profile: Profile, tree: _Tree) -> str:
    """Return what was lost, how whole the stacks are, and what the colours mean."""
    about = profile.about
    chips = [f'<span class="chip {"bad" if any(about.losses.values()) else "good"}">{escape(about.lost)}</span>']
    total = sum(stack.weight for stack in profile.stacks) or 1
    for status, (count, weight) in profile.statuses.items():
        text = escape(f"{status}: {count:,} stack{'s' * (count != 1)}, {100 * weight / total:.1f} %")
        if status in WHOLE:
            chips.append(f'<span class="chip">{text}</span>')
        else:
            search = escape(rf"^\[{status}\]$")
            title = "Their outermost functions are missing: show where"
            chips.append(
                f'<button type="button" class="chip bad" data-search="{search}" title="{title}">{text}</button>'
            )
    notes = [*about.notes, *([f"{tree.left_out:,} lightest boxes left out"] if tree.left_out else [])]
    chips += [f'<span class="chip bad">{escape(note)}</span>' for note in notes]
    kinds = {function.kind for function in tree.functions}
    chips += [f'<span class="key {kind}">{text}</span>' for kind, text in _KINDS.items() if kind in kinds]
    if any(function.is_inlined for function in tree.functions):
        chips.append('<span class="key inlined">inlined</span>')
    return " ".join(chips)


def _data(profile: Profile, tree: _Tree) -> str:
    """Return the tree as JSON that ends no script element, whatever names hold."""
    kinds = [*_KINDS, PROCESS, STATUS]
    paths = {text: at for at, text in enumerate(sorted({t for f in tree.functions for t in (f.file, f.source)}))}
    functions: list[list[Any]] = [
        [f.name, kinds.index(f.kind) if f.kind in kinds else 0, paths[f.file], paths[f.source], int(f.is_inlined)]
        for f in tree.functions
    ]
    is_count = profile.about.weight == weight_of("count").name
    data = {
        "unit": "calls" if is_count else "ns" if profile.about.unit == "nanoseconds" else profile.about.weight,
        "kinds": kinds,
        "paths": list(paths),
        "functions": functions,
        "depth": tree.depths,
        "name": tree.names,
        "weight": tree.weights,
        "rows": None if is_count else tree.rows,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class FlameGraph:
    """A flame graph as text of one HTML page; a notebook shows it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.html = flame(profile).decode()

    def __str__(self) -> str:
        return self.html

    def _repr_html_(self) -> str:
        """Show the page in a frame of its own that may run its script and reach nothing."""
        style = "width:100%;height:600px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def profile_of(recording: "Recording", weight: str = "count", where: str | None = None) -> Profile:
    """Return the profile of a recording; `where`: an SQL expression over `calls`, with units, that its calls fulfil.

    Raises UsageError for a weight that there is not and for a wrong expression, and when no call has a stack.
    """
    from tracehound.sinks._where import with_units

    if "stacks" not in recording.tables or "stack_id" not in recording.schema("calls").names:
        raise UsageError("this recording is of a version without stacks: trace again, with `call --stack`")
    stacks = Stacks(weight_of(weight))
    column = stacks.weight.column or "1"
    condition = f" where ({with_units(where)}\n)" if where else ""
    try:
        found = recording.sql(_SUMS.format(rows=f"select *, {column} as weight from calls{condition}"))
    except QueryError as error:  # without its place, which is one in this text
        raise UsageError(f"{'--where' if where else '--weight'}: {str(error).splitlines()[0]}") from error
    for row in zip(*(each.to_pylist() for each in found.columns), strict=True):
        stacks.add(*row)
    if not any(number is not None for number in found.column(1).to_pylist()):
        what = "no call that --where lets through" if where else "no call of this recording"
        raise UsageError(f"{what} has a stack: trace with `call --stack`")
    for batch in recording.table("stacks").to_batches(max_chunksize=4096):
        stacks.take_stacks(batch)
    manifest = recording.manifest
    for counters in manifest.losses.values():
        stacks.losses.update(counters)
    return stacks.profile(manifest.facts)


def _open(path: str, source: Source) -> Sink:
    return open_profile("html", path, source)


SINK: Final = SinkKind("flame", "stacks of calls as a flame graph: one HTML page, written at the end", _open)
