"""Tests how values are written for people."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from lakehouse.report.blocks import Form
from lakehouse.report.forms import age, instant, written

NOON = dt.datetime(2026, 3, 4, 12, 0, 5, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (None, "number", "-"),
        (1234567, "number", "1,234,567"),
        (Decimal("1234.5"), "money", "1,234.50"),
        (0.25, "decimal", "0.2"),
        (0.1234, "percent", "12.3%"),
        (True, "flag", "yes"),
        (False, "flag", "no"),
        ("<b>", "text", "<b>"),
        (NOON, "time", "4 March 2026, 12:00:05 UTC"),
    ],
)
def test_a_value_has_the_form_of_its_column(value: Any, form: Form, text: str) -> None:
    assert written(value, form) == text


def test_a_time_is_shown_in_utc() -> None:
    there = dt.timezone(dt.timedelta(hours=2))
    assert instant(NOON.astimezone(there)) == "4 March 2026, 12:00:05 UTC"


@pytest.mark.parametrize(
    ("seconds", "text"), [(30, "30 seconds"), (7200, "2 hours"), (-5, "0 seconds")]
)
def test_an_age_is_rough_and_never_negative(seconds: int, text: str) -> None:
    assert age(NOON - dt.timedelta(seconds=seconds), NOON) == text
