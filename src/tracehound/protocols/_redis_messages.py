"""What a whole reply of Redis is: an answer, what confirms a subscription, or a message that answers nothing.

And what commands change once their reply says that they were done: database, user, subscriptions, MONITOR.
"""

import re
from typing import Final

from tracehound.protocols._protocol import INTERIM, OK, PUSH, Request, Response
from tracehound.protocols._redis_commands import (
    AUTH,
    DISCARD,
    EXEC,
    HELLO,
    MONITOR,
    RESET,
    SELECT,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from tracehound.protocols._redis_errors import read_error
from tracehound.protocols._redis_requests import KEY_BYTES, key_text, quote
from tracehound.protocols._redis_state import UNKNOWN_COUNT, Special, State
from tracehound.protocols._redis_types import ARRAY, BULK_ERROR, ERROR, MAP, PUSHED, STATUS

MONITORED: Final = re.compile(rb"\d{1,12}\.\d{1,9} \[")
REPLICATION: Final = re.compile(rb"FULLRESYNC [0-9a-f]{40} \d{1,20}|CONTINUE [0-9a-f]{40}")
CONFIRMATIONS: Final = frozenset(
    (b"subscribe", b"psubscribe", b"ssubscribe", b"unsubscribe", b"punsubscribe", b"sunsubscribe")
)
_MESSAGES: Final = frozenset((b"message", b"pmessage", b"smessage"))
PUSHES: Final = _MESSAGES | {b"invalidate"}


def finish(state: State, position: int, end: int) -> Response | Request | None:
    """Make a message of the reply that was walked through.

    None for a reply before any command, since the beginning or a gap: it may as well be an element of one that was
    lost in part, and would be the answer to nothing.
    """
    special = state.expected()
    if state.words is not None:
        words = [*state.words, b"", b"", b""]
        if words[0] in CONFIRMATIONS:
            return confirm(state, special, words, position, end)
        is_message = words[0] in _MESSAGES and state.rows == 3 + (words[0] == b"pmessage")
        if state.kind == PUSHED or (is_message and (state.channels or state.patterns or state.shards)):
            return push(words, position, end)
    is_asked = state.answered < state.asked
    if state.kind == STATUS and (state.monitoring or not is_asked):
        if MONITORED.match(state.text):
            return Request(position, end, "message", None, flags=PUSH)
        if REPLICATION.fullmatch(state.text):
            state.replicates = True
    if not state.asked:
        return None
    if special is not None:
        del state.specials[0]
        if state.kind != ERROR and state.kind != BULK_ERROR:
            take_effect(state, special)
    if is_asked:
        state.answered += 1
    elif state.database is not None or state.user is not None:  # what it answers is lost, and may have changed them
        state.database = state.user = None
        state.share_extras()
    rows = state.rows
    extras = state.no_rows if rows is None else state.one_row if rows == 1 else (rows, state.database, state.user)
    if state.error is None:
        return Response(position, end, None, OK, extras=extras)
    error_type, message, outcome = read_error(state.error)
    return Response(position, end, None, outcome, error_type=error_type, error_message=message, extras=extras)


def push(words: list[bytes], position: int, end: int) -> Request:
    """Return the row of a message that answers nothing: its channel or first key, never its text."""
    kind, name = words[0], words[1]
    if kind not in PUSHES:
        return Request(position, end, "message", None, flags=PUSH)
    channel = key_text(name[:KEY_BYTES], len(name))
    statement = f"{kind.decode()} {quote(channel)}"
    if kind == b"pmessage":
        channel = key_text(words[2][:KEY_BYTES], len(words[2]))
        statement = f"{statement} {quote(channel)}"
    if kind in _MESSAGES:
        statement += " ?"
    return Request(position, end, "message", channel or None, statement=statement, flags=PUSH)


def confirm(state: State, special: Special | None, words: list[bytes], position: int, end: int) -> Response:
    """Return what confirms a subscription: the last of a command's is its answer."""
    kind, count = words[0], int(words[2]) if words[2].isdigit() else UNKNOWN_COUNT
    flags = INTERIM
    if special is not None and special.effect in (SUBSCRIBE, UNSUBSCRIBE):
        if special.wanted == 0:  # all that there are
            known = {b"unsubscribe": state.channels, b"punsubscribe": state.patterns}.get(kind, state.shards)
            special.wanted = max(known, 1)
        special.wanted -= 1
        if special.wanted == 0:
            del state.specials[0]
            state.answered += 1
            flags = 0
    note_subscriptions(state, kind, count)
    return Response(position, end, None, OK, flags=flags, extras=state.no_rows)


def note_subscriptions(state: State, kind: bytes, count: int) -> None:
    """Take the count of a confirmation: of channels and patterns together, or of shard channels."""
    if kind.startswith(b"s") and kind.endswith(b"subscribe") and kind != b"subscribe":
        state.shards = count
        return
    if count == 0:
        state.channels = state.patterns = 0
        return
    if kind.startswith(b"p"):
        state.patterns = count - state.channels if count >= state.channels >= 0 else count
        state.channels = max(state.channels, 0)
    else:
        state.channels = count - state.patterns if count >= state.patterns >= 0 else count
        state.patterns = max(state.patterns, 0)


def take_effect(state: State, special: Special) -> None:
    """Do what a command did whose reply says that it was done."""
    effect, text = special.effect, state.text
    is_done = state.kind == STATUS and text == b"OK"
    if effect == SELECT and state.kind == STATUS:
        if text == b"QUEUED":
            state.queued_database = special.text
        elif is_done:
            state.database = special.text
    elif (effect == AUTH and is_done) or (effect == HELLO and special.text and state.kind in (MAP, ARRAY)):
        state.user = special.text
    elif effect == MONITOR and is_done:
        state.monitoring = True
    elif effect == RESET and state.kind == STATUS and text == b"RESET":
        state.database, state.user, state.monitoring = "0", None, False
        state.channels = state.patterns = state.shards = 0
    elif effect == EXEC and state.kind == ARRAY and text != b"-1":
        state.database = state.queued_database or state.database
        state.queued_database = None
    elif effect in (EXEC, DISCARD):
        state.queued_database = None
    elif effect in (SUBSCRIBE, UNSUBSCRIBE) and text == b"QUEUED":
        state.channels = UNKNOWN_COUNT  # confirmed within EXEC's reply
    state.share_extras()
