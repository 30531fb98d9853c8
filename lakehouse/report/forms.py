"""Formats values for people."""

import datetime as dt
from typing import Any

from babel.dates import format_datetime, format_timedelta
from babel.numbers import format_decimal, format_percent

from lakehouse.report.blocks import Form

LOCALE = "en"
NONE = "-"
DIGITS = {"number": "#,##0", "money": "#,##0.00", "decimal": "#,##0.0"}


def written(value: Any, form: Form) -> str:
    """A value as text, in the form of its column."""
    if value is None:
        return NONE
    if form == "time":
        return instant(value)
    if form == "flag":
        return "yes" if value else "no"
    if form == "percent":
        return format_percent(value, "0.0%", locale=LOCALE)
    if form in DIGITS:
        return format_decimal(value, DIGITS[form], locale=LOCALE)
    return str(value)


def instant(moment: dt.datetime) -> str:
    """A time in UTC, to the second."""
    return (
        format_datetime(moment, "d MMMM y, HH:mm:ss", tzinfo=dt.timezone.utc, locale=LOCALE)
        + " UTC"
    )


def age(moment: dt.datetime, now: dt.datetime) -> str:
    """The time between a moment and now, roughly. Zero if the moment is in the future."""
    return format_timedelta(max(now - moment, dt.timedelta()), locale=LOCALE)
