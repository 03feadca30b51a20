"""PostgreSQL: the frontend/backend protocol 3.0 and 3.2, chapter 55 of the documentation of PostgreSQL 17.

A row is an Execute with the messages since the last one, a statement of a simple query (COPY too), or a function call;
further the startup up to the first ReadyForQuery, a round trip of Parse, Bind or Describe without an Execute, a
CancelRequest, and each notification. Not seen: passwords, parameters, rows, data of COPY, notices, the texts of details
and hints; what follows an encrypted offer that was accepted; replication streams, protocol 2.

`_postgresql_requests.py` and `_postgresql_responses.py` read the two directions, `_postgresql_state.py` is what they
share, `_postgresql_framing.py` says where messages begin, `_postgresql_errors.py` and `_sql.py` clean texts.
"""

from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._postgresql_framing import begins_request, begins_response
from tracehound.protocols._postgresql_requests import parse_request
from tracehound.protocols._postgresql_responses import is_alone, parse_response
from tracehound.protocols._postgresql_scrub import scrub
from tracehound.protocols._postgresql_state import SEEK_END, STREAMING, State, is_fresh, reset, settle
from tracehound.protocols._protocol import REQUEST, NotFollowed, Protocol, Request, Response
from tracehound.tables import Column


def parse(buffer: StreamBuffer, direction: int, state: State) -> Request | Response | None:
    """Return the next message, None if more bytes are needed; raises ProtocolError."""
    if state.phase == STREAMING:
        raise NotFollowed("a replication stream, which is not read")
    if direction == REQUEST:
        return parse_request(buffer, state)
    return parse_response(buffer, state)


def resync(buffer: StreamBuffer, direction: int) -> bool:
    """Say whether a chain of messages begins at the cursor."""
    if direction == REQUEST:
        return begins_request(buffer.data, buffer.cursor)
    return begins_response(buffer.data, buffer.cursor)


def bridge(buffer: StreamBuffer, direction: int, state: State) -> bool:
    """Go on behind a hole in the only result under way, or in what COPY sends."""
    if buffer.lost:
        return False
    if direction == REQUEST:
        if not state.copied_in:
            return False
        state.request_mode = SEEK_END
    else:
        if state.answer_start < 0 or not is_alone(state):
            return False
        state.response_mode = SEEK_END
    buffer.leap()
    return True


PROTOCOL = Protocol(
    name="postgresql",
    new_state=State,
    parse=parse,
    reset=reset,
    resync=resync,
    bridge=bridge,
    settle=settle,
    is_fresh=is_fresh,
    request_extras=(
        Column("db_user", "string", "the user that the connection was opened for; null if joined in mid-stream"),
        Column("db_namespace", "string", "the database of the connection; null if joined in mid-stream"),
        Column("application_name", "string", "postgresql: the name that the client gave itself"),
    ),
    response_extras=(
        Column("rows", "int64", "rows returned or affected, as the answer says"),
        Column("copied_bytes", "int64", "postgresql: data of COPY, without framing"),
    ),
    scrub=scrub,
)
