"""Payload bytes to typed rows. What does not fit gets a reason, never a NULL in silence.

Money: `decimal(p,s)` takes the JSON number as it is written and rounds it once, half up, to the
declared scale: 13.750000000000002 becomes 13.75, 0.005 becomes 0.01.
"""

from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from bronze.topics import FieldSpec, Topic, snake_case
from silver.tables import POSITION_FIELDS, sql_type

CORRUPT = "_corrupt"
AS_IT_CAME = ("key", "payload", "event_time")
LAST_MILLISECOND = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last SQL timestamp
FIRST_MILLISECOND = -62_135_596_800_000  # 0001-01-01T00:00:00Z


def decode(messages: DataFrame, topic: Topic) -> DataFrame:
    """Rows of the topic's columns with `is_deleted`, `position`, `publish_time` and `reason`.

    `reason` is NULL for a good record. For others the columns of the topic have no meaning, and
    `key`, `payload` and `event_time` are what came; for good ones these are NULL, so that a kept
    batch is not twice as large.
    """
    text = F.col("payload").cast("string")
    parsed = messages.withColumns(
        {
            "_json": F.from_json(text, _json_schema(topic), _options()),
            "_empty": F.coalesce(F.length("payload") == 0, F.lit(True)),
            "_key": F.split(F.col("key"), r"\|"),
        }
    )
    # Parsed again, as strings, only where something does not fit: to tell what.
    odd = F.col("_json").isNull() | F.col(f"_json.{CORRUPT}").isNotNull()
    again = F.when(odd, F.from_json(text, _text_schema(topic), _options()))
    parsed = parsed.withColumns({"_odd": odd, "_text": again})
    deletes = topic.kind == "changelog"
    reasons = F.when(F.col("_empty"), _tombstone_reason(topic) if deletes else _no_payload())
    reasons = reasons.when(~F.is_valid_utf8(text), F.lit("payload is not valid UTF-8"))
    reasons = reasons.when(_is_malformed(topic), F.lit("payload is not a JSON object"))
    for name, spec in topic.fields.items():
        reasons = _field_reasons(reasons, name, spec)
    rows = parsed.select(
        *(_column(topic, name).alias(snake_case(name)) for name in topic.fields),
        (F.col("_empty") & F.lit(deletes)).alias("is_deleted"),
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
    if name in topic.key:  # a tombstone has no payload: its message key is the key
        from_key = F.get("_key", F.lit(topic.key.index(name))).try_cast(sql_type(spec))
        value = F.when(F.col("_empty"), from_key).otherwise(value)
    return value


def _no_payload() -> Column:
    return F.lit("payload is empty")


def _tombstone_reason(topic: Topic) -> Column:
    keys = [_column(topic, name).isNull() for name in topic.key]
    broken = reduce(Column.__or__, keys)
    return F.when(broken, F.lit("payload is empty and the message key is no key of this topic"))


def _is_malformed(topic: Topic) -> Column:
    nothing = reduce(Column.__and__, [F.col(f"_text.{name}").isNull() for name in topic.fields])
    return F.col("_odd") & (
        F.col("_text").isNull() | F.col(f"_text.{CORRUPT}").isNotNull() | nothing
    )


def _field_reasons(reasons: Column, name: str, spec: FieldSpec) -> Column:
    value, text = F.col(f"_json.{name}"), F.col(f"_text.{name}")
    good = F.col("_empty")
    wrong_type = value.isNull() & text.isNotNull()
    reasons = reasons.when(~good & wrong_type, F.lit(f"field '{name}' is no {spec.type}"))
    if spec.required:
        reasons = reasons.when(~good & value.isNull(), F.lit(f"field '{name}' is missing"))
    if spec.type == "timestamp_ms":
        beyond = ~value.between(FIRST_MILLISECOND, LAST_MILLISECOND)
        reasons = reasons.when(beyond, F.lit(f"field '{name}' is outside the years 1 to 9999"))
    return reasons
