"""Changelogs to current state (invariant 3): per key the message with the highest position.

One MERGE a batch. Its guard `source.position > target.position` makes any batch cut, any replay
and any duplicate give the same table; a delete stays as a tombstone, so that an older update
cannot bring the row back.
"""

from collections.abc import Sequence

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bronze.topics import Topic


def latest_per_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of the rows of each key, the one with the highest position."""
    rest = [name for name in rows.columns if name not in keys]
    latest = F.max_by(F.struct(*rest), "position").alias("latest")
    return rows.groupBy(*keys).agg(latest).select(*keys, "latest.*").select(*rows.columns)


def match(keys: Sequence[str]) -> str:
    """The join condition of a MERGE; keys are never NULL here."""
    return " AND ".join(f"t.`{key}` = s.`{key}`" for key in keys)


def apply_changes(state: DeltaTable, rows: DataFrame, topic: Topic) -> None:
    """Merge decoded rows of a changelog into its state table; replay-safe."""
    source = latest_per_key(rows, topic.key_columns)
    columns: dict[str, str | Column] = {name: f"s.`{name}`" for name in source.columns}
    (
        state.alias("t")
        .merge(source.alias("s"), match(topic.key_columns))
        .whenMatchedUpdate(condition="s.position > t.position", set=columns)
        .whenNotMatchedInsert(values=columns)
        .execute()
    )
