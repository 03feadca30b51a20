"""SQL texts without their literals, shared by the protocols that carry SQL: statement, verb, main table, traceparent.

Follows the lexical rules of PostgreSQL 17 (chapter 4.1): strings with their prefixes, dollar quotes, numbers, comments
(nested) and quoted identifiers. Strings and numbers become `?`, lists of them one, comments go, identifiers stay. What
does not end is blanked to the end of the text, and a text that begins with no known verb is not kept at all: a literal
never stays because the text was not understood.

One pass over the text, then a look-up by what is left of it; a text seen before costs one look-up. What is remembered
holds no literal and no comment: a text without either is its own key, any other is known by a keyed 128-bit digest.
At most `MEMO_BYTES` are remembered, then all is forgotten. Leaves out a parse: the main table is the first one named.
"""

import re
from hashlib import blake2b
from secrets import token_bytes
from typing import Final, final

MEMO_BYTES: Final = 2 << 20  # of each of the two memos
MEMO_TEXT_LIMIT: Final = 4096  # of a text that is its own key
STATEMENT_LIMIT: Final = 4096  # characters of a statement that are kept
NAME_LIMIT: Final = 256
ENTRY_BYTES: Final = 300  # what an entry takes beside its texts

UNKNOWN_VERB: Final = "UNKNOWN"
EMPTY_VERB: Final = "EMPTY"
# Of SQL, of the replication protocol, of PgBouncer
_VERB_WORDS: Final = (
    "ABORT ALTER ANALYSE ANALYZE BASE_BACKUP BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMENT COMMIT COPY "
    "CREATE CREATE_REPLICATION_SLOT DEALLOCATE DECLARE DELETE DISCARD DO DROP DROP_REPLICATION_SLOT END "
    "EXECUTE EXPLAIN FETCH GRANT IDENTIFY_SYSTEM IMPORT INSERT LISTEN LOAD LOCK MERGE MOVE NOTIFY PREPARE "
    "READ_REPLICATION_SLOT REASSIGN REFRESH REINDEX RELEASE REPLACE RESET REVOKE ROLLBACK SAVEPOINT "
    "SECURITY SELECT SET SHOW START START_REPLICATION TABLE TIMELINE_HISTORY TRUNCATE UNLISTEN UPDATE "
    "VACUUM VALUES WITH ENABLE DISABLE KILL PAUSE RELOAD RESUME SUSPEND WAIT_CLOSE"
)
VERBS: Final = frozenset(_VERB_WORDS.split())

_W: Final = rb"[0-9A-Za-z_$\x80-\xff]"
_STANDARD: Final = rb"'[^']*(?:''[^']*)*(?:'|\Z)"
_ESCAPED: Final = rb"'[^'\\]*(?:(?:''|\\.)[^'\\]*)*(?:'|\\?\Z)"
_TOKEN: Final = (
    rb"(?:(?<!%(w)s)[eE])%(escaped)s"
    rb"|(?:(?<!%(w)s)(?:[uU]&|[bBxXnN]))?%(string)s"
    rb'|"[^"]*(?:""[^"]*)*(?:"|\Z)'
    rb"|(?<!%(w)s)\$(?P<tag>(?:[A-Za-z_\x80-\xff][0-9A-Za-z_\x80-\xff]*)?)\$(?:.*?\$(?P=tag)\$|.*)"
    rb"|--[^\r\n]*|/\*"
    rb"|(?:(?:(?<=[=<>+*/%%,(-])|(?<=[=<>+*/%%,(-] ))[+-])?"
    rb"(?<!%(w)s)\.?[0-9](?:[0-9A-Za-z_\x80-\xff]|\.(?!\.))*(?:(?<=[eE])[+-][0-9]+)?"
    rb"|[ \t\r\n\f\v]{2,}|[\t\r\n\f\v]|;"
)
_WORD_BYTES: Final = frozenset(byte for byte in range(256) if re.match(_W, bytes((byte,))))
_COMMENT_MARK: Final = re.compile(rb"/\*|\*/")
_TRACE: Final = re.compile(
    rb"/\*[^*]{0,2000}?\btraceparent='([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})'[^*]{0,2000}\*/"
)
_QUOTED: Final = re.compile(rb'"[^"]*"')
_ATOMIC: Final = re.compile(rb"CREATE\b.*?\bBEGIN ATOMIC\b", re.I | re.S)
_BLOCK: Final = re.compile(rb"\b(?:(CASE|BEGIN ATOMIC)|END)\b", re.I)

_SPACES: Final = re.compile(r" {2,}")
_P: Final = r"(?:\?|\$\d+)"
_LIST: Final = rf"{_P}(?: ?, ?{_P})* ?"
_IN: Final = re.compile(rf"\b(IN) ?\( ?{_LIST}\)", re.I)
_ARRAY: Final = re.compile(rf"\b(ARRAY) ?\[ ?{_LIST}\]", re.I)
_ROWS: Final = re.compile(rf"\b(VALUES) ?(\( ?{_LIST}\))(?: ?, ?\( ?{_LIST}\))+", re.I)
_SETTING: Final = re.compile(
    r"((?:ALTER (?:SYSTEM|ROLE|USER|DATABASE)\b.*? )?SET (?:SESSION |LOCAL )?(?!TIME ZONE)[\w.$\"]+ ?(?:=|TO\b)).*",
    re.I | re.S,
)
_VERB: Final = re.compile(r"[ (]*([A-Za-z_]+)")
_MAIN_VERB: Final = re.compile(r'"[^"]*"|[()]|\b(?:SELECT|INSERT|UPDATE|DELETE|MERGE|VALUES|TABLE)\b', re.I)
_FROM: Final = re.compile(r'"[^"]*"|[()]|(?<!DISTINCT )\bFROM (?:ONLY )?', re.I)
_NAME: Final = re.compile(r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)(?: ?\. ?(?:"(?:[^"]|"")+"|[^\W\d][\w$]*))*')
_KINDS: Final = (
    "TABLE|INDEX|VIEW|SEQUENCE|DATABASE|SCHEMA|FUNCTION|PROCEDURE|AGGREGATE|TYPE|DOMAIN|EXTENSION|ROLE|USER|GROUP"
    "|TRIGGER|POLICY|RULE|PUBLICATION|SUBSCRIPTION|SERVER|TABLESPACE|COLLATION|STATISTICS|LANGUAGE"
)
_OF_DEFINITION: Final = rf"\w+ (?:\w+ ){{0,4}}?(?:{_KINDS}) (?:CONCURRENTLY )?(?:IF (?:NOT )?EXISTS )?"
_OBJECT: Final = {
    verb: re.compile(before, re.I)
    for verb, before in {
        "INSERT": r"INSERT INTO ", "REPLACE": r"REPLACE INTO ", "UPDATE": r"UPDATE (?:ONLY )?",
        "DELETE": r"DELETE FROM (?:ONLY )?", "MERGE": r"MERGE INTO (?:ONLY )?", "COPY": r"COPY (?:BINARY )?",
        "TRUNCATE": r"TRUNCATE (?:TABLE )?(?:ONLY )?", "LOCK": r"LOCK (?:TABLE )?(?:ONLY )?",
        "TABLE": r"TABLE (?:ONLY )?",
        "CREATE": _OF_DEFINITION, "ALTER": _OF_DEFINITION, "DROP": _OF_DEFINITION,
        "REFRESH": r"REFRESH MATERIALIZED VIEW (?:CONCURRENTLY )?", "CALL": r"CALL ", "LISTEN": r"LISTEN ",
        "UNLISTEN": r"UNLISTEN ", "NOTIFY": r"NOTIFY ", "EXECUTE": r"EXECUTE ", "PREPARE": r"PREPARE ",
        "DEALLOCATE": r"DEALLOCATE (?:PREPARE )?", "DECLARE": r"DECLARE ", "CLOSE": r"CLOSE ",
        "VACUUM": r"VACUUM (?:\([^)]*\) ?|(?:FULL|FREEZE|VERBOSE|ANALYZE) )*", "SET": r"SET (?:SESSION |LOCAL )?",
        "ANALYZE": r"ANALYZE (?:VERBOSE )?", "SHOW": r"SHOW ", "RESET": r"RESET ", "SAVEPOINT": r"SAVEPOINT ",
    }.items()
}  # fmt: skip
_NO_NAMES: Final = frozenset(("SELECT", "VALUES", "WITH", "LATERAL", "ROWS", "UNNEST"))


@final
class Statement:
    """One statement without its literals; shared by all that are equal. `text` is None where nothing may be kept."""

    __slots__ = ("operation", "resource", "text")

    def __init__(self, operation: str, resource: str | None, text: str | None) -> None:
        self.operation = operation  # the first keyword; of WITH that of the main statement
        self.resource = resource  # the main table, or what else it names first
        self.text = text


Part = tuple[int, Statement]  # offset in the text, statement
EMPTY: Final = Statement(EMPTY_VERB, None, None)


@final
class Sql:
    """Reads the texts of one dialect, and remembers those seen lately."""

    def __init__(self, backslashes: bool = False) -> None:
        """Take PostgreSQL's rules; `backslashes`: plain strings have escapes, `standard_conforming_strings = off`."""
        string = _ESCAPED if backslashes else _STANDARD
        self._token = re.compile(_TOKEN % {b"w": _W, b"escaped": _ESCAPED, b"string": string}, re.S)
        self._known: dict[bytes, tuple[Part, ...]] = {}
        self._known_bytes = 0
        self._shapes: dict[bytes, Statement] = {}
        self._shapes_bytes = 0
        self._key = token_bytes(16)

    def read(self, text: bytes) -> tuple[Part, ...]:
        """Return the statements of a text (one that is empty if it has none) with their offsets in it."""
        found = self._known.get(text)
        if found is not None:
            return found
        digest = blake2b(text, digest_size=16, key=self._key).digest()
        found = self._known.get(digest)
        if found is not None:
            return found
        cleaned, ends, is_plain = self._clean(text)
        if len(ends) < 2:
            found = ((0, self._statement(cleaned)),)
        else:
            found = tuple((start, self._statement(part)) for start, part in split(cleaned, ends)) or ((0, EMPTY),)
        if self._known_bytes > MEMO_BYTES:
            self._known.clear()
            self._known_bytes = 0
        key = text if is_plain and len(text) <= MEMO_TEXT_LIMIT else digest
        self._known[key] = found
        self._known_bytes += len(key) + ENTRY_BYTES * len(found)
        return found

    def find_token(self, text: bytes, at: int) -> re.Match[bytes] | None:
        """Return the next literal, comment, quoted name, white space or semicolon."""
        return self._token.search(text, at)

    def goes_on(self, text: bytes, at: int) -> bool:
        """Say whether quotes do not fit: behind a string a word begins at once."""
        return at < len(text) and text[at] in _WORD_BYTES

    def _clean(self, text: bytes) -> tuple[bytes, list[tuple[int, int]], bool]:
        """Return a text without literals and comments, where statements end (in it, in `text`), if it had neither."""
        parts: list[bytes] = []
        ends: list[tuple[int, int]] = []
        search, at, size, is_plain = self._token.search, 0, 0, True
        while (found := search(text, at)) is not None:
            start, stop = found.span()
            if start > at:
                parts.append(text[at:start])
                size += start - at
            first = text[start]
            if first == 32 or 9 <= first <= 13:
                fresh = b" "
            elif first == 59:
                ends.append((size, start))
                fresh = b";"
            elif first == 34 and stop - start > 1 and text[stop - 1] == 34:
                fresh = text[start:stop]
            elif first == 47 or (first == 45 and text[start + 1] == 45):
                if first == 47:
                    stop = find_comment_end(text, stop)
                fresh = b" "
                is_plain = False
            else:
                fresh = b"?"
                is_plain = False
                if stop < len(text) and text[stop - 1] == 39 and text[stop] in _WORD_BYTES:
                    stop = len(text)  # 'it's: quotes that do not fit, what follows may be a literal
            parts.append(fresh)
            size += len(fresh)
            at = stop
        ends.append((size + len(text) - at, len(text)))
        parts.append(text[at:])
        return b"".join(parts), ends, is_plain

    def _statement(self, cleaned: bytes) -> Statement:
        cleaned = cleaned.strip()
        found = self._shapes.get(cleaned)
        if found is None:
            if self._shapes_bytes > MEMO_BYTES:
                self._shapes.clear()
                self._shapes_bytes = 0
            found = self._shapes[cleaned] = describe(cleaned)
            self._shapes_bytes += len(cleaned) + len(found.text or "") + ENTRY_BYTES
        return found


def cut_trace(text: bytes) -> tuple[bytes, bytes | None]:
    """Return a text without the sqlcommenter comment that has a traceparent, and its value: texts then repeat.

    Only a comment that ends or begins the text; offsets in it stay true.
    """
    at = text.find(b"/*") if text.startswith(b"/*") else text.rfind(b"/*")
    found = _TRACE.match(text, at) if at >= 0 else None
    if found is None or (at and text[found.end() :].strip(b"; \t\r\n")):
        return text, None
    return text[:at] + (b" " * (found.end() - at) + text[found.end() :] if not at else b""), found[1]


def match_trace(text: bytes, at: int) -> re.Match[bytes] | None:
    """Return the comment at `at` if it has a traceparent, its value being the first group."""
    return _TRACE.match(text, at)


def find_comment_end(text: bytes, at: int) -> int:
    """Return the offset behind a block comment that was entered before `at`; comments nest."""
    depth = 1
    for mark in _COMMENT_MARK.finditer(text, at):
        depth += 1 if mark[0] == b"/*" else -1
        if not depth:
            return mark.end()
    return len(text)


def split(cleaned: bytes, ends: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Return the statements of a text with their offsets in the original; those that are empty are left out.

    A semicolon in parentheses (CREATE RULE), or between BEGIN ATOMIC and its END, ends nothing.
    """
    parts = []
    start = origin = depth = blocks = seen = 0
    for end, original in ends:
        fresh = cleaned[seen:end]
        if b'"' in fresh:
            fresh = _QUOTED.sub(b"", fresh)
        depth += fresh.count(b"(") - fresh.count(b")")
        if blocks or (b"ATOMIC" in fresh.upper() and _ATOMIC.match(cleaned[start:end].strip())):
            blocks += sum(1 if found[1] else -1 for found in _BLOCK.finditer(fresh))
        seen = end + 1
        if end < len(cleaned) and (depth > 0 or blocks > 0):
            continue
        part = cleaned[start:end].strip()
        if part:
            parts.append((origin, part))
        start, origin, depth, blocks = end + 1, original + 1, 0, 0
    return parts


def describe(cleaned: bytes) -> Statement:
    """Name a statement from its text without literals."""
    text = _SPACES.sub(" ", cleaned.decode("utf-8", "replace")).strip(" ;")
    if not text:
        return EMPTY
    found = _VERB.match(text)
    verb = found[1].upper() if found else UNKNOWN_VERB
    if verb not in VERBS:
        return Statement(UNKNOWN_VERB, None, None)
    text = _IN.sub(r"\1 (?)", text)
    text = _ARRAY.sub(r"\1[?]", text)
    text = _ROWS.sub(r"\1 \2, ...", text)
    if verb in ("SET", "ALTER"):
        text = _SETTING.sub(r"\1 ?", text, count=1)
    begin = found.start(1) if found else 0
    if verb == "WITH":
        verb, begin = find_main_verb(text)
    kept = text if len(text) <= STATEMENT_LIMIT else text[: STATEMENT_LIMIT - 1] + "…"
    return Statement(verb, find_resource(verb, text, begin), kept)


def find_main_verb(text: str) -> tuple[str, int]:
    """Return the verb behind the named queries of WITH, and its offset."""
    depth = 0
    for found in _MAIN_VERB.finditer(text):
        word = found[0]
        if word == "(":
            depth += 1
        elif word == ")":
            depth -= 1
        elif not depth and word[0] != '"':
            return word.upper(), found.start()
    return "WITH", 0


def find_resource(verb: str, text: str, begin: int) -> str | None:
    """Return the first table, or other thing, that a statement is about; None if that is not cheap to say."""
    if verb == "SELECT":
        return find_source(text, begin)
    before = _OBJECT.get(verb)
    at = before.match(text, begin) if before is not None else None
    if at is None:
        return None
    return read_name(text, at.end())


def find_source(text: str, begin: int) -> str | None:
    """Return the table of the first FROM: outside of parentheses, else in those behind it."""
    depth = floor = 0
    for found in _FROM.finditer(text, begin):
        word = found[0]
        if word == "(":
            depth += 1
        elif word == ")":
            depth -= 1
        elif word[0] != '"' and depth <= floor:
            name = read_name(text, found.end())
            if name is not None:
                return name
            floor = 1 << 30  # a subquery
    return None


def read_name(text: str, at: int) -> str | None:
    found = _NAME.match(text, at)
    if found is None or found[0].upper() in _NO_NAMES or len(found[0]) > NAME_LIMIT:
        return None
    name = found[0]
    return name.replace('""', "\0").replace('"', "").replace("\0", '"') if '"' in name else name.replace(" ", "")
