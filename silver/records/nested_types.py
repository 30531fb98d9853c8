"""Spark columns that check and convert arrays, structs and maps, part by part.

`field_types.py` decides which scalars are accepted, and `from_json` whether a value is an array or
an object. What is not accepted has a place within the field, such as `tags[2]` or `lines[0].price`.
A place shows no keys of maps: they are data, and reasons outlive `lakehouse forget`.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F

from lake.topics.field_type import DECIMAL, FieldType
from lake.topics.topic import snake_case
from silver.records.field_types import (
    is_converted,
    read_type,
    value_of,
    value_of_text,
)

# What a test of a scalar returns: whether it holds; None if it cannot hold for the type.
Test = Callable[[Column, FieldType], Column | None]


def nested_read_type(kind: FieldType) -> str:
    """The type with which `from_json` reads a field."""
    return kind.ddl(read_type)


def variants(kind: FieldType) -> str:
    """The type with variants in place of the scalars. They keep the JSON types of values."""
    return kind.ddl(lambda _: "variant")


def is_nested_converted(kind: FieldType) -> bool:
    """Whether a value must be converted after `from_json` has read it."""
    if kind.is_scalar:
        return is_converted(kind)
    if any(name != snake_case(name) for name, _ in kind.parts):
        return True
    return any(is_nested_converted(part) for _, part in kind.parts)


def nested_value_of(read: Column, kind: FieldType) -> Column:
    """The value of a field; parts that their types do not accept are NULL."""
    if not is_nested_converted(kind):
        return read
    match kind.name:
        case "struct":
            members = [
                nested_value_of(read.getField(name), part).alias(snake_case(name))
                for name, part in kind.parts
            ]
            return F.when(read.isNotNull(), F.struct(*members))
        case "array":
            return F.transform(read, lambda each: nested_value_of(each, kind.element))
        case "map":
            return F.transform_values(read, lambda _, each: nested_value_of(each, kind.element))
    return value_of(read, kind)


def any_part(read: Column, kind: FieldType, test: Test) -> Column | None:
    """Whether a test holds for any scalar of a value; None if it cannot hold for the type."""
    if kind.is_scalar:
        return test(read, kind)
    if kind.name == "struct":
        members = (any_part(read.getField(name), part, test) for name, part in kind.parts)
        known = [each for each in members if each is not None]
        return reduce(or_, known) if known else None
    if any_part(F.lit(None), kind.element, test) is None:
        return None
    values = read if kind.name == "array" else F.map_values(read)
    found = F.exists(values, lambda each: cast(Column, any_part(each, kind.element, test)))
    return F.coalesce(found, F.lit(False))


def first_place(read: Column, kind: FieldType, test: Test, place: Column) -> Column | None:
    """The place of the first scalar for which a test holds; NULL if there is none.

    Args:
        read: the value.
        kind: its type.
        test: the test; `first_place` is None if it cannot hold for the type.
        place: the place of the value.
    """
    if kind.is_scalar:
        found = test(read, kind)
        return None if found is None else F.when(found, place)
    if kind.name == "struct":
        members = [
            first_place(read.getField(name), part, test, _member(place, name))
            for name, part in kind.parts
        ]
        known = [each for each in members if each is not None]
        return F.coalesce(*known) if known else None
    if first_place(F.lit(None), kind.element, test, place) is None:
        return None

    def of_element(each: Column, index: Column) -> Column:
        inner = _element(place, index) if kind.name == "array" else _of_map(place)
        return cast(Column, first_place(each, kind.element, test, inner))

    return _first(read if kind.name == "array" else F.map_values(read), of_element)


def is_refused(read: Column, kind: FieldType) -> Column | None:
    """A `Test`: whether a scalar's type does not accept a value that `from_json` has read."""
    if not is_converted(kind):
        return None
    return read.isNotNull() & value_of(read, kind).isNull()


def has_key_twice(read: Column, kind: FieldType) -> Column | None:
    """Whether a map within a value has a key twice; None if there is no map."""
    if kind.is_scalar:
        return None
    if kind.name == "struct":
        members = (has_key_twice(read.getField(name), part) for name, part in kind.parts)
        known = [each for each in members if each is not None]
        return reduce(or_, known) if known else None
    own = None
    values = read
    if kind.name == "map":
        own = F.size(F.array_distinct(F.map_keys(read))) != F.size(read)
        values = F.map_values(read)
    if has_key_twice(F.lit(None), kind.element) is not None:
        within = F.exists(values, lambda each: cast(Column, has_key_twice(each, kind.element)))
        own = within if own is None else own | within
    return None if own is None else F.coalesce(own, F.lit(False))


def texts_in(value: Column, kind: FieldType) -> Column:
    """All scalars within a value, and all keys of maps, as an array of texts."""
    if kind.is_scalar:
        return F.array(value.cast("string"))
    if kind.name == "struct":
        parts = [texts_in(value.getField(name), part) for name, part in kind.parts]
    else:
        values = value if kind.name == "array" else F.map_values(value)
        parts = [F.flatten(F.transform(values, lambda each: texts_in(each, kind.element)))]
        if kind.name == "map":
            parts.append(F.map_keys(value))
    nothing = F.array().cast("array<string>")
    return F.concat(*(F.coalesce(part, nothing) for part in parts))


def misfit(raw: Column, kind: FieldType, place: Column) -> Column:
    """The place of the first part of a value that is not of its declared type.

    Called for messages that `from_json` could not read completely, or whose strings may be other
    values. It finds nothing if the JSON text of the value is a string.

    Args:
        raw: the value as JSON text; for a scalar, a variant.
        kind: the declared type.
        place: the place of the value.

    Returns:
        A text; NULL if there is no such part.
    """
    if kind.is_scalar:
        return F.when(_is_other_scalar(raw, kind), place)
    if kind.name == "struct":
        members = ",".join(f"`{name}`:{_loose(part)}" for name, part in kind.parts)
        found = F.from_json(raw, f"struct<{members}>")
        parts = (
            misfit(found.getField(name), part, _member(place, name)) for name, part in kind.parts
        )
        return F.coalesce(_unreadable(raw, found, place), *parts)
    element = kind.element
    if kind.name == "map":
        found = F.from_json(raw, f"map<string,{_loose(element)}>")
        inner = _first(F.map_values(found), lambda each, _: misfit(each, element, _of_map(place)))
    else:
        found = F.from_json(raw, f"array<{_loose(element)}>")
        inner = _first(found, lambda each, index: misfit(each, element, _element(place, index)))
    return F.coalesce(_unreadable(raw, found, place), inner)


def _unreadable(raw: Column, found: Column, place: Column) -> Column:
    return F.when(raw.isNotNull() & found.isNull(), place)


def _loose(kind: FieldType) -> str:
    return "variant" if kind.is_scalar else "string"


def _is_other_scalar(value: Column, kind: FieldType) -> Column:
    """Whether a variant is of another kind than a scalar type accepts; not for NULL."""
    found = F.schema_of_variant(value)
    text = F.try_variant_get(value, "$", "string")
    is_text, is_number = found == "STRING", found.rlike(r"\A(BIGINT|DECIMAL|DOUBLE|FLOAT)")
    name = kind.name
    if name == "string":
        fits = is_text
    elif name in ("binary", "date", "timestamp"):
        fits = is_text & value_of(text, kind).isNotNull()
    elif name == "boolean":
        fits = found == "BOOLEAN"
    elif name in ("int", "long", "timestamp_ms"):
        number = F.try_variant_get(value, "$", read_type(kind))
        fits = (found == "BIGINT") & value_of(number, kind).isNotNull()
    elif DECIMAL.fullmatch(name):
        number = F.try_variant_get(value, "$", name)
        fits = F.when(is_text, value_of_text(text, kind).isNotNull())
        # A variant holds numbers of more than 38 digits as doubles.
        fits = fits.otherwise(is_number & (number.isNotNull() | (found == "DOUBLE")))
    else:
        fits = is_number & value_of(F.try_variant_get(value, "$", name), kind).isNotNull()
    return value.isNotNull() & (found != "VOID") & ~F.coalesce(fits, F.lit(False))


def _first(values: Column, place_of: Callable[[Column, Column], Column]) -> Column:
    places = F.filter(F.transform(values, place_of), lambda each: each.isNotNull())
    return F.get(places, F.lit(0))


def _member(place: Column, name: str) -> Column:
    return F.concat(place, F.lit(f".{name}"))


def _element(place: Column, index: Column) -> Column:
    return F.concat(place, F.lit("["), index.cast("string"), F.lit("]"))


def _of_map(place: Column) -> Column:
    return F.concat(place, F.lit(".*"))
