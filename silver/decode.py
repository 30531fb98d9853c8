"""Payload bytes to typed rows. What does not fit gets a reason, never a NULL in silence.

Money: `decimal(p,s)` takes the JSON number as it is written and rounds it once, half up, to the
declared scale: 13.750000000000002 becomes 13.75, 0.005 becomes 0.01.
"""

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from bronze.topics import FieldSpec, Topic, snake_case
from silver.payload import Schema, text_of_payload
from silver.tables import POSITION_FIELDS, sql_type

CORRUPT = "_corrupt"
AS_IT_CAME = ("key", "payload", "event_time")
LAST_MILLISECOND = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last SQL timestamp
FIRST_MILLISECOND = -62_135_596_800_000  # 0001-01-01T00:00:00Z


def decode(
    messages: DataFrame, topic: Topic, schemas: Mapping[int, Schema] = MappingProxyType({})
) -> DataFrame:
    """Rows of the topic's columns with `is_deleted`, `position`, `publish_time` and `reason`.

    `schemas` are the versions of the topic's schema, where it is read by the registry.

    `reason` is NULL for a good record. For others the columns of the topic have no meaning, and
    `key`, `payload` and `event_time` are what came; for good ones these are NULL, so that a kept
    batch is not twice as large.
    """
    text = F.col("_read.json")
    parsed = messages.withColumn("_read", text_of_payload(topic, schemas)).withColumns(
        {
            "_json": F.from_json(text, _json_schema(topic), _options()),
            "_empty": F.coalesce(F.length("payload") == 0, F.lit(True)),
            "_key": F.split(F.col("key"), r"\|"),
        }
    )
    # Parsed again, as strings, only where something does not fit: to tell what.
    odd = F.col("_json").isNull() | F.col(f"_json.{CORRUPT}").isNotNull()
    again = F.when(odd, F.from_json(text, _text_schema(topic), _options()))
    parsed = parsed.withColumns({"_odd": odd, "_text": again, "_deletes": _deletes(topic)})
    reasons = F.when(F.col("_empty"), _reason_of_no_payload(topic))
    reasons = reasons.when(F.col("_read.problem").isNotNull(), F.col("_read.problem"))
    reasons = reasons.when(_is_malformed(topic), F.lit("payload is not a JSON object"))
    for name in topic.fields:
        reasons = _field_reasons(reasons, topic, name)
    rows = parsed.select(
        *(_column(topic, name).alias(snake_case(name)) for name in topic.fields),
        F.col("_deletes").alias("is_deleted"),
        F.struct(*POSITION_FIELDS).alias("position"),
        "publish_time",
        reasons.alias("reason"),
        *AS_IT_CAME,
    )
    refused = F.col("reason").isNotNull()
    return rows.withColumns({name: F.when(refused, F.col(name)) for name in AS_IT_CAME})


def _options() -> dict[str, str]:
    return {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def _json_schema(topic: Topic) -> StructType:
    columns = (f"`{name}` {_json_type(spec)}" for name, spec in topic.fields.items())
    return cast(StructType, StructType.fromDDL(", ".join([*columns, f"{CORRUPT} string"])))


def _json_type(spec: FieldSpec) -> str:
    return "bigint" if spec.type == "timestamp_ms" else sql_type(spec)


def _text_schema(topic: Topic) -> StructType:
    names = [*topic.fields, CORRUPT]
    return StructType([StructField(name, StringType()) for name in names])


def _column(topic: Topic, name: str) -> Column:
    spec = topic.fields[name]
    value = F.col(f"_json.{name}")
    if spec.absent is not None:
        value = F.nullif(value, F.lit(spec.absent).cast(_json_type(spec)))
    if spec.type == "timestamp_ms":
        in_range = value.between(FIRST_MILLISECOND, LAST_MILLISECOND)
        value = F.when(in_range, F.timestamp_millis(value))
    if name in topic.key:  # a tombstone or a bare value has its key in the message key alone
        from_key = F.get("_key", F.lit(topic.key.index(name))).try_cast(sql_type(spec))
        value = F.when(_has_key_outside(topic), from_key).otherwise(value)
    return value


def _has_key_outside(topic: Topic) -> Column:
    if topic.format == "json":
        return F.col("_empty")
    return F.col("_empty") | F.coalesce("_read.is_bare", F.lit(False))


def _deletes(topic: Topic) -> Column:
    if topic.kind == "events" or topic.delete == "never":
        return F.lit(False)
    if topic.delete == "tombstone":
        return F.col("_empty")
    value = _column(topic, topic.delete.field) == F.lit(topic.delete.equals)
    return F.col("_empty") | F.coalesce(value, F.lit(False))


def _reason_of_no_payload(topic: Topic) -> Column:
    if topic.kind == "events" or topic.delete == "never":
        return F.lit("payload is empty")
    if topic.sequence:
        return F.lit("payload is empty, so it has no sequence")
    return F.when(
        _is_keyless(topic), F.lit("payload is empty and the message key is no key of this topic")
    )


def _is_keyless(topic: Topic) -> Column:
    return reduce(Column.__or__, [_column(topic, name).isNull() for name in topic.key])


def _is_malformed(topic: Topic) -> Column:
    nothing = reduce(Column.__and__, [F.col(f"_text.{name}").isNull() for name in topic.fields])
    return F.col("_odd") & (
        F.col("_text").isNull() | F.col(f"_text.{CORRUPT}").isNotNull() | nothing
    )


def _field_reasons(reasons: Column, topic: Topic, name: str) -> Column:
    spec = topic.fields[name]
    value, text = F.col(f"_json.{name}"), F.col(f"_text.{name}")
    payload = ~F.col("_empty")
    expected = payload & ~F.col("_deletes")  # with a delete, the key is enough
    if name in topic.sequence:
        expected = payload
    elif name in topic.key:
        expected = payload & ~_has_key_outside(topic)
    if name in topic.key and topic.format != "json":
        no_key = payload & _has_key_outside(topic) & _column(topic, name).isNull()
        reasons = reasons.when(no_key, F.lit(f"the message key has no {spec.type} '{name}'"))
    wrong_type = payload & value.isNull() & text.isNotNull()
    reasons = reasons.when(wrong_type, F.lit(f"field '{name}' is no {spec.type}"))
    if spec.required:
        reasons = reasons.when(expected & value.isNull(), F.lit(f"field '{name}' is missing"))
    if spec.type == "timestamp_ms":
        beyond = ~value.between(FIRST_MILLISECOND, LAST_MILLISECOND)
        reasons = reasons.when(beyond, F.lit(f"field '{name}' is outside the years 1 to 9999"))
    return reasons
