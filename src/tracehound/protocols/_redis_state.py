"""What is kept of a Redis connection: both directions, and the few commands that change what follows.

Requests and replies are numbered, so that a reply is known for that of a command with an effect; which reply answers
which request is the engine's. After a gap the numbers begin anew, and what a lost command may have changed is unknown.
"""

from typing import Final, final

from tracehound.protocols._protocol import Extras, Response
from tracehound.protocols._redis_commands import UNSUBSCRIBE, Command

UNKNOWN_COUNT: Final = -1
NO_KIND: Final = -1  # of a reply whose first byte is not here
ATTRIBUTE: Final = -2  # what stands before a reply


@final
class Special:
    """A command with an effect, and the number of its reply."""

    __slots__ = ("effect", "number", "text", "wanted")

    def __init__(self, number: int, effect: int, text: str | None, wanted: int) -> None:
        self.number = number
        self.effect = effect
        self.text = text  # database, user
        self.wanted = wanted  # confirmations of a SUBSCRIBE; 0: one for each channel there is


@final
class Partial:
    """A command of which not all arguments have come."""

    __slots__ = ("command", "count", "index", "keys", "position", "taken")

    def __init__(
        self,
        position: int,
        command: Command,
        count: int,
        index: int,
        keys: tuple[int, int, int],
        taken: list[tuple[int, str]],
    ) -> None:
        self.position = position
        self.command = command
        self.count = count
        self.index = index  # of the next argument
        self.keys = keys  # first, last, step
        self.taken = taken  # arguments that are kept, with their indexes


@final
class State:
    """One connection."""

    __slots__ = (
        "adrift", "adrift_end", "answered", "asked", "channels", "chunked", "database", "error", "in_line", "is_told",
        "kind", "left", "levels", "monitoring", "no_row", "no_rows", "one_row", "partial", "patterns", "pipelined",
        "queued_database", "replicates", "reply_position", "rows", "shards", "silent", "skipping", "specials", "text",
        "user", "words",
    )  # fmt: skip

    def __init__(self) -> None:
        # what lasts
        self.database: str | None = None
        self.user: str | None = None
        self.channels = UNKNOWN_COUNT  # subscribed to
        self.patterns = UNKNOWN_COUNT
        self.shards = UNKNOWN_COUNT
        self.monitoring = False
        self.replicates = False  # PSYNC was granted
        self.silent = False  # CLIENT REPLY OFF
        self.skipping = 0  # commands that CLIENT REPLY SKIP keeps without a reply
        self.queued_database: str | None = None
        self.share_extras()
        self.pipelined = False  # a command was sent before the one before was answered
        # requests
        self.asked = 0
        self.partial: Partial | None = None
        # replies
        self.answered = 0
        self.specials: list[Special] = []
        self.adrift: Response | None = None  # a reply with a hole in it, up to its end, which the next command tells
        self.adrift_end = 0  # where it has come to
        self.is_told = False  # it was returned
        self.begin_reply(0)

    def settle(self) -> None:
        """Expect the answer to the last command next: none is owed to any before."""
        self.answered = self.asked - 1
        self.specials = [special for special in self.specials if special.number == self.asked]

    def is_fresh(self) -> bool:
        """Say whether a new state would do as well: no database, user, mode or channel is known, and nothing waits."""
        if self.database is not None or self.user is not None or self.queued_database is not None:
            return False
        if self.channels or self.patterns or self.shards or self.monitoring or self.replicates:
            return False
        if self.silent or self.skipping or self.pipelined or self.asked != self.answered or self.specials:
            return False
        if self.partial is not None or self.adrift is not None:
            return False
        return not (self.left or self.levels or self.chunked or self.in_line)

    def unsubscribe(self) -> None:
        """Know that no channel is subscribed to, as at the beginning."""
        self.channels = self.patterns = self.shards = 0

    def share_extras(self) -> None:
        """Make the extras of replies, which are the same until database or user change."""
        self.no_rows: Extras = (None, self.database, self.user)
        self.no_row: Extras = (0, self.database, self.user)
        self.one_row: Extras = (1, self.database, self.user)

    def begin_reply(self, position: int) -> None:
        """Stand before a reply."""
        self.reply_position = position
        self.kind = NO_KIND
        self.left = 0  # values that are still to come, of all levels together
        self.levels: list[int] = []  # what is left behind a streamed aggregate, or an attribute
        self.chunked = False  # in a streamed string
        self.in_line = False  # in a line that is too long to be kept
        self.rows: int | None = None
        self.text = b""  # the first line
        self.error: bytes | None = None  # the first one in it
        self.words: list[bytes] | None = None  # its first elements, of what may be a push

    def reset(self) -> None:
        """Forget what was under way, and what a lost command may have changed."""
        self.database = self.user = self.queued_database = None
        self.share_extras()
        self.channels = self.patterns = self.shards = UNKNOWN_COUNT
        self.skipping = 0
        self.asked = self.answered = 0
        self.partial = None
        self.specials.clear()
        self.adrift = None
        self.begin_reply(0)

    def expected(self) -> Special | None:
        """Return the command with an effect that the next reply answers."""
        specials = self.specials
        return specials[0] if specials and specials[0].number == self.answered + 1 else None

    def may_push(self, special: Special | None) -> bool:
        """Say whether an array may be a message of RESP2, or what confirms a subscription."""
        if special is not None and special.effect <= UNSUBSCRIBE:
            return True
        return bool(self.channels or self.patterns or self.shards) or self.answered == self.asked
