"""Type 2 history of a changelog: every version of a row, valid by event time.

A version is valid from its own event time until that of the next one. Versions may arrive in any
order: those of the keys of a batch are woven anew, and only what has changed is written, so a
replay changes nothing. Of versions with the same event time the last in order is the valid one,
and the others are valid for no time at all.
"""

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bronze.declarations import Topic
from bronze.tables import match
from silver.merging import all_of


def apply_history(history: DeltaTable, rows: DataFrame, topic: Topic) -> None:
    """Merge decoded rows of a changelog, with `valid_from`, into its history; replay-safe."""
    keys = topic.key_columns
    touched = F.broadcast(rows.select(*keys).distinct())
    known = history.toDF().drop("valid_to").join(touched, keys, "left_semi")
    every = rows.select(*known.columns).dropDuplicates([*keys, "position"])
    fresh = every.join(known.select(*keys, "position"), [*keys, "position"], "left_anti")
    spans = Window.partitionBy(*keys).orderBy("valid_from", *topic.order_columns)
    woven = known.unionByName(fresh).withColumn("valid_to", F.lead("valid_from").over(spans))
    (
        history.alias("t")
        .merge(woven.alias("s"), match([*keys, "position"]))
        .whenMatchedUpdate(
            condition="NOT (t.valid_to <=> s.valid_to)", set={"valid_to": "s.valid_to"}
        )
        .whenNotMatchedInsert(values=all_of(woven))
        .execute()
    )
