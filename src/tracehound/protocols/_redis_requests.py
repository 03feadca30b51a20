"""Commands of Redis: arrays of bulk strings, and inline ones. Keys and channels are kept, nothing else.

The first bytes of a command (`*3\\r\\n$3\\r\\nSET`) are the same in all of its kind, so what they mean is remembered by
them. Arguments that are not kept are passed over, wherever their bytes are.
"""

import re
from typing import Final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import NO_RESPONSE, PATIENT, Request
from tracehound.protocols._redis_commands import (
    AUTH,
    HELLO,
    PLAIN,
    REPLY,
    RESET,
    SELECT,
    STREAMS,
    SUBSCRIBE,
    UNKNOWN,
    UNSUBSCRIBE,
    Command,
    find_command,
    find_within,
    is_command,
    key_range,
)
from tracehound.protocols._redis_state import Partial, Special, State

BULK: Final = 36  # $
ARRAY: Final = 42  # *
NEWLINE: Final = b"\n"
MAX_BULK_BYTES: Final = 512 << 20  # the server's own limit
MAX_ARGUMENTS: Final = 1 << 20
NUMBER_LIMIT: Final = 16  # of a length's line
INLINE_LIMIT: Final = 60_000  # the server takes 64 KiB; the window is as large
KEY_BYTES: Final = 256  # of a key that are shown
KEYS_KEPT: Final = 24  # of one command
SHOWN_ARGUMENTS: Final = 24
STATEMENT_LIMIT: Final = 1024
HEADS_KEPT: Final = 2048
NAME_BYTES: Final = 32  # longer ones are no commands

SPECIALS_KEPT: Final = 4096
_BLANKS: Final = b"\r\n"
EMPTY_ARRAYS: Final = (b"*0\r\n", b"*-1\r\n")
_LENGTH_START: Final = re.compile(rb"[*$](?:\d{0,10}|-1?)\r?")
NAME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9._-]{0,31}")
TOKENS: Final = re.compile(rb"\"(?:\\.|[^\"\\])*\"|'(?:\\'|[^'])*'|[^\s]+")
_SEPARATORS: Final = re.compile(r"[^\w]")
SHA: Final = re.compile(r"[0-9a-fA-F]{40}")
FUNCTION: Final = re.compile(r"[A-Za-z_]\w{0,63}")
_TAILS: Final = ("", " ?", " ? ?", " ? ? ?", " ? ? ? ?", " ? ? ? ? ...")
_heads: dict[bytes, tuple[int, Command]] = {}


def parse_request(buffer: StreamBuffer, state: State) -> Request | None:
    """Return the next command, None if more bytes are needed; raises ProtocolError."""
    data, cursor = buffer.data, buffer.cursor
    partial = state.partial
    if partial is None:
        at = data.find(b"\r\n$", cursor + 8, cursor + 64)
        known = _heads.get(data[cursor:at]) if at > 0 else None
        if known is None:
            return parse_unknown(buffer, state)
        position, index, (count, command) = buffer.base + cursor, 1, known
        first, last, step = key_range(command, count)
        cursor = at + 2
        taken: list[tuple[int, str]] = []
    else:
        position, index, count, taken = partial.position, partial.index, partial.count, partial.taken
        first, last, step = partial.keys
        command = partial.command
    while index < count:
        stop = data.find(b"\r\n", cursor, cursor + NUMBER_LIMIT)
        if stop < 0:
            check_partial_length(data, cursor)
            break
        size = read_size(data, cursor, stop)
        body = stop + 2
        if first <= index <= last and (index - first) % step == 0 and len(taken) < KEYS_KEPT:
            if body + (size if size < KEY_BYTES else KEY_BYTES) > len(data):
                break
            taken.append((index, key_text(data[body : body + min(size, KEY_BYTES)], size)))
        elif (index == 1 and command.within is not None) or index == command.count_at:
            if body + min(size, NAME_BYTES) > len(data):
                break
            word = data[body : body + size] if size <= NAME_BYTES else b""
            if command.count_at:
                first, last, step = index + 1, index + (int(word) if word.isdigit() else 0), 1
            else:
                command = find_within(command, word)
                first, last, step = key_range(command, count)
        cursor = body + size + 2
        index += 1
    buffer.cursor = cursor
    if index < count:
        state.partial = Partial(position, command, count, index, (first, last, step), taken)
        return None
    state.partial = None
    return make_request(state, command, count, taken, position, buffer.base + cursor)


def parse_unknown(buffer: StreamBuffer, state: State) -> Request | None:
    """Read a command whose head is not remembered, behind what the server passes over: blank lines, empty arrays."""
    data, cursor = buffer.data, buffer.cursor
    while cursor < len(data) and (data[cursor] in _BLANKS or data.startswith(EMPTY_ARRAYS, cursor)):
        cursor = cursor + 1 if data[cursor] != ARRAY else data.index(NEWLINE, cursor) + 1
    buffer.cursor = cursor
    if cursor == len(data):
        return None
    return parse_array(buffer, state) if data[cursor] == ARRAY else parse_inline(buffer, state)


def parse_array(buffer: StreamBuffer, state: State) -> Request | None:
    """Read a command's count and name, then go on with its arguments."""
    data, start = buffer.data, buffer.cursor
    stop = data.find(b"\r\n", start, start + NUMBER_LIMIT)
    if stop < 0:
        check_partial_length(data, start)
        return None
    digits = data[start + 1 : stop]
    if not digits.isdigit() or not 0 < int(digits) <= MAX_ARGUMENTS:
        raise ProtocolError("not a Redis command")
    count, cursor = int(digits), stop + 2
    stop = data.find(b"\r\n", cursor, cursor + NUMBER_LIMIT)
    if stop < 0:
        check_partial_length(data, cursor)
        return None
    size, body = read_size(data, cursor, stop), stop + 2
    if body + min(size, NAME_BYTES) > len(data):
        return None
    command = find_command(data[body : body + size]) if size <= NAME_BYTES else UNKNOWN
    cursor = body + size + 2
    if command is not UNKNOWN and data[cursor - 2 : cursor + 1] == b"\r\n$" and len(_heads) < HEADS_KEPT:
        _heads[data[start : cursor - 2]] = (count, command)
    keys = key_range(command, count)
    position, buffer.cursor = buffer.base + start, cursor
    if count == 1:
        return make_request(state, command, 1, [], position, buffer.base + cursor)
    state.partial = Partial(position, command, count, 1, keys, [])
    return parse_request(buffer, state) if cursor < len(data) else None


def read_size(data: bytes, cursor: int, stop: int) -> int:
    """Return the size that an argument's line tells."""
    digits = data[cursor + 1 : stop] if data[cursor] == BULK else b""
    if not digits.isdigit():
        raise ProtocolError("not an argument of a Redis command")
    size = int(digits)
    if size > MAX_BULK_BYTES:
        raise ProtocolError("an argument of a Redis command that is too long to be one")
    return size


def check_partial_length(data: bytes, cursor: int) -> None:
    """Raise ProtocolError if what is here cannot become the line of a length."""
    line = data[cursor : cursor + NUMBER_LIMIT]
    if len(line) == NUMBER_LIMIT or (line and not _LENGTH_START.fullmatch(line)):
        raise ProtocolError("not a length in a Redis command")


def parse_inline(buffer: StreamBuffer, state: State) -> Request | None:
    """Return the command of a line of words."""
    data, cursor = buffer.data, buffer.cursor
    stop = data.find(b"\n", cursor, cursor + INLINE_LIMIT)
    name = NAME.match(data, cursor)
    if stop < 0:
        if len(data) - cursor >= INLINE_LIMIT or name is None or (name.end() < len(data) and not is_command(name[0])):
            raise ProtocolError("not a Redis command")
        return None
    words = TOKENS.findall(data, cursor, stop)
    command = find_command(words[0]) if name is not None and name[0] == words[0] else UNKNOWN
    if command is UNKNOWN:
        raise ProtocolError("not a Redis command")
    buffer.cursor = stop + 1
    count = len(words)
    if command.within is not None and count > 1:
        command = find_within(command, words[1])
    first, last, step = key_range(command, count)
    at = command.count_at
    taken = [(index, inline_text(words[index])) for index in range(first, min(last + 1, count), step) if index]
    if 0 < at < count and words[at].isdigit() and len(words[at]) < NUMBER_LIMIT:
        keys = range(at + 1, min(at + 1 + int(words[at]), count))
        taken += [(index, inline_text(words[index])) for index in keys]
    return make_request(state, command, count, taken[:KEYS_KEPT], buffer.base + cursor, buffer.base + stop + 1)


def inline_text(word: bytes) -> str:
    """Return an argument of an inline command without its quotes."""
    if len(word) > 1 and word[:1] == word[-1:] and word[:1] in (b'"', b"'"):
        word = word[1:-1]
    return key_text(word[:KEY_BYTES], len(word))


def key_text(raw: bytes, size: int) -> str:
    """Return a key as a text; of one that is cut off only whole parts, as half a secret is not known for one."""
    text = raw.decode(errors="backslashreplace")
    if size > KEY_BYTES:
        parts = _SEPARATORS.split(text)
        text = text[: len(text) - len(parts[-1])] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode()


# ---- rows -----------------------------------------------------------------------------------------------------------


def make_request(
    state: State, command: Command, count: int, taken: list[tuple[int, str]], position: int, end: int
) -> Request:
    """Return the row of a whole command, and note what it means for its reply and for what follows."""
    operation, effect, flags = command.operation, command.effect, PATIENT if command.can_block else 0
    if state.channels < 0 and (not position or (effect == PLAIN and operation not in ("PING", "QUIT"))):
        state.unsubscribe()
    if state.silent or state.skipping or effect:
        flags |= note_effect(state, effect, count, taken)
    else:
        state.asked += 1
    if state.asked - state.answered > 1:
        state.pipelined = True
    elif state.adrift is not None and state.adrift.end < 0:
        state.adrift.end = state.adrift_end
    if effect == PLAIN and len(taken) == 1 and taken[0][0] == 1 and not command.is_named:
        key = taken[0][1]
        shown = quote(key) if " " in key or '"' in key or not key else key
        statement = f"{operation} {shown}{_TAILS[count - 2 if count < 7 else 5]}"
        return Request(position, end, operation, key, statement=statement, flags=flags)
    statement_id = None
    if effect == STREAMS:
        taken = find_stream_keys(taken, count)
    elif effect > UNSUBSCRIBE:
        taken = []
    elif command.is_named and taken and taken[0][0] == 1:
        name = taken[0][1]
        taken = taken[1:]
        if (SHA if operation.startswith("EVALSHA") else FUNCTION).fullmatch(name):
            statement_id = name
    resource = taken[0][1] if taken else None
    statement = make_statement(command, count, taken)
    return Request(position, end, operation, resource, statement=statement, statement_id=statement_id, flags=flags)


def make_statement(command: Command, count: int, taken: list[tuple[int, str]]) -> str:
    """Return the command with its keys, and `?` for all else."""
    words, index = [command.operation], command.size
    for at, key in taken:
        words += ["?"] * min(at - index, SHOWN_ARGUMENTS)
        words.append(quote(key))
        index = at + 1
        if len(words) > SHOWN_ARGUMENTS or sum(map(len, words)) > STATEMENT_LIMIT:
            return " ".join((*words, "...")) if index < count else " ".join(words)
    return " ".join(words) + _TAILS[min(max(count - index, 0), 5)]


def quote(key: str) -> str:
    """Return a key as one word of a statement; of white space it has only spaces."""
    if key and '"' not in key and " " not in key:
        return key
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def find_stream_keys(taken: list[tuple[int, str]], count: int) -> list[tuple[int, str]]:
    """Return the keys of XREAD: the first half of what stands behind STREAMS."""
    at = next((index for index, word in taken if word.upper() == "STREAMS"), count)
    return [(index, word) for index, word in taken if at < index <= at + (count - 1 - at) // 2]


def note_effect(state: State, effect: int, count: int, taken: list[tuple[int, str]]) -> int:
    """Note what a command does to its connection; return NO_RESPONSE if it has no reply."""
    text, wanted = None, 1
    if effect in (SUBSCRIBE, UNSUBSCRIBE):
        wanted = count - 1
    elif effect == SELECT:
        text = taken[0][1] if taken and taken[0][1].isdigit() and len(taken[0][1]) < 6 else None
    elif effect == AUTH:
        text = taken[0][1] if taken else "default"
    elif effect == HELLO:
        text = taken[1][1] if len(taken) > 1 and taken[0][1].upper() == "AUTH" else None
    elif effect == REPLY:
        return note_reply_mode(state, taken[0][1].upper() if taken else "")
    elif effect == RESET:
        state.silent, state.skipping = False, 0
    if (state.silent or state.skipping) and effect not in (SUBSCRIBE, UNSUBSCRIBE):
        state.skipping = max(state.skipping - 1, 0)
        if effect in (SELECT, AUTH, HELLO):  # nobody will tell whether it was done
            state.database, state.user = None if effect == SELECT else state.database, None
            state.share_extras()
        return NO_RESPONSE
    state.asked += 1
    if effect != PLAIN and effect != STREAMS and len(state.specials) < SPECIALS_KEPT:
        state.specials.append(Special(state.asked, effect, text, wanted))
    return 0


def note_reply_mode(state: State, mode: str) -> int:
    """Take CLIENT REPLY."""
    if mode == "ON":
        state.silent, state.skipping = False, 0
    elif mode == "OFF":
        state.silent = True
    elif mode == "SKIP" and not state.silent:
        state.skipping = 1
        return NO_RESPONSE
    if state.silent:
        return NO_RESPONSE
    state.asked += 1
    return 0
