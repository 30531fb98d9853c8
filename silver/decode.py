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

from bronze.declarations import FieldSpec, Rule, Topic, hash_column, snake_case
from bronze.envelope import ORDER_FIELDS
from bronze.pseudonyms import PseudonymSecret
from silver.columns import AS_IT_CAME, CAME, PRESENT, REASON
from silver.payload import Schema, text_of_payload
from silver.personal import hashes
from silver.tables import sql_type

CORRUPT = "_corrupt"
UPSERTS = ("c", "u", "r")
LAST_MILLISECOND = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last SQL timestamp
FIRST_MILLISECOND = -62_135_596_800_000  # 0001-01-01T00:00:00Z


class Decoder:
    """Turns messages of one topic into rows.

    The columns of its plan are made once: it takes Python longer to make them than Spark to run
    them on a small batch.
    """

    def __init__(
        self,
        topic: Topic,
        schemas: Mapping[int, Schema] = MappingProxyType({}),
        secret: PseudonymSecret | None = None,
    ) -> None:
        """What it needs beside the topic.

        Args:
            topic: whose messages it decodes.
            schemas: the versions of the topic's schema, where it is read by the registry.
            secret: key of the hashes, where the topic has hashed fields.
        """
        row = _at_paths(_row(topic, "_parsed", _json_schema(topic)), topic)
        parsed = F.from_json("_read.json", _wrapped(topic, _json_schema(topic)), _options())
        empty = F.coalesce(F.length("payload") == 0, F.lit(True))
        # Parsed again, as strings, only where something does not fit: to tell what.
        odd = F.col("_json").isNull() | F.col(f"_json.{CORRUPT}").isNotNull()
        again = F.from_json("_read.json", _wrapped(topic, _text_schema(topic)), _options())
        self._steps = [
            {"_read": text_of_payload(topic, schemas)},
            {"_parsed": parsed, "_empty": empty, "_key": F.split(F.col("key"), r"\|")},
            {"_json": row, **_present(topic)},
            {"_odd": odd, "_deletes": _deletes(topic), "_truncates": _truncates(topic)},
            {"_again": F.when(F.col("_odd"), again)},
            {"_text": _row(topic, "_again", _text_schema(topic))},
        ]
        self._columns = [
            *(_column(topic, name).alias(snake_case(name)) for name in topic.fields),
            *(
                hashes(_column(topic, name), secret).alias(hash_column(name))
                for name in topic.hashed
            ),
            (F.col("_deletes") | F.col("_truncates")).alias("is_deleted"),
            *_particulars(topic),
            F.struct(*ORDER_FIELDS).alias("position"),
            F.col("publish_time"),
            _reason(topic).alias(REASON),
            F.struct(*AS_IT_CAME).alias(CAME),
        ]

    def rows(self, messages: DataFrame) -> DataFrame:
        """Rows of the topic's columns with `is_deleted`, `position`, `publish_time` and more.

        `_reason` is NULL for a good record; for others the columns of the topic have no meaning.
        `_came` is what came: `AS_IT_CAME`. Rows of a topic that truncates have `mark` also:
        `truncated` for a message that does. Those of partial updates have `_present`, the fields
        that the message has. Those of a topic with a history have `valid_from`.
        """
        for step in self._steps:
            messages = messages.withColumns(step)
        return messages.select(*self._columns)


def without_what_was_good(rows: DataFrame) -> DataFrame:
    """Decoded rows that say of refused ones alone what came: so they are half as large to keep."""
    return rows.withColumn(CAME, F.when(F.col(REASON).isNotNull(), F.col(CAME)))


def _present(topic: Topic) -> dict[str, Column]:
    if topic.updates != "partial":
        return {}
    row = F.get_json_object("_read.json", "$.after") if topic.envelope else F.col("_read.json")
    elsewhere = [
        F.when(_text_at(spec.path).isNotNull(), F.lit(name))
        for name, spec in topic.fields.items()
        if spec.path
    ]
    keys = F.coalesce(F.json_object_keys(row), F.array().cast("array<string>"))
    return {
        PRESENT: F.array_union(keys, F.array_compact(F.array(*elsewhere))) if elsewhere else keys
    }


def _reason(topic: Topic) -> Column:
    reasons = F.when(F.col("_empty"), _reason_of_no_payload(topic))
    reasons = reasons.when(F.col("_read.problem").isNotNull(), F.col("_read.problem"))
    reasons = _envelope_reasons(reasons, topic)
    reasons = reasons.when(_is_malformed(topic), F.lit("payload is not a JSON object"))
    reasons = reasons.when(_has_more(topic), F.lit("payload is more than a JSON object"))
    for name in topic.fields:
        reasons = _field_reasons(reasons, topic, name)
    return reasons


def _wrapped(topic: Topic, row: StructType) -> StructType:
    """What the payload consists of: the row, or an envelope around it."""
    if not topic.envelope:
        return row
    text = StringType()
    sides = [StructField(side, row) for side in ("before", "after")]
    return StructType([StructField("op", text), *sides, StructField(CORRUPT, text)])


def _row(topic: Topic, parsed: str, row: StructType) -> Column:
    """The row in what was parsed; that of a truncation has no fields."""
    if not topic.envelope:
        return F.col(parsed)
    op = F.col(f"{parsed}.op")
    side = F.when(op.isin(*UPSERTS), F.col(f"{parsed}.after")).when(
        op == "d", F.col(f"{parsed}.before")
    )
    side = side.withField(CORRUPT, F.col(f"{parsed}.{CORRUPT}"))
    return F.when(op == "t", F.from_json(F.lit("{}"), row)).otherwise(side)


def _envelope_reasons(reasons: Column, topic: Topic) -> Column:
    if not topic.envelope:
        return reasons
    op, payload = F.col("_parsed.op"), ~F.col("_empty")
    broken = F.col("_parsed").isNull() | (F.col(f"_parsed.{CORRUPT}").isNotNull() & op.isNull())
    reasons = reasons.when(payload & broken, F.lit("payload is not a JSON object"))
    reasons = reasons.when(payload & op.isNull(), F.lit("the envelope has no op"))
    unknown = F.concat(F.lit("the envelope has an unknown op: "), F.substring(op, 1, 40))
    reasons = reasons.when(payload & ~op.isin(*UPSERTS, "d", "t"), unknown)
    side = F.when(op == "d", F.lit("before")).otherwise(F.lit("after"))
    nothing = F.concat(F.lit("the envelope has no row in '"), side, F.lit("'"))
    return reasons.when(payload & F.col("_json").isNull(), nothing)


def _at_paths(row: Column, topic: Topic) -> Column:
    """The row, with the fields that lie elsewhere in the envelope."""
    for name, spec in topic.fields.items():
        if spec.path:
            row = row.withField(name, _text_at(spec.path).try_cast(_json_type(spec)))
    return row


def _text_at(path: str) -> Column:
    return F.get_json_object("_read.json", f"$.{path}")


def _particulars(topic: Topic) -> list[Column]:
    found = []
    if topic.has_marks:
        found.append(F.when(F.col("_truncates"), F.lit("truncated")).alias("mark"))
    if topic.updates == "partial":
        found.append(F.col(PRESENT))
    if topic.history:
        own = [_column(topic, topic.event_time)] if topic.event_time else []
        found.append(F.coalesce(*own, "event_time", "publish_time").alias("valid_from"))
    return found


def _options() -> dict[str, str]:
    return {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "allowSingleQuotes": "false",
    }


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
        from_key = F.get("_key", F.lit(topic.key.index(name)))
        if topic.envelope:  # whose keys are JSON objects as well
            from_key = F.coalesce(F.get_json_object("key", f"$.{name}"), from_key)
        from_key = from_key.try_cast(sql_type(spec))
        value = F.when(_has_key_outside(topic), from_key).otherwise(value)
    return value


def _has_key_outside(topic: Topic) -> Column:
    if topic.format == "json":
        return F.col("_empty")
    return F.col("_empty") | F.coalesce("_read.is_bare", F.lit(False))


def _deletes(topic: Topic) -> Column:
    if topic.kind == "events" or topic.delete == "never":
        return F.lit(False)
    if topic.envelope:
        return F.col("_empty") | F.coalesce(F.col("_parsed.op") == "d", F.lit(False))
    if topic.delete == "tombstone":
        return F.col("_empty")
    return F.col("_empty") | _follows(topic, topic.delete)


def _truncates(topic: Topic) -> Column:
    if topic.envelope:
        return F.coalesce(F.col("_parsed.op") == "t", F.lit(False))
    return F.lit(False) if topic.truncate is None else _follows(topic, topic.truncate)


def _follows(topic: Topic, rule: Rule) -> Column:
    return F.coalesce(_column(topic, rule.field) == F.lit(rule.equals), F.lit(False))


def _reason_of_no_payload(topic: Topic) -> Column:
    if topic.kind == "events" or topic.delete == "never":
        return F.lit("payload is empty")
    if topic.sequence and not topic.envelope:
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


def _has_more(topic: Topic) -> Column:
    """Whether something follows the object, over which Spark's parser passes without a word.

    The whole text is read again only where a first `}` is not the end, as of a flat object.
    """
    if topic.format != "json":
        return F.lit(False)
    text = F.col("_read.json")
    goes_on = F.instr(text, "}") < F.length(F.rtrim(text))
    objects = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    return goes_on & (F.coalesce(objects, F.lit(0)) != 1)


def _field_reasons(reasons: Column, topic: Topic, name: str) -> Column:
    spec = topic.fields[name]
    value, text = F.col(f"_json.{name}"), F.col(f"_text.{name}")
    if spec.path:
        text = _text_at(spec.path)
    payload = ~F.col("_empty")
    row = payload & ~F.col("_truncates")
    expected = row & ~F.col("_deletes")  # with a delete, the key is enough
    if name in topic.sequence:
        expected = payload
    elif name in topic.key:
        expected = row & ~_has_key_outside(topic)
    elif topic.updates == "partial":
        expected = expected & F.array_contains(PRESENT, name)
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
