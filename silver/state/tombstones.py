"""Deletes old tombstones, so that a state table does not grow forever.

Once a tombstone is collected, nothing shows that its key was deleted. A mark therefore records up
to which order tombstones were collected. A message before the mark whose key is not in the table
may be older than the delete. It goes to quarantine and never brings the row back.

If messages are ordered by position, there is one mark per partition. Each partition is read in
order, so all messages before its mark have been read, and only repeated messages are rejected. If
messages are ordered by a sequence, they may arrive in any order. There is then only one mark, and a
new key with an old sequence is rejected, too.
"""

import datetime as dt
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.tables.lake import Lake
from lake.topics.topic import Topic
from silver.contract.columns import COLLECTED, REASON
from silver.contract.tables import state_table
from silver.state.changelog import is_later
from silver.state.merge import all_of, is_older

MARK = "collected"
OLD_TOMBSTONE = "is_deleted AND mark IS NULL AND publish_time < timestamp '{}'"
MAY_BE_DELETED = "older than a collected tombstone, so its key may have been deleted since"

log = structlog.get_logger()


def refuse_collected(rows: DataFrame, topic: Topic, lake: Lake) -> DataFrame:
    """Add a reason to decoded rows whose key's tombstone may have been collected.

    Called for each batch of a topic with `tombstones_days`.
    """
    table = state_table(topic)
    marks = lake.table(table).arrow.rows(topic.order_columns, f"mark = '{MARK}'")
    if not marks:
        return rows
    suspect = reduce(or_, (_is_before(mark, topic) for mark in marks)) & F.col(REASON).isNull()
    suspect = suspect & ~_is_harmless(topic)
    keys = topic.key_columns
    suspects = rows.where(suspect).select(*keys).distinct().toArrow()
    if not suspects.num_rows:
        return rows
    is_partial = topic.merges_fields
    begin = F.col(f"orders.{COLLECTED}") if is_partial else F.lit(None)
    known = _telling(lake.table(table).rows(rows.sparkSession), topic)
    known = known.select(*keys, F.lit(True).alias("_known"), begin.alias("_begin"))
    unknown = F.broadcast(
        rows.sparkSession.createDataFrame(suspects)
        .join(known, keys, "left")
        .where("_known IS NULL OR _begin IS NOT NULL")
        .withColumn("_collected", F.lit(True))
    )
    if is_partial:
        before = F.struct(*topic.order_columns) < F.col("_begin")
        suspect = suspect & F.coalesce(before, F.lit(True))
    refused = F.when(suspect & F.col("_collected"), F.lit(MAY_BE_DELETED))
    return (
        rows.join(unknown, keys, "left")
        .withColumn(REASON, F.coalesce(REASON, refused))
        .select(*rows.columns)
    )


def collect_tombstones(spark: SparkSession, lake: Lake, topic: Topic, now: dt.datetime) -> int:
    """Delete the tombstones that are older than the topic's `tombstones_days`.

    Called by maintenance between two batches. The mark is written first, so that after a crash in
    between, the tombstones are collected the next time.

    Returns:
        The number of tombstones deleted.
    """
    table = state_table(topic)
    before = now - dt.timedelta(days=topic.tombstones_days or 0)
    old = OLD_TOMBSTONE.format(before.astimezone(dt.timezone.utc).isoformat())
    found = lake.table(table).rows(spark).where(old)
    place = [] if topic.sequence else [F.col("position.partition")]
    latest = F.max_by(F.struct("*"), F.struct(*topic.order_columns)).alias("latest")
    newest = found.groupBy(*place).agg(latest).where("latest IS NOT NULL").select("latest.*")
    no_key = {key: F.lit(None).cast(newest.schema[key].dataType) for key in topic.key_columns}
    marks = newest.withColumns({**no_key, "mark": F.lit(MARK)}).persist()
    try:
        count = found.count()
        if count:
            same = f"t.mark = '{MARK}'"
            if not topic.sequence:
                same += " AND t.position.partition = s.position.partition"
            state = lake.table(table).spark(spark)
            merge = state.alias("t").merge(marks.alias("s"), same)
            merge = merge.whenMatchedUpdate(condition=is_later(topic), set=all_of(marks))
            merge.whenNotMatchedInsert(values=all_of(marks)).execute()
            state.delete(old)
            log.info("tombstones collected", table=table.full_name, count=count)
        return count
    finally:
        marks.unpersist()


def _is_harmless(topic: Topic) -> Column:
    """Whether a row need not be rejected: a truncation, or a delete without a place in the order.

    A late delete with a sequence must be rejected. Its tombstone would admit messages between it
    and the delete whose tombstone was collected.
    """
    deletes = F.col("is_deleted")
    if topic.sequence:
        deletes = deletes & (F.col("mark").isNotNull() | F.col(_first(topic)).isNull())
    return deletes


def _telling(state: DataFrame, topic: Topic) -> DataFrame:
    """The rows that show the order of their key: not those deleted without a sequence."""
    return state.where(F.col(_first(topic)).isNotNull()) if topic.sequence else state


def _first(topic: Topic) -> str:
    return topic.order_columns[0]


def _is_before(mark: Mapping[str, Any], topic: Topic) -> Column:
    before = is_older("", mark)
    if not topic.sequence:
        before = before & (F.col("position.partition") == F.lit(mark["position"]["partition"]))
    return before
