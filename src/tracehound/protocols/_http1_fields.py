"""The field lines of an HTTP/1 head (RFC 9112 section 5): what `http1` wants of them, and a memo of lines seen lately.

Lines repeat, so reading one is mostly looking it up. Lines that may hold a secret are never kept, nor are blocks with
one. Leaves out every field that is not in `FIELDS`.
"""

import re
from typing import Final, final

from tracehound.protocols._protocol import Extras

LENGTH_LIMIT: Final = 1 << 40  # of a body; more is no length
BLOCK_LIMIT: Final = 1024  # of a block that is kept
MEMO_LINES: Final = 8192
MEMO_LINE_LIMIT: Final = 256
MEMO_NAMES: Final = 1024
MEMO_NAME_LIMIT: Final = 64
MEMO_BLOCKS: Final = 1024

# Framing that the fields ask for: `length` and `coding` of a head
ABSENT: Final = -1
BAD: Final = -2
IDENTITY: Final = 0
CHUNKED: Final = 1
OTHER: Final = 2

HOST: Final = 1
AGENT: Final = 2
CONTENT_TYPE: Final = 3
CONTENT_LENGTH: Final = 4
TRANSFER_ENCODING: Final = 5
UPGRADE: Final = 6
TRACEPARENT: Final = 7
SECRET: Final = 8

FIELDS: Final = {
    b"host": HOST,
    b"user-agent": AGENT,
    b"content-type": CONTENT_TYPE,
    b"content-length": CONTENT_LENGTH,
    b"transfer-encoding": TRANSFER_ENCODING,
    b"upgrade": UPGRADE,
    b"traceparent": TRACEPARENT,
}
SECRET_NAME: Final = re.compile(rb"cookie|auth|token|secret|passw|key|session|signature|credential")
FOLD: Final = re.compile(rb"\r?\n[ \t]+")

_dull: set[bytes] = {b""}  # lines that say nothing of interest
_known: dict[bytes, tuple[int, str]] = {}  # lines that do: field, value
_names: dict[bytes, int] = {}  # names as spelt: field, 0 or SECRET


@final
class Head:
    """What the field lines of one message said."""

    __slots__ = (
        "agent", "coding", "content_type", "host", "length", "request_extras", "response_extras", "secret", "trace",
        "upgrade",
    )  # fmt: skip

    def __init__(self) -> None:
        self.host: str | None = None
        self.agent: str | None = None
        self.content_type: str | None = None
        self.length: int = ABSENT
        self.coding: int = IDENTITY
        self.upgrade = ""  # the protocol named, in lower case
        self.trace: bytes | None = None
        self.secret = False
        self.request_extras: Extras = (None, None)
        self.response_extras: Extras = (None, None, None)


_NOTHING: Final = Head()
_blocks: dict[bytes, tuple[bytes, Head]] = {}  # first ones of connections: those of one program are mostly equal


@final
class LastBlock:
    """The last block of field lines of one direction, and what it said: heads of one connection mostly repeat."""

    __slots__ = ("block", "head")

    def __init__(self) -> None:
        self.block: bytes | None = None
        self.head = _NOTHING

    def read(self, block: bytes) -> Head:
        """Return what `block` says; the head is shared: not to be changed."""
        if block == self.block:
            return self.head
        is_first = self.head is _NOTHING
        if is_first and block in _blocks:
            self.block, self.head = _blocks[block]
            return self.head
        head = Head()
        note_block(head, block)
        self.head = head
        self.block = None if head.secret or head.trace or len(block) > BLOCK_LIMIT else block
        if is_first and self.block is not None:
            if len(_blocks) >= MEMO_BLOCKS:
                _blocks.clear()
            _blocks[block] = (block, head)
        return head


def cut_traceparent(block: bytes) -> tuple[bytes, bytes | None]:
    """Return `block` without its traceparent line, so that it can equal the last one, and the line's value.

    Only the two usual spellings; another one is found by `note_line`.
    """
    mark = block.find(b"raceparent:")
    if mark < 1 or block[mark - 1] not in b"tT" or (mark > 1 and block[mark - 2] != 10):
        return block, None
    stop = block.find(b"\n", mark)
    if stop < 0:
        return block, None
    return block[: mark - 1] + block[stop + 1 :], block[mark + 11 : stop].strip()


def note_block(head: Head, block: bytes) -> None:
    """Add to `head` what the whole lines of `block` say."""
    if b"\n " in block or b"\n\t" in block:
        block = FOLD.sub(b" ", block)
    for line in block.split(b"\r\n"):
        if line not in _dull:
            note_line(head, line)
    head.request_extras = (head.host, head.agent)
    head.response_extras = (head.content_type, None, None)


def note_line(head: Head, line: bytes) -> None:
    """Add to `head` what one line says, or several that bare line feeds part."""
    known = _known.get(line)
    if known is None:
        if b"\n" in line:
            for part in line.split(b"\n"):
                note_line(head, part.rstrip(b"\r"))
            return
        known = read_line(line)
    field, value = known
    if field == HOST:
        head.host = value
    elif field == AGENT:
        head.agent = value
    elif field == CONTENT_TYPE:
        head.content_type = value
    elif field == CONTENT_LENGTH:
        length = read_length(value)
        head.length = length if head.length in (ABSENT, length) else BAD
    elif field == TRANSFER_ENCODING:
        note_coding(head, value)
    elif field == UPGRADE:
        head.upgrade = value.lower()
    elif field == TRACEPARENT:
        head.trace = head.trace or value.encode("latin-1")
    elif field == SECRET:
        head.secret = True


def read_line(line: bytes) -> tuple[int, str]:
    """Return a line's field and value, (0, "") if it is of no interest; keep it in the memo if that is safe."""
    name, colon, value = line.partition(b":")
    if not colon or name[:1] in b" \t":  # the rest of a folded line, of whatever field
        return (SECRET if line else 0), ""
    field = _names.get(name, -1)
    if field < 0:
        field = read_name(name)
    if field == SECRET:
        return SECRET, ""
    known = (field, value.strip().decode("latin-1")) if field else (0, "")
    if field != TRACEPARENT and len(line) <= MEMO_LINE_LIMIT:
        if len(_dull) + len(_known) >= MEMO_LINES:
            _dull.clear()
            _dull.add(b"")
            _known.clear()
        if field:
            _known[line] = known
        else:
            _dull.add(line)
    return known


def read_name(name: bytes) -> int:
    """Return the field of a name as it was spelt, 0 if it is of no interest, SECRET if its value may be one."""
    plain = name.rstrip().lower()
    field = FIELDS.get(plain, 0)
    if not field and SECRET_NAME.search(plain):
        field = SECRET
    if len(name) <= MEMO_NAME_LIMIT:
        if len(_names) >= MEMO_NAMES:
            _names.clear()
        _names[name] = field
    return field


def read_length(value: str) -> int:
    """Return a Content-Length, also of equal ones in a list (RFC 9110 8.6), or BAD."""
    if not value.isdecimal() or not value.isascii():
        parts = {part.strip() for part in value.split(",")}
        value = parts.pop()
        if parts or not value.isdecimal() or not value.isascii():
            return BAD
    if len(value) > 18:
        return BAD
    length = int(value)
    return length if length <= LENGTH_LIMIT else BAD


def note_coding(head: Head, value: str) -> None:
    """Note the final transfer coding: the last one of the last line."""
    final_coding = value.rpartition(",")[2].strip().lower()
    if final_coding == "chunked":
        head.coding = CHUNKED
    elif final_coding != "identity":
        head.coding = OTHER
