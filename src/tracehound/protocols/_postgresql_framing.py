"""Where a PostgreSQL message begins: a chain of messages, of which each begins where the one before ends.

A chain counts if it ends with the bytes that are here, or is long enough, and each message of it is well formed as far
as its kind says how. Never one message alone that may be anything.
"""

import re
from typing import Final

from tracehound.protocols._postgresql_state import LENGTH_LIMIT

CHAIN: Final = 4  # whole messages of a chain that goes on beyond what is here
PLAIN_TEXT: Final = bytes(byte for byte in range(256) if byte >= 32 or byte in b"\t\n\r\f")
SEVERITY: Final = re.compile(rb"S[^\0]{3,24}\0V[A-Z]{4,7}\0C[0-9A-Z]{5}\0M")
STARTUP_CODES: Final = (0x30000, 0x30002, 80877102, 80877103, 80877104)

# Kinds of messages by what their bodies are: nothing, so many bytes, S or P and a name, texts, or anything
EMPTY_OF_CLIENT: Final = frozenset(b"SHXc")
EMPTY_OF_SERVER: Final = frozenset(b"123nsIc")
CLIENT: Final = frozenset(b"BCDEFHPQSXcdfp")
SERVER: Final = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")


def begins_request(data: bytes, cursor: int) -> bool:
    """Say whether messages of a client begin at `cursor`."""
    if data[cursor : cursor + 1] == b"\0":
        length, code = (
            int.from_bytes(data[cursor : cursor + 4], "big"),
            int.from_bytes(data[cursor + 4 : cursor + 8], "big"),
        )
        return 8 <= length <= 10000 and code in STARTUP_CODES
    return begins_chain(data, cursor, True)


def begins_response(data: bytes, cursor: int) -> bool:
    """Say whether messages of a server begin at `cursor`."""
    return begins_chain(data, cursor, False)


def begins_chain(data: bytes, cursor: int, is_client: bool) -> bool:
    size, count = len(data), 0
    kinds = CLIENT if is_client else SERVER
    is_certain = False
    while cursor + 5 <= size:
        kind, length = data[cursor], int.from_bytes(data[cursor + 1 : cursor + 5], "big")
        if kind not in kinds or not 4 <= length <= LENGTH_LIMIT:
            return False
        stop = cursor + 1 + length
        body = data[cursor + 5 : stop]
        is_whole = stop <= size
        good = check_client(kind, length, body, is_whole) if is_client else check_server(kind, length, body, is_whole)
        if not good:
            return False
        is_certain = is_certain or (kind == 81 and is_client and len(body) >= 6)
        is_certain = is_certain or (kind == 69 and not is_client and SEVERITY.match(body) is not None)
        if not is_whole:
            return is_certain or count >= CHAIN
        count += 1
        if count > 2 * CHAIN:
            return True
        cursor = stop
    if cursor < size:
        return data[cursor] in kinds and count >= CHAIN
    return count > 0


def check_client(kind: int, length: int, body: bytes, is_whole: bool) -> bool:
    """Say whether a client's message is well formed, as far as it is here."""
    if kind in EMPTY_OF_CLIENT:
        return length == 4
    if kind == 81 or kind == 102:  # Query, CopyFail
        return length > 4 and is_text(body[:-1] if is_whole else body) and (not is_whole or body[-1] == 0)
    if kind == 67 or kind == 68:  # Close, Describe
        return length > 5 and body[:1] in (b"S", b"P", b"") and (not is_whole or is_name(body[1:]))
    if kind == 69:  # Execute: a name, and 4 bytes that say how many rows
        return length > 8 and (not is_whole or is_name(body[:-4]))
    if kind == 80:  # Parse: two texts, a number of types
        texts = body.split(b"\0", 2)
        if not all(map(is_text, texts[:2])):
            return False
        return not is_whole or (len(texts) == 3 and len(texts[2]) == 2 + 4 * int.from_bytes(texts[2][:2], "big"))
    if kind == 66:  # Bind: two names, formats, parameters
        names = body.split(b"\0", 2)
        return all(map(is_text, names[:2])) and (not is_whole or (len(names) == 3 and len(names[2]) >= 6))
    if kind == 112:  # a password, or bytes of SASL
        return length < 65536
    return kind == 100 or length > 8


def check_server(kind: int, length: int, body: bytes, is_whole: bool) -> bool:
    """Say whether a server's message is well formed, as far as it is here."""
    if kind in EMPTY_OF_SERVER:
        return length == 4
    if kind == 90:
        return length == 5 and body in (b"I", b"T", b"E", b"")
    if kind == 67:
        return 5 < length < 256 and is_text(body[:-1] if is_whole else body) and (not is_whole or is_name(body))
    if kind == 69 or kind == 78:
        return length > 10 and body[:1] in (b"S", b"") and (not is_whole or body.endswith(b"\0\0"))
    if kind == 83:
        return length > 5 and (not is_whole or (body.count(b"\0") == 2 and body[-1] == 0))
    if kind == 68:
        return length >= 6 and (not is_whole or is_row(body))
    if kind == 84:
        return length >= 6 and (not is_whole or len(body) >= 2 + 19 * int.from_bytes(body[:2], "big"))
    if kind == 82:
        return 8 <= length < 65536 and int.from_bytes(body[:4], "big") < 16
    if kind == 75:
        return 12 <= length <= 264
    return length >= 4 if kind == 100 else 6 <= length < 65536


def is_row(body: bytes) -> bool:
    """Say whether the columns of a DataRow fill it."""
    at, columns = 2, int.from_bytes(body[:2], "big")
    for _ in range(columns):
        size = int.from_bytes(body[at : at + 4], "big")
        at += 4 if size == 0xFFFFFFFF else 4 + size
        if at > len(body):
            return False
    return at == len(body)


def is_name(text: bytes) -> bool:
    """Say whether a text ends where its message does."""
    return text.find(b"\0") == len(text) - 1


def is_text(text: bytes) -> bool:
    return not text.translate(None, PLAIN_TEXT)
