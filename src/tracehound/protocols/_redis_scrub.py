"""Redis bytes for a scrubbed tape: as many as before, parsed into the same rows, without what no row shows.

Kept: lengths and types, names of commands, keys and channels as redaction leaves them, the few arguments that are read
(a database's number, a user, words that name a mode), words of errors that are Redis's own. Values, scripts,
passwords, elements and numbers of replies are overwritten.
"""

import re
from collections.abc import Callable
from typing import Final, final

from tracehound.errors import ProtocolError
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import REQUEST, Clean
from tracehound.protocols._redis_commands import (
    AUTH,
    HELLO,
    REPLY,
    SELECT,
    STREAMS,
    SYNC,
    UNKNOWN,
    UNSUBSCRIBE,
    Command,
    find_command,
    find_within,
    is_command,
    key_range,
)
from tracehound.protocols._redis_errors import MESSAGE_LIMIT, REDIRECT, is_own_word
from tracehound.protocols._redis_messages import CONFIRMATIONS, MONITORED, PUSHES, REPLICATION
from tracehound.protocols._redis_replies import LINE_KEPT, LINES, STRINGS, pop_level, take_value, wants_word
from tracehound.protocols._redis_requests import (
    EMPTY_ARRAYS,
    FUNCTION,
    KEY_BYTES,
    KEYS_KEPT,
    MAX_BULK_BYTES,
    NAME,
    NAME_BYTES,
    NUMBER_LIMIT,
    SHA,
    TOKENS,
    key_text,
)
from tracehound.protocols._redis_state import State
from tracehound.protocols._redis_types import (
    BIG_NUMBER,
    BOOLEAN,
    BULK_ERROR,
    DOUBLE,
    ERROR,
    INTEGER,
    PUSHED,
    STATUS,
)

FILLER: Final = b"x"
LENGTH: Final = re.compile(rb"-?\d{1,11}")
LENGTH_BEGUN: Final = re.compile(rb"[*$](?:\d{0,10}|-1?)\r?")
ARGS: Final = ", with args"
STATUSES: Final = frozenset(
    b"OK PONG QUEUED RESET NOKEY none string list set zset hash stream CONTINUE message pmessage".split()
)
DIGITS: Final = re.compile(rb"\d")
WORD_OR_SPACE: Final = re.compile(r"\s+|\S+")
# Bytes by what a name may be made of: a letter, what may follow one, white space, all else
CLASSES: Final = bytes(
    FILLER[0] if 65 <= byte <= 90 or 97 <= byte <= 122 else 48 if byte in b"0123456789._-" else byte
    if byte in b" \t\r\n\v\f" else 33
    for byte in range(256)
)  # fmt: skip
UNPRINTABLE: Final = bytes(FILLER[0] if 32 <= byte <= 126 else 1 for byte in range(256))
NO_DOUBLE: Final = bytes(48 if 48 <= byte <= 57 else byte if byte in b".eE+-" else FILLER[0] for byte in range(256))


def scrub(buffer: StreamBuffer, direction: int, state: State, clean: Clean) -> Callable[[int], bytes]:
    """Return what tells, once the parser ran, what the bytes become that it passed over."""
    if direction == REQUEST:
        return Commands(buffer, state, clean).passed
    return Replies(buffer, state, clean).passed


def blank(part: bytes) -> bytes:
    """Return as many bytes, none of them kept."""
    return FILLER * len(part)


def length_line(part: bytes) -> bytes:
    """Return a number that is a length, or what is none either."""
    return part if LENGTH.fullmatch(part) else part.translate(CLASSES)


def ending(part: bytes) -> bytes:
    """Return what stands behind a string: the end of a line, or as many other bytes."""
    return part if part == b"\r\n"[: len(part)] else blank(part)


def clean_name(clean: Clean, raw: bytes, size: int) -> bytes:
    """Return what is here of a key or channel of `size` bytes; of a long one only whole parts are shown."""
    shown, rest = raw[:KEY_BYTES], raw[KEY_BYTES:]
    if size > KEY_BYTES:
        end = len(shown)
        while end and (shown[end - 1 : end].isalnum() or shown[end - 1] == 95 or shown[end - 1] >= 128):
            end -= 1
        shown, rest = shown[:end], raw[end:]
    return clean("key", shown) + blank(rest)


def clean_error(clean: Clean, line: bytes) -> bytes:
    """Return an error's text with each word overwritten that is not Redis's own."""
    text = line[:MESSAGE_LIMIT].decode("latin-1")
    code, space, rest = text.partition(" ")
    if code in ("MOVED", "ASK") and REDIRECT.fullmatch(rest):
        return f"{code}{space}".encode() + clean("text", rest.encode("latin-1")) + blank(line[MESSAGE_LIMIT:])
    head, args, tail = text.partition(ARGS)
    code = ""
    if found := re.match(r"[A-Z]{2,24}(?= |\Z)", head):
        code, head = found[0], head[found.end() :]
    words = [word if word.isspace() or is_own_word(word) else "x" * len(word) for word in WORD_OR_SPACE.findall(head)]
    kept = code + "".join(words) + args
    return kept.encode("latin-1") + blank(tail.encode("latin-1")) + blank(line[MESSAGE_LIMIT:])


@final
class Commands:
    """One window of commands, from the cursor on; made before the parser runs on it."""

    def __init__(self, buffer: StreamBuffer, state: State, clean: Clean) -> None:
        self.window = buffer.data[buffer.cursor :]
        self.clean = clean
        self.out: list[bytes] = []
        self.at = 0
        partial = state.partial
        self.is_partial = partial is not None
        self.command: Command = partial.command if partial is not None else UNKNOWN
        self.count = partial.count if partial is not None else 0
        self.index = partial.index if partial is not None else 0
        self.keys = partial.keys if partial is not None else (0, -1, 1)
        self.taken = list(partial.taken) if partial is not None else []

    def passed(self, size: int) -> bytes:
        """Return what the first `size` bytes become; to be called once, after the parser passed over them."""
        size = min(size, len(self.window))
        window = self.window
        while self.at < size:
            before = self.at
            if self.is_partial:
                self.step_argument()
            elif window[self.at] in b"\r\n":
                self.keep(self.at + 1)
            elif window.startswith(EMPTY_ARRAYS, self.at):
                self.keep(window.index(b"\n", self.at) + 1)
            elif window[self.at] == 42:
                self.step_array()
            else:
                self.step_inline()
            if self.at <= before:
                break
        made = b"".join(self.out)[:size]
        return made + FILLER * (size - len(made))

    def keep(self, stop: int) -> None:
        self.out.append(self.window[self.at : stop])
        self.at = stop

    def refuse(self) -> None:
        """Keep of what is no command, or not all of one, what it is refused by."""
        part = self.window[self.at :]
        first = part[:1] if part[:1] in (b"*", b"$") else b""
        self.out.append(part if LENGTH_BEGUN.fullmatch(part) else first + part[len(first) :].translate(CLASSES))
        self.at = len(self.window)

    def read_length(self) -> int:
        """Take the line of a length; return where it ends, -1 if it is none."""
        window, at = self.window, self.at
        stop = window.find(b"\r\n", at, at + NUMBER_LIMIT)
        if stop < 0:
            self.refuse()
            return -1
        first = window[at : at + 1] if window[at] in b"*$" else b"!"
        self.out += (first, length_line(window[at + 1 : stop]), b"\r\n")
        self.at = stop + 2
        return stop

    def step_array(self) -> None:
        digits_at = self.at + 1
        stop = self.read_length()
        digits = self.window[digits_at : max(stop, digits_at)]
        if not digits.isdigit():
            self.refuse()
            return
        self.count, self.index, self.taken = int(digits), 0, []
        self.command, self.keys, self.is_partial = UNKNOWN, (0, -1, 1), True

    def step_argument(self) -> None:
        size_at = self.at + 1
        stop = self.read_length()
        digits = self.window[size_at : max(stop, size_at)]
        if not digits.isdigit() or int(digits) > MAX_BULK_BYTES:
            self.refuse()
            return
        size = int(digits)
        body = self.window[self.at : self.at + size]
        made = self.argument(body, size) if len(body) == size or size > KEY_BYTES else blank(body)
        self.out += (made, ending(self.window[self.at + size : self.at + size + 2]))
        self.at += size + 2
        self.index += 1
        self.is_partial = self.index < self.count

    def argument(self, body: bytes, size: int) -> bytes:
        """Return an argument, and note what it says of those behind it, as the parser does."""
        index, command = self.index, self.command
        first, last, step = self.keys
        if index == 0:
            self.command = command = find_command(body) if size <= NAME_BYTES else UNKNOWN
            self.keys = key_range(command, self.count)
            return blank(body) if command is UNKNOWN else body
        if first <= index <= last and (index - first) % step == 0 and len(self.taken) < KEYS_KEPT:
            self.taken.append((index, key_text(body[:KEY_BYTES], size)))
            return self.taken_argument(command, index, body, size)
        if not ((index == 1 and command.within is not None) or index == command.count_at):
            return blank(body)
        word = body if size <= NAME_BYTES else b""
        if command.count_at:
            self.keys = (index + 1, index + (int(word) if word.isdigit() else 0), 1)
            return blank(body) if not word.isdigit() else body if size < 8 else b"9" * size
        self.command = find_within(command, word)
        self.keys = key_range(self.command, self.count)
        assert command.within is not None
        return body if word.upper() in command.within else blank(body)

    def taken_argument(self, command: Command, index: int, body: bytes, size: int) -> bytes:
        """Return an argument that the parser keeps."""
        effect, text, taken = command.effect, self.taken[-1][1], self.taken
        if effect == SELECT:
            return body if text.isdigit() and len(text) < 6 else blank(body)
        if effect == AUTH:
            return self.clean("text", body[:KEY_BYTES]) + blank(body[KEY_BYTES:]) if index == 1 else blank(body)
        if effect == HELLO:
            if index == 2:
                return body if text.upper() == "AUTH" else blank(body)
            return self.clean("text", body) if taken[0][1].upper() == "AUTH" and size <= KEY_BYTES else blank(body)
        if effect == REPLY:
            return body if text.upper() in ("ON", "OFF", "SKIP") else blank(body)
        if effect == STREAMS:
            at = next((number for number, word in taken if word.upper() == "STREAMS"), self.count)
            if index == at:
                return body
            return clean_name(self.clean, body, size) if at < index <= at + (self.count - 1 - at) // 2 else blank(body)
        if effect > UNSUBSCRIBE:
            return blank(body)
        if command.is_named and index == 1:
            is_sha = command.operation.startswith("EVALSHA")
            if (SHA if is_sha else FUNCTION).fullmatch(text):
                return body
            return blank(body) if is_sha or size > 64 else b"0" * len(body)
        return clean_name(self.clean, body, size)

    def step_inline(self) -> None:
        window, at = self.window, self.at
        stop = window.find(b"\n", at)
        name = NAME.match(window, at)
        if stop < 0:
            end = name.end() if name is not None and is_command(name[0]) else at
            self.out.append(window[at:end])
            self.at = end
            self.out.append(window[end:].translate(CLASSES))
            self.at = len(window)
            return
        tokens = list(TOKENS.finditer(window, at, stop))
        if not tokens or name is None or name[0] != tokens[0][0] or not is_command(name[0]):
            self.refuse()
            return
        self.command, self.count, self.taken, self.index = UNKNOWN, len(tokens), [], 0
        for number, token in enumerate(tokens):
            self.out.append(window[self.at : token.start()])
            word, self.index = token[0], number
            is_quoted = len(word) > 1 and word[:1] == word[-1:] and word[:1] in (b'"', b"'")
            inner = word[1:-1] if is_quoted and number else word
            made = self.argument(inner, len(inner))
            self.out.append(word[:1] + made + word[-1:] if is_quoted and number else made)
            self.at = token.end()
        self.keep(stop + 1)


@final
class Replies:
    """One window of replies, from the cursor on; made before the parser runs on it."""

    def __init__(self, buffer: StreamBuffer, state: State, clean: Clean) -> None:
        self.window = buffer.data[buffer.cursor :]
        self.clean = clean
        self.out: list[bytes] = []
        self.at = 0
        self.is_opaque = state.replicates or (state.adrift is not None and state.adrift.end < 0)
        special = state.expected()
        self.is_sync = special is not None and special.effect == SYNC and state.left == 0
        self.state = copy_of(state)
        if state.adrift is not None and state.adrift.end >= 0:
            self.state.begin_reply(0)

    def passed(self, size: int) -> bytes:
        """Return what the first `size` bytes become; to be called once, after the parser passed over them."""
        size = min(size, len(self.window))
        if self.is_sync:
            self.step_sync()
        elif not self.is_opaque:
            try:
                self.walk(size)
            except ProtocolError:
                self.out.append(self.window[self.at : self.at + 1])
                self.out.append(self.window[self.at + 1 :].translate(CLASSES))
        made = b"".join(self.out)[:size]
        return made + FILLER * (size - len(made))

    def walk(self, size: int) -> None:
        """Go from value to value with the parser's own functions, on a state of ours."""
        window, state = self.window, self.state
        if state.in_line:
            stop = window.find(b"\r\n")
            self.out.append(blank(window[: stop if stop >= 0 else size]))
            if stop < 0:
                return
            self.out.append(b"\r\n")
            self.at = stop + 2
            state.in_line = False
            state.left -= 1
        while self.at < size:
            while not state.left and state.levels:
                state.left = pop_level(state)
            if not state.left:
                state.begin_reply(0)
                state.left = 1
            stop = window.find(b"\r\n", self.at)
            if stop < 0:
                self.out.append(self.begun_line(window[self.at :]))
                return
            pushed, was_chunked = self.next_word(), state.chunked
            after = take_value(window, self.at, stop, state)
            kind, line = window[self.at], window[self.at + 1 : stop]
            if kind in LINES and not was_chunked:
                self.out += (window[self.at : self.at + 1], self.line(kind, line, pushed), b"\r\n")
            else:
                self.out += (window[self.at : self.at + 1], line if line == b"?" else length_line(line), b"\r\n")
                if after < 0:
                    self.out.append(blank(window[stop + 2 :]))
                    return
                self.out.append(self.body(kind, window[stop + 2 : after], after - stop - 4, pushed, was_chunked))
            self.at = after

    def next_word(self) -> int:
        """Return the number of the next element of what may be a message of a channel, -1 if it is not looked at."""
        words = self.state.words
        return len(words) if words is not None and len(words) < 3 else -1

    def body(self, kind: int, part: bytes, size: int, word: int, was_chunked: bool) -> bytes:
        """Return what stands behind the line of a length: a string, and the end of its line."""
        if not part:
            return b""
        text, end = part[:size], part[max(size, 0) :]
        if kind == BULK_ERROR and not was_chunked:
            return clean_error(self.clean, text) + ending(end)
        if kind in STRINGS and word >= 0 and not was_chunked:
            return self.word(word, text, size) + ending(end)
        return blank(text) + ending(end)

    def word(self, number: int, text: bytes, size: int) -> bytes:
        """Return an element of what may be a message of a channel: its kind, and its channel if it is one."""
        words, state = self.state.words, self.state
        if number == 0:
            return text if text in CONFIRMATIONS or text in PUSHES else blank(text)
        if words is None or words[0] not in PUSHES or not wants_word(words[:number]):
            return blank(text)
        is_heard = bool(state.channels or state.patterns or state.shards)
        if state.kind != PUSHED and not (is_heard and state.rows == 3 + (words[0] == b"pmessage")):
            return blank(text)
        return clean_name(self.clean, text, size)

    def line(self, kind: int, line: bytes, word: int) -> bytes:
        """Return a value that is one line."""
        if kind == ERROR:
            return clean_error(self.clean, line)
        if kind == STATUS:
            return self.status(line, word)
        if kind in (INTEGER, BIG_NUMBER):
            words = self.state.words
            if kind == INTEGER and word == 2 and words and words[0] in CONFIRMATIONS and len(line) < 10:
                return line
            return DIGITS.sub(b"0", line)
        if kind == DOUBLE:
            return line if line in (b"inf", b"-inf", b"nan") else line.translate(NO_DOUBLE)
        return b"t" if kind == BOOLEAN else line

    def status(self, line: bytes, word: int) -> bytes:
        if word >= 0 and (word == 0 or self.state.kind == PUSHED):
            return self.word(word, line, len(line))
        if line in STATUSES:
            return line
        if REPLICATION.fullmatch(line):
            kept = line.partition(b" ")[0]
            return kept + re.sub(rb"[0-9a-f]", b"0", line[len(kept) :])
        found = MONITORED.match(line) or re.match(rb"Background ", line)
        kept = found[0] if found else b""
        return kept + line[len(kept) :].translate(UNPRINTABLE)

    def begun_line(self, part: bytes) -> bytes:
        """Return a line of which the end is not here: of a long one the parser has read the beginning."""
        kind = part[0]
        if kind == ERROR and len(part) > LINE_KEPT:
            return part[:1] + clean_error(self.clean, part[1:])
        if kind == STATUS:
            return part[:1] + self.status(part[1:], -1)
        kept = part[1:].rstrip(b"\r")
        if kind in LINES or LENGTH.fullmatch(kept) or kept in (b"", b"-", b"?"):
            return part if len(kept) < 12 and kind not in LINES else part[:1] + DIGITS.sub(b"0", blank(kept))
        return part[:1] + part[1:].translate(CLASSES)

    def step_sync(self) -> None:
        """Take the reply to SYNC or PSYNC; what stands behind its line is a snapshot."""
        window = self.window
        at = len(window) - len(window.lstrip(b"\n"))
        stop = window.find(b"\r\n", at)
        line = window[at : stop if stop >= 0 else len(window)]
        if line[:1] == b"-":
            made = b"-" + clean_error(self.clean, line[1:])
        elif line.startswith((b"+FULLRESYNC", b"+CONTINUE")):
            kept = line.partition(b" ")[0]
            made = kept + re.sub(rb"[0-9a-zA-Z]", b"0", line[len(kept) :])
        elif line[:1] == b"$":
            made = b"$" + length_line(line[1:])
        else:
            made = line[:1].translate(CLASSES) + line[1:].translate(CLASSES)
        self.out += (window[:at], made, b"\r\n" if stop >= 0 else b"")


def copy_of(state: State) -> State:
    """Return a state that stands where this one does in a reply; what it becomes is seen by nobody."""
    made = State()
    made.channels, made.patterns, made.shards = state.channels, state.patterns, state.shards
    made.asked, made.answered, made.specials = state.asked, state.answered, list(state.specials)
    made.kind, made.left, made.levels = state.kind, state.left, list(state.levels)
    made.chunked, made.in_line, made.rows = state.chunked, state.in_line, state.rows
    made.text, made.error = state.text, state.error
    made.words = None if state.words is None else list(state.words)
    return made
