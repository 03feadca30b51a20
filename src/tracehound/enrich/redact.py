"""The redaction point: blanks secrets in rows before anything keeps or shows them. The last enricher.

Rules, each a function of one text, applied to a column's distinct values:

- `text`: passwords in URLs, values after names of secrets (`password=`, `Authorization:`, `--token X`), bearer and
  other well-known tokens, e-mail-like values. For every text that came from traffic.
- `query`: for paths and URLs: every value of a query, path parameter or fragment becomes `?`, keys are kept; then
  `text`.
- paths of files: `text`, but for e-mail-like values.
- `key`, `keys`: for a key of a store, and a statement with some: `text`, then what stands behind the name of a secret,
  and words that look random.
- arguments of calls: all of one that is named like a secret, `text` in texts, and all of a buf with such a text.
- argv: `text` in each argument, and whole arguments that follow or join a flag of a secret, with the short flags of
  a few programs (`mysql -pX`, `curl -u`).

A protocol says by `Protocol.secrets` which rule its columns need; `resource`, `route`, `statement`, `error_message`
and all text extras get `text` anyway. Where a value cannot be told from a secret it is blanked. Leaves out SQL
literals, and values that parsers never put into a row.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracehound.call_types import NUMBERS
from tracehound.enrich.columns import Tables, replace_columns
from tracehound.enrich.keys import clean_key, clean_keys
from tracehound.enrich.secrets import (
    BLANK,
    clean_argument,
    clean_arguments,
    clean_path,
    clean_query,
    clean_text,
    is_secret_name,
)
from tracehound.protocols import Protocol

RULES: Final[dict[str, Callable[[str], str]]] = {
    "text": clean_text,
    "query": clean_query,
    "key": clean_key,
    "keys": clean_keys,
}
TEXT_COLUMNS: Final = ("resource", "route", "statement", "error_message")
PATHS: Final = ("path", "resolved_path")
MEMO_BYTES: Final = 8 << 20

Value = TypeVar("Value")


class _Memo(Generic[Value]):
    """A function of texts that remembers its answers, up to a number of bytes, then forgets them all."""

    def __init__(self, clean: Callable[[Any], Value]) -> None:
        self._clean = clean
        self._known: dict[Hashable, Value] = {}
        self._bytes = 0

    def __call__(self, key: Hashable, size_bytes: int) -> Value:
        known = self._known.get(key)
        if known is None:
            if self._bytes > MEMO_BYTES:
                self._known.clear()
                self._bytes = 0
            known = self._known[key] = self._clean(key)
            self._bytes += 2 * size_bytes + 200
        return known


def _codes(column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Return the indices of a column, -1 for null."""
    codes: npt.NDArray[np.int64] = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


class Redactor:
    """Cleans `requests`, `processes`, `calls` and `files`; drops nothing but secrets."""

    def __init__(self, protocols: Sequence[Protocol]) -> None:
        """Take the rules of the protocols; raises ValueError for a rule that is not there."""
        self._rules: dict[str, dict[str, str]] = {}  # column -> protocol -> rule
        text = [*TEXT_COLUMNS]
        for protocol in protocols:
            for column, rule in protocol.secrets:
                if rule not in RULES:
                    raise ValueError(f"{protocol.name}: no redaction rule {rule}; there are {', '.join(RULES)}")
                self._rules.setdefault(column, {})[protocol.name] = rule
            text += [c.name for c in (*protocol.request_extras, *protocol.response_extras) if c.type == "string"]
        self._text_columns = tuple(dict.fromkeys([*text, *self._rules]))
        self._memos = {name: _Memo[str](rule) for name, rule in RULES.items()}
        self._arguments = _Memo[list[str]](clean_arguments)
        self._paths = _Memo[str](clean_path)
        self._values = _Memo[str](lambda key: clean_argument(key[0], key[2], key[1]))

    def add(self, tables: Tables) -> Tables:
        """Return the tables without secrets."""
        cleaned = {}
        requests, processes = tables.get("requests"), tables.get("processes")
        if requests is not None and len(requests):
            cleaned["requests"] = self._clean_requests(requests)
        if processes is not None and len(processes):
            cleaned["processes"] = replace_columns(processes, {"argv": self._clean_argv(processes.column("argv"))})
        calls = tables.get("calls")
        if calls is not None and len(calls):
            cleaned["calls"] = replace_columns(calls, {"args": self._clean_values(calls.column("args"))})
        files = tables.get("files")
        if files is not None and len(files):
            cleaned["files"] = replace_columns(files, {name: self._clean_paths(files.column(name)) for name in PATHS})
        return tables | cleaned

    def _clean_values(self, column: pa.Array) -> pa.Array:
        """Clean the values of arguments: each distinct (name, type, value) once, numbers by their names only."""
        names, types, values = column.flatten().flatten()
        name, kind, value = names.dictionary_encode(), types.dictionary_encode(), values.dictionary_encode()
        texts, codes = value.dictionary.to_pylist(), _codes(value)
        pairs, which = np.unique(_codes(name) * (len(kind.dictionary) + 1) + _codes(kind), return_inverse=True)
        cleaned, place = [*texts, BLANK], codes.copy()
        for at, pair in enumerate(pairs.tolist()):
            word = name.dictionary[pair // (len(kind.dictionary) + 1)].as_py()
            its_type = kind.dictionary[pair % (len(kind.dictionary) + 1)].as_py()
            rows = np.flatnonzero((which == at) & (codes >= 0))
            if is_secret_name(word):
                place[rows] = len(texts)
            elif its_type.lstrip("*").split("[")[0] not in NUMBERS:
                distinct, inverse = np.unique(codes[rows], return_inverse=True)
                place[rows] = len(cleaned) + inverse
                keys = [(word, its_type, texts[code]) for code in distinct.tolist()]
                cleaned += [self._values(key, 32 + len(key[2])) for key in keys]
        shown = pa.array(cleaned, pa.string()).take(pa.array(place, mask=place < 0))
        structs = pa.StructArray.from_arrays([names, types, shown], fields=list(column.type.value_type))
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(column).to_numpy())]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), structs)

    def _clean_requests(self, requests: pa.RecordBatch) -> pa.RecordBatch:
        protocols = requests.column("protocol").dictionary_encode()
        wanted = [name for name in self._text_columns if name in requests.schema.names]
        columns = {name: self._clean_column(name, requests.column(name), protocols) for name in wanted}
        return replace_columns(requests, columns)

    def _clean_column(self, name: str, column: pa.Array, protocols: pa.DictionaryArray) -> pa.Array:
        """Apply to each distinct (protocol, value) the protocol's rule."""
        values = column.dictionary_encode()
        texts = values.dictionary.to_pylist()
        if not texts:
            return column
        names = [*protocols.dictionary.to_pylist(), None]
        rules = [self._rules.get(name, {}).get(protocol, "text") for protocol in names]
        code = values.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        protocol = protocols.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs, inverse = np.unique(np.where(code < 0, -1, protocol * len(texts) + code), return_inverse=True)
        cleaned = [
            None if pair < 0 else self._clean(rules[pair // len(texts)], texts[pair % len(texts)])
            for pair in pairs.tolist()
        ]
        return pa.array(cleaned, pa.string()).take(pa.array(inverse))

    def _clean(self, rule: str, text: str) -> str:
        return self._memos[rule](text, len(text))

    def _clean_paths(self, column: pa.Array) -> pa.Array:
        values = column.dictionary_encode()
        cleaned = [self._paths(path, len(path)) for path in values.dictionary.to_pylist()]
        return pa.array(cleaned, pa.string()).take(values.indices)

    def _clean_argv(self, argv: pa.ListArray) -> pa.Array:
        lists = (None if row is None else tuple(row) for row in argv.to_pylist())
        cleaned = [None if row is None else self._arguments(row, sum(map(len, row))) for row in lists]
        return pa.array(cleaned, argv.type)
