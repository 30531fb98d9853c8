"""The values that each type of a topic file accepts, in plain Python.

The types are described in docs/topic-files.md, "Types". Shares no code with the product. A value
comes from JSON, Avro or a message key, in the form that `read_json` returns: numbers keep their
text, because only the text distinguishes 1 from 1.0.
"""

import base64
import binascii
import datetime as dt
import json
import uuid
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
DIGITS = frozenset("0123456789")
LONGEST = 1000
FLOAT_MAX = 3.4028234663852886e38
FLOAT_LIMIT = Decimal(FLOAT_MAX) + Decimal(2) ** 103  # rounded to infinity from here on
SIZES = {"BOOLEAN": 1, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
SIZES |= {"DATE": 8, "TIMESTAMP": 8, "LOCAL_DATE": 8}


class RefusedError(Exception):
    """The type does not accept the value, or a payload is not a JSON object."""


class Number(str):
    """A JSON number as written."""


class Constant(str):
    """NaN or Infinity: not valid JSON, but written by many producers."""


def read_json(text: str) -> Any:
    """Parse a JSON text.

    Raises:
        RefusedError: the text is not valid JSON, or a number in it has more than `LONGEST`
            characters.
    """
    try:
        value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=Constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(text) from error
    return value


def _number(text: str) -> Number:
    if len(text) > LONGEST:
        raise ValueError(text)
    return Number(text)


def value_of(kind: str, value: Any) -> Any:
    """Return the value of a column, None for null.

    Raises:
        RefusedError: the type does not accept the value.
    """
    if value is None:
        return None
    name, _, sizes = kind.partition("(")
    reader = READERS[name]
    if sizes:
        precision, scale = sizes.rstrip(")").split(",")
        return reader(value, int(precision), int(scale))
    return reader(value)


def value_of_avro(kind: str, value: Any) -> Any:
    """Return the value of a column for a field of an Avro record or a bare Avro value.

    Raises:
        RefusedError: the type does not accept the value.
    """
    return value_of(kind, _as_json(kind, value))


def value_of_primitive(kind: str, schema: str, payload: bytes) -> Any:
    """Return the value of a column for a bare value of one of Pulsar's primitive schemas.

    Args:
        kind: the type of the column.
        schema: Pulsar's name of the primitive, such as `INT32`.
        payload: the bytes that a Pulsar client sent. If empty, the message is a tombstone.

    Raises:
        RefusedError: the bytes are not a value of the schema, or the type does not accept it.
    """
    if not payload:
        return None
    if schema in ("STRING", "BYTES"):
        try:
            return value_of_avro(kind, payload if schema == "BYTES" else payload.decode())
        except UnicodeDecodeError as error:
            raise RefusedError(payload) from error
    if schema not in SIZES or len(payload) != SIZES[schema]:
        raise RefusedError(payload)
    number = int.from_bytes(payload, "big", signed=True)
    try:
        value = {
            "BOOLEAN": lambda: number != 0,
            "FLOAT": lambda: float(np.frombuffer(payload, ">f4")[0]),
            "DOUBLE": lambda: float(np.frombuffer(payload, ">f8")[0]),
            "DATE": lambda: EPOCH + dt.timedelta(milliseconds=number),
            "TIMESTAMP": lambda: EPOCH + dt.timedelta(milliseconds=number),
            "LOCAL_DATE": lambda: dt.date.fromordinal(EPOCH.toordinal() + number),
        }.get(schema, lambda: number)()
    except (ValueError, OverflowError) as error:
        raise RefusedError(payload) from error
    return value_of_avro(kind, value)


def _as_json(kind: str, value: Any) -> Any:
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=value.tzinfo or UTC)
        if kind == "timestamp_ms":
            return Number((value - EPOCH) // dt.timedelta(milliseconds=1))
        value = value.date() if kind == "date" else value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, float) and value - value != 0:
        return Constant(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return Number(f"{value:f}")
    if isinstance(value, uuid.UUID):
        return str(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Number(repr(value)) if is_number else value


def value_of_key(kind: str, text: str) -> Any:
    """Return the value of a part of a message key, which is text for every type.

    Returns:
        The value, or None if the type does not accept the text.
    """
    if kind == "boolean":
        return {"true": True, "false": False}.get(text)
    is_number = kind in ("int", "long", "float", "double", "timestamp_ms")
    try:
        value = value_of(kind, _written_number(text) if is_number else text)
    except RefusedError:
        return None
    return value


def _written_number(text: str) -> Number:
    try:
        number = read_json(text)
    except RefusedError:
        number = None
    if not isinstance(number, Number) or number != text:
        raise RefusedError(text)
    exponent = text.lower().partition("e")[2]
    if len(exponent.lstrip("+-")) > 4:
        raise RefusedError(text)
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RefusedError(value)
    return value


def _integer(bits: int, value: Any) -> int:
    if not isinstance(value, Number) or not {*value} <= {*DIGITS, "-"}:
        raise RefusedError(value)
    found = int(value)
    if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
        raise RefusedError(value)
    return found


def _double(value: Any) -> float:
    if not isinstance(value, Number) or abs(float(value)) == float("inf"):
        raise RefusedError(value)
    return float(value)


def _float(value: Any) -> float:
    """Round to the nearest of the floats of 32 bits, exactly: to an even one at half way."""
    if not isinstance(value, Number) or abs(float(value)) == float("inf"):
        raise RefusedError(value)
    near = np.float32(min(max(float(value), -FLOAT_MAX), FLOAT_MAX))
    with np.errstate(all="ignore"):
        infinity = np.float32("inf")
        around = [near, np.nextafter(near, -infinity), np.nextafter(near, infinity)]
    with localcontext() as context:
        context.prec = 3 * LONGEST
        exact = Decimal(value)
        off = {each: abs(Decimal(float(each)) - exact) for each in around if np.isfinite(each)}
        if abs(exact) >= FLOAT_LIMIT:
            raise RefusedError(value)
    least = min(off.values())
    best = [each for each, distance in off.items() if distance == least]
    return float(min(best, key=lambda each: int(each.view(np.uint32)) & 1))


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if not isinstance(value, str) or isinstance(value, Constant):
        raise RefusedError(value)
    number = Decimal(_written_number(value))
    if number and number.adjusted() > 40:
        raise RefusedError(value)
    with localcontext() as context:
        context.prec = LONGEST + 100
        rounded = number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
        if abs(rounded) >= Decimal(10) ** (precision - scale):
            raise RefusedError(value)
    return rounded if rounded else abs(rounded)  # turns -0 into 0


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Number | Constant):
        raise RefusedError(value)
    return value


def _string(value: Any) -> str:
    joined = _text(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined.replace("\ufffd", "?") if "\ufffd" not in value else joined


def _binary(value: Any) -> bytes:
    text = _text(value)
    for blank in " \t\r\n":
        text = text.replace(blank, "")
    if len(text) % 4 or not text.isascii() or text.count("=") > 2:
        raise RefusedError(value)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise RefusedError(value) from error


def _date(value: Any) -> dt.date:
    text = _text(value)
    parts = text.split("-")
    if [len(part) for part in parts] != [4, 2, 2] or not {*"".join(parts)} <= DIGITS:
        raise RefusedError(value)
    try:
        return dt.date(*map(int, parts))
    except ValueError as error:
        raise RefusedError(value) from error


def _timestamp(value: Any) -> dt.datetime:
    text = _text(value)
    day, rest = text[:10], text[10:]
    date = _date(day)
    if not rest:
        return dt.datetime(date.year, date.month, date.day, tzinfo=UTC)
    if rest[0] not in "T ":
        raise RefusedError(value)
    rest, offset = _split_offset(rest[1:], value)
    clock, point, fraction = rest.partition(".")
    parts = clock.split(":")
    fits = [len(part) for part in parts] in ([2, 2], [2, 2, 2]) and {*"".join(parts)} <= DIGITS
    if point:
        fits = fits and len(parts) == 3 and 1 <= len(fraction) <= 9 and {*fraction} <= DIGITS
    if not fits:
        raise RefusedError(value)
    micros = int(fraction.ljust(6, "0")[:6]) if point else 0
    try:
        time = dt.time(*map(int, parts), microsecond=micros, tzinfo=UTC)
        return dt.datetime.combine(date, time) - offset
    except (ValueError, OverflowError) as error:
        raise RefusedError(value) from error


def _split_offset(text: str, value: Any) -> tuple[str, dt.timedelta]:
    if text.endswith("Z"):
        return text[:-1], dt.timedelta()
    begin = max(text.find("+"), text.find("-"))
    if begin < 0:
        return text, dt.timedelta()
    sign, digits = text[begin], text[begin + 1 :]
    if len(digits) == 5 and digits[2] == ":":
        digits = digits[:2] + digits[3:]
    if len(digits) not in (2, 4) or not {*digits} <= DIGITS:
        raise RefusedError(value)
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    offset = dt.timedelta(hours=hours, minutes=minutes)
    if minutes > 59 or offset > dt.timedelta(hours=18):
        raise RefusedError(value)
    return text[:begin], -offset if sign == "-" else offset


def _timestamp_ms(value: Any) -> dt.datetime:
    try:
        return EPOCH + dt.timedelta(milliseconds=_integer(64, value))
    except OverflowError as error:
        raise RefusedError(value) from error


READERS: dict[str, Any] = {
    "boolean": _boolean,
    "int": lambda value: _integer(32, value),
    "long": lambda value: _integer(64, value),
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ms": _timestamp_ms,
}
