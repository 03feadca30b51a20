"""Connection records and the first data record of each connection -> `connections`, `listens` and `retransmits`.

An `open` or `accept` row waits for the connection's first call, its close, or one second (`first_call_wait_ns`),
whichever comes first, because only the first call knows the descriptor and, of an accepted connection, the process
that serves it. A `close` row waits `close_wait_ns`, until requests are done with the connection's bytes and its
protocol is known. All of that is decided by record times, so rows do not depend on how the records are cut into
batches. An accepted connection belongs to the process of its first call, any other to the process that its record
names. A connection whose first record is data, a snapshot or a close was there before (`preexisting`).

The life of a socket is a sequence of *tracks*, each of one connection: a track begins at an open or accept, or at
whatever comes first while there is none, and ends at the close. A batch and what is live are laid side by side as
*steps*, sorted by socket and time; tracks are runs of steps. The state is one row for each live socket. UDP and unix
sockets are like the others: the kernel side makes records of their first use, and of their end when it is found.
"""

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracehound.btf import Layout
from tracehound.decode.descriptors import Generations
from tracehound.decode.keyed import KeyedRows
from tracehound.decode.nat import Translations
from tracehound.decode.settings import SECOND_NS, DecodeSettings
from tracehound.decode.socket_rows import Events, connection_rows, join_events, listen_rows, retransmit_rows
from tracehound.decode.unix_ends import UnixEndsOf, add_unix_ends

if TYPE_CHECKING:
    from tracehound.batch import Batch

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]
ProtocolsOf = MutableMapping[int, tuple[str | None, str | None]]

_NEVER: Final = np.iinfo(np.int64).max
_SETTLED: Final = 1 << 16  # slots, a power of two
_STATE, _DATA = 100, 101  # steps that are no record of a connection
_STEP: Final = np.dtype(
    [("cookie", "i8"), ("kind", "i8"), ("time_ns", "i8"), ("ring", "i8"), ("pid", "i8"), ("tid", "i8"), ("fd", "i8")]
)


class Connections:
    """Decodes what sockets did; `protocols_of` is `Requests.protocols_of`, whose entries end with their connection."""

    def __init__(
        self,
        layout: Layout,
        settings: DecodeSettings,
        protocols_of: ProtocolsOf,
        translations: Translations | None = None,
        generations: Generations | None = None,
    ) -> None:
        self._record = layout.dtypes["connection"]
        self._data = layout.dtypes["data"]
        self._retransmit = layout.dtypes["retransmit"]
        events = layout.enum("connection_event")
        self._open, self._accept = events["CONNECTION_OPEN"], events["CONNECTION_ACCEPT"]
        self._error, self._close = events["CONNECTION_ERROR"], events["CONNECTION_CLOSE"]
        self._listen, self._unlisten = events["CONNECTION_LISTEN"], events["CONNECTION_UNLISTEN"]
        self._snapshot = events["CONNECTION_SNAPSHOT"]
        self._preexisting = layout.enum("connection_flag")["CONNECTION_PREEXISTING"]
        self._wait_ns = settings.first_call_wait_ns
        self._close_wait_ns = settings.close_wait_ns
        self._protocols_of = protocols_of
        self._generations = Generations() if generations is None else generations
        self._translations = Translations() if translations is None else translations
        self._track = np.dtype(
            [
                ("connection", "i8"),
                ("event", "i8"),  # open, accept, or 0 for one that was there before
                ("pending", "?"),  # its open or accept row is not written yet
                ("opened_ns", "i8"),
                ("call_ns", "i8"),  # of its first call, or _NEVER
                ("pid", "i8"),  # of its first call; so tid and fd
                ("tid", "i8"),
                ("fd", "i8"),
                ("generation", "i8"),  # of that descriptor, or -1
                ("snapshot_ns", "i8"),
                ("record", self._record),
            ]
        )
        self._unix_ends: UnixEndsOf = {}
        self._live = KeyedRows(self._track)  # by cookie
        # cookie & (_SETTLED - 1) -> a live cookie whose first call is known: its data tells nothing new
        self._settled: Int64s = np.zeros(_SETTLED, np.int64)
        self._held: list[Events] = []
        self._pending_cookies: Int64s = np.empty(0, np.int64)
        self._pending_due_ns: Int64s = np.empty(0, np.int64)

    def decode(self, batch: "Batch") -> dict[str, pa.RecordBatch]:
        """Return the rows of the three tables, those that have any."""
        add_unix_ends(self._unix_ends, batch)
        records = self._rows_of(batch, "connection", self._record)
        records = records[(records["cookie"] != 0) & ~self._was_never_open(records)]
        event = records["event"]
        listening = records[(event == self._listen) | (event == self._unlisten)]
        errors = records[event == self._error]
        life = records[np.isin(event, (self._open, self._accept, self._close, self._snapshot))]
        found = self._walk(life, self._rows_of(batch, "data", self._data), batch.watermark_ns)
        if len(errors):
            found.append(self._errors(errors))
        tables = self._tables(self._release(found, batch.watermark_ns))
        if len(listening):
            tables["listens"] = listen_rows(listening, self._listen, self._preexisting, self._unix_ends)
        retransmits = self._rows_of(batch, "retransmit", self._retransmit)
        retransmits = retransmits[retransmits["cookie"] != 0]
        if len(retransmits):
            tables["retransmits"] = retransmit_rows(retransmits)
        return tables

    def finish(self, time_ns: int) -> dict[str, pa.RecordBatch]:
        """Return the rows that still waited, and a `snapshot` of each connection that is open at the end."""
        cookies = self._live.keys().copy()
        live = self._live.get(cookies)
        waiting = self._opened(live[live["pending"]], np.full(int(live["pending"].sum()), time_ns))
        seen = live["snapshot_ns"] >= time_ns - SECOND_NS
        still_open = self._of_tracks(live[~seen], live["record"][~seen], self._snapshot)
        still_open.time_ns[:] = still_open.written_ns[:] = time_ns
        still_open.counted[:] = live["snapshot_ns"][~seen] > 0
        self._live.remove(cookies)
        self._settled[:] = 0
        self._pending_cookies = self._pending_due_ns = np.empty(0, np.int64)
        return self._tables(self._release([waiting, still_open], _NEVER), is_end=True)

    def _tables(self, events: Events | None, is_end: bool = False) -> dict[str, pa.RecordBatch]:
        if events is None:
            return {}
        return {"connections": connection_rows(events, self._protocols_of, self._translations, self._unix_ends, is_end)}

    def _release(self, found: Sequence[Events], watermark_ns: int) -> Events | None:
        """Return the rows whose time has come; the others wait."""
        events = join_events([*found, *self._held])
        if events is None:
            return None
        ready = events.written_ns <= watermark_ns
        self._held = [] if ready.all() else [events.take(~ready)]
        return events.take(ready) if ready.any() else None

    def _rows_of(self, batch: "Batch", kind: str, dtype: np.dtype[np.void]) -> Rows:
        records = batch.records.get(kind)
        if records is None:
            return np.empty(0, dtype)
        fixed = records.fixed
        if np.any(fixed["time_ns"][1:] < fixed["time_ns"][:-1]):
            return fixed[np.argsort(fixed["time_ns"], kind="stable")]
        return fixed

    def _was_never_open(self, records: Rows) -> Bools:
        """Tell which are the end of a socket that failed to connect: its `error` row says all."""
        known = (records["flags"] & self._preexisting) == 0
        failed = (records["established_ns"] == 0) & (records["started_ns"] != 0)
        never: Bools = known & failed & (records["event"] == self._close)
        return never

    # ---- tracks ----------------------------------------------------------------------------------------------------

    def _walk(self, life: Rows, data: Rows, watermark_ns: int) -> list[Events]:
        """Move the live sockets through the steps of a batch; return the rows that became true."""
        self._settled[_cookies(life) & _SETTLED - 1] = 0
        cookie = _cookies(data)
        calls = self._first_calls(life, data[self._settled[cookie & _SETTLED - 1] != cookie])
        due = self._pending_cookies[self._pending_due_ns <= watermark_ns]
        if not len(life) + len(calls) + len(due):
            return []
        cookies = np.unique(np.concatenate((_cookies(life), _cookies(calls), due)))
        known = cookies[self._live.contains(cookies)]
        state = self._live.get(known)
        records = np.concatenate((state["record"], life, self._stand_ins(calls)))
        steps = _steps(known, life, calls)
        walk = np.lexsort((np.arange(len(steps)), steps["ring"], steps["time_ns"], steps["cookie"]))
        steps, records = steps[walk], records[walk]
        first = self._first_steps(steps)
        track_of = np.cumsum(first) - 1
        tracks = self._begin(steps[first], records[first], state)
        self._add_calls(tracks, steps, track_of)
        last, cookie = np.append(first[1:], True), steps["cookie"][first]
        closed = steps["kind"][last] == self._close
        replaced = np.append(cookie[1:] == cookie[:-1], False) & ~closed
        ended_ns = np.where(closed, steps["time_ns"][last], _NEVER)
        ended_ns[replaced] = tracks["opened_ns"][np.flatnonzero(replaced) + 1]
        written_ns = self._written_ns(tracks, ended_ns)
        opened = self._end_waiting(tracks, written_ns, watermark_ns)
        shots = steps["kind"] == self._snapshot
        newer = shots & (steps["time_ns"] >= written_ns[track_of])  # before, its row needs the opening's record
        tracks["snapshot_ns"][track_of[newer]] = steps["time_ns"][newer]
        tracks["record"][track_of[newer]] = records[newer]
        found = [
            opened,
            self._of_tracks(tracks[closed], records[last][closed], self._close),
            self._snapshots(tracks[track_of[shots]], records[shots], steps["time_ns"][shots]),
            self._replaced(tracks[replaced], ended_ns[replaced]),
        ]
        self._keep(cookies, cookie, tracks, closed)
        return found

    def _first_calls(self, life: Rows, data: Rows) -> Rows:
        """Return the first data record of each socket between any two of its life records, where it may matter."""
        data = data[data["cookie"] != 0]
        if not len(data):
            return data
        cookie = _cookies(data)
        lives, number = np.unique(_cookies(life), return_inverse=True)
        life_keys = np.sort(number << 32 | np.arange(len(life)))
        before = np.searchsorted(life["time_ns"], data["time_ns"], side="right")  # life records before this call
        at = np.searchsorted(lives, cookie)
        has_life = np.append(lives, -1)[at] == cookie
        between = np.where(has_life, np.searchsorted(life_keys, at << 32 | before), -1)
        order = np.argsort(cookie, kind="stable")
        cookie, between = cookie[order], between[order]
        first = np.ones(len(order), bool)
        first[1:] = (cookie[1:] != cookie[:-1]) | (between[1:] != between[:-1])
        firsts = order[first]
        known = self._live.contains(_cookies(data[firsts])) & ~has_life[firsts]
        matters = ~known
        matters[known] = self._live.column("call_ns", _cookies(data[firsts])[known]) == _NEVER
        calls: Rows = data[firsts[matters]]
        return calls

    def _stand_ins(self, calls: Rows) -> Rows:
        """Return what a data record tells of its connection as connection records of event 0."""
        rows = np.zeros(len(calls), self._record)
        for name in ("time_ns", "pid", "tid", "cookie", "family", "transport", "role", "local_port", "remote_port"):
            rows[name] = calls[name]
        return rows

    def _first_steps(self, steps: Rows) -> Bools:
        """Tell which steps begin a track."""
        first = np.ones(len(steps), bool)
        opens = np.isin(steps["kind"][1:], (self._open, self._accept))
        ended = steps["kind"][:-1] == self._close
        first[1:] = opens | ended | (steps["cookie"][1:] != steps["cookie"][:-1])
        return first

    def _begin(self, steps: Rows, records: Rows, state: Rows) -> Rows:
        """Return new tracks from their first steps, and those that are live from `state`."""
        tracks = np.zeros(len(steps), self._track)
        tracks["record"] = records
        tracks["connection"] = steps["cookie"] << 8 | records["attempt"] & 0xFF
        opened = np.isin(steps["kind"], (self._open, self._accept))
        tracks["event"] = np.where(opened, steps["kind"], 0)
        tracks["pending"] = opened
        tracks["opened_ns"] = steps["time_ns"]
        tracks["call_ns"] = _NEVER
        tracks["fd"] = -1
        tracks[steps["kind"] == _STATE] = state
        return tracks

    def _add_calls(self, tracks: Rows, steps: Rows, track_of: Int64s) -> None:
        calls = np.flatnonzero(steps["kind"] == _DATA)
        called, first = np.unique(track_of[calls], return_index=True)
        new = tracks["call_ns"][called] == _NEVER
        called, step = called[new], steps[calls[first[new]]]
        tracks["call_ns"][called] = step["time_ns"]
        for name in ("pid", "tid", "fd"):
            tracks[name][called] = step[name]
        tracks["generation"][called] = self._generations.at(step["pid"], step["fd"], step["time_ns"])

    def _keep(self, touched: Int64s, cookies: Int64s, tracks: Rows, closed: Bools) -> None:
        """Store the last track of each socket unless it ended."""
        last = np.append(cookies[1:] != cookies[:-1], True)
        self._live.remove(cookies[last & closed])
        kept = last & ~closed
        self._live.put(cookies[kept], tracks[kept])
        called = cookies[kept & (tracks["call_ns"] != _NEVER)]
        self._settled[called & _SETTLED - 1] = called
        waiting = kept & tracks["pending"]
        others = ~np.isin(self._pending_cookies, touched)
        self._pending_cookies = np.concatenate((self._pending_cookies[others], cookies[waiting]))
        due_ns = tracks["opened_ns"][waiting] + self._wait_ns
        self._pending_due_ns = np.concatenate((self._pending_due_ns[others], due_ns))

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _written_ns(self, tracks: Rows, ended_ns: Int64s) -> Int64s:
        """Return when the open or accept row of each track is complete, 0 if it is written or there is none."""
        complete_ns = np.minimum(np.minimum(tracks["call_ns"], ended_ns), tracks["opened_ns"] + self._wait_ns)
        return np.where(tracks["pending"], complete_ns, 0)

    def _end_waiting(self, tracks: Rows, written_ns: Int64s, watermark_ns: int) -> Events:
        """Write the open and accept rows that need not wait any longer, and mark their tracks."""
        ready = tracks["pending"] & (written_ns <= watermark_ns)
        tracks["pending"] &= ~ready
        return self._opened(tracks[ready], written_ns[ready])

    def _opened(self, tracks: Rows, written_ns: Int64s) -> Events:
        events = self._of_tracks(tracks, tracks["record"], 0)
        events.event[:] = tracks["event"]
        events.time_ns[:] = tracks["opened_ns"]
        events.written_ns[:] = written_ns
        events.counted[:] = False
        late = tracks["call_ns"] > tracks["opened_ns"] + self._wait_ns
        events.fd[late] = events.generation[late] = -1
        events.pid[late], events.tid[late] = tracks["record"]["pid"][late], tracks["record"]["tid"][late]
        return events

    def _snapshots(self, tracks: Rows, records: Rows, time_ns: Int64s) -> Events:
        tracks["call_ns"][tracks["call_ns"] > time_ns] = _NEVER  # what came later was not known then
        return self._of_tracks(tracks, records, self._snapshot)

    def _replaced(self, tracks: Rows, ended_ns: Int64s) -> Events:
        """End connections whose socket was connected again without a close; what only data told is just forgotten."""
        opened = tracks["event"] != 0
        events = self._of_tracks(tracks[opened], tracks["record"][opened], self._close)
        events.time_ns[:] = ended_ns[opened]
        events.written_ns[:] = ended_ns[opened] + self._close_wait_ns
        events.counted[:] = False
        return events

    def _of_tracks(self, tracks: Rows, records: Rows, event: int) -> Events:
        """Return rows of one event of tracks, one record each."""
        called = (tracks["call_ns"] != _NEVER) & (tracks["event"] != self._open)
        if event == 0:  # open and accept rows: the thread, too, is the first call's
            tid = np.where(called, tracks["tid"], records["tid"])
        else:
            tid = records["tid"].astype(np.int64)
        time_ns, ended_ns = (records[name].astype(np.int64) for name in ("time_ns", "ended_ns"))
        return Events(
            event=np.full(len(tracks), event),
            connection=tracks["connection"].copy(),
            time_ns=np.where((event == self._close) & (ended_ns != 0), ended_ns, time_ns),
            written_ns=time_ns + self._close_wait_ns * (event == self._close),
            pid=np.where(called, tracks["pid"], records["pid"]),
            tid=tid,
            fd=np.where(tracks["call_ns"] != _NEVER, tracks["fd"], records["slot"].astype(np.int64) - 1),
            generation=np.where(tracks["call_ns"] != _NEVER, tracks["generation"], -1),
            preexisting=tracks["event"] == 0,
            counted=np.ones(len(tracks), bool),
            records=records,
        )

    def _errors(self, records: Rows) -> Events:
        """Return the rows of connections that were never established."""
        tracks = np.zeros(len(records), self._track)
        tracks["connection"] = _cookies(records) << 8 | records["attempt"] & 0xFF
        tracks["event"], tracks["call_ns"] = self._error, _NEVER
        return self._of_tracks(tracks, records, self._error)


def _cookies(rows: Rows) -> Int64s:
    return rows["cookie"].astype(np.int64)


def _steps(known: Int64s, life: Rows, calls: Rows) -> Rows:
    """Lay what is live (first of all), life records and calls one after another; at one time life comes first."""
    steps = np.zeros(len(known) + len(life) + len(calls), _STEP)
    state, lives, data = np.split(steps, [len(known), len(known) + len(life)])
    state["cookie"], state["kind"], state["time_ns"] = known, _STATE, -1
    lives["kind"], lives["ring"] = life["event"], 1
    data["kind"], data["ring"] = _DATA, 2
    for part, rows, names in (
        (lives, life, ("cookie", "time_ns")),
        (data, calls, ("cookie", "time_ns", "pid", "tid", "fd")),
    ):
        for name in names:
            part[name] = rows[name]
    return steps
