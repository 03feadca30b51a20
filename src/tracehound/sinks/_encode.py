"""Record batches as JSON lines, column by column in Arrow: no Python per row but for lists.

Nulls are left out, bytes are hex, times of day ISO 8601 in UTC. JSON strings follow RFC 8259; only distinct texts pass
through Python. The text of a batch is one Arrow string array, so its buffer is written as it is.
"""

import json
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_HEX: Final = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2")


def json_lines(table: str, batch: "pa.RecordBatch") -> bytes:
    """Return one line of JSON per row, its first key `table`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if batch.num_rows == 0:
        return b""
    pieces: list[Any] = [pa.scalar(f'{{"table":{json.dumps(table)}')]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count == len(column):
            continue
        key, value = pa.scalar(f",{json.dumps(name)}:"), _encode(column)
        pieces += [key, value] if value.null_count == 0 else [pc.binary_join_element_wise(key, value, "")]
    pieces.append(pa.repeat(pa.scalar("}\n"), batch.num_rows))
    options: dict[str, Any] = {"null_handling": "replace", "null_replacement": ""}
    return _text(pc.binary_join_element_wise(*pieces, "", **options))


def _text(lines: "pa.StringArray") -> bytes:
    """Return the bytes of all strings of an array, one after the other."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(data)[ends[0] : ends[-1]].tobytes()


def _encode(column: "pa.Array") -> "pa.StringArray":
    """Return each value as JSON text, nulls as null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_string(kind):
        distinct = column.dictionary_encode()
        texts = pa.array([encode_basestring(text) for text in distinct.dictionary.to_pylist()], kind)
        return texts.take(distinct.indices)
    if pa.types.is_timestamp(kind):
        iso = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
        return _quoted(iso)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
        return _quoted(hexadecimal(column))
    texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _quoted(texts: "pa.StringArray") -> "pa.StringArray":
    import pyarrow.compute as pc

    return pc.binary_join_element_wise('"', texts, '"', "")


def hexadecimal(column: "pa.Array") -> "pa.StringArray":
    """Return each binary value as lower-case hex text, nulls as null."""
    import pyarrow as pa

    column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[: column.offset + len(column) + 1]
    digits = _HEX[np.frombuffer(data or b"", np.uint8)[: ends[-1]]].tobytes()
    doubled = pa.py_buffer((ends * 2).astype(np.int32))
    return pa.StringArray.from_buffers(len(column), doubled, pa.py_buffer(digits), validity, -1, column.offset)
