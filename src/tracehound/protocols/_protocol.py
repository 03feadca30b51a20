"""The contract of a protocol: what its parser is given, what it returns, what the engine does with it.

Followed by every module of this package whose name has no underscore; each exports one `PROTOCOL`. Plain classes with a
written-out `__init__`, `Final` ints instead of enums: these files are also compiled by mypyc, and rows are made here.

What a parser may rely on, and the engine (`decode/streams.py`) therefore does:

* `parse` is called only while the window has bytes at the cursor, again after each message, and again when bytes came.
* One direction may wait for the other (a response seen before its request, bytes after a request to switch protocols):
  after each message of one direction the engine also runs the other one, if bytes wait there.
* A message is returned as soon as its `end` is known, even if that lies ahead, or as soon as nothing but its `end` is
  missing: `end` is then UNTIL_CLOSE, and the parser may later write the true position to `message.end`, add TRUNCATED
  to `message.flags` (chunked bodies), and replace `message.extras` (messages of a WebSocket, counted). So the engine
  keeps the object, reads `end` and `flags` from it after each run of that direction, and `extras` when it becomes a
  row; UNTIL_CLOSE that is never overwritten ends with the stream, or at a gap. A response may end before its request.
* Bytes that belong to no message, or to one that was returned before (what follows an answer), are passed by moving the
  cursor; the parser then writes their end to `buffer.passed`, so that no message counts as under way.
* A request that says PUSH may also come from the direction of responses: what a server says unasked.
* At a hole in a message that is known to go on behind it (a body), `bridge` moves the cursor beyond and says True;
  every other hole is a gap. At a gap the engine forgets the requests that wait, calls `reset`, and goes to the next
  piece at which `resync` says True. A response whose request was lost is returned like any other: the engine pairs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from tracehound.errors import ProtocolError
from tracehound.tables import Column

if TYPE_CHECKING:
    from tracehound.protocols._buffer import StreamBuffer

REQUEST: Final = 0
RESPONSE: Final = 1

UNTIL_CLOSE: Final = -1  # a message's `end` when only the end of the stream ends it, or while it is not known yet

# Pairing
IN_ORDER: Final = 0  # the first answer belongs to the first request
BY_ID: Final = 1  # `key` of both

# Flags of messages
INTERIM: Final = 1  # a response that is not the answer (1xx)
NO_RESPONSE: Final = 2  # a request that is never answered
PUSH: Final = 4  # a message that answers nothing: a row of its own
TRUNCATED: Final = 8  # some of it was not captured
PREPARED_UNKNOWN: Final = 16  # names a statement prepared before the trace
SWITCH: Final = 32  # after `end` another protocol is spoken: the engine detects anew, the request side waits
PATIENT: Final = 64  # a request that asks to wait for its answer: no timeout holds for it

# Outcomes
OK: Final = "ok"
CLIENT_ERROR: Final = "client_error"
SERVER_ERROR: Final = "server_error"
UNKNOWN: Final = "unknown"

# What a parser asks the kernel to capture of a direction (`StreamBuffer.capture`); numbers of `enum capture_class`
CAPTURE_FRAMED: Final = 1
CAPTURE_HEAD_TAIL: Final = 2

Extras = tuple[str | int | None, ...]
# (rule of enrich/redact.py, text) -> a text of the same length that redaction makes the same of, without the secrets
Clean = Callable[[str, bytes], bytes]


class NotFollowed(ProtocolError):  # noqa: N818  (it is no error)
    """What comes next is right, but is not read: the text becomes the connection's `why`."""


@final
class Request:
    """One parsed request: positions are bytes of its stream, `end` is exclusive and may lie ahead of what was seen."""

    __slots__ = (
        "end", "extras", "flags", "key", "operation", "position", "resource", "statement", "statement_id", "trace",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        end: int,
        operation: str,
        resource: str | None = None,
        *,
        key: int | bytes | None = None,
        statement: str | None = None,
        statement_id: str | None = None,
        flags: int = 0,
        trace: bytes | None = None,
        extras: Extras = (),
    ) -> None:
        self.position = position
        self.end = end
        self.operation = operation
        self.resource = resource
        self.key = key
        self.statement = statement
        self.statement_id = statement_id
        self.flags = flags
        self.trace = trace  # the raw value of traceparent
        self.extras = extras


@final
class Response:
    """One parsed response; `status` is the protocol's number, `outcome` one of the four words above."""

    __slots__ = ("end", "error_message", "error_type", "extras", "flags", "key", "outcome", "position", "status")

    def __init__(
        self,
        position: int,
        end: int,
        status: int | None,
        outcome: str,
        *,
        key: int | bytes | None = None,
        error_type: str | None = None,
        error_message: str | None = None,
        flags: int = 0,
        extras: Extras = (),
    ) -> None:
        self.position = position
        self.end = end
        self.status = status
        self.outcome = outcome
        self.key = key
        self.error_type = error_type
        self.error_message = error_message
        self.flags = flags
        self.extras = extras


class Protocol(NamedTuple):
    """What a protocol's module exports as `PROTOCOL`."""

    name: str
    new_state: Callable[[], Any]  # one per connection, both directions
    # (buffer, REQUEST | RESPONSE, state): the next message, or None when more bytes are needed; ProtocolError
    parse: Callable[["StreamBuffer", int, Any], Request | Response | None]
    reset: Callable[[Any], None]  # after a gap: forget what was under way, keep what lasts
    resync: Callable[["StreamBuffer", int], bool]  # does a message of this direction begin right at the cursor?
    pairing: int = IN_ORDER
    request_extras: tuple[Column, ...] = ()
    response_extras: tuple[Column, ...] = ()
    # column of `requests` -> rule of enrich/redact.py that cleans it
    secrets: tuple[tuple[str, str], ...] = ()
    # at a hole (`buffer.cut`), before a gap is declared: True if the message under way is known to go on behind it; the
    # parser has then moved the cursor (`buffer.leap()`) and the driver goes on. None: every hole is a gap.
    bridge: Callable[["StreamBuffer", int, Any], bool] | None = None
    # whether a state is as good as a new one: it may be thrown away while the connection is idle. None: it stays.
    is_fresh: Callable[[Any], bool] | None = None
    # For `tape scrub`, never while tracing: (buffer, direction, state, clean), before `parse` with the same ones -> a
    # function that is called at most once afterwards, with how many bytes from the cursor on the parser passed over
    # (or, where it raised or stopped for good, how many are there). It returns what those become: as many bytes, parsed
    # into the same rows, or refused in the same way, without what no row shows: framing, names, and what rows show once
    # redacted (`clean`) stay; of bytes that are no message at most the shape.
    # By then buffer and state may be others: what they say has to be copied before. Bytes that no parser passed over
    # become `x`. None: all do, and a scrubbed tape has no rows of the protocol.
    scrub: Callable[["StreamBuffer", int, Any, Clean], Callable[[int], bytes]] | None = None
    # after a gap, or joined in mid-stream: the engine has found that no answer is owed to anything before the request
    # that was returned last; for a parser that keeps its own account of what it waits for
    settle: Callable[[Any], None] | None = None
    # clients send no request before the answer to the one before: one that was joined needs fewer turns to be trusted
    takes_turns: bool = False
