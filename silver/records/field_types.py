"""Spark columns that check and convert values by the types of a topic file.

docs/topic-files.md, section "Types", says what each type accepts.

`from_json` checks booleans, integers and numbers. It is too lenient for the other types: it accepts
an object as a string, "13,75" as 1375, and "12:30" as a time today. Dates, times and bytes are
therefore read as strings, and checked here. Strings and decimals cannot be checked after they are
read, so regular expressions find the few payloads whose text needs a closer look. The expressions
begin with the name of a field, because Java then searches several times faster.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from lake.topics.topic import FieldSpec, Topic, sql_type

# Java regular expressions. Their quantifiers are possessive, so that a long payload does not need a
# deep stack.
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]{1,4})?"
_LONGEST = 1000  # characters of a number; Spark's JSON parser has the same limit
_INTEGER = r"\A-?(?:0|[1-9][0-9]{0,18})\z"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_BASE64 = r"\A[A-Za-z0-9+/]*+={0,2}\z"
_BLANKS = r"[ \t\r\n]+"

FIRST_DATE, LAST_DATE = "0001-01-01", "9999-12-31"
FIRST_MILLISECOND = -62_135_596_800_000  # 0001-01-01T00:00:00Z
LAST_MILLISECOND = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_LARGEST = 1.7976931348623157e308

# A decimal with more digits in its exponent could keep Java busy for hours.
_BAD_TEXT = rf'"(?!(?=[^"]{{1,{_LONGEST}}}+"){_NUMBER}")'
_BAD_EXPONENT = r"[-0-9.]++[eE][+-]?+[0-9]{5}"
_REST_OF_STRING = r'[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Letters, digits and `_` written as escapes. In a name, they would hide a field from these
# expressions.
_PLAIN = r"u00(?:3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
_ESCAPED_NAME = rf'(?s)"[^"\\]*+(?:\\(?!{_PLAIN}).[^"\\]*+)*+\\{_PLAIN}{_REST_OF_STRING}\s*+:'
ESCAPED = "a field name in the payload contains escaped letters or digits"


def read_type(spec: FieldSpec) -> str:
    """The type with which `from_json` reads a field."""
    if spec.type in ("date", "timestamp", "binary"):
        return "string"
    return "bigint" if spec.type == "timestamp_ms" else sql_type(spec)


def is_text(spec: FieldSpec) -> bool:
    """Whether only JSON strings are valid values. A text as read does not show what it was."""
    return spec.type in ("string", "binary")


def is_converted(spec: FieldSpec) -> bool:
    """Whether a value must be checked or converted after `from_json` has read it."""
    return spec.type in ("double", "date", "timestamp", "timestamp_ms", "binary")


def value_of(read: Column, spec: FieldSpec) -> Column:
    """The value of a field, from a value read as `read_type`; NULL if the type does not accept it.

    Times without an offset are in UTC, which is the session's time zone.
    """
    match spec.type:
        case "double":
            return F.when(read.between(-_LARGEST, _LARGEST), read)
        case "date":
            date = F.when(read.rlike(rf"\A{_DATE}\z"), read).try_cast("date")
            return F.when(date >= F.lit(FIRST_DATE).cast("date"), date)
        case "timestamp":
            text = F.when(read.rlike(rf"\A{_DATE}(?:[T ]{_TIME})?\z"), read)
            short = F.substring(text, 17, 1).isin("Z", "+", "-")  # Spark needs the seconds then
            whole = F.concat(F.substring(text, 1, 16), F.lit(":00"), F.substring(text, 17, 6))
            instant = F.when(short, whole).otherwise(text).try_cast("timestamp")
            first, last = (F.timestamp_millis(F.lit(each)) for each in _BOUNDS)
            return F.when((instant >= first) & (instant < last), instant)
        case "timestamp_ms":
            in_range = read.between(FIRST_MILLISECOND, LAST_MILLISECOND)
            return F.when(in_range, F.timestamp_millis(read))
        case "binary":
            text = F.regexp_replace(read, _BLANKS, "")
            is_whole = text.rlike(_BASE64) & (F.length(text) % 4 == 0)
            return F.when(is_whole, F.unbase64(text))
    return read


def is_in_range(value: Column, spec: FieldSpec) -> Column:
    """Whether a value of the column's type is among those that the declared type accepts."""
    match spec.type:
        case "double":
            return value.between(-_LARGEST, _LARGEST)
        case "date":
            return value.between(*(F.lit(day).cast("date") for day in (FIRST_DATE, LAST_DATE)))
        case "timestamp":
            first, last = (F.timestamp_millis(F.lit(each)) for each in _BOUNDS)
            return (value >= first) & (value < last)
    return F.lit(True)


_BOUNDS = (FIRST_MILLISECOND, LAST_MILLISECOND + 1)


def value_of_text(text: Column, spec: FieldSpec) -> Column:
    """The value of a part of a message key, or of another text without JSON's types."""
    is_number = (F.length(text) <= _LONGEST) & text.rlike(rf"\A{_NUMBER}\z")
    match spec.type.partition("(")[0]:
        case "boolean":
            text = F.when(text.isin("true", "false"), text)
        case "int" | "long" | "timestamp_ms":
            text = F.when(text.rlike(_INTEGER), text)
        case "double" | "decimal":
            text = F.when(is_number, text)
    return value_of(text.try_cast(read_type(spec)), spec)


def has_escaped_name(json: Column) -> Column:
    """Whether a JSON text has a name that may be a field's, but is written with escapes."""
    return F.contains(json, F.lit(r"\u00")) & json.rlike(_ESCAPED_NAME)


def without_bad_decimals(json: Column, topic: Topic) -> Column:
    """A JSON text in which `"?"`, which is not a number, replaces each invalid decimal.

    `from_json` would drop the commas of numbers in strings, and read digits of other scripts.
    """
    decimals = (
        name for name, spec in topic.payload_fields.items() if spec.type.startswith("decimal")
    )
    names = sorted({_name_in_json(topic, name) for name in decimals})
    if not names:
        return json
    found = (json.rlike(rf'"{name}"\s*+:\s*+(?:{_BAD_TEXT}|{_BAD_EXPONENT})') for name in names)
    bad = rf"{_BAD_TEXT}{_REST_OF_STRING}|{_BAD_EXPONENT}[0-9]*+"
    each = rf'(?s)("(?:{"|".join(names)})"\s*+:\s*+)(?:{bad})'
    return F.when(reduce(or_, found), F.regexp_replace(json, each, '$1"?"')).otherwise(json)


def may_be_no_string(read: Column, json: Column, topic: Topic, name: str) -> Column:
    """Whether a value read as a string may be something else in the JSON text; may be NULL."""
    begins = [read.between(first, last) for first, last in (('"', ":"), ("[", "\\"), ("{", "|"))]
    looks_so = reduce(or_, begins) | read.isin("true", "false")
    return looks_so & json.rlike(rf'"{_name_in_json(topic, name)}"\s*+:\s*+[^"n\s]')


def _name_in_json(topic: Topic, name: str) -> str:
    path = topic.fields[name].path
    return path.rpartition(".")[2] if path else name
