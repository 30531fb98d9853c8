"""Overwrites messages in a bronze table in place: the only exception to "byte for byte".

The rows stay, so that the audit still balances. A replay skips these messages, because their
positions exist already.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.tables.spec import APPEND_ONLY, match
from lake.tables.table import Table
from pulsar_spark.schema import ENVELOPE, POSITION_FIELDS, RAW

Place = tuple[int, int, int, int]


class Redacted(NamedTuple):
    """A message's new content; its properties are deleted.

    place: the message's position, in the order of `POSITION_FIELDS`.
    """

    place: Place
    key: str | None
    payload: bytes | None


def redact(spark: SparkSession, table: Table, messages: Iterable[Redacted]) -> None:
    """Replace the keys and payloads of messages, and delete their properties.

    Called by `lakehouse forget`. The stream that lands the topic must be stopped.
    """
    types = {column.name: column.type for column in ENVELOPE}
    ddl = ", ".join(f"`{name}` {types[name]}" for name in (*POSITION_FIELDS, "key", "payload"))
    rows = spark.createDataFrame([(*m.place, m.key, m.payload) for m in messages], ddl)
    table.set_property(spark, APPEND_ONLY, None)
    opened = table.spark(spark)
    there = {*opened.toDF().columns} & {*RAW}  # tables of older versions lack them
    (
        opened.alias("t")
        .merge(F.broadcast(rows).alias("s"), match(POSITION_FIELDS))
        .whenMatchedUpdate(
            set={
                "key": "s.key",
                "payload": "s.payload",
                "properties": "CAST(map() AS map<string,string>)",
                **dict.fromkeys(there, "NULL"),
            }
        )
        .execute()
    )
    table.set_property(spark, APPEND_ONLY, "true")
