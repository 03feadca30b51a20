"""What a PostgreSQL client sends: startup, simple queries, the extended protocol, COPY data; one message at a time.

Chapter 55.2 and 55.7 of the documentation of PostgreSQL 17. Passwords, parameters and rows of COPY are stepped over
unread.
"""

import re
from typing import Final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
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
    Prepared,
    State,
    end_row,
    expect,
    remember,
)
from tracehound.protocols._protocol import (
    NO_RESPONSE,
    PREPARED_UNKNOWN,
    TRUNCATED,
    UNTIL_CLOSE,
    NotFollowed,
    Request,
)
from tracehound.protocols._sql import Statement, cut_trace

TEXT_LIMIT: Final = 16384  # of SQL that is read; the rest is stepped over
NAME_LIMIT: Final = 1024  # of a statement's or portal's name
STARTUP_LIMIT: Final = 10000  # MAX_STARTUP_PACKET_LENGTH

PROTOCOL_3: Final = 3
CANCEL: Final = 80877102
SSL: Final = 80877103
GSS: Final = 80877104

COPY_END: Final = re.compile(rb"c\0\0\0\x04(?:S\0\0\0\x04)?\Z")
WORDS: Final = ("on", "true", "yes", "1")  # of `replication`


def parse_request(buffer: StreamBuffer, state: State) -> Request | None:
    """Return the next request, None if more bytes are needed; raises ProtocolError."""
    data, base = buffer.data, buffer.base
    if state.texts:
        return next_statement(buffer, state)
    if state.request_mode == SEEK_END and not seek_copy_end(buffer, state):
        return None
    size = len(data)
    while (cursor := buffer.cursor) < size:
        kind = data[cursor]
        if kind == 0:
            if state.phase == OFFERED:
                return None
            return parse_startup(buffer, state)
        if cursor + 5 > size:
            if kind not in KINDS:
                raise ProtocolError("not a message of a PostgreSQL client")
            return None
        length = int.from_bytes(data[cursor + 1 : cursor + 5], "big")
        if length < 4 or length > LENGTH_LIMIT:
            raise ProtocolError("not the length of a message")
        stop = cursor + 1 + length
        if kind == 66:  # Bind
            if not take_bind(data, cursor, stop, state):
                return None
            state.unanswered += 1
            state.verb = state.verb or "BIND"
        elif kind == 69:  # Execute
            end = data.find(b"\0", cursor + 5, min(stop, cursor + 5 + NAME_LIMIT))
            if end < 0:
                need(data, cursor, stop, NAME_LIMIT)
                return None
            return take_execute(buffer, state, data[cursor + 5 : end], stop)
        elif kind == 83:  # Sync
            if state.unanswered:
                return end_without_execute(state, base + cursor)
            if length != 4:
                raise ProtocolError("not a Sync")
            end_row(state)
            expect(state, SYNC)
            buffer.cursor = stop
            buffer.passed = base + stop
            continue
        elif kind == 68:  # Describe
            if not take_describe(data, cursor, stop, state):
                return None
            state.unanswered += 1
            state.verb = state.verb or "DESCRIBE"
        elif kind == 80:  # Parse
            if not take_parse(data, cursor, stop, state):
                return None
            state.unanswered += 1
            state.verb = "PREPARE"
        elif kind == 81:  # Query
            return take_query(buffer, state, stop)
        elif kind == 72:  # Flush
            if state.unanswered:
                return end_without_execute(state, base + cursor)
            buffer.cursor = stop
            buffer.passed = base + stop
            continue
        elif kind == 70:  # FunctionCall
            return take_function_call(buffer, state, stop)
        elif not take_other(kind, data, cursor, stop, state, base):
            return None
        else:
            buffer.cursor = stop
            if state.row_start < 0:
                buffer.passed = base + stop
            continue
        if state.row_start < 0:
            state.row_start = base + cursor
        buffer.cursor = stop
    return None


def need(data: bytes, cursor: int, stop: int, limit: int) -> None:
    """Raise ProtocolError if what is missing in a message cannot be what has not come yet."""
    if len(data) >= min(stop, cursor + limit):
        raise ProtocolError("a text in a message does not end")


# ---- startup ----------------------------------------------------------------


def parse_startup(buffer: StreamBuffer, state: State) -> Request | None:
    """Take a message without a kind: StartupMessage, CancelRequest, or the offer of encryption."""
    data, cursor = buffer.data, buffer.cursor
    head = data[cursor : cursor + 8]
    if len(head) >= 4 and not 8 <= int.from_bytes(head[:4], "big") <= STARTUP_LIMIT:
        raise ProtocolError("not the length of a startup message")
    if len(head) < 8:
        return None
    length, code = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
    stop, position = cursor + length, buffer.base + cursor
    if code >> 16 != PROTOCOL_3 and code not in (CANCEL, SSL, GSS):
        raise ProtocolError("not a startup message of protocol 3")
    if stop > len(data):
        return None
    buffer.cursor = stop
    end_row(state)
    if code == CANCEL:
        return Request(position, position + length, "CANCEL", flags=NO_RESPONSE, extras=state.extras)
    request = state.startup
    if code in (SSL, GSS):
        state.phase = OFFERED
        if request is not None:
            return None
        request = state.startup = Request(position, UNTIL_CLOSE, "STARTUP", extras=state.extras)
        expect(state, STARTUP)
        return request
    state.extras = read_parameters(data[cursor + 8 : stop])
    if request is not None:
        request.end = position + length
        request.extras = state.extras
        state.startup = None
        buffer.passed = position + length
        return parse_request(buffer, state)
    expect(state, STARTUP)
    return Request(position, position + length, "STARTUP", extras=state.extras)


def read_parameters(block: bytes) -> tuple[str | None, str | None, str | None]:
    """Return user, database and application of a StartupMessage; no other parameter is kept."""
    texts = block.split(b"\0")
    given = {texts[at]: texts[at + 1].decode("utf-8", "replace") for at in range(0, len(texts) - 1, 2)}
    user, database = given.get(b"user"), given.get(b"database")
    if database is None and given.get(b"replication", "").lower() not in WORDS:
        database = user
    return user, database, given.get(b"application_name")


# ---- queries ----------------------------------------------------------------


def take_query(buffer: StreamBuffer, state: State, stop: int) -> Request | None:
    """Take a simple query: a request for each of its statements."""
    data, cursor = buffer.data, buffer.cursor
    reach = min(stop, cursor + 5 + TEXT_LIMIT)
    if reach > len(data):
        return None
    text = data[cursor + 5 : reach]
    if reach == stop:
        if text[-1:] != b"\0":
            raise ProtocolError("a query that does not end")
        text = text[:-1]
    end_row(state)
    if b"/*" in text:
        text, state.trace = cut_trace(text)
    parts = state.sql.read(text)
    if state.portals:
        state.portals.clear()
    state.statements.pop(b"", None)
    for _, statement in parts:
        if statement.operation in ("DEALLOCATE", "DISCARD"):
            forget_statements(state, statement.resource)
    if len(parts) == 1 and reach == stop:
        return take_only_statement(buffer, state, parts[0][1], stop)
    ends = [*(cursor + 5 + offset for offset, _ in parts[1:]), stop]
    state.texts = [(buffer.base + end, part[1], 0) for end, part in zip(ends, parts, strict=True)]
    if reach < stop:  # what statements follow is not known: the last one stands for them
        state.texts[-1] = (*state.texts[-1][:2], TRUNCATED)
    expect(state, QUERY + len(parts))
    return next_statement(buffer, state)


def take_only_statement(buffer: StreamBuffer, state: State, statement: Statement, stop: int) -> Request:
    """Return the request of a simple query of one statement, as most are."""
    request = Request(
        buffer.base + buffer.cursor, buffer.base + stop, statement.operation, statement.resource,
        statement=statement.text, trace=state.trace, extras=state.extras,
    )  # fmt: skip
    buffer.cursor = stop
    expect(state, QUERY + 1)
    end_row(state)
    state.last = request
    return request


def next_statement(buffer: StreamBuffer, state: State) -> Request:
    """Return the request of the next statement of a simple query."""
    end, statement, flags = state.texts.pop(0)
    request = Request(
        buffer.base + buffer.cursor, end, statement.operation, statement.resource, statement=statement.text,
        flags=flags, trace=state.trace, extras=state.extras,
    )  # fmt: skip
    buffer.cursor = end - buffer.base
    if not state.texts:
        end_row(state)
    state.last = request
    return request


def forget_statements(state: State, name: str | None) -> None:
    """Follow DEALLOCATE and DISCARD ALL."""
    if name is None or name.upper() == "ALL":
        state.statements.clear()
    else:
        state.statements.pop(name.encode(), None)


def take_parse(data: bytes, cursor: int, stop: int, state: State) -> bool:
    """Keep a statement under its name; False if more bytes are needed."""
    at = data.find(b"\0", cursor + 5, min(stop, cursor + 5 + NAME_LIMIT))
    if at < 0:
        need(data, cursor, stop, NAME_LIMIT + 5)
        return False
    reach = min(stop, at + 1 + TEXT_LIMIT)
    end = data.find(b"\0", at + 1, reach)
    if end < 0:
        if reach > len(data):
            return False
        if reach == stop:
            raise ProtocolError("a text in a message does not end")
        end = reach
    name = data[cursor + 5 : at]
    text, state.trace = cut_trace(data[at + 1 : end])
    state.parsed = prepared = (name.decode("utf-8", "replace") if name else None, state.sql.read(text)[0][1])
    remember(state.statements, name, prepared)
    return True


def take_bind(data: bytes, cursor: int, stop: int, state: State) -> bool:
    """Keep which statement a portal is for; False if more bytes are needed."""
    at = data.find(b"\0", cursor + 5, min(stop, cursor + 5 + NAME_LIMIT))
    end = data.find(b"\0", at + 1, min(stop, at + 1 + NAME_LIMIT)) if at >= 0 else -1
    if end < 0:
        need(data, cursor, stop, 2 * NAME_LIMIT)
        return False
    name = data[at + 1 : end]
    prepared = state.statements.get(name)
    if prepared is None:
        prepared = (name.decode("utf-8", "replace") or None, None)
    state.parsed = prepared
    remember(state.portals, data[cursor + 5 : at], prepared)
    return True


def take_describe(data: bytes, cursor: int, stop: int, state: State) -> bool:
    """Note what a row without Execute is about; False if more bytes are needed."""
    end = data.find(b"\0", cursor + 6, min(stop, cursor + 6 + NAME_LIMIT))
    if end < 0:
        need(data, cursor, stop, NAME_LIMIT)
        return False
    if state.parsed is None:
        name = data[cursor + 6 : end]
        known = state.statements if data[cursor + 5] == 83 else state.portals
        state.parsed = known.get(name) or (name.decode("utf-8", "replace") or None, None)
    return True


def take_execute(buffer: StreamBuffer, state: State, portal: bytes, stop: int) -> Request:
    prepared = state.portals.get(portal)
    base, start = buffer.base, state.row_start
    request = make_request(
        base + buffer.cursor if start < 0 else start, base + stop, "EXECUTE", prepared or (None, None), state
    )
    buffer.cursor = stop
    expect(state, EXECUTE)
    end_row(state)
    state.last = request
    return request


def make_request(position: int, end: int, verb: str, prepared: Prepared, state: State) -> Request:
    """Return the request for a prepared statement; its verb only if that is not known."""
    name, statement = prepared
    if statement is None:
        return Request(
            position, end, verb, statement_id=name, flags=PREPARED_UNKNOWN, trace=state.trace, extras=state.extras
        )
    return Request(
        position, end, statement.operation if verb == "EXECUTE" else verb, statement.resource,
        statement=statement.text, statement_id=name, trace=state.trace, extras=state.extras,
    )  # fmt: skip


def end_without_execute(state: State, end: int) -> Request:
    """Return the request of a Parse, Bind or Describe that the client waits for without an Execute."""
    request = make_request(state.row_start, end, state.verb, state.parsed or (None, None), state)
    expect(state, -state.unanswered)
    end_row(state)
    return request


def take_function_call(buffer: StreamBuffer, state: State, stop: int) -> Request | None:
    data, cursor = buffer.data, buffer.cursor
    if cursor + 9 > len(data):
        return None
    function = str(int.from_bytes(data[cursor + 5 : cursor + 9], "big"))
    buffer.cursor = stop
    end_row(state)
    expect(state, QUERY + 1)
    return Request(buffer.base + cursor, buffer.base + stop, "FUNCTION", function, extras=state.extras)


# ---- the rest ---------------------------------------------------------------


def take_other(kind: int, data: bytes, cursor: int, stop: int, state: State, base: int) -> bool:
    """Take a message that is no request; False if more bytes are needed."""
    if kind == 100:  # CopyData
        if state.phase == STREAMING:
            raise NotFollowed("a replication stream, which is not read")
        state.copied = max(state.copied, 0) + stop - cursor - 5
    if kind in (100, 99, 102):  # CopyDone, CopyFail
        if state.last is not None:
            state.last.end = base + stop
    elif kind == 67:  # Close
        end = data.find(b"\0", cursor + 6, min(stop, cursor + 6 + NAME_LIMIT))
        if end < 0:
            need(data, cursor, stop, NAME_LIMIT)
            return False
        known = state.statements if data[cursor + 5] == 83 else state.portals
        known.pop(data[cursor + 6 : end], None)
    elif kind not in (112, 88):  # an answer to an authentication request, Terminate
        raise ProtocolError("not a message of a PostgreSQL client")
    return True


KINDS: Final = frozenset(b"BCDEFHPQSXcdfp")


def seek_copy_end(buffer: StreamBuffer, state: State) -> bool:
    """Look for the end of what COPY sends at the end of a call, as some was not captured."""
    if not state.copied_in:
        raise ProtocolError("the end of COPY was not seen")
    found = None if buffer.cut else COPY_END.search(buffer.data, max(len(buffer.data) - 16, buffer.cursor))
    if state.last is not None:
        state.last.flags |= TRUNCATED
    if found is None:
        buffer.cursor = len(buffer.data)
        return False
    buffer.cursor = found.start()
    state.request_mode = SEEN
    return True
