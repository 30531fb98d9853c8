"""Applies changelogs to the current state (invariant 3): the latest message of each key.

The latest message has the highest position or, if the topic declares a sequence, the highest
sequence and then the highest position. This is a total order. Each batch merges its rows, which
updates a row only if the source is later than the target. The table is therefore the same for any
split into batches, any replay and any duplicate. A deleted key stays as a tombstone, so that an
older update cannot bring the row back.

A message that truncates stays as a row without a key, marked `truncated`. Every older row is
deleted, even if it arrives later.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.tables.arrow import ArrowTable
from lake.tables.table import Table
from lake.topics.topic import Topic, snake_case
from silver.state.merge import (
    Find,
    Merge,
    Order,
    all_of,
    apply_merge,
    is_older,
    latest_here,
    latest_per_key,
)
from silver.state.partial_updates import apply_partial_changes


def apply_changes(state: Table, find: Find, rows: DataFrame, topic: Topic, *, small: bool) -> None:
    """Merge decoded rows of a changelog into its state table. A replay changes nothing.

    Args:
        state: the table.
        find: finds rows of the table by their keys; used only if the key is one column.
        rows: the decoded rows that are good.
        topic: the changelog.
        small: whether there are few rows.
    """
    if topic.merged_into:  # until `merge_chains.py` has followed the chain
        known = F.coalesce(snake_case(topic.merged_into), topic.key_columns[0])
        rows = rows.withColumn("resolved_id", known)
    truncation = None
    if topic.truncates:
        rows, truncation = _see_truncations(state.rows(rows.sparkSession), rows, topic)
    if topic.merges_fields:
        apply_partial_changes(state, rows, topic, truncation, small=small)
    elif topic.truncates:
        _apply_with_truncation(state, rows, topic, truncation, small=small)
    else:
        source = latest_per_key(rows, topic.key_columns, topic.order_columns)
        direct = state.arrow
        if small and len(topic.key) == 1 and direct.finds_by(topic.key_columns[0]):
            _apply_small(state, direct, find, source, topic)
        else:
            apply_merge(state, merge_later(source, topic.key_columns, topic), small=small)


def _apply_small(
    state: Table, direct: ArrowTable, find: Find, source: DataFrame, topic: Topic
) -> None:
    """Write the rows in the driver, or let Spark update known keys if they are in large files.

    A MERGE that may insert brings all rows of the state together with those of the batch. A MERGE
    that only updates broadcasts the batch to the state. In a replay, all keys are known.
    """
    [key], changes = topic.key_columns, source.toArrow()
    known = find(changes[key].combine_chunks())[key].combine_chunks()
    is_known = pc.is_in(changes[key], known)
    updates, new = changes.filter(is_known), changes.filter(pc.invert(is_known))
    if updates.num_rows and _is_little(updates, direct, topic):
        later = _later(updates, direct, topic)
        if later.num_rows:
            direct.upsert(pa.concat_tables([later, new]), [key])
            return
    elif updates.num_rows:
        spark = source.sparkSession
        rows = F.broadcast(spark.createDataFrame(updates, source.schema))
        Merge(rows, [key], (is_later(topic), all_of(rows))).run(state.spark(spark))
    if new.num_rows:
        direct.append(new)


def _is_little(updates: pa.Table, direct: ArrowTable, topic: Topic) -> bool:
    """Whether rows can be compared and written without Spark, where NaN is no number."""
    is_same = not any(pa.types.is_floating(updates[name].type) for name in topic.order_columns)
    return is_same and direct.rewrites_little(updates, topic.key_columns)


def _later(updates: pa.Table, direct: ArrowTable, topic: Topic) -> pa.Table:
    """The rows that are later than those of the state with the same key."""
    [key], order = topic.key_columns, topic.order_columns
    known = direct.find(key, updates[key].combine_chunks(), order)
    came = updates.select([key, *order]).append_column(
        "_row", pa.array(range(updates.num_rows), pa.int64())
    )
    known = known.cast(came.select([key, *order]).schema)
    both = [came, known.append_column("_row", pa.nulls(known.num_rows, pa.int64()))]
    latest = latest_here(pa.concat_tables(both), [key], order)
    return updates.take(latest["_row"].drop_null())


def is_later(topic: Topic) -> Column:
    """Whether a row `s` comes after a row `t` in the topic's order."""
    later, known = (
        F.struct(*(F.col(f"{row}.`{name}`") for name in topic.order_columns)) for row in "st"
    )
    return later > known


def merge_later(source: DataFrame, keys: Sequence[str], topic: Topic, equals: str = "=") -> Merge:
    """A MERGE that inserts new rows, and updates rows that come earlier in the order."""
    values = all_of(source)
    return Merge(source, keys, (is_later(topic), values), values, equals)


def _see_truncations(
    state: DataFrame, rows: DataFrame, topic: Topic
) -> tuple[DataFrame, Order | None]:
    """Remove the rows that are older than the latest truncation.

    Returns:
        The other rows, and the order of the latest truncation if the rows have a truncation.
    """
    order = F.struct(*topic.order_columns).alias("order")
    known, new = (
        each.where("mark = 'truncated'").select(order, F.lit(is_new).alias("is_new"))
        for each, is_new in ((state, False), (rows, True))
    )
    [[latest, any_new]] = known.unionAll(new).agg(F.max("order"), F.bool_or("is_new")).collect()
    if latest is None:
        return rows, None
    latest = latest.asDict(recursive=True)
    if topic.snapshot_end:  # the rows of the snapshot have the same sequence, and are not older
        latest["position"] = dict.fromkeys(latest["position"])
    return rows.where(~is_older("", latest)), latest if any_new else None


def _apply_with_truncation(
    state: Table, rows: DataFrame, topic: Topic, truncation: Order | None, *, small: bool
) -> None:
    """Merge the rows, and delete rows of the state that are older than a new truncation."""
    keys = [*topic.key_columns, "mark"]
    source = latest_per_key(rows, keys, topic.order_columns)
    # The keys of marks are NULL, and NULLs must be equal for them to match.
    merge = merge_later(source, keys, topic, "<=>")
    if truncation is not None:
        merge = replace(merge, deleted=is_older("t.", truncation))
    apply_merge(state, merge, small=small)
