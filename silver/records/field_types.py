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

from lake.topics.field_type import DECIMAL, FieldType, column_type
from lake.topics.topic import Topic

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
_LARGEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}

# A decimal with more digits in its exponent could keep Java busy for hours.
_BAD_TEXT = rf'"(?!(?=[^"]{{1,{_LONGEST}}}+"){_NUMBER}")'
_BAD_EXPONENT = r"[-0-9.]++[eE][+-]?+[0-9]{5}"
_REST_OF_STRING = r'[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Letters, digits and `_` written as escapes. In a name, they would hide a field from these
# expressions.
_PLAIN = r"u00(?:3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
_ESCAPED_NAME = rf'(?s)"[^"\\]*+(?:\\(?!{_PLAIN}).[^"\\]*+)*+\\{_PLAIN}{_REST_OF_STRING}\s*+:'
ESCAPED = "a field name in the payload contains escaped letters or digits"


def read_type(kind: FieldType) -> str:
    """The type with which `from_json` reads a scalar."""
    if kind.name in ("date", "timestamp", "binary"):
        return "string"
    return "bigint" if kind.name == "timestamp_ms" else column_type(kind)


def is_text(kind: FieldType) -> bool:
    """Whether only JSON strings are valid values. A text as read does not show what it was."""
    return kind.name in ("string", "binary")


def is_converted(kind: FieldType) -> bool:
    """Whether a value must be checked or converted after `from_json` has read it."""
    return kind.name in ("float", "double", "date", "timestamp", "timestamp_ms", "binary")


def value_of(read: Column, kind: FieldType) -> Column:
    """The value of a field, from a value read as `read_type`; NULL if the type does not accept it.

    Times without an offset are in UTC, which is the session's time zone.
    """
    match kind.name:
        case "float" | "double":
            return F.when(is_in_range(read, kind), read)
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


def is_in_range(value: Column, kind: FieldType) -> Column:
    """Whether a value of the column's type is among those that the declared type accepts."""
    match kind.name:
        case "float" | "double":
            return value.between(-_LARGEST[kind.name], _LARGEST[kind.name])
        case "date":
            return value.between(*(F.lit(day).cast("date") for day in (FIRST_DATE, LAST_DATE)))
        case "timestamp":
            first, last = (F.timestamp_millis(F.lit(each)) for each in _BOUNDS)
            return (value >= first) & (value < last)
    return F.lit(True)


_BOUNDS = (FIRST_MILLISECOND, LAST_MILLISECOND + 1)


def value_of_text(text: Column, kind: FieldType) -> Column:
    """The value of a part of a message key, or of another text without JSON's types."""
    is_number = (F.length(text) <= _LONGEST) & text.rlike(rf"\A{_NUMBER}\z")
    match kind.name.partition("(")[0]:
        case "boolean":
            text = F.when(text.isin("true", "false"), text)
        case "int" | "long" | "timestamp_ms":
            text = F.when(text.rlike(_INTEGER), text)
        case "float" | "double" | "decimal":
            text = F.when(is_number, text)
    return value_of(text.try_cast(read_type(kind)), kind)


def has_escaped_name(json: Column) -> Column:
    """Whether a JSON text has a name that may be a field's, but is written with escapes."""
    return F.contains(json, F.lit(r"\u00")) & json.rlike(_ESCAPED_NAME)


def has_bad_decimals(json: Column, topic: Topic) -> Column | None:
    """Whether a JSON text seems to have an invalid decimal; None if the topic has no decimals."""
    found = [
        json.rlike(rf'"{_in_json(name)}"\s*+:\s*+(?:{_BAD_TEXT}|{_BAD_EXPONENT})')
        for name in _decimals(topic)
    ]
    return reduce(or_, found) if found else None


def without_bad_decimals(json: Column, topic: Topic) -> Column:
    """A JSON text in which `"?"`, which is not a number, replaces each invalid decimal.

    `from_json` would drop the commas of numbers in strings, and read digits of other scripts.
    """
    has_bad = has_bad_decimals(json, topic)
    if has_bad is None:
        return json
    names = "|".join(map(_in_json, _decimals(topic)))
    bad = rf"{_BAD_TEXT}{_REST_OF_STRING}|{_BAD_EXPONENT}[0-9]*+"
    replaced = F.regexp_replace(json, rf'(?s)("(?:{names})"\s*+:\s*+)(?:{bad})', '$1"?"')
    return F.when(has_bad, replaced).otherwise(json)


def _decimals(topic: Topic) -> list[str]:
    """The names that decimals of the payload follow in JSON."""
    return sorted(
        {
            own
            for name, spec in topic.payload_fields.items()
            for own, _, kind in spec.kind.scalars(topic.place(name)[-1])
            if DECIMAL.fullmatch(kind.name)
        }
    )


def looks_like_no_string(read: Column) -> Column:
    """Whether a value read as a string may be something else in the JSON text; may be NULL."""
    begins = [read.between(first, last) for first, last in (('"', ":"), ("[", "\\"), ("{", "|"))]
    return reduce(or_, begins) | read.isin("true", "false")


def follows_no_string(json: Column, name: str, holder: str | None) -> Column:
    """Whether something other than a string may follow a name in a JSON text.

    Args:
        json: the text.
        name: the name.
        holder: `array` or `map` if it is about the elements of such a value.
    """
    begin, string = rf'"{_in_json(name)}"\s*+:\s*+', rf'"{_REST_OF_STRING}'
    if holder == "array":
        return json.rlike(rf"{begin}\[(?:\s*+(?:{string}|null)\s*+,?)*+\s*+[^\s\]]")
    if holder == "map":
        member = rf"{string}\s*+:\s*+(?:{string}|null)"
        return json.rlike(rf"{begin}\{{(?:\s*+{member}\s*+,?)*+\s*+[^\s}}]")
    return json.rlike(rf'{begin}[^"n\s]')


def follows_string(name: str) -> str:
    """A regular expression for a string that follows a name in a JSON text."""
    return rf'"{_in_json(name)}"\s*+:\s*+"'


def _in_json(name: str) -> str:
    """A regular expression for a name in a JSON text, where it may have escapes."""
    return "".join(
        each if each.isascii() and (each.isalnum() or each == "_") else _with_escapes(each)
        for each in name
    )


def _with_escapes(character: str) -> str:
    units = character.encode("utf-16-be")
    codes = (units[n : n + 2].hex() for n in range(0, len(units), 2))
    escaped = "".join(
        rf"\\u{''.join(f'[{d}{d.upper()}]' if d.isalpha() else d for d in code)}" for code in codes
    )
    plain = rf"\{character}" if character.isascii() else character
    slash = r"|\\/" if character == "/" else ""
    return f"(?:{plain}|{escaped}{slash})"
