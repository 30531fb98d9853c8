"""Tests which JSON values each type accepts, against the model of the documented types."""

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_values import TEXTS, TOKENS
from types_model import RefusedError, read_json, value_of, value_of_key

from lake.topics.field_type import field_type
from lakehouse.messages.json_types import (
    Number,
    accepts,
    accepts_key,
    milliseconds,
    misfit,
    read_object,
    read_value,
    timestamp,
)

TYPES = (
    *(
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "decimal(12,2)",
        "decimal(38,0)",
        "decimal(38,18)",
    ),
    *("decimal(1,1)", "string", "binary", "date", "timestamp", "timestamp_ms"),
)


def expected(kind: str, token: str) -> bool:
    try:
        value_of(kind, read_json(token))
    except RefusedError:
        return False
    return True


def found(kind: str, token: str) -> bool:
    try:
        value = read_object(f'{{"v": {token}}}')["v"]
    except ValueError:
        return False
    return accepts(kind, value)


TWICE = '{"b": 1, "b": 2}'  # refused for another reason, see below


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_accepts_the_values_that_the_documentation_says(kind: str) -> None:
    wrong = [
        token for token in TOKENS if token != TWICE and found(kind, token) != expected(kind, token)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", TYPES)
def test_a_part_of_a_message_key_is_text(kind: str) -> None:
    texts = [*TEXTS, "1e400", "0.5"]
    wrong = [t for t in texts if accepts_key(kind, t) != (value_of_key(kind, t) is not None)]
    assert wrong == []


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from([kind for kind in TYPES if "decimal" in kind]),
    st.decimals(allow_nan=False, allow_infinity=False),
)
def test_a_decimal_is_rounded_before_its_digits_are_counted(kind: str, number: Any) -> None:
    for token in (str(number), json.dumps(str(number))):
        assert found(kind, token) == expected(kind, token)


@settings(deadline=None)
@given(st.datetimes(timezones=st.timezones()))
def test_a_timestamp_is_read_to_the_microsecond(moment: dt.datetime) -> None:
    text = moment.isoformat()
    if not expected("timestamp", json.dumps(text)):  # an offset with seconds, or not in year 1
        return
    assert timestamp(text) == value_of("timestamp", text)
    past = timestamp(text) - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    assert milliseconds("timestamp", text) == past // dt.timedelta(milliseconds=1)


def test_the_instant_of_a_number_is_in_milliseconds() -> None:
    assert milliseconds("timestamp_ms", Number("1500")) == 1500
    assert milliseconds("date", "1970-01-02") == 86_400_000
    with pytest.raises(ValueError, match="boolean is no time"):
        milliseconds("boolean", "true")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "is not a JSON object"),
        ('{"a": 1', "is not JSON: Expecting ',' delimiter at character 8"),
        ("{} {}", "is not JSON: Extra data at character 4"),
        ('{"a": NaN}', "has the value NaN, which is not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "has the field 'c' twice"),
        ('{"a":' + "[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_text_that_is_no_object_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="is|has") as error:
        read_object(text)
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        ("array<long>", "[1, null, 2]", None),
        ("array<long>", "null", None),
        ("array<long>", '[1, "x"]', "v[1]"),
        ("array<long>", '"[1]"', "v"),
        ("array<long>", "{}", "v"),
        (
            "struct<a: array<struct<b: date>>>",
            '{"a": [{}, {"b": "2026-02-30"}], "c": 1}',
            "v.a[1].b",
        ),
        ("struct<a: long>", '{"c": "other"}', None),
        ("struct<a: long>", "[]", "v"),
        ("map<string, map<string, int>>", '{"x": {"y": 1}, "z": {"w": 1.0}}', "v.z.w"),
        ("map<string, float>", '{"x": 3.5e38}', "v.x"),
        ("array<float>", f"[1e-{'9' * 20}, 0e{'9' * 20}, 1e{'9' * 20}]", "v[2]"),
    ],
)
def test_the_first_part_that_does_not_fit_has_a_place(
    kind: str, text: str, place: str | None
) -> None:
    found = misfit(field_type(kind), read_value(text), "v")
    assert (found and found[0]) == place
