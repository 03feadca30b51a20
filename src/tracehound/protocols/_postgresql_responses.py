"""What a PostgreSQL server sends: answers to statements, errors, COPY data, and what it says unasked.

Chapter 55.2 and 55.7 of the documentation of PostgreSQL 17. Rows, their descriptions and notices are stepped over
unread. A statement's answer is its CommandComplete, its error, or a portal that was suspended. After an error the
server skips what was sent before the next Sync, and the rest of a simple query: those answers are `skipped`, without
bytes, and are returned when ReadyForQuery says that this is over. An error at a Sync (a deferred constraint, a commit
that fails) is the answer of the last statement before it.
"""

import re
from typing import Final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._postgresql_errors import outcome_of, read_error
from tracehound.protocols._postgresql_state import (
    EXECUTE,
    LENGTH_LIMIT,
    OFFERED,
    QUERY,
    SEEK_END,
    SEEN,
    STARTUP,
    STREAMING,
    SYNC,
    TALK,
    State,
    choose_sql,
    end_answer,
)
from tracehound.protocols._protocol import (
    INTERIM,
    OK,
    PUSH,
    SWITCH,
    TRUNCATED,
    UNKNOWN,
    Request,
    Response,
)

ERROR_LIMIT: Final = 4096  # of an error, what is read: its detail comes last
TAG_LIMIT: Final = 256
PARAMETER_LIMIT: Final = 1024

SKIPPED: Final = "skipped"
KINDS: Final = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")
UNASKED: Final = frozenset(b"NSK")  # notices and parameters are no part of an answer
PARSED_AND_BOUND: Final = b"1\0\0\0\x042\0\0\0\x04"
READY: Final = b"Z\0\0\0\x05"
LAST_ANSWER: Final = re.compile(rb"(?:C\0\0\0|E\0\0.).(?:[^\0].*\0)+?Z\0\0\0\x05[ITE]\Z", re.S)
ROWS_BY_TAG: Final = re.compile(rb"(?:[A-Z]+ )*?(?:[0-9]+ )?([0-9]+)\Z")

Answer = Request | Response | None


def parse_response(buffer: StreamBuffer, state: State) -> Answer:
    """Return the next answer, or what is said unasked; None if more bytes are needed; raises ProtocolError."""
    if state.phase == OFFERED:
        return take_offer_answer(buffer, state)
    if state.response_mode == SEEK_END and not seek_answer(buffer, state):
        return None
    data, base, cursor, queue = buffer.data, buffer.base, buffer.cursor, state.queue
    size = len(data)
    while cursor + 5 <= size:
        kind = data[cursor]
        length = int.from_bytes(data[cursor + 1 : cursor + 5], "big")
        if length < 4 or length > LENGTH_LIMIT:
            raise ProtocolError("not the length of a message")
        if kind == 68:  # DataRow
            if state.answer_start < 0:
                state.answer_start = base + cursor
            state.rows += 1
            cursor += 1 + length
        elif kind == 90:  # ReadyForQuery
            if cursor + 6 > size:
                break
            buffer.cursor = cursor
            answer = take_ready(buffer, state, length)
            if answer is not None:
                return answer
            cursor = buffer.cursor
        elif kind in UNASKED:
            if kind == 83 and not take_parameter(data, cursor, cursor + 1 + length, state):
                break
            cursor += 1 + length
            if state.answer_start < 0:
                buffer.passed = base + cursor
        else:
            if state.answer_start < 0 and kind != 65:
                state.answer_start = base + cursor
            if kind in (50, 49, 110, 84):  # BindComplete, ParseComplete, NoData, RowDescription
                cursor += 1 + length
                if queue and queue[0] < 0:
                    queue[0] += 1
                    if not queue[0]:
                        del queue[0]
                        buffer.cursor = cursor
                        return complete(state, base + cursor, None)
            elif kind == 67:  # CommandComplete
                buffer.cursor = cursor
                answer = take_complete(buffer, state, cursor + 1 + length)
                if answer is not None:
                    return answer
                if buffer.cursor == cursor:
                    return None
                cursor = buffer.cursor
            else:
                buffer.cursor = cursor
                if not take_other(kind, buffer, state, cursor + 1 + length):
                    rare = take_rare(kind, buffer, state, cursor + 1 + length)
                    if rare is not None:
                        return rare
                    if buffer.cursor == cursor:
                        return None
                cursor = buffer.cursor
    if cursor < size and data[cursor] not in KINDS:
        raise ProtocolError("not a message of a PostgreSQL server")
    buffer.cursor = cursor
    return None


def complete(state: State, end: int, rows: int | None) -> Response:
    """Return the answer that ends at `end` with success."""
    copied = state.copied if state.copied >= 0 else None
    answer = Response(state.answer_start, end, None, OK, extras=(rows, copied))
    end_answer(state)
    return answer


# ---- answers ----------------------------------------------------------------


def take_complete(buffer: StreamBuffer, state: State, stop: int) -> Response | None:
    """Take a CommandComplete. The last one before a Sync is only good if no error follows at once."""
    data, queue = buffer.data, state.queue
    if stop - buffer.cursor > TAG_LIMIT:
        raise ProtocolError("not the tag of a command")
    if stop > len(data):
        return None
    item = queue[0] if queue else 0
    is_last = item == QUERY + 1 or (item == EXECUTE and len(queue) > 1 and queue[1] == SYNC)
    if is_last:
        if stop >= len(data):
            if not buffer.closed:
                return None
        elif data[stop] == 69:
            buffer.cursor = stop
            return None
    found = ROWS_BY_TAG.match(data, buffer.cursor + 5, stop - 1)
    if data[stop - 1]:
        raise ProtocolError("not the tag of a command")
    buffer.cursor = stop
    if item == QUERY:  # more answers than statements were found in the text
        end_answer(state)
        buffer.passed = buffer.base + stop
        return None
    if item > QUERY:
        queue[0] = item - 1
    elif item == EXECUTE:
        del queue[0]
    answer = complete(state, buffer.base + stop, int(found[1]) if found else None)
    take_mode(state, answer)
    return answer


def take_mode(state: State, answer: Response) -> None:
    """Say of an answer if some of it was not captured; what COPY sent is over."""
    if state.response_mode == SEEK_END:
        state.response_mode = SEEN
        answer.flags |= TRUNCATED
    state.copied_in = False


def take_other(kind: int, buffer: StreamBuffer, state: State, stop: int) -> bool:
    """Step over a message that ends no answer; False if it is not one."""
    if kind == 100:  # CopyData
        state.copied = max(state.copied, 0) + stop - buffer.cursor - 5
    elif kind == 71 or kind == 72:  # CopyInResponse, CopyOutResponse
        state.copied = max(state.copied, 0)
        state.copied_in = kind == 71
    elif kind == 82:  # authentication
        state.is_greeting = True
    elif kind not in (51, 99, 116, 118):  # CloseComplete, CopyDone, parameters, version
        return False
    buffer.cursor = stop
    return True


def take_rare(kind: int, buffer: StreamBuffer, state: State, stop: int) -> Answer:
    """Take a message that ends an answer in another way than most, or is said unasked."""
    data, queue, end = buffer.data, state.queue, buffer.base + stop
    if kind == 69:
        return take_error(buffer, state, stop)
    if kind == 65:  # NotificationResponse
        return take_notification(buffer, state, stop)
    if kind == 87:  # CopyBothResponse
        state.phase = STREAMING
    elif kind not in (73, 86, 115):  # EmptyQueryResponse, FunctionCallResponse, PortalSuspended
        raise ProtocolError("not a message of a PostgreSQL server")
    if kind != 86 and stop > len(data):
        return None
    buffer.cursor = stop
    if queue and queue[0] > QUERY:
        queue[0] -= 1
    elif queue and queue[0] == EXECUTE:
        del queue[0]
    return complete(state, end, state.rows if kind == 115 else None)


def take_error(buffer: StreamBuffer, state: State, stop: int) -> Response | None:
    """Take an ErrorResponse: the answer of the first statement that has none."""
    cursor, queue = buffer.cursor, state.queue
    reach = min(stop, cursor + ERROR_LIMIT)
    if reach > len(buffer.data):
        return None
    code, message, is_last = read_error(buffer.data[cursor + 5 : reach])
    answer = Response(
        state.answer_start, buffer.base + stop, None, outcome_of(code), error_type=code, error_message=message,
        extras=(None, state.copied if state.copied >= 0 else None),
    )  # fmt: skip
    buffer.cursor = stop
    end_answer(state)
    take_mode(state, answer)
    item = queue[0] if queue else 0
    if item > QUERY:
        queue[0] = item - 1
    elif item in (EXECUTE, STARTUP) or item < 0:
        del queue[0]
    elif not queue and not state.unanswered and not is_last:  # of a request that was not seen
        return answer
    elif not queue and not is_last:
        state.failed = True
        state.failure = answer
        buffer.passed = answer.end
        return None
    else:  # of a Close, or of the connection itself
        state.failed = item == SYNC
        buffer.passed = answer.end
        return None
    state.failed = not is_last
    return answer


def take_ready(buffer: StreamBuffer, state: State, length: int) -> Response | None:
    """Take ReadyForQuery, but first return the answers that will not come any more."""
    queue, position = state.queue, buffer.base + buffer.cursor
    if length != 5:
        raise ProtocolError("not a ReadyForQuery")
    answer = None
    if state.answer_start < 0:
        state.answer_start = position
    item = queue[0] if queue else SYNC
    if item == STARTUP or (not queue and state.is_greeting):  # or of a startup that was not seen
        answer = complete(state, position + 6, None)
    elif state.is_sure and (item > QUERY or ((item == EXECUTE or item < 0) and SYNC in queue)):
        if item > QUERY:
            queue[0] = item - 1
        else:
            del queue[0]
        if state.failure is not None:
            answer = state.failure
            state.failure = None
        else:
            answer = Response(position, position, None, UNKNOWN, extras=(None, None))
            answer.error_type = SKIPPED if state.failed else None
        return answer
    if queue and item in (SYNC, QUERY, STARTUP):
        del queue[0]
    buffer.cursor += 6
    buffer.passed = position + 6
    state.failed = state.copied_in = state.is_greeting = False
    state.failure = None
    end_answer(state)
    return answer


def seek_answer(buffer: StreamBuffer, state: State) -> bool:
    """Look for the last answer at the end of a call, as some before it was not captured."""
    if not is_alone(state):
        raise ProtocolError("the end of a result was not seen before the next request")
    data, begin = buffer.data, max(len(buffer.data) - ERROR_LIMIT, buffer.cursor)
    if not buffer.cut and data.endswith((READY + b"I", READY + b"T", READY + b"E")):
        for at in range(len(data) - 6, begin - 1, -1):
            length = int.from_bytes(data[at + 1 : at + 5], "big")
            if data[at] in b"CE" and at + 1 + length == len(data) - 6 and data[-7] == 0:
                buffer.cursor = at
                return True
    buffer.cursor = len(data)
    return False


def is_alone(state: State) -> bool:
    """Say whether only one answer is to come."""
    return state.queue in ([QUERY + 1], [EXECUTE], [EXECUTE, SYNC])


# ---- what is said unasked, and before a connection talks --------------------


def take_offer_answer(buffer: StreamBuffer, state: State) -> Response | None:
    """Take the one byte that answers SSLRequest or GSSENCRequest, or the error of an old server."""
    cursor, position = buffer.cursor, buffer.base + buffer.cursor
    answer = buffer.data[cursor]
    state.phase = TALK
    if answer == 69:  # E: a message
        return parse_response(buffer, state)  # type: ignore[return-value]
    buffer.cursor = cursor + 1
    if answer == 78:  # N: not encrypted
        return Response(position, position + 1, None, OK, flags=INTERIM, extras=(None, None))
    if answer not in (83, 71):
        raise ProtocolError("not an answer to the offer of encryption")
    if state.startup is not None:
        state.startup.end = state.startup.position + 8
    return Response(position, position + 1, None, OK, flags=SWITCH, extras=(None, None))


def take_parameter(data: bytes, cursor: int, stop: int, state: State) -> bool:
    """Note what a ParameterStatus says of interest; False if more bytes are needed."""
    if stop - cursor > PARAMETER_LIMIT:
        return True
    if stop > len(data):
        return False
    name, _, value = data[cursor + 5 : stop].partition(b"\0")
    value = value.rstrip(b"\0")
    if name == b"application_name":
        state.extras = (*state.extras[:2], value.decode("utf-8", "replace") or None)
    elif name == b"standard_conforming_strings":
        choose_sql(state, value.decode("latin-1"))
    return True


def take_notification(buffer: StreamBuffer, state: State, stop: int) -> Request | None:
    """Return a row of its own for a NotificationResponse: its channel, not its payload."""
    data, cursor = buffer.data, buffer.cursor
    end = data.find(b"\0", cursor + 9, min(stop, cursor + 9 + TAG_LIMIT))
    if end < 0:
        if len(data) >= min(stop, cursor + 9 + TAG_LIMIT):
            raise ProtocolError("a channel's name does not end")
        return None
    if state.answer_start >= 0:  # a server says it only between answers; so that places stay in order
        state.answer_start = -1
    if state.failure is not None:
        state.failure.position = state.failure.end = buffer.base + stop
    channel = data[cursor + 9 : end].decode("utf-8", "replace")
    buffer.cursor = stop
    return Request(buffer.base + cursor, buffer.base + stop, "message", channel, flags=PUSH, extras=state.extras)
