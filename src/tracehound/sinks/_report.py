"""The summary as text, never wider than the terminal: what ran, who talked to whom, what was slow, what failed."""

import os
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tracehound.sinks._calls import SLOWEST, Calls, Group, GroupKey, address, named_address
from tracehound.sinks._summary import BYTE_COUNTERS, ELSEWHERE, Ending, Summary, by_requests
from tracehound.sinks._text import (
    BOLD,
    GREEN,
    RED,
    YELLOW,
    Column,
    cut,
    duration,
    fit,
    lines,
    paint,
    printable,
    short_size,
    size,
    width_of,
)

GROUPS_SHOWN: Final = 20
ERRORS_SHOWN: Final = 10
DIRECTORIES_SHOWN: Final = 3
DOTS: Final = ("  ·  ", " · ")  # the widest that fits
FAR_DOT: Final = "   ·   "
_LEAST_COMMAND: Final = 8
# counter -> what would help
REMEDIES: Final[Mapping[str, str]] = {
    "ring_full": "--ring-mib",
    "backlog_full": "--backlog-mib",
    "recording_full": "--record DIR",
    "disk_full": "a disk with more room",
}
QUERY: Final = "from requests order by duration_ns desc limit 10"


def render(summary: Summary, ending: Ending, *, width: int = 80, color: bool = False) -> str:
    """Return what a closed `Summary` says, as lines of at most `width` cells; only a path may be longer."""
    blocks = [
        _heading(summary, ending, width, color),
        _calls("Calls (client side)", summary.calls, summary.comms, width, color),
        _calls("Served (clients not traced)", summary.served, summary.comms, width, color),
        [*_slowest(summary, width, color), *_errors(summary, width, color)],
        _endings(summary, width),
        [*_not_traced(summary, width, color), *(cut(f" {printable(note)}", width) for note in ending.notes)],
        _kept(ending, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _heading(summary: Summary, ending: Ending, width: int, color: bool) -> list[str]:
    parts = [duration(ending.elapsed_ns), ending.outcome, _count(summary.processes, "process", "processes")]
    lost = lost_text(summary, ending)
    command = printable(ending.command)
    words = ["tracehound", command, *(printable(part) for part in parts if part), lost or "nothing lost"]
    dot = next((dot for dot in DOTS if width_of(f" {dot.join(words)}") <= width), DOTS[-1])
    has_own_line = bool(lost) and width_of(f" {dot.join(words)}") > width  # a loss is told in full
    if has_own_line:
        words.pop()
    excess = width_of(f" {dot.join(words)}") - width
    while excess > width_of(command) - _LEAST_COMMAND and len(words) > 3:
        excess -= width_of(dot + words.pop(-1 if has_own_line else -2))
    words[1] = cut(command, max(width_of(command) - max(excess, 0), _LEAST_COMMAND))
    words[0] = paint(words[0], BOLD if color else "")
    style = (RED if lost else GREEN) if color else ""
    if has_own_line:
        return [f" {dot.join(words)}", *(f" {paint(piece, style)}" for piece in textwrap.wrap(lost, width - 1))]
    words[-1] = paint(words[-1], style)
    return [f" {dot.join(words)}"]


def lost_text(summary: Summary, ending: Ending) -> str:
    """Return `lost 12 of 40,113 events (ring_full): try --ring-mib`, empty if every counter is 0 and can be trusted."""
    if ending.failure:
        return "tracing failed, rows are missing"
    counters = {name: count for name, count in summary.losses.items() if count}
    if not counters:
        return ""
    texts = []
    events = {name: count for name, count in counters.items() if name not in BYTE_COUNTERS}
    if events:
        total = f" of {ending.events:,}" if ending.events else ""
        texts.append(f"{sum(events.values()):,}{total} events ({', '.join(sorted(events))})")
    texts += [f"{size(count)} of streams ({name})" for name, count in sorted(counters.items()) if name in BYTE_COUNTERS]
    remedies = [REMEDIES[name] for name in sorted(counters) if name in REMEDIES]
    return f"lost {', '.join(texts)}" + (f"; try {', '.join(remedies)}" if remedies else "")


def _calls(title: str, calls: Calls, comms: Mapping[str, str], width: int, color: bool) -> list[str]:
    groups = by_requests(calls)
    shown = groups[:GROUPS_SHOWN]
    if not shown:
        return []
    columns = call_columns(shown, comms)
    fitted = fit(columns, width)
    if len(fitted) < len(columns) - 1:  # what stands beside names goes before the quantiles do
        fitted = fit(call_columns(shown, {}, has_addresses=False), width)
    head, *rows = lines(fitted, color=color)
    room = len(head) - len(head.lstrip()) - 2
    title = title if len(title) <= room else title.split(" (")[0]
    head = f" {paint(title, BOLD if color else '')}{head[1 + len(title) :]}"
    more = [f" … and {len(groups) - len(shown)} more"] if len(groups) > len(shown) else []
    return [head, *rows, *more]


def call_columns(
    shown: Sequence[tuple[GroupKey, Group]], comms: Mapping[str, str], *, has_addresses: bool = True
) -> list[Column]:
    keys, groups = zip(*shown, strict=True)
    quantiles = [[duration(group.quantile(share)) for group in groups] for share in (0.5, 0.95, 0.99)]
    traffic = [f"{short_size(group.sent_bytes)} / {short_size(group.received_bytes)}" for group in groups]
    return [
        Column("", [_with_comm(key.name, comms) for key in keys], can_shrink=True),
        Column(
            "", [_peer(key, group.address if has_addresses else "", comms) for key, group in shown], can_shrink=True
        ),
        Column("", [key.protocol for key in keys], rank=2),
        Column("requests", [f"{group.requests:,}" for group in groups], right=True),
        Column("errors", _shares(groups), right=True, styles=[RED if group.errors else "" for group in groups]),
        Column("p50", quantiles[0], right=True, rank=1),
        Column("p95", quantiles[1], right=True, rank=4),
        Column("p99", quantiles[2], right=True, rank=3),
        Column("bytes out/in", traffic, right=True, rank=5),
    ]


def _shares(groups: Sequence[Group]) -> list[str]:
    """Return errors as `2 (1%)`, numbers under numbers."""
    shares = [
        f" ({group.errors / group.requests:.0%})" if group.errors * 100 >= group.requests else "" for group in groups
    ]
    longest = max(map(len, shares))
    return [f"{group.errors:,}{share:<{longest}}" for group, share in zip(groups, shares, strict=True)]


def _with_comm(name: str, comms: Mapping[str, str]) -> str:
    comm = comms.get(name, name)
    return name if comm == name else f"{name} ({comm})"


def _peer(key: GroupKey, beside: str, comms: Mapping[str, str]) -> str:
    port = "" if key.port is None else f":{key.port}"
    if not key.peer:
        return port
    if beside:
        return f"→ {named_address(key.peer, beside, key.port)}"
    if key.is_service:
        return f"→ {_with_comm(key.peer, comms)} {port}".rstrip()
    return f"→ {address(key.peer, key.port)}"


def _from_to(name: str, peer: str) -> str:
    return f"{name} → {peer}" if peer else name


def _slowest(summary: Summary, width: int, color: bool) -> list[str]:
    slowest = sorted([*summary.calls.slowest, *summary.served.slowest], reverse=True)[:SLOWEST]
    if not slowest:
        return []
    columns = [
        Column("", [duration(slow.duration_ns) for slow in slowest], right=True),
        Column("", [_from_to(slow.name, slow.peer) for slow in slowest], can_shrink=True),
        Column("", [slow.text for slow in slowest], can_shrink=True, enough=24),
        Column("", [slow.result for slow in slowest], rank=1),
    ]
    return _titled("Slowest requests", columns, width, color)


def _errors(summary: Summary, width: int, color: bool) -> list[str]:
    errors = summary.errors.most_common()
    shown = errors[:ERRORS_SHOWN]
    if not shown:
        return []
    keys = [key for key, _ in shown]
    columns = [
        Column("", [f"{count:,}×" for _, count in shown], right=True, styles=[RED] * len(shown)),
        Column("", [key.protocol for key in keys], rank=1),
        Column("", [key.code for key in keys], can_shrink=True),
        Column("", [key.message for key in keys], can_shrink=True, enough=20),
        Column("", [_from_to(key.name, key.peer) for key in keys], can_shrink=True),
    ]
    more = [f"   … and {len(errors) - len(shown)} other kinds"] if len(errors) > len(shown) else []
    return [*_titled("Errors", columns, width, color), *more]


def _titled(title: str, columns: Sequence[Column], width: int, color: bool) -> list[str]:
    rows = lines(fit(columns, width - 2), color=color, heads=False)
    return [f" {paint(title, BOLD if color else '')}", *(f"  {row}" for row in rows)]


def _endings(summary: Summary, width: int) -> list[str]:
    """Return files and processes, in one line if they fit."""
    parts = [*_files(summary, width), *_processes(summary, width)]
    together = FAR_DOT.join([parts[0], *(part.lstrip() for part in parts[1:])]) if parts else ""
    return [together] if together and width_of(together) <= width else parts


def _files(summary: Summary, width: int) -> list[str]:
    total = summary.written.total()
    if not total:
        return []
    names = [name for name in summary.written if name != ELSEWHERE]
    common = os.path.commonpath(names)
    if len(names) == len(summary.written) and (len(names) == 1 or common.count("/") > 1):
        return [cut(f" Files  {total:,} opened for writing in {printable(common)}", width)]
    shown = [(name, count) for name, count in summary.written.most_common() if name != ELSEWHERE][:DIRECTORIES_SHOWN]
    texts = [f"{count:,} in {printable(name)}" for name, count in shown]
    rest = total - sum(count for _, count in shown)
    texts += [f"{rest:,} elsewhere"] if rest else []
    return [cut(f" Files  {total:,} opened for writing: {', '.join(texts)}", width)]


def _processes(summary: Summary, width: int) -> list[str]:
    texts = [f"{count} exited with {code}" for code, count in summary.exit_codes.most_common()]
    for (name, reason), count in summary.signals.most_common():
        texts.append(f"{count} killed ({name}{', out of memory' if reason == 'oom_kill' else ''})")
    return [cut(f" Processes  {', '.join(texts)}", width)] if texts else []


def _not_traced(summary: Summary, width: int, color: bool) -> Iterator[str]:
    for missing in summary.not_traced:
        line = cut(f"not traced: {missing.lost_by_it} ({missing.program}: {missing.reason})", width - 1)
        yield f" {paint(printable(line), YELLOW if color else '')}"


def _kept(ending: Ending, width: int) -> list[str]:
    if ending.kept is None:
        return []
    kept = f" kept as `{ending.kept}`" if ending.kept == "last" else f" kept in {printable(ending.kept)}"
    if not ending.kept.isprintable():
        return [kept]
    command = f'try:  tracehound query {shlex.quote(ending.kept)} "{QUERY}"'
    if width_of(f"{kept}   {command}") <= width:
        return [f"{kept}   {command}"]
    return [kept, f" {command}"] if width_of(command) < width else [kept]


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
