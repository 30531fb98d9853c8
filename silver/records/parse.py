"""Parses the text of a payload into the fields of its topic: as sent, and as values of their types.

The steps of `steps` add these columns to a message, one after the other:

    _read       the JSON text (`text_of_payload`), or the problem if it cannot be parsed safely
    _parsed     the parsed text: the row, or the envelope around it
    _empty      whether there is no payload
    _key        the parts of the message key
    _json       the row as parsed, with NULL where a value cannot be read as its type
    _value      the values that need conversion, with NULL where the type does not accept one
    _odd        whether a value does not fit, or may not fit
    _again      for an odd message, the text parsed again with looser types
    _text       the row in `_again`
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lake.topics.topic import TIMES, FieldSpec, Topic, sql_type
from silver.records.by_schema import Schemas
from silver.records.field_types import (
    ESCAPED,
    has_escaped_name,
    is_converted,
    is_text,
    may_be_no_string,
    read_type,
    value_of,
    value_of_text,
    without_bad_decimals,
)
from silver.records.payload import text_of_payload

CORRUPT = "_corrupt"
UPSERTS = ("c", "u", "r")


def steps(topic: Topic, schemas: Schemas) -> list[dict[str, Column]]:
    """The columns to add to messages, step by step. Each step needs the columns of earlier steps.

    Args:
        topic: the topic of the messages.
        schemas: the known versions of the topic's schema, if the topic uses the schema registry.
    """
    typed = F.from_json("_read.json", _wrapped(topic, _typed_schema(topic)), _options())
    again = F.from_json("_read.json", _wrapped(topic, _loose_schema(topic)), _options())
    empty = F.coalesce(F.length("payload") == 0, F.lit(True))
    return [
        {"_read": text_of_payload(topic, schemas)},
        *([{"_read": _safe(topic)}] if _is_foreign(topic) else []),
        {"_parsed": typed, "_empty": empty},
        {"_json": _at_paths(_row(topic, "_parsed", _typed_schema(topic)), topic)},
        {**_values(topic), "_odd": _is_odd(topic), "_key": _parts_of_key(topic)},
        {"_again": F.when(F.col("_odd"), again)},
        {"_text": _row(topic, "_again", _loose_schema(topic))},
    ]


def value(topic: Topic, name: str) -> Column:
    """The value of a field, from where it is in the message; NULL if the message has none."""
    spec = topic.fields[name]
    if spec.from_message:
        found = _of_message(spec)
        return found if spec.absent is None else F.when(~_is_absent(topic, name), found)
    found = _accepted(topic, name)
    if spec.absent is not None:
        found = F.when(~_is_absent(topic, name), found)
    if name in topic.key:  # a tombstone or a bare value has its key only in the message key
        from_key = F.get("_key", F.lit(topic.key_in_message_key.index(name)))
        if topic.envelope:  # with an envelope, the message key may be a JSON object
            from_key = F.coalesce(F.get_json_object("key", f"$.{name}"), from_key)
        return F.when(has_key_outside(topic), value_of_text(from_key, spec)).otherwise(found)
    return found


def as_sent(topic: Topic, name: str) -> Column:
    """The value of a field before it is converted; NULL if the message does not have the field."""
    spec = topic.fields[name]
    if spec.message_property:
        return F.col("properties").getItem(spec.message_property)
    return F.col(spec.from_message or f"_json.{name}")


def _of_message(spec: FieldSpec) -> Column:
    """The value of a field that is not in the payload; NULL if its type does not accept it."""
    if spec.message_property:
        return value_of_text(F.col("properties").getItem(spec.message_property), spec)
    part = F.col(str(spec.from_message))
    return part if spec.from_message in TIMES else value_of_text(part, spec)


def _is_undecoded(spec: FieldSpec) -> Column:
    """Whether the message has the part that is a field's value, but bronze could not decode it."""
    if spec.message_property:
        wanted = F.lit(spec.message_property).cast("binary")
        return (
            F.coalesce(
                F.exists("raw_properties", lambda each: each["name"] == wanted), F.lit(False)
            )
            & F.col("properties").getItem(spec.message_property).isNull()
        )
    if spec.from_message == "key":
        return F.col("raw_key").isNotNull()
    return F.coalesce(F.contains("undecoded", F.lit(f"{spec.from_message} ")), F.lit(False))


def _is_absent(topic: Topic, name: str) -> Column:
    """Whether a field has the value that stands for NULL."""
    spec = topic.fields[name]
    if spec.from_message:
        return _of_message(spec).eqNullSafe(F.lit(spec.absent).cast(sql_type(spec)))
    return F.col(f"_json.{name}").eqNullSafe(F.lit(spec.absent).cast(read_type(spec)))


def is_of_another_type(topic: Topic, name: str) -> Column:
    """Whether a message has a value for a field that the field's type does not accept."""
    spec = topic.fields[name]
    if spec.from_message:
        is_refused = as_sent(topic, name).isNotNull() & _of_message(spec).isNull()
        return is_refused | _is_undecoded(spec)
    read, text = F.col(f"_json.{name}"), F.col(f"_text.{name}")
    if spec.path:
        text = at_path(spec.path, "variant" if is_text(spec) else "string")
    nothing = _accepted(topic, name).isNull()
    if spec.absent is not None:
        nothing = nothing & ~_is_absent(topic, name)
    if not is_text(spec):
        return nothing & (read.isNotNull() | text.isNotNull())
    is_string = F.coalesce(F.schema_of_variant(text) == "STRING", F.lit(False))
    return read.isNotNull() & (nothing | (F.col("_odd") & ~is_string))


def has_key_outside(topic: Topic) -> Column:
    """Whether the key of a message is only in the message key, and not in the payload."""
    if topic.format == "json":
        return F.col("_empty")
    return F.col("_empty") | F.coalesce("_read.is_bare", F.lit(False))


def at_path(path: str, kind: str) -> Column:
    """The value at a path in the payload, read as the type `kind`."""
    for part in reversed(path.split(".")):
        kind = f"struct<`{part}`:{kind}>"
    found = F.from_json("_read.json", kind, _options())
    for part in path.split("."):
        found = found[part]
    return found


def _is_foreign(topic: Topic) -> bool:
    """Whether the text may be a producer's JSON, rather than JSON that we have written."""
    return topic.format in ("json", "registry")


def _safe(topic: Topic) -> Column:
    """`_read` with a text that is safe to parse; an unsafe text becomes a problem."""
    text = F.col("_read.json")
    escaped = F.when(has_escaped_name(text), F.lit(ESCAPED))
    problem = F.coalesce("_read.problem", escaped)
    safe = F.when(problem.isNull(), without_bad_decimals(text, topic))
    parts = {"json": safe, "is_bare": F.col("_read.is_bare"), "problem": problem}
    return F.struct(*(part.alias(name) for name, part in parts.items()))


def _is_odd(topic: Topic) -> Column:
    odd = F.col("_json").isNull() | F.col(f"_json.{CORRUPT}").isNotNull()
    if not _is_foreign(topic):
        return odd
    suspects = (
        may_be_no_string(F.col(f"_json.{name}"), F.col("_read.json"), topic, name)
        for name, spec in topic.payload_fields.items()
        if is_text(spec)
    )
    return F.coalesce(reduce(or_, suspects, odd), F.lit(False))


def _parts_of_key(topic: Topic) -> Column:
    """The parts of the message key, one for each field of the topic's key that it has.

    NULL if the key is in the payload, or if the number of parts is wrong.
    """
    count = len(topic.key_in_message_key)
    parts = F.array("key") if count == 1 else F.split(F.col("key"), r"\|")
    return F.when(has_key_outside(topic) & (F.size(parts) == count), parts)


def _values(topic: Topic) -> dict[str, Column]:
    values = [
        value_of(F.col(f"_json.{name}"), spec).alias(name)
        for name, spec in topic.payload_fields.items()
        if is_converted(spec)
    ]
    return {"_value": F.struct(*values)} if values else {}


def _accepted(topic: Topic, name: str) -> Column:
    """The value of a field in the payload; NULL if its type does not accept the value."""
    return F.col(f"_value.{name}" if is_converted(topic.fields[name]) else f"_json.{name}")


def _wrapped(topic: Topic, row: StructType) -> StructType:
    """The schema of the payload: the row, or an envelope around it."""
    if not topic.envelope:
        return row
    text = StringType()
    sides = [StructField(side, row) for side in ("before", "after")]
    return StructType([StructField("op", text), *sides, StructField(CORRUPT, text)])


def _row(topic: Topic, parsed: str, row: StructType) -> Column:
    """The row in the parsed payload. The row of a truncation has no fields."""
    if not topic.envelope:
        return F.col(parsed)
    op = F.col(f"{parsed}.op")
    side = F.when(op.isin(*UPSERTS), F.col(f"{parsed}.after")).when(
        op == "d", F.col(f"{parsed}.before")
    )
    side = side.withField(CORRUPT, F.col(f"{parsed}.{CORRUPT}"))
    return F.when(op == "t", F.from_json(F.lit("{}"), row)).otherwise(side)


def _at_paths(row: Column, topic: Topic) -> Column:
    """The row with the fields that are elsewhere in the envelope."""
    for name, spec in topic.fields.items():
        if spec.path:
            row = row.withField(name, at_path(spec.path, read_type(spec)))
    return row


def _typed_schema(topic: Topic) -> StructType:
    return _schema({name: read_type(spec) for name, spec in topic.payload_fields.items()})


def _loose_schema(topic: Topic) -> StructType:
    """Text fields are read as variants, which keep the JSON type; all others as strings."""
    types = {True: "variant", False: "string"}
    return _schema({name: types[is_text(spec)] for name, spec in topic.payload_fields.items()})


def _schema(types: Mapping[str, str]) -> StructType:
    columns = (f"`{name}` {kind}" for name, kind in types.items())
    return cast(StructType, StructType.fromDDL(", ".join([*columns, f"{CORRUPT} string"])))


def _options() -> dict[str, str]:
    return {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "allowSingleQuotes": "false",
    }
