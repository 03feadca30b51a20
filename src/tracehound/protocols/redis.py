"""Redis: RESP2 and RESP3 (the serialization protocol specification of redis.io), commands in arrays and inline.

A row is a command and its reply; each of MULTI's and EXEC are rows. What comes unasked, messages of channels, keys of
client-side caching, lines of MONITOR, is a row `message` without a response. Keys and channels are shown, the rest of a
command is `?`; replies are counted. Not seen: what follows PSYNC, the cluster bus, what is said in TLS.

The parts: `_redis_requests.py` reads commands, `_redis_replies.py` replies, `_redis_commands.py` knows which arguments
are keys, `_redis_errors.py` what of an error may be shown, `_redis_state.py` what lasts on a connection.
"""

import re
from typing import Final

from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import REQUEST, RESPONSE, Protocol, Request, Response
from tracehound.protocols._redis_commands import is_command
from tracehound.protocols._redis_replies import bridge_reply, parse_response
from tracehound.protocols._redis_requests import parse_request
from tracehound.protocols._redis_scrub import scrub
from tracehound.protocols._redis_state import State
from tracehound.tables import Column

LOOKED_AT: Final = 8  # values behind a place where a reply may begin

_COMMAND: Final = re.compile(rb"\*([1-9]\d{0,6})\r\n\$(\d{1,2})\r\n([A-Za-z][A-Za-z0-9._-]*)\r\n(.?)", re.S)
_STRING: Final = re.compile(rb"[$=!](\d{1,9})\r\n")
_AGGREGATE: Final = re.compile(rb"[*~>%|]\d{1,9}\r\n")
_STREAMED: Final = re.compile(rb"[*~%$=]\?\r\n")
_INNER_STATUS: Final = re.compile(rb"\+[ -~]{0,64}\r\n")
# lines that are whole; texts only those that the server says
_LINE: Final = re.compile(
    rb"(?:\+(?:OK|PONG|QUEUED|RESET|NOKEY|none|string|list|set|zset|hash|stream|Background [A-Za-z ]+"
    rb"|\d{1,12}\.\d{1,9} \[[ -~]*)"
    rb"|-[A-Z]{2,24} [ -~]*|:[+-]?\d{1,20}|\([+-]?\d+|,(?:[+-]?\d[\d.eE+-]*|-?inf|nan)|#[tf]|_|[$*]-1)\r\n"
)
_TYPES: Final = b"+-:$*_#,(!=%~>|"


def parse(buffer: StreamBuffer, direction: int, state: State) -> Request | Response | None:
    """Return the next message, None if more bytes are needed; raises ProtocolError."""
    return parse_request(buffer, state) if direction == REQUEST else parse_response(buffer, state)


def reset(state: State) -> None:
    """Forget what was under way."""
    state.reset()


def bridge(buffer: StreamBuffer, direction: int, state: State) -> bool:
    """Go on behind a hole in a reply of which not all was captured."""
    return direction == RESPONSE and not buffer.lost and bridge_reply(buffer, state)


def is_fresh(state: State) -> bool:
    """Say whether nothing is under way, and nothing known that the rows to come depend on."""
    return state.is_fresh()


def settle(state: State) -> None:
    """Expect the answer to the last command next."""
    state.settle()


def resync(buffer: StreamBuffer, direction: int) -> bool:
    """Say whether a known command, or a reply and nothing but replies behind it, begins at the cursor."""
    data, cursor = buffer.data, buffer.cursor
    if direction == REQUEST:
        found = _COMMAND.match(data, cursor)
        if found is None or int(found[2]) != len(found[3]) or not is_command(found[3]):
            return False
        return found[1] == b"1" or found[4] in (b"", b"$")
    if _STREAMED.match(data, cursor):
        return True
    is_inner = False
    for _ in range(LOOKED_AT):
        string = _STRING.match(data, cursor)
        if string is not None:
            end = string.end() + int(string[1])
            if data[end : end + 2] != b"\r\n"[: max(len(data) - end, 0)]:
                return False
            cursor = end + 2
        else:
            aggregate = _AGGREGATE.match(data, cursor)
            found = aggregate or _LINE.match(data, cursor) or (_INNER_STATUS.match(data, cursor) if is_inner else None)
            if found is None:
                return False
            is_inner = is_inner or aggregate is not None
            cursor = found.end()
        if cursor >= len(data):
            return True
        if data[cursor] not in _TYPES:
            return False
        if data.find(b"\r\n", cursor) < 0:  # the next one is not whole
            return True
    return True


PROTOCOL = Protocol(
    name="redis",
    new_state=State,
    parse=parse,
    reset=reset,
    resync=resync,
    bridge=bridge,
    settle=settle,
    is_fresh=is_fresh,
    response_extras=(
        Column("rows", "int64", "rows or elements returned"),
        Column("db_namespace", "string", "database; redis: its number, once a SELECT was seen"),
        Column("db_user", "string", "user of the database; redis: once an AUTH was seen"),
    ),
    secrets=(("resource", "key"), ("statement", "keys"), ("db_user", "text")),
    scrub=scrub,
)
