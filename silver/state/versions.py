"""SCD type 2 history whose versions are made from several messages.

This concerns changelogs with tracked columns, whose other columns are updated in place, and those
whose messages set only some fields. `<topic>_changes` keeps all messages. For the keys of a batch,
all versions are made again from them, and only differences are written. The history is therefore
the same for any order of arrival, any split into batches and any replay.

- If a message sets only some fields, the others have their values as of its event time: those of
  the latest earlier messages that set them, by event time and then by order. A delete clears them.
- Each message makes a version, valid until that of the next one (`scd2.py`). Versions that are
  valid at no instant are left out.
- Versions that follow one another without a gap, and have the same tracked values, become one. It
  begins with the first of them, and has the other values of the last one.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lake.tables.table import Table
from lake.topics.topic import Topic, snake_case
from silver.contract.columns import PRESENT, registers
from silver.state.merge import GONE, comparable, write_difference
from silver.state.scd2 import TRUNCATES, truncations, weave

AGAIN = "silver_batch"  # says nothing about a version


def apply_versions(
    history: Table, changes: Table, rows: DataFrame, topic: Topic, batch_id: int, *, small: bool
) -> None:
    """Add decoded rows of a changelog to its changes, and bring its history up to date.

    Called for each batch. A replay changes nothing.

    Args:
        history: the table of the versions.
        changes: the table of the messages.
        rows: the decoded rows, with `valid_from` and `silver_batch`.
        topic: the changelog.
        batch_id: the batch, which changed versions get as their `silver_batch`.
        small: whether there are few rows.
    """
    known = changes.rows(rows.sparkSession)
    came = rows.select(*known.columns).dropDuplicates(["position"])
    new = came.join(known.select("position"), "position", "left_anti").select(*known.columns)
    every = known.unionByName(new)
    is_whole = topic.truncates and not rows.where(TRUNCATES).isEmpty()  # touches all keys
    keys = None if is_whole else rows.select(*topic.key_columns).distinct()
    remake(history, every, topic, batch_id, keys, small=small)
    # The last step, because a batch that is repeated makes the same versions with or without it.
    if small:
        found = new.toArrow()
        if found.num_rows:
            changes.arrow.append(found)
    else:
        new.write.format("delta").mode("append").save(changes.path)


def remake(
    history: Table,
    changes: DataFrame,
    topic: Topic,
    batch_id: int,
    keys: DataFrame | None,
    *,
    small: bool,
) -> None:
    """Make the versions of some keys again from all changes, or of all keys."""
    touched, before = changes, history.rows(changes.sparkSession)
    if keys is not None:
        touched, before = (
            each.join(F.broadcast(keys), topic.key_columns, "left_semi")
            for each in (touched, before)
        )
    if topic.truncates:
        touched = touched.crossJoin(F.broadcast(truncations(changes, topic)))
    now = made_of(touched, topic).select(*before.columns)
    source = _differences(before, now, topic).withColumn(AGAIN, F.lit(batch_id).cast("bigint"))
    write_difference(history, source, [*topic.key_columns, "valid_from"], small=small)


def made_of(changes: DataFrame, topic: Topic) -> DataFrame:
    """The versions of some keys, from all of their changes."""
    folded = _folded(changes, topic) if topic.merges_fields else changes
    woven = weave(folded, topic)
    is_valid = F.col("valid_to").isNull() | (F.col("valid_from") < F.col("valid_to"))
    if topic.truncates:
        is_valid = is_valid & F.col("mark").isNull()
    valid = woven.where(is_valid)
    return valid if topic.tracked is None else _joined(valid, topic, topic.tracked)


def _folded(changes: DataFrame, topic: Topic) -> DataFrame:
    """Each message with the values that its row has as of its event time."""
    so_far, of_life = (
        Window.partitionBy(*keys)
        .orderBy("valid_from", *topic.order_columns)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
        for keys in (topic.key_columns, [*topic.key_columns, "_deleted"])
    )
    # A delete begins the life of a key in which later fields are set.
    numbered = changes.withColumn("_deleted", F.count_if("is_deleted").over(so_far))
    sets = ~F.col("is_deleted")
    fields = {
        column: F.last(
            F.when(sets & F.array_contains(PRESENT, name), F.struct(F.col(column).alias("value"))),
            ignorenulls=True,
        ).over(of_life)
        for column, name in registers(topic).items()
    }
    found = numbered.withColumns({f"_set_{n}": x for n, x in fields.items()})
    values = {name: F.col(f"_set_{name}.value") for name in fields}
    return found.withColumns(values).drop("_deleted", *(f"_set_{name}" for name in fields))


def _joined(versions: DataFrame, topic: Topic, tracked: list[str]) -> DataFrame:
    """Join versions that follow one another, and whose tracked values are the same."""
    in_time = Window.partitionBy(*topic.key_columns).orderBy("valid_from")
    values = [F.col(snake_case(name)) for name in tracked]
    ends = F.struct(F.col("valid_to").alias("_end"), F.col("is_deleted"), *values)
    before = F.lag(ends).over(in_time)
    same = [
        before["_end"].eqNullSafe(F.col("valid_from")),
        before["is_deleted"].eqNullSafe(F.col("is_deleted")),
        *(before[snake_case(name)].eqNullSafe(F.col(snake_case(name))) for name in tracked),
    ]
    begins = (~reduce(Column.__and__, same)).cast("int")
    numbered = versions.withColumn("_begin", begins)
    numbered = numbered.withColumn("_row", F.sum("_begin").over(in_time))
    rest = [n for n in versions.columns if n not in (*topic.key_columns, "valid_from")]
    last = F.max_by(F.struct(*rest), F.col("valid_from")).alias("_version")
    grouped = numbered.groupBy(*topic.key_columns, "_row")
    found = grouped.agg(F.min("valid_from").alias("valid_from"), last)
    return found.select(*topic.key_columns, "valid_from", "_version.*")


def _differences(before: DataFrame, now: DataFrame, topic: Topic) -> DataFrame:
    """The versions that are new or differ, and those that are gone."""
    keys = [*topic.key_columns, "valid_from"]
    rest = [name for name in now.columns if name not in (*keys, AGAIN)]
    kinds = {each.name: each.dataType.simpleString() for each in now.schema}
    equal = [
        F.expr(" <=> ".join(comparable(f"{row}.`{name}`", kinds[name]) for row in "bn"))
        for name in (*keys, *rest)
    ]
    joined = before.alias("b").join(
        now.alias("n"), [F.col(f"b.{key}") == F.col(f"n.{key}") for key in keys], "full"
    )
    gone = F.col("n.valid_from").isNull()
    found = [
        F.when(gone, F.col(f"b.{name}")).otherwise(F.col(f"n.{name}")).alias(name)
        for name in now.columns
        if name != AGAIN
    ]
    differs = ~reduce(Column.__and__, equal)
    return joined.where(differs).select(*found, gone.alias(GONE))
