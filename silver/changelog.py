"""Changelogs to current state (invariant 3): per key the latest message.

The latest is that with the highest position, or, where the topic declares a sequence, the highest
sequence and then position: a total order. One MERGE a batch. Its guard, source later than target,
makes any batch cut, any replay and any duplicate give the same table; a delete stays as a
tombstone, so that an older update cannot bring the row back.
"""

from collections.abc import Sequence

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bronze.topics import Topic, snake_case


def latest_per_key(
    rows: DataFrame, keys: Sequence[str], order: Sequence[str] = ("position",)
) -> DataFrame:
    """Of the rows of each key, the one that comes last in the order of some columns."""
    rest = [name for name in rows.columns if name not in keys]
    latest = F.max_by(F.struct(*rest), F.struct(*order)).alias("latest")
    return rows.groupBy(*keys).agg(latest).select(*keys, "latest.*").select(*rows.columns)


def match(keys: Sequence[str]) -> str:
    """The join condition of a MERGE; keys are never NULL here."""
    return " AND ".join(f"t.`{key}` = s.`{key}`" for key in keys)


def apply_changes(state: DeltaTable, rows: DataFrame, topic: Topic) -> None:
    """Merge decoded rows of a changelog into its state table; replay-safe."""
    order = [*(snake_case(name) for name in topic.sequence), "position"]
    source = latest_per_key(rows, topic.key_columns, order)
    later = " > ".join(f"struct({', '.join(f'{row}.`{n}`' for n in order)})" for row in "st")
    columns: dict[str, str | Column] = {name: f"s.`{name}`" for name in source.columns}
    (
        state.alias("t")
        .merge(source.alias("s"), match(topic.key_columns))
        .whenMatchedUpdate(condition=later, set=columns)
        .whenNotMatchedInsert(values=columns)
        .execute()
    )
