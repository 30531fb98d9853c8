"""Decides which JSON values a declared type accepts, as the table in docs/topic-files.md says.

Silver decides the same in Spark (`silver/records/field_types.py`). `lakehouse produce` needs the
answer before a message is sent, and without Spark.
"""

import datetime as dt
import json
import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from lake.topics.field_type import DECIMAL, FieldType

LONGEST = 1000  # characters of a number
WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"([T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2})(\.(?P<part>[0-9]{1,9}))?)?"
    r"(Z|(?P<sign>[+-])(?P<hours>[0-9]{2})(:?(?P<minutes>[0-9]{2}))?)?)?"
)
FARTHEST = dt.timedelta(hours=18)  # from UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
FLOAT_LIMIT = Decimal(2**128 - 2**103)  # rounded to infinity from here on
LARGEST = Context(prec=2 * LONGEST)


class Number(str):
    """A JSON number as written, because 1 and 1.0 are different to some types."""

    __slots__ = ()


def read_object(text: str) -> dict[str, Any]:
    """Read a JSON object, with numbers as `Number`.

    Raises:
        ValueError: the text is something else, or an object in it has a field twice. The message
            says what, as the end of a sentence.
    """
    found = read_value(text)
    if not isinstance(found, dict):
        message = "is not a JSON object"
        raise ValueError(message)
    return found


def read_value(text: str) -> Any:
    """Read any JSON value, with numbers as `Number`. Raises the same as `read_object`."""
    try:
        return json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse,
            object_pairs_hook=_once,
        )
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at character {error.pos + 1}"
        raise ValueError(message) from error
    except RecursionError as error:
        message = "is nested too deeply"
        raise ValueError(message) from error


def misfit(kind: FieldType, value: Any, place: str) -> tuple[str, Any] | None:
    """The first part of a value that its type does not accept, with its place.

    Args:
        kind: the declared type.
        value: a value that `read_value` returned.
        place: the place of the value, such as the name of its field.
    """
    if value is None:
        return None
    if kind.is_scalar:
        return None if accepts(kind.name, value) else (place, value)
    if not isinstance(value, list if kind.name == "array" else dict):
        return place, value
    if kind.name == "struct":
        parts = [(part, value.get(name), f"{place}.{name}") for name, part in kind.parts]
    elif kind.name == "map":
        parts = [(kind.element, each, f"{place}.{name}") for name, each in value.items()]
    else:
        parts = [(kind.element, each, f"{place}[{n}]") for n, each in enumerate(value)]
    found = (misfit(*part) for part in parts)
    return next((each for each in found if each), None)


def accepts(kind: str, value: Any) -> bool:
    """Whether a type accepts a value that `read_object` returned. Every type accepts null."""
    if value is None:
        return True
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, Number):
        return len(value) <= LONGEST and _is_number(kind, value)
    if not isinstance(value, str):
        return False
    if DECIMAL.fullmatch(kind):
        return len(value) <= LONGEST and _is_number(kind, value)
    if kind == "binary":
        return BASE64.fullmatch(re.sub(r"[ \t\r\n]", "", value)) is not None
    return kind == "string" or (kind in ("date", "timestamp") and _is_read(kind, value))


def accepts_key(kind: str, text: str) -> bool:
    """Whether a type accepts a part of a message key, which is text for every type."""
    if kind == "boolean":
        return text in ("true", "false")
    if kind in ("int", "long", "float", "double", "timestamp_ms"):
        return NUMBER.fullmatch(text) is not None and accepts(kind, Number(text))
    return accepts(kind, text)


def milliseconds(kind: str, value: str) -> int:
    """The instant of an accepted value, in epoch milliseconds.

    Raises:
        ValueError: the type holds no instants.
    """
    if isinstance(value, Number) and kind in ("long", "timestamp_ms"):
        return int(value)
    if kind in ("date", "timestamp", "string"):
        return (timestamp(value) - EPOCH) // dt.timedelta(milliseconds=1)
    message = f"a value of type {kind} is no time"
    raise ValueError(message)


def timestamp(text: str) -> dt.datetime:
    """The instant of an ISO 8601 text. Without an offset, it is in UTC.

    Raises:
        ValueError: the text has another form, or is not in the years 1 to 9999.
    """
    found = TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    micros = int((found["part"] or "").ljust(6, "0")[:6])
    day = dt.date.fromisoformat(found["date"])
    hours, minutes = int(found["hours"] or 0), int(found["minutes"] or 0)
    offset = dt.timedelta(hours=hours, minutes=minutes)
    if minutes > 59 or offset > FARTHEST:
        raise ValueError(text)
    time = dt.time(hour, minute, second, micros, tzinfo=dt.timezone.utc)
    try:
        return dt.datetime.combine(day, time) - (-offset if found["sign"] == "-" else offset)
    except OverflowError as error:
        raise ValueError(text) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"has the field '{twice}' twice"
        raise ValueError(message)
    return found


def _refuse(constant: str) -> None:
    message = f"has the value {constant}, which is not JSON"
    raise ValueError(message)


def _is_number(kind: str, text: str) -> bool:
    if decimal := DECIMAL.fullmatch(kind):
        is_number = NUMBER.fullmatch(text) is not None
        return is_number and _fits(Decimal(text), int(decimal[1]), int(decimal[2]))
    if kind == "float":
        found = float(text)  # exact only as a Decimal, which has no exponent of 20 digits
        return not found or (math.isfinite(found) and Decimal(text).copy_abs() < FLOAT_LIMIT)
    if kind == "double":
        return math.isfinite(float(text))
    if not WHOLE.fullmatch(text) or len(text) > 20:  # 64 bits have 19 digits
        return False
    bounds = {"int": 2**31, "long": 2**63, "timestamp_ms": 2**63}
    if kind not in bounds or not -bounds[kind] <= int(text) < bounds[kind]:
        return False
    return kind != "timestamp_ms" or FIRST_MS <= int(text) <= LAST_MS


def _fits(number: Decimal, digits: int, scale: int) -> bool:
    if not number or number.adjusted() < -scale - 1:
        return True  # zero, or rounded to it
    if number.adjusted() > digits:
        return False
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, LARGEST)
    return abs(rounded) < Decimal(10) ** (digits - scale)


def _is_read(kind: str, text: str) -> bool:
    try:
        timestamp(text)
    except ValueError:
        return False
    return kind == "timestamp" or DATE.fullmatch(text) is not None
