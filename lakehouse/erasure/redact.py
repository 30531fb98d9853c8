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

KEPT = "map_filter(t.properties, (name, value) -> array_contains(s.kept, name))"

Place = tuple[int, int, int, int]


class Redacted(NamedTuple):
    """A message's new content.

    place: the message's position, in the order of `POSITION_FIELDS`. properties: names of the
        properties that are kept, because fields are declared to come from them; the others are
        deleted.
    """

    place: Place
    key: str | None
    payload: bytes | None
    properties: tuple[str, ...] = ()


def redact(spark: SparkSession, table: Table, messages: Iterable[Redacted]) -> None:
    """Replace the keys and payloads of messages, and delete properties.

    Called by `lakehouse forget`. The stream that lands the topic must be stopped.
    """
    types = {column.name: column.type for column in ENVELOPE}
    ddl = ", ".join(f"`{name}` {types[name]}" for name in (*POSITION_FIELDS, "key", "payload"))
    content = [(*m.place, m.key, m.payload, list(m.properties)) for m in messages]
    rows = spark.createDataFrame(content, f"{ddl}, kept array<string>")
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
                "properties": KEPT,
                **dict.fromkeys(there, "NULL"),
            }
        )
        .execute()
    )
    table.set_property(spark, APPEND_ONLY, "true")
