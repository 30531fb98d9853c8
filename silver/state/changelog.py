"""Changelogs to current state (invariant 3): per key the latest message.

The latest is that with the highest position, or, where the topic declares a sequence, the highest
sequence and then position: a total order. One MERGE a batch. Its guard, source later than target,
makes any batch cut, any replay and any duplicate give the same table; a delete stays as a
tombstone, so that an older update cannot bring the row back.

A message that truncates stays as a row without a key, marked `truncated`: what is older than it,
whenever it comes, is deleted.
"""

from typing import Any

import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lake.tables.arrow import DirectTable
from lake.tables.table import match
from lake.topics.topic import Topic, snake_case
from silver.state.merge import Find, Order, all_of, is_older, latest_per_key
from silver.state.partial_updates import apply_partial_changes


def apply_changes(
    state: DeltaTable,
    direct: DirectTable,
    find: Find,
    rows: DataFrame,
    topic: Topic,
    *,
    small: bool,
) -> None:
    """Merge decoded rows of a changelog into its state table; replay-safe.

    Args:
        state: the table, as Spark opens it.
        direct: the same, as we open it.
        find: its rows of some values of its key, if that is one column.
        rows: decoded rows without reasons to refuse them.
        topic: the changelog.
        small: whether there are few rows.
    """
    if topic.merged_into:  # until `merged.py` has followed the chain
        known = F.coalesce(snake_case(topic.merged_into), topic.key_columns[0])
        rows = rows.withColumn("resolved_id", known)
    truncation = None
    if topic.truncates:
        rows, truncation = _see_truncations(state, rows, topic)
    if topic.updates == "partial":
        apply_partial_changes(state, rows, topic, truncation)
    elif topic.truncates:
        _apply_with_truncation(state, rows, topic, truncation)
    else:
        source = latest_per_key(rows, topic.key_columns, topic.order_columns)
        if small and len(topic.key) == 1 and direct.finds_by(topic.key_columns[0]):
            _apply_small(state, direct, find, source, topic)
        else:
            merge_later(state, source, match(topic.key_columns), topic).execute()


def _apply_small(
    state: DeltaTable, direct: DirectTable, find: Find, source: DataFrame, topic: Topic
) -> None:
    """Append the keys that are new, and update the others: Spark then need not sort the state.

    A MERGE that may insert brings all rows of the state together with those of the batch. One that
    only updates sends the batch to where the state is. A replay finds all keys known.
    """
    [key], changes = topic.key_columns, source.toArrow()
    known = find(changes[key].combine_chunks())[key].combine_chunks()
    is_known = pc.is_in(changes[key], known)
    updates, new = changes.filter(is_known), changes.filter(pc.invert(is_known))
    if updates.num_rows:
        rows = source.sparkSession.createDataFrame(updates, source.schema)
        _update(state, F.broadcast(rows), match([key]), topic).execute()
    if new.num_rows:
        direct.append(new)


def _update(state: DeltaTable, source: DataFrame, condition: str, topic: Topic) -> Any:
    later = " > ".join(
        f"struct({', '.join(f'{row}.`{name}`' for name in topic.order_columns)})" for row in "st"
    )
    merge = state.alias("t").merge(source.alias("s"), condition)
    return merge.whenMatchedUpdate(condition=later, set=all_of(source))


def merge_later(state: DeltaTable, source: DataFrame, condition: str, topic: Topic) -> Any:
    """A MERGE that inserts rows, and updates those that come before them in the order."""
    return _update(state, source, condition, topic).whenNotMatchedInsert(values=all_of(source))


def _see_truncations(
    state: DeltaTable, rows: DataFrame, topic: Topic
) -> tuple[DataFrame, Order | None]:
    """The rows without those older than the latest truncation, and its order if it is of them."""
    order = F.struct(*topic.order_columns).alias("order")
    known, new = (
        each.where("mark = 'truncated'").select(order, F.lit(is_new).alias("is_new"))
        for each, is_new in ((state.toDF(), False), (rows, True))
    )
    [[latest, any_new]] = known.unionAll(new).agg(F.max("order"), F.bool_or("is_new")).collect()
    if latest is None:
        return rows, None
    latest = latest.asDict(recursive=True)
    return rows.where(~is_older("", latest)), latest if any_new else None


def _apply_with_truncation(
    state: DeltaTable, rows: DataFrame, topic: Topic, truncation: Order | None
) -> None:
    """As without, and what is older than a new truncation is deleted."""
    keys = [*topic.key_columns, "mark"]
    source = latest_per_key(rows, keys, topic.order_columns)
    # The keys of a mark are NULL, and so equal to each other.
    merge = merge_later(state, source, match(keys, "<=>"), topic)
    if truncation is not None:
        merge = merge.whenNotMatchedBySourceDelete(is_older("t.", truncation))
    merge.execute()
