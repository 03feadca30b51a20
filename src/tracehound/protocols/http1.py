"""HTTP/1.0 and HTTP/1.1: RFC 9110, RFC 9112; `traceparent` by W3C Trace Context.

A row is a request and its final response; that of a WebSocket or an event stream lasts until its end and counts the
messages. Not seen: HTTP/0.9, bodies, fields other than those of `_http1_fields.py`, what follows another switch of
protocols (101, CONNECT: detected anew).

Heads are kept whole up to 24 KiB (16 KiB of fields and a long target); the rest of longer ones is followed for its
framing only, and their rows are marked truncated. Which response answers which request is the engine's; here a response
only needs the method to know whether it has a body. One that no request waits for is returned without its body.
"""

import re
from http import HTTPStatus
from typing import Final, final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._http1_fields import Head, cut_traceparent
from tracehound.protocols._http1_framing import (
    ADRIFT,
    HEAD,
    HEAD_LIMIT,
    LONG_HEAD,
    SEEK_END,
    UNTIL_END,
    Side,
    begin_body,
    begin_long_head,
    begins_head,
    choose_capture,
    find_head_end,
    follow_body,
    skip_blank_lines,
)
from tracehound.protocols._http1_messages import WEBSOCKET, count_frames
from tracehound.protocols._http1_scrub import scrub
from tracehound.protocols._protocol import (
    CLIENT_ERROR,
    INTERIM,
    OK,
    REQUEST,
    SERVER_ERROR,
    SWITCH,
    TRUNCATED,
    UNTIL_CLOSE,
    Protocol,
    Request,
    Response,
)
from tracehound.tables import Column

WAITING_LIMIT: Final = 1024
METHODS_KEPT: Final = 64

# What a waiting request means for its response
PLAIN: Final = 0
NO_BODY: Final = 1  # HEAD
TUNNEL: Final = 2  # CONNECT
UPGRADE: Final = 3

TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}\Z")
USER_INFO: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")
PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_methods: dict[bytes, str] = {}


@final
class State:
    """One connection."""

    __slots__ = ("request", "response", "switched", "switching", "waiting", "websocket")

    def __init__(self) -> None:
        self.request = Side(True)
        self.response = Side(False)
        self.waiting: list[int] = []  # PLAIN, NO_BODY, TUNNEL, UPGRADE: requests whose final response is to come
        self.switching = False  # the next response decides what the request side speaks
        self.switched = False
        self.websocket: Response | None = None  # the 101 that began it


def reset(state: State) -> None:
    """Forget what was under way."""
    state.request.restart()
    state.response.restart()
    state.waiting.clear()
    state.switching = False
    state.websocket = None


def is_fresh(state: State) -> bool:
    """Say whether nothing is under way: what is kept beside that only makes the next head cheaper to read."""
    if state.waiting or state.switching or state.switched or state.websocket is not None:
        return False
    return state.request.mode == HEAD and state.response.mode == HEAD


def resync(buffer: StreamBuffer, direction: int) -> bool:
    """Say whether a request line or a status line begins at the cursor."""
    return begins_head(buffer.data, buffer.cursor, direction == REQUEST)


def bridge(buffer: StreamBuffer, direction: int, state: State) -> bool:
    """Go on behind a hole in a body that the stream's end ends, or in a message of which calls are captured in part."""
    side = state.request if direction == REQUEST else state.response
    if side.mode != UNTIL_END:
        if side.mode == HEAD or buffer.lost or (state.waiting and not side.is_request):
            return False
        side.mode = ADRIFT if side.mode in (LONG_HEAD, ADRIFT) else SEEK_END
        if side.message is not None:
            side.message.flags |= TRUNCATED
    buffer.leap()
    choose_capture(buffer, side)
    return True


def parse(buffer: StreamBuffer, direction: int, state: State) -> Request | Response | None:
    """Return the next message, None if more bytes are needed; raises ProtocolError."""
    if state.switched:
        buffer.cursor = len(buffer.data)
        return None
    if state.websocket is not None:
        count_messages(buffer, direction, state.websocket)
        return None
    side = state.request if direction == REQUEST else state.response
    if side.mode != HEAD:
        if side.mode == SEEK_END and state.waiting and not side.is_request:
            raise ProtocolError("the end of a chunked response was not seen before the next request")
        if not follow_body(buffer, side) or buffer.cursor >= len(buffer.data):
            return None
    if direction == REQUEST:
        return None if state.switching else parse_request(buffer, state)
    return parse_response(buffer, state)


# ---- requests ---------------------------------------------------------------


def parse_request(buffer: StreamBuffer, state: State) -> Request | None:
    data = buffer.data
    cursor = skip_blank_lines(buffer)
    stop = find_head_end(data, cursor)
    if stop < 0 or stop - cursor > HEAD_LIMIT:
        return parse_partial_request(buffer, state)
    at = data.find(b"\n", cursor)
    method, target = read_request_line(data[cursor:at])
    block, trace = cut_traceparent(data[at + 1 : stop])
    head = state.request.last.read(block)
    request = Request(
        buffer.base + cursor, UNTIL_CLOSE, method, target, trace=trace or head.trace, extras=head.request_extras
    )
    buffer.cursor = stop
    note_waiting(state, request, head)
    begin_body(buffer, state.request, request, head)
    return request


def parse_partial_request(buffer: StreamBuffer, state: State) -> Request | None:
    """Return a request whose head is too long, or will never be whole; None if it may still become so."""
    data, cursor = buffer.data, buffer.cursor
    line, newline, _ = data[cursor : cursor + HEAD_LIMIT].partition(b"\n")
    if line or newline:
        check_request_start(line, newline)
    if len(data) - cursor <= HEAD_LIMIT and not (buffer.cut and newline):
        return None
    method, target = read_request_line(line if newline else line + b" HTTP/1.")
    request = Request(buffer.base + cursor, UNTIL_CLOSE, method, target, flags=TRUNCATED)
    head = begin_long_head(buffer, state.request, request)
    request.trace = head.trace
    request.extras = head.request_extras
    note_waiting(state, request, head)
    return request


def read_request_line(line: bytes) -> tuple[str, str]:
    """Return method and target of a request line; the target may hold spaces, as of careless clients."""
    method, _, rest = line.partition(b" ")
    target, space, version = rest.rstrip().rpartition(b" ")
    if not space or not version.startswith(b"HTTP/1."):
        raise ProtocolError("not a request line of HTTP/1")
    name = _methods.get(method) or read_method(method)
    text = target.strip().decode("latin-1")
    if "@" in text:
        text = USER_INFO.sub(r"\1?@", text)
    return name, text


def read_method(method: bytes) -> str:
    if not TOKEN.match(method):
        raise ProtocolError("not a request line of HTTP/1")
    name = method.decode()
    if len(_methods) < METHODS_KEPT:
        _methods[method] = name
    return name


def check_request_start(line: bytes, newline: bytes) -> None:
    """Raise ProtocolError if `line`, not ended yet if `newline` is empty, cannot become a request line."""
    method, space, _ = line.partition(b" ")
    if not TOKEN.match(method) or (newline and not (space and b" HTTP/1." in line)):
        raise ProtocolError("not a request line of HTTP/1")


def note_waiting(state: State, request: Request, head: Head) -> None:
    """Remember what the request means for its response."""
    if len(state.waiting) >= WAITING_LIMIT:
        raise ProtocolError(f"more than {WAITING_LIMIT} requests wait for an answer")
    kind = PLAIN
    if request.operation == "HEAD":
        kind = NO_BODY
    elif request.operation == "CONNECT":
        kind = TUNNEL
    elif head.upgrade:
        kind = UPGRADE
    state.switching = kind >= TUNNEL
    state.waiting.append(kind)


# ---- responses --------------------------------------------------------------


def parse_response(buffer: StreamBuffer, state: State) -> Response | None:
    data = buffer.data
    cursor = skip_blank_lines(buffer)
    if not data.startswith(b"HTTP/1.", cursor) and not b"HTTP/1.".startswith(data[cursor : cursor + 7]):
        raise ProtocolError("not a status line of HTTP/1")
    stop = find_head_end(data, cursor)
    if stop < 0 or stop - cursor > HEAD_LIMIT:
        return parse_partial_response(buffer, state)
    at = data.find(b"\n", cursor)
    status = read_status(data[cursor:at])
    head = state.response.last.read(data[at + 1 : stop])
    buffer.cursor = stop
    response = make_response(buffer.base + cursor, status)
    response.extras = head.response_extras
    settle_with_request(state, response, status)
    if status == 101 and head.upgrade == WEBSOCKET:
        begin_websocket(state, response)
    else:
        begin_body(buffer, state.response, response, head)
    return response


def parse_partial_response(buffer: StreamBuffer, state: State) -> Response | None:
    """Return a response whose head is too long, or will never be whole; None if it may still become so."""
    data, cursor = buffer.data, buffer.cursor
    line, newline, _ = data[cursor : cursor + HEAD_LIMIT].partition(b"\n")
    if len(data) - cursor <= HEAD_LIMIT and not (buffer.cut and newline):
        return None
    status = read_status(line)
    response = make_response(buffer.base + cursor, status)
    response.flags = TRUNCATED
    response.extras = begin_long_head(buffer, state.response, response).response_extras
    settle_with_request(state, response, status)
    return response


def read_status(line: bytes) -> int:
    digits = line[9:12]
    if len(digits) < 3 or not digits.isdigit() or line[8] != 32 or digits < b"100":
        raise ProtocolError("not a status line of HTTP/1")
    return int(digits)


def make_response(position: int, status: int) -> Response:
    if status < 400:
        return Response(position, UNTIL_CLOSE, status, OK)
    outcome = CLIENT_ERROR if status < 500 else SERVER_ERROR
    return Response(position, UNTIL_CLOSE, status, outcome, error_type=PHRASES.get(status) or str(status))


def settle_with_request(state: State, response: Response, status: int) -> None:
    """Say what the request that waits for it means for a response, and whether the protocol ends with it."""
    side = state.response
    side.bodyless = side.is_orphan = False
    if status < 200 and status != 101:
        response.flags |= INTERIM
        side.bodyless = True
        return
    kind = PLAIN
    if state.waiting:
        kind = state.waiting.pop(0)
    else:
        side.is_orphan = True
    if kind >= TUNNEL:
        state.switching = False
    if status == 101 or (kind == TUNNEL and status < 300):
        state.switched = True
        response.flags |= SWITCH
    side.bodyless = kind == NO_BODY or status == 204 or status == 304 or state.switched


# ---- WebSockets -------------------------------------------------------------


def begin_websocket(state: State, response: Response) -> None:
    """Keep the row open until the connection's end: what follows are frames, in both directions."""
    state.switched = False
    state.websocket = response
    response.flags &= ~SWITCH
    response.extras = (response.extras[0], 0, 0)


def count_messages(buffer: StreamBuffer, direction: int, response: Response) -> None:
    """Add the messages whose frames are here to the row."""
    count = count_frames(buffer)
    if count:
        content_type, sent, received = response.extras
        assert isinstance(sent, int) and isinstance(received, int)
        is_sent = direction == REQUEST
        response.extras = (content_type, sent + count * is_sent, received + count * (not is_sent))


PROTOCOL = Protocol(
    name="http1",
    new_state=State,
    parse=parse,
    reset=reset,
    resync=resync,
    bridge=bridge,
    is_fresh=is_fresh,
    takes_turns=True,  # RFC 9112 9.3.2 has pipelining, and no client in use does it unasked
    request_extras=(
        Column("host", "string", "http1: the Host field"),
        Column("user_agent", "string", "http1: the User-Agent field"),
    ),
    response_extras=(
        Column("content_type", "string", "http1: the response's Content-Type field"),
        Column("messages_sent", "int64", "messages from client to server (WebSocket); 0 for an event stream"),
        Column("messages_received", "int64", "messages from server to client (WebSocket, event stream)"),
    ),
    secrets=(("resource", "query"),),
    scrub=scrub,
)
