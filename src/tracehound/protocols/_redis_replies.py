"""Replies of Redis, RESP2 and RESP3: walked through value by value, none kept but errors and the names of channels.

How many values are still to come is one number, whatever the depth (`*2` adds two and takes one away), so a million
levels cost no more than a million values. Only streamed aggregates, whose length is not told, are remembered by level.
"""

from typing import Final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import OK, TRUNCATED, UNTIL_CLOSE, NotFollowed, Request, Response
from tracehound.protocols._redis_commands import SYNC
from tracehound.protocols._redis_errors import MESSAGE_LIMIT, read_error
from tracehound.protocols._redis_messages import finish
from tracehound.protocols._redis_requests import KEY_BYTES
from tracehound.protocols._redis_state import ATTRIBUTE, NO_KIND, State
from tracehound.protocols._redis_types import (
    ARRAY,
    ATTRIBUTES,
    BIG_NUMBER,
    BOOLEAN,
    BULK,
    BULK_ERROR,
    CHUNK,
    DOUBLE,
    ERROR,
    INTEGER,
    MAP,
    NULL,
    PUSHED,
    SET,
    STATUS,
    STREAM_END,
    VERBATIM,
)

STRINGS: Final = (BULK, VERBATIM, BULK_ERROR)
AGGREGATES: Final = (ARRAY, SET, MAP, PUSHED, ATTRIBUTES)
LINES: Final = (STATUS, ERROR, INTEGER, DOUBLE, BIG_NUMBER, BOOLEAN, NULL)

MAX_BULK_BYTES: Final = 512 << 20
MAX_VALUES: Final = 1 << 32  # of one reply
MAX_STREAMED: Final = 32  # levels of streamed aggregates
STREAMED: Final = 1 << 40  # values of a streamed aggregate: as many as come
LINE_KEPT: Final = 4096  # longer lines are passed over
SHORT_LINE: Final = 24  # a longer one may be of MONITOR, or an answer to PSYNC
SIZE_DIGITS: Final = 9  # less than the longest string has
NUMBER_LIMIT: Final = 32  # of a length's line
WORDS: Final = 3  # of a push: its kind, its channel or pattern, and the channel of a pattern


def parse_response(buffer: StreamBuffer, state: State) -> Response | Request | None:
    """Return the next reply, or a message that answers nothing; None if more bytes are needed; raises ProtocolError."""
    if state.left == 0 and state.answered < state.asked and not state.specials:
        data, cursor = buffer.data, buffer.cursor
        kind, stop = data[cursor], data.find(b"\r\n", cursor, cursor + SHORT_LINE)
        if stop > 0:
            if kind == BULK:
                digits = data[cursor + 1 : stop]
                if digits.isdigit() and stop - cursor < SIZE_DIGITS:
                    buffer.cursor = end = stop + 4 + int(digits)
                    state.answered += 1
                    return Response(buffer.base + cursor, buffer.base + end, None, OK, extras=state.one_row)
            elif kind == STATUS or (kind == INTEGER and data[cursor + 1 : stop].isdigit()):
                buffer.cursor = end = stop + 2
                state.answered += 1
                return Response(buffer.base + cursor, buffer.base + end, None, OK, extras=state.no_rows)
    return parse_any(buffer, state)


def parse_any(buffer: StreamBuffer, state: State) -> Response | Request | None:
    """Walk through replies of any kind, up to one that is a message."""
    while True:
        if state.replicates:
            raise NotFollowed("the replication stream behind PSYNC is not read")
        adrift = state.adrift
        if adrift is not None:
            passed = pass_adrift(buffer, state)
            if passed is not None or adrift.end < 0:  # it goes on
                return passed
        if state.left == 0:
            special = state.expected()
            if special is not None and special.effect == SYNC:
                return parse_sync(buffer, state)
            state.begin_reply(buffer.base + buffer.cursor)
            state.left = 1
        walk(buffer, state)
        if state.left:
            return None
        position, end = state.reply_position, buffer.base + buffer.cursor
        message = finish(state, position, end)
        state.begin_reply(end)
        if message is not None or buffer.cursor >= len(buffer.data):
            return message


def bridge_reply(buffer: StreamBuffer, state: State) -> bool:
    """Go on behind a hole in an aggregate: on a connection that takes turns the next command tells where it ended."""
    if state.adrift is None:
        special = state.expected()
        is_aggregate = state.left > 0 and state.kind in AGGREGATES and state.words is None
        if not is_aggregate or state.pipelined or state.asked - state.answered != 1 or special is not None:
            return False
        extras = (state.rows, state.database, state.user)
        state.adrift = Response(state.reply_position, UNTIL_CLOSE, None, OK, flags=TRUNCATED, extras=extras)
        state.is_told = False
        state.answered += 1
    elif state.adrift.end >= 0:
        return False
    buffer.leap()
    state.adrift_end = buffer.base + buffer.cursor
    return True


def pass_adrift(buffer: StreamBuffer, state: State) -> Response | None:
    """Pass over what is left of a reply with a hole in it; return it the first time."""
    message, is_told = state.adrift, state.is_told
    assert message is not None
    state.is_told = True
    if message.end < 0:
        buffer.cursor = len(buffer.data)
        state.adrift_end = buffer.base + buffer.cursor
    else:
        state.adrift = None
        state.begin_reply(message.end)
    return None if is_told else message


def parse_sync(buffer: StreamBuffer, state: State) -> Response | None:
    """Return the reply to SYNC or PSYNC: behind its first line stands what is no reply."""
    data, cursor = buffer.data, buffer.cursor
    while data[cursor : cursor + 1] == b"\n":  # sent while the snapshot is made
        cursor += 1
    buffer.cursor = cursor
    stop = data.find(b"\r\n", cursor)
    if stop < 0:
        if len(data) - cursor > LINE_KEPT:
            raise ProtocolError("not a reply to PSYNC")
        return None
    state.answered += 1
    del state.specials[0]
    line = data[cursor:stop]
    end = buffer.base + stop + 2
    buffer.cursor = stop + 2
    if line.startswith(b"-"):
        error_type, message, outcome = read_error(line[1:])
        return Response(
            end - 2 - len(line), end, None, outcome, error_type=error_type, error_message=message, extras=state.no_rows
        )
    if not line.startswith((b"+FULLRESYNC", b"+CONTINUE", b"$")):
        raise ProtocolError("not a reply to PSYNC")
    state.replicates = True
    return Response(end - 2 - len(line), end, None, OK, extras=state.no_rows)


# ---- values ---------------------------------------------------------------------------------------------------------


def walk(buffer: StreamBuffer, state: State) -> None:
    """Go on through values until none is left, or more bytes are needed."""
    data, cursor = buffer.data, buffer.cursor
    if state.in_line:
        cursor = pass_line(data, cursor, state)
    left, size, simple = state.left, len(data), state.words is None
    while cursor < size:
        if not left:
            if not state.levels:
                break
            left = pop_level(state)
            continue
        kind = data[cursor]
        stop = data.find(b"\r\n", cursor)
        if stop < 0:
            state.left = left
            buffer.cursor = begin_long_line(data, cursor, state)
            return
        if kind == BULK and simple and state.kind > 0:  # the usual element
            digits = data[cursor + 1 : stop]
            if digits.isdigit() and len(digits) < 10 and not state.chunked:
                cursor = stop + 4 + int(digits)
                left -= 1
                continue
        state.left, buffer.cursor = left, cursor
        cursor = take_value(data, cursor, stop, state)
        if cursor < 0:  # its beginning is wanted, and not here yet
            return
        left, simple = state.left, state.words is None
    while not left and state.levels:
        left = pop_level(state)
    state.left = left
    buffer.cursor = cursor


def pop_level(state: State) -> int:
    """Leave an attribute: what it is of comes next."""
    if state.kind == ATTRIBUTE and len(state.levels) == 1:
        state.kind = NO_KIND
    return state.levels.pop()


def take_value(data: bytes, cursor: int, stop: int, state: State) -> int:
    """Take one value or the head of an aggregate; return where the next begins, -1 if more bytes are needed."""
    kind, is_first = data[cursor], state.kind == NO_KIND
    if stop == cursor:
        raise ProtocolError("not a value of Redis")
    line = data[cursor + 1 : min(stop, cursor + 1 + LINE_KEPT)]
    if state.chunked:
        return take_chunk(kind, line, stop, state)
    if is_first and kind != ATTRIBUTES:
        state.kind, state.text = kind, line
    if kind in LINES:
        if kind == ERROR and state.error is None:
            state.error = line[:MESSAGE_LIMIT]
        check_line(kind, line)
        if is_first and kind == NULL:
            state.rows = 0
        add_word(state, line if kind in (INTEGER, STATUS) else b"")
        state.left -= 1
        return stop + 2
    if kind in STRINGS:
        return take_string(data, kind, line, stop, state, is_first)
    if kind in AGGREGATES:
        take_aggregate(kind, line, state, is_first)
        return stop + 2
    if kind == STREAM_END and not line and state.levels and state.left > STREAMED >> 1:
        state.left = pop_level(state)
        return stop + 2
    raise ProtocolError("not a value of Redis")


def check_line(kind: int, line: bytes) -> None:
    """Raise ProtocolError for what is no number, no truth value, no null."""
    if kind in (INTEGER, BIG_NUMBER):
        if not line.lstrip(b"+-").isdigit():
            raise ProtocolError("not a number of Redis")
    elif (kind == BOOLEAN and line not in (b"t", b"f")) or (kind == NULL and line):
        raise ProtocolError("not a value of Redis")


def take_string(data: bytes, kind: int, digits: bytes, stop: int, state: State, is_first: bool) -> int:
    if digits == b"?":
        state.chunked = True
        if is_first:
            state.rows = 1
        return stop + 2
    size = read_length(digits, MAX_BULK_BYTES)
    wanted = 0
    if size > 0:
        if state.words is not None and wants_word(state.words):
            wanted = min(size, KEY_BYTES)
        elif kind == BULK_ERROR and state.error is None:
            wanted = min(size, MESSAGE_LIMIT)
        if stop + 2 + wanted > len(data):
            if is_first:
                state.kind = NO_KIND
            return -1
    if is_first and kind != BULK_ERROR:
        state.rows = 0 if size < 0 else 1
    if kind == BULK_ERROR and state.error is None:
        state.error = data[stop + 2 : stop + 2 + wanted]
    word = data[stop + 2 : stop + 2 + wanted]
    add_word(state, word if size <= KEY_BYTES else word + b" ")  # longer than any that is shown whole
    state.left -= 1
    return stop + 2 if size < 0 else stop + 4 + size


def take_chunk(kind: int, digits: bytes, stop: int, state: State) -> int:
    """Take the next piece of a streamed string; the last one is empty."""
    if kind != CHUNK:
        raise ProtocolError("not a piece of a streamed string of Redis")
    size = read_length(digits, MAX_BULK_BYTES)
    if size > 0:
        return stop + 4 + size
    state.chunked = False
    add_word(state, b"")
    state.left -= 1
    return stop + 2


def take_aggregate(kind: int, digits: bytes, state: State, is_first: bool) -> None:
    count = STREAMED if digits == b"?" else read_length(digits, MAX_VALUES)
    if kind == ATTRIBUTES:
        if is_first:
            state.kind = ATTRIBUTE
        if is_first or count == STREAMED:
            push_level(state, count if count == STREAMED else 2 * max(count, 0))
        else:
            state.left += 2 * max(count, 0)
        return
    if is_first:
        state.rows = None if count == STREAMED or kind == PUSHED else max(count, 0)
        if kind == PUSHED or (kind == ARRAY and state.may_push(state.expected())):
            state.words = []
    state.left -= 1
    if count == STREAMED:
        push_level(state, count)
    elif count > 0:
        state.left += 2 * count if kind == MAP else count
        if state.left > MAX_VALUES and state.left < STREAMED >> 1:
            raise ProtocolError("a reply of Redis with too many values")


def push_level(state: State, left: int) -> None:
    if len(state.levels) >= MAX_STREAMED:
        raise ProtocolError("a reply of Redis with too many levels")
    state.levels.append(state.left)
    state.left = left


def read_length(digits: bytes, limit: int) -> int:
    """Return a length, -1 for null; raises ProtocolError."""
    if digits.isdigit() and len(digits) < NUMBER_LIMIT and int(digits) <= limit:
        return int(digits)
    if digits == b"-1":
        return -1
    raise ProtocolError("not a length of Redis")


def wants_word(words: list[bytes]) -> bool:
    """Say whether the next element of what may be a push is looked at; the text of a message is not."""
    return len(words) < 2 or (len(words) == 2 and words[0] == b"pmessage")


def add_word(state: State, word: bytes) -> None:
    if state.words is not None and len(state.words) < WORDS:
        state.words.append(word)


def begin_long_line(data: bytes, cursor: int, state: State) -> int:
    """Take what is here of a line without an end: of a long one only the beginning is kept. Return the new cursor."""
    kind, length = data[cursor], len(data) - cursor
    if kind in LINES and not state.chunked:
        if length <= LINE_KEPT:
            return cursor
        if kind in (STATUS, ERROR, BIG_NUMBER, DOUBLE):
            line = data[cursor + 1 : cursor + 1 + LINE_KEPT]
            if state.kind == NO_KIND:
                state.kind, state.text = kind, line
            if kind == ERROR and state.error is None:
                state.error = line[:MESSAGE_LIMIT]
            state.in_line = True
            return pass_line(data, cursor, state)
    elif length <= NUMBER_LIMIT and (kind in STRINGS or kind in AGGREGATES or kind in (CHUNK, STREAM_END)):
        return cursor
    raise ProtocolError("not a value of Redis")


def pass_line(data: bytes, cursor: int, state: State) -> int:
    """Move on to the end of a long line; return the new cursor."""
    stop = data.find(b"\r\n", cursor)
    if stop < 0:
        return len(data) - data.endswith(b"\r")
    state.in_line = False
    state.left -= 1
    add_word(state, b"")
    return stop + 2
