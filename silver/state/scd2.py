"""SCD type 2 history of a changelog: every version of a row, valid by event time.

A version is valid from its own event time until that of the next version. Versions may arrive in
any order. All versions of a batch's keys are computed again, and only changes are written, so a
replay changes nothing. If several versions have the same event time, the last in order is valid,
and the others have an empty validity.

A truncation is kept as a row without a key, marked `truncated`. At its event time, it ends all
versions of all keys that precede it in the order, even if they arrive later. A version that
precedes a truncation in the order, but has a later event time, has an empty validity and ends no
other version.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lake.tables.table import Table
from lake.topics.topic import Topic
from silver.state.merge import GONE, write_difference

TRUNCATES = "mark = 'truncated'"


def apply_history(history: Table, rows: DataFrame, topic: Topic, *, small: bool) -> None:
    """Merge decoded rows of a changelog, with `valid_from`, into its history.

    Called for each batch. A replay changes nothing.

    Args:
        history: the table of the versions.
        rows: the decoded rows, with `valid_from` and `silver_batch`.
        topic: the changelog.
        small: whether there are few rows.
    """
    keys, there = topic.key_columns, history.rows(rows.sparkSession)
    whole = there.drop("valid_to")
    every = rows.select(*whole.columns).dropDuplicates(["position"])
    known = there.withColumn("_was", F.struct("valid_to")).drop("valid_to")
    if not topic.truncates or every.where(TRUNCATES).isEmpty():  # a truncation touches all keys
        touched = F.broadcast(rows.select(*keys).distinct())
        known = known.join(touched, keys, "left_semi")
    fresh = every.join(known.select("position"), "position", "left_anti")
    woven = known.unionByName(fresh, allowMissingColumns=True)
    if topic.truncates:
        woven = woven.crossJoin(F.broadcast(truncations(whole.unionByName(every), topic)))
    woven = weave(woven, topic).where("_was IS NULL OR NOT (valid_to <=> _was.valid_to)")
    source = woven.select(*there.columns, F.lit(False).alias(GONE))
    equals = "<=>" if topic.truncates else "="
    write_difference(history, source, [*keys, "position"], equals=equals, small=small)


def truncations(rows: DataFrame, topic: Topic) -> DataFrame:
    """One row with all truncations, each with its order and event time."""
    order = [F.col(name) for name in topic.order_columns]
    if topic.snapshot_end:  # the rows of the snapshot have the same sequence, and are not older
        order[-1] = F.lit(None).cast(rows.schema["position"].dataType).alias("position")
    each = F.struct(F.struct(*order).alias("order"), F.col("valid_from").alias("at"))
    return rows.where(TRUNCATES).agg(F.collect_list(each).alias("_truncations"))


def weave(rows: DataFrame, topic: Topic) -> DataFrame:
    """Add `valid_to` to all versions of some keys.

    Args:
        rows: the versions. If the topic truncates, with the column `_truncations`.
        topic: the changelog.
    """
    latest_first = [F.desc(name) for name in ("valid_from", *topic.order_columns)]
    behind = (
        Window.partitionBy(*topic.key_columns)
        .orderBy(*latest_first)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    if not topic.truncates:
        return rows.withColumn("valid_to", F.min("valid_from").over(behind))
    cut = _truncated_at(topic)
    begins = F.when(F.coalesce(cut > F.col("valid_from"), F.lit(True)), F.col("valid_from"))
    end = F.least(F.min(begins).over(behind), cut)
    valid_to = F.when(F.col("mark").isNull() & end.isNotNull(), F.greatest("valid_from", end))
    return rows.withColumn("valid_to", valid_to)


def _truncated_at(topic: Topic) -> Column:
    """The earliest event time of the truncations after a version; NULL if there are none."""
    order = F.struct(*topic.order_columns)
    later = F.filter("_truncations", lambda each: each["order"] > order)
    return F.array_min(F.transform(later, lambda each: each["at"]))
