"""Turns columns of Arrow into the texts that PostgreSQL reads by COPY.

Each type of Delta has one type in PostgreSQL. Numbers, texts and times are converted by Arrow, and
only arrays, structs and maps by Python.
"""

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# The backslash comes first, because the others are escaped by it.
ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
TAB = pa.scalar("\t", pa.large_string())
SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
}


def type_name(kind: pa.DataType) -> str:
    """The type of PostgreSQL for a column. Structs, maps and arrays of arrays become `jsonb`."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    if _is_text(kind):
        return "text"
    if _is_bytes(kind):
        return "bytea"
    if _is_array(kind) and not _is_nested(kind.value_type):
        return f"{type_name(kind.value_type)}[]"
    return "jsonb"


def as_copy(rows: pa.Table) -> bytes:
    """Rows in the text format of `COPY ... FROM STDIN`. NULL is `\\N`.

    In its CSV format, servers before version 18 take a line with `\\.` for the end, even in quotes.
    """
    columns = [pc.fill_null(_text_column(rows[name]), "\\N") for name in rows.column_names]
    lines = pc.binary_join_element_wise(*columns, TAB).to_pylist()
    return "".join(f"{line}\n" for line in lines).encode()


def as_json(rows: pa.Table) -> list[str]:
    """Each row as a JSON object, for rows that the table does not accept."""
    kinds = {field.name: field.type for field in rows.schema}
    return [
        _object((name, _json(value, kinds[name])) for name, value in row.items())
        for row in rows.to_pylist()
    ]


def key_texts(keys: pa.Table) -> list[str]:
    """Each key as a JSON array, which contains no NUL. Equal keys have equal texts."""
    kinds = [field.type for field in keys.schema]
    return [
        _array(_json(value, kind) for value, kind in zip(row.values(), kinds, strict=True))
        for row in keys.to_pylist()
    ]


def has_nul(rows: pa.Table) -> pa.ChunkedArray | None:
    """For each row, whether a text in it contains the character NUL; None if none does.

    PostgreSQL cannot store it. Texts within arrays and structs are not looked at.
    """
    found = None
    for field in rows.schema:
        if _is_text(field.type):
            has = pc.fill_null(pc.match_substring(rows[field.name], "\0"), False)
            found = has if found is None else pc.or_(found, has)
    return found if found is not None and pc.any(found).as_py() else None


def has_null(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray | None:
    """For each row, whether one of some columns is NULL; None if none is."""
    found = None
    for name in names:
        is_null = pc.is_null(rows[name])
        found = is_null if found is None else pc.or_(found, is_null)
    return found if found is not None and pc.any(found).as_py() else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_array(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _text_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column as texts of COPY."""
    kind = column.type
    if _is_bytes(kind):
        return _each(column, lambda value: f"\\\\x{value.hex()}")
    if _is_array(kind) and not _is_nested(kind.value_type):
        return _escaped(_each(column, lambda values: _array_text(values, kind.value_type)))
    if _is_nested(kind):
        return _escaped(_each(column, lambda value: _json(value, kind)))
    texts = column.cast(pa.large_string())  # all rows together may be larger than 2 GB
    return _escaped(texts) if _is_text(kind) else texts


def _escaped(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    for character, escape in ESCAPES.items():
        texts = pc.replace_substring(texts, character, escape)
    return texts


def _each(column: pa.ChunkedArray, text: Callable[[Any], str]) -> pa.Array:
    values = (None if value is None else text(value) for value in column.to_pylist())
    return pa.array(values, pa.large_string())


def _array_text(values: Sequence[Any], kind: pa.DataType) -> str:
    return f"{{{','.join(_element(value, kind) for value in values)}}}"


def _element(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"\\x{value.hex()}"
    elif isinstance(value, dt.datetime):
        text = value.isoformat(sep=" ")
    else:
        text = str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _json(value: Any, kind: pa.DataType) -> str:
    """A value as JSON: numbers exact, bytes in base64, times in ISO 8601, NaN as text."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        return _object((each.name, _json(value[each.name], each.type)) for each in kind)
    if pa.types.is_map(kind):
        pairs = sorted((_map_key(k, kind.key_type), _json(v, kind.item_type)) for k, v in value)
        return _object(pairs)
    if _is_array(kind):
        return _array(_json(each, kind.value_type) for each in value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" * (value < 0)}Infinity"'
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, dt.date):
        return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else json.dumps(value)


def _map_key(value: Any, kind: pa.DataType) -> str:
    return value if isinstance(value, str) else _json(value, kind).strip('"')


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in pairs)
    return f"{{{inside}}}"


def _array(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"
