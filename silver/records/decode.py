"""Payload bytes to typed rows. What does not fit gets a reason, never a NULL in silence.

The fields are read in `parse.py`, and what their types accept is decided in `field_types.py`.

Money: `decimal(p,s)` takes the JSON number as it is written and rounds it once, half up, to the
declared scale: 13.750000000000002 becomes 13.75, 0.005 becomes 0.01.
"""

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.settings.pseudonyms import PseudonymSecret
from lake.topics.topic import Rule, Topic, hash_column, snake_case
from pulsar_spark.schema import ORDER_FIELDS
from silver.contract.columns import AS_IT_CAME, CAME, PRESENT, REASON
from silver.contract.tables import sql_type
from silver.records.masking import hashes
from silver.records.parse import at_path, steps, value
from silver.records.payload import Schema
from silver.records.reasons import reason


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
        own = {"_deletes": _deletes(topic), "_truncates": _truncates(topic), **_present(topic)}
        self._steps = [*steps(topic, schemas), own]
        self._columns = [
            *(value(topic, name).alias(snake_case(name)) for name in topic.fields),
            *(hashes(value(topic, name), secret).alias(hash_column(name)) for name in topic.hashed),
            (F.col("_deletes") | F.col("_truncates")).alias("is_deleted"),
            *_particulars(topic),
            F.struct(*ORDER_FIELDS).alias("position"),
            F.col("publish_time"),
            reason(topic).alias(REASON),
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
        F.when(at_path(spec.path, "string").isNotNull(), F.lit(name))
        for name, spec in topic.fields.items()
        if spec.path
    ]
    keys = F.coalesce(F.json_object_keys(row), F.array().cast("array<string>"))
    return {
        PRESENT: F.array_union(keys, F.array_compact(F.array(*elsewhere))) if elsewhere else keys
    }


def _particulars(topic: Topic) -> list[Column]:
    found = []
    if topic.has_marks:
        found.append(F.when(F.col("_truncates"), F.lit("truncated")).alias("mark"))
    if topic.updates == "partial":
        found.append(F.col(PRESENT))
    if topic.history:
        own = [value(topic, topic.event_time)] if topic.event_time else []
        found.append(F.coalesce(*own, "event_time", "publish_time").alias("valid_from"))
    return found


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
    # The constant takes the type of the field: a cast of the field could fail on some message.
    equals = F.lit(rule.equals).cast(sql_type(topic.fields[rule.field]))
    return F.coalesce(value(topic, rule.field) == equals, F.lit(False))
