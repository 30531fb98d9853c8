"""Reads durations of a topic file, such as `30 minutes`."""

import datetime as dt
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {
    "millisecond": dt.timedelta(milliseconds=1),
    "second": dt.timedelta(seconds=1),
    "minute": dt.timedelta(minutes=1),
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
}
_DURATION = re.compile(rf"(\d{{1,9}}) ({'|'.join(_UNITS)})s?")
MOST = dt.timedelta(days=36_500)


def parse_duration(value: Any) -> dt.timedelta:
    """The duration that a text such as `1 hour` or `500 milliseconds` stands for.

    Raises:
        ValueError: the value is something else, negative, or longer than 36,500 days.
    """
    if isinstance(value, dt.timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        what = "negative" if str(value).lstrip().startswith("-") else "no duration"
        message = (
            f"'{value}' is {what}; write a whole number from 0 on, a blank and "
            f"{', '.join(f'{unit}s' for unit in _UNITS)}, such as '30 minutes'"
        )
        raise ValueError(message)
    found = int(match[1]) * _UNITS[match[2]] if int(match[1]) <= MOST / _UNITS[match[2]] else None
    if found is None:
        message = f"'{value}' is longer than {MOST.days} days"
        raise ValueError(message)
    return found


def parse_age(value: Any) -> dt.timedelta:
    """As `parse_duration`, of at least a day, because rows are deleted once a day.

    Raises:
        ValueError: the value is not such a duration.
    """
    found = parse_duration(value)
    if found < dt.timedelta(days=1):
        message = f"'{value}' is less than a day; write at least '1 day'"
        raise ValueError(message)
    return found


def micros(duration: dt.timedelta) -> int:
    """A duration in microseconds, the unit of Spark's instants."""
    return duration // dt.timedelta(microseconds=1)


Duration = Annotated[dt.timedelta, BeforeValidator(parse_duration)]
Age = Annotated[dt.timedelta, BeforeValidator(parse_age)]
