"""Tests how durations of a topic file are read."""

import datetime as dt
from typing import Any

import pytest

from lake.topics.durations import MOST, micros, parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0 seconds", dt.timedelta(0)),
        ("1 hour", dt.timedelta(hours=1)),
        ("30 minutes", dt.timedelta(minutes=30)),
        ("500 milliseconds", dt.timedelta(milliseconds=500)),
        ("36500 days", MOST),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, duration: dt.timedelta) -> None:
    assert parse_duration(text) == duration
    assert micros(duration) == duration.total_seconds() * 1_000_000


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("-1 hour", "'-1 hour' is negative"),
        ("1h", "'1h' is no duration; write a whole number"),
        ("1.5 hours", "no duration"),
        ("1 month", "such as '30 minutes'"),
        ("", "no duration"),
        (60, "no duration"),
        ("36501 days", "longer than 36500 days"),
        ("999999999 days", "longer than"),
    ],
)
def test_anything_else_is_refused(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_duration(value)
