"""What is kept of one PostgreSQL connection: its startup, its prepared statements, and what answers are to come.

`queue` has an int for each answer that is to come, in order: `EXECUTE`, `SYNC`, `STARTUP`; `QUERY + n` for a simple
query of which n statements are not answered yet; `-n` for a round trip without Execute that n messages still answer.
Leaves out positions of requests: which request an answer belongs to is the engine's, in order.
"""

from typing import Final, final

from tracehound.errors import ProtocolError
from tracehound.protocols._protocol import Extras, Request, Response
from tracehound.protocols._sql import Sql, Statement

LENGTH_LIMIT: Final = 0x3FFFFFFF  # of a message: palloc's limit
STATEMENTS: Final = 1024
WAITING_LIMIT: Final = 16384

EXECUTE: Final = 1
SYNC: Final = 2
STARTUP: Final = 3
QUERY: Final = 16

# How the connection begins
TALK: Final = 0
OFFERED: Final = 1  # SSLRequest or GSSENCRequest was sent: one byte is the answer
STREAMING: Final = 2  # a replication stream has begun

# What an uncaptured hole has done to a direction
SEEN: Final = 0
SEEK_END: Final = 1  # the end of a result, or of what COPY sends, is looked for at the ends of calls

Prepared = tuple[str | None, Statement | None]  # its name, its statement; None: prepared before the trace
STANDARD_SQL: Final = Sql()
BACKSLASH_SQL: Final = Sql(backslashes=True)
NO_EXTRAS: Final[Extras] = (None, None, None)


@final
class State:
    """One connection."""

    __slots__ = (
        "answer_start", "copied", "copied_in", "extras", "failed", "failure", "is_greeting", "is_sure", "last",
        "parsed", "phase", "portals", "queue", "request_mode", "response_mode", "row_start", "rows", "sql", "startup",
        "statements", "texts", "trace", "unanswered", "verb",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase: int = TALK
        self.extras: Extras = NO_EXTRAS  # of every row: user, database, application
        self.sql = STANDARD_SQL
        self.startup: Request | None = None  # SSLRequest was seen, StartupMessage not yet
        self.queue: list[int] = []
        self.is_sure = True  # `queue` has all answers that are to come; after a gap some may belong to nothing seen
        self.statements: dict[bytes, Prepared] = {}
        self.portals: dict[bytes, Prepared] = {}
        # requests
        self.row_start = -1  # position of the first message of the row under way
        self.unanswered = 0  # Parse, Bind, Describe since then
        self.verb = ""  # the row's operation if no Execute follows
        self.parsed: Prepared | None = None  # what that is about
        self.trace: bytes | None = None  # of the Parse under way
        self.texts: list[tuple[int, Statement, int]] = []  # of a simple query, still to return: end, statement, flags
        self.last: Request | None = None  # of COPY from the client the end moves on
        self.request_mode: int = SEEN
        # responses
        self.answer_start = -1
        self.rows = 0  # DataRows of the answer
        self.copied = -1  # bytes of COPY; -1: none
        self.copied_in = False  # CopyInResponse was the last word
        self.is_greeting = False  # the client was asked who it is
        self.failed = False  # an error: what was sent before the next Sync is skipped
        self.failure: Response | None = None  # the error, while no row was seen that it may answer
        self.response_mode: int = SEEN


def reset(state: State) -> None:
    """Forget what was under way; named statements last."""
    state.statements.pop(b"", None)
    state.portals.clear()
    state.queue.clear()
    state.is_sure = False
    state.phase = TALK if state.phase == OFFERED else state.phase
    state.startup = state.last = None
    state.request_mode = state.response_mode = SEEN
    state.copied_in = False
    end_row(state)
    state.texts = []
    end_answer(state)
    state.failed = state.is_greeting = False
    state.failure = None


def is_fresh(state: State) -> bool:
    """Say whether a new state would do as well: nothing is known of the connection or prepared on it, nothing waits."""
    if state.extras != NO_EXTRAS or state.statements or state.portals or state.sql is not STANDARD_SQL:
        return False
    if state.phase != TALK or state.startup is not None or state.queue or state.texts or not state.is_sure:
        return False
    if state.row_start >= 0 or state.request_mode != SEEN or state.response_mode != SEEN or state.answer_start >= 0:
        return False
    return not (state.copied_in or state.is_greeting or state.failed or state.failure is not None)


def settle(state: State) -> None:
    """Forget what was sent before the request that was returned last."""
    del state.queue[:-1]
    state.is_sure = True
    state.failed = False
    state.failure = None


def end_row(state: State) -> None:
    """Be ready for the messages of the next request."""
    state.row_start = -1
    state.unanswered = 0
    state.verb = ""
    state.parsed = state.trace = None


def end_answer(state: State) -> None:
    """Be ready for the next answer."""
    state.answer_start = -1
    state.rows = 0
    state.copied = -1


def expect(state: State, item: int) -> None:
    """Note that an answer is to come."""
    if len(state.queue) >= WAITING_LIMIT:
        raise ProtocolError(f"more than {WAITING_LIMIT} requests wait for an answer")
    state.queue.append(item)


def choose_sql(state: State, value: str) -> None:
    """Follow `standard_conforming_strings`, which says where a string ends."""
    state.sql = STANDARD_SQL if value == "on" else BACKSLASH_SQL


def remember(known: dict[bytes, Prepared], name: bytes, prepared: Prepared) -> None:
    """Keep a statement or portal under its name; of too many the oldest goes."""
    if len(known) >= STATEMENTS and name not in known:
        del known[next(iter(known))]
    known[name] = prepared
