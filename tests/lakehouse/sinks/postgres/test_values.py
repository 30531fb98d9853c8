"""Tests the texts of COPY and JSON without a database; test_export.py sends them to one."""

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.sinks.postgres.values import (
    as_copy,
    as_json,
    has_nul,
    has_null,
    key_texts,
    type_name,
)

UNESCAPED = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}


def unescaped(field: str) -> str | None:
    """Read a field of COPY's text format, as PostgreSQL documents it."""
    if field == "\\N":
        return None
    found, characters = "", iter(field)
    for each in characters:
        found += UNESCAPED[next(characters)] if each == "\\" else each
    return found


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.integers(-9, 9)), max_size=5))
def test_any_text_can_be_read_back(given_rows: list[tuple[str | None, int | None]]) -> None:
    texts, numbers = [t for t, _ in given_rows], [n for _, n in given_rows]
    rows = pa.table({"t": pa.array(texts, pa.string()), "n": pa.array(numbers, pa.int64())})
    lines = as_copy(rows).decode().split("\n")
    assert lines.pop() == ""
    found = [tuple(map(unescaped, line.split("\t"))) for line in lines]
    assert found == [(t, None if n is None else str(n)) for t, n in given_rows]


def test_rows_become_json_with_exact_numbers() -> None:
    place = pa.struct({"at": pa.timestamp("us", "UTC"), "x": pa.float64()})
    at = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    row = {
        "n": 2**63 - 1,
        "amount": Decimal("12345678901234567890.10"),
        "place": {"at": at, "x": math.nan},
        "marks": [("b", 1), ("a", None)],
        "raw": b"\x00\xff",
        "text": 'ü"\0',
    }
    kinds = {
        "n": pa.int64(),
        "amount": pa.decimal128(38, 2),
        "place": place,
        "marks": pa.map_(pa.string(), pa.int64()),
        "raw": pa.binary(),
        "text": pa.string(),
    }
    [text] = as_json(pa.Table.from_pylist([row], pa.schema(kinds)))
    assert "\0" not in text
    assert json.loads(text, parse_float=Decimal) == {
        "n": 2**63 - 1,
        "amount": Decimal("12345678901234567890.10"),
        "place": {"at": "2026-01-02T00:00:00+00:00", "x": "NaN"},
        "marks": {"a": None, "b": 1},
        "raw": "AP8=",
        "text": 'ü"\0',
    }


def test_a_key_is_one_text() -> None:
    keys = pa.table({"a": ["x,y", "x\0", None], "b": [1, 2, 3]})
    assert key_texts(keys) == ['["x,y",1]', '["x\\u0000",2]', "[null,3]"]


def test_rows_with_nul_or_null_are_found() -> None:
    rows = pa.table({"a": ["x", "y\0", None], "b": [None, 1, 2], "c": ["\0", None, ""]})
    assert has_nul(rows).to_pylist() == [True, True, False]  # type: ignore[union-attr]
    assert has_nul(rows.select(["b"])) is None
    assert has_null(rows, ["a"]).to_pylist() == [False, False, True]  # type: ignore[union-attr]
    assert has_null(rows.slice(1, 1), ["a", "b"]) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.list_(pa.decimal128(5, 2)), "numeric(5,2)[]"),
        (pa.list_(pa.struct({"a": pa.int32()})), "jsonb"),
        (pa.large_string(), "text"),
        (pa.timestamp("us"), "timestamp without time zone"),
    ],
)
def test_each_type_has_a_name(kind: pa.DataType, name: str) -> None:
    assert type_name(kind) == name
