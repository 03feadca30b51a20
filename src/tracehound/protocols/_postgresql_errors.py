"""ErrorResponse: its SQLSTATE, what that means, and its primary message without the values that it quotes.

Chapter 55.8 and appendix A of the documentation of PostgreSQL 17. Detail, hint, context and query of an error are not
read: they quote rows. Of the message a quoted word stays only behind a noun that says that it is a name (`constraint
"orders_pkey"`); digits go; the text of an error that a function raised, or of a class that is not in appendix A, is the
application's own and may be anything: it is not kept.
"""

import re
from typing import Final

from tracehound.protocols._protocol import CLIENT_ERROR, OK, SERVER_ERROR

MESSAGE_LIMIT: Final = 512
RAISED: Final = "(raised by the application: its text is not kept)"

# By the class, the first two characters of a SQLSTATE: what the server could not do; all others are the client's
SERVER_CLASSES: Final = frozenset(("08", "40", "53", "57", "58", "F0", "HV", "XX"))
OK_CLASSES: Final = frozenset(("00", "01", "02"))
_CLASSES: Final = (
    "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 "
    "53 54 55 57 58 72 F0 HV XX"
)
CLASSES: Final = frozenset(_CLASSES.split())
FATAL: Final = (b"FATAL", b"PANIC")

NOUNS: Final = (
    "aggregate attribute collation column configuration connection constraint conversion cursor database "
    "dictionary domain encoding extension function group index key language method operator option "
    "parameter parser partition policy portal procedure publication relation role rule savepoint schema "
    "sequence server slot statement statistics subscription table tablespace template transform trigger "
    "type user view wrapper variable"
)
QUOTE: Final = re.compile(r"(?:\b(" + "|".join(NOUNS.split()) + r') )?"([^"]*)"', re.I)
OTHER_QUOTE: Final = re.compile(r"['«»„“”‘’‚‹›「『].*['«»„“”‘’‚‹›」』]", re.S)
NUMBER: Final = re.compile(r"(?<![\w$])[+-]?\.?\d[\w.,:+-]*")


def outcome_of(code: str) -> str:
    """Return the outcome that a SQLSTATE stands for."""
    if code[:2] in SERVER_CLASSES:
        return SERVER_ERROR
    return OK if code[:2] in OK_CLASSES else CLIENT_ERROR


def read_error(body: bytes) -> tuple[str, str | None, bool]:
    """Return SQLSTATE, cleaned message, and if the connection ends with it, of an ErrorResponse's fields."""
    code, message, severity = "", b"", b""
    for field in body.split(b"\0"):
        kind = field[:1]
        if kind == b"C" and not code:
            code = field[1:6].decode("latin-1")
        elif kind == b"M" and not message:
            message = field[1:]
            break  # what follows quotes rows
        elif kind == b"V" or (kind == b"S" and not severity):
            severity = field[1:]
    if not (len(code) == 5 and code.isalnum() and code.isascii()):
        code = "XX000"
    if not message:
        return code, None, severity in FATAL
    if code[:2] not in CLASSES:
        return code, RAISED, severity in FATAL
    return code, clean_message(message[: 4 * MESSAGE_LIMIT].decode("utf-8", "replace")), severity in FATAL


def clean_message(message: str) -> str:
    """Return a message of the server's own without values.

    A value may hold quotes itself, so that from the first quoted one to the last quote nothing is kept.
    """
    at, parts, names = 0, [], []
    for found in QUOTE.finditer(message):
        noun, name = found[1], found[2]
        if noun is None:
            parts.append(message[at : found.start()] + '"?"')
            at = message.rfind('"') + 1
            break
        parts.append(message[at : found.start()] + f'{noun} "\0"')
        names.append(name)
        at = found.end()
    rest = message[at:]
    if '"' in rest:
        rest = rest[: rest.index('"')] + '"?"'
    text = NUMBER.sub("?", OTHER_QUOTE.sub("?", "".join(parts) + rest))
    for name in names:
        text = text.replace("\0", name, 1)
    return text[:MESSAGE_LIMIT]
