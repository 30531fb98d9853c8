"""What all MERGEs of silver need: the latest row per key, the values to write, and the order.

A MERGE by Spark takes a second however little it changes. If a batch and its table are small, the
driver therefore computes the rows that differ, and writes only these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.tables.spec import match
from lake.tables.table import Table
from silver.records.batch_stats import FEW, few

GONE = "_gone"  # whether a row is to be deleted

Find = Callable[[pa.Array], pa.Table]  # finds the rows of some keys, without Spark
Values = dict[str, str | Column]
Order = Mapping[str, Any]  # the values of the columns by which messages are ordered


def latest_per_key(
    rows: DataFrame, keys: Sequence[str], order: Sequence[str] = ("position",)
) -> DataFrame:
    """The last row of each key in the order of some columns."""
    rest = [name for name in rows.columns if name not in keys]
    latest = F.max_by(F.struct(*rest), F.struct(*order)).alias("latest")
    return rows.groupBy(*keys).agg(latest).select(*keys, "latest.*").select(*rows.columns)


def latest_here(
    rows: pa.Table, keys: Sequence[str], order: Sequence[str] = ("position",)
) -> pa.Table:
    """As `latest_per_key`, for rows in the driver. Among equals, the last row stays.

    The order's columns are structs, or of types other than floating-point numbers.
    """
    parts: list[pa.Array] = []
    for name in order:
        column = rows[name].combine_chunks()
        parts += column.flatten() if pa.types.is_struct(column.type) else [column]
    named = {str(number): part for number, part in enumerate(parts)}
    ascending = [(name, "ascending", "at_start") for name in named]  # NULL comes first
    sorted_ = pc.sort_indices(pa.table(named), ascending)
    rows = rows.take(sorted_)
    values = zip(*(rows[key].to_pylist() for key in keys), strict=True)
    latest = {key: n for n, key in enumerate(values)}
    return rows.take(pa.array(latest.values(), pa.int64()))


@dataclass(frozen=True)
class Merge:
    """What a MERGE does to a table `t` with the rows `s` of a source.

    source: the rows, at most one for each key.
    keys: the columns that identify a row in both.
    changed: the condition for updating a row that both have, and its new values.
    inserted: the values of a row that only the source has; without them, there is no such row.
    equals: how keys are compared: `=`, or `<=>` if they may be NULL.
    deleted: the condition for deleting a row that only the table has.
    left: the condition for updating such a row otherwise, and its new values.
    """

    source: DataFrame
    keys: Sequence[str]
    changed: tuple[Column, Values]
    inserted: Values | None = None
    equals: str = "="
    deleted: Column | None = None
    left: tuple[Column, Values] | None = None

    def run(self, table: DeltaTable) -> None:
        """Let Spark merge the rows."""
        same, (condition, values) = match(self.keys, self.equals), self.changed
        merge = table.alias("t").merge(self.source.alias("s"), same)
        merge = merge.whenMatchedUpdate(condition=condition, set=values)
        if self.inserted is not None:
            merge = merge.whenNotMatchedInsert(values=self.inserted)
        if self.deleted is not None:
            merge = merge.whenNotMatchedBySourceDelete(self.deleted)
        if self.left is not None:
            condition, values = self.left
            merge = merge.whenNotMatchedBySourceUpdate(condition=condition, set=values)
        merge.execute()

    def difference(self, rows: DataFrame) -> DataFrame:
        """The rows that the MERGE would write or delete, as `write_difference` takes them.

        Args:
            rows: all rows of the table.
        """
        mine = rows.withColumn("_in_t", F.lit(True)).alias("t")
        new = self.source.withColumn("_in_s", F.lit(True)).alias("s")
        keeps_others = self.deleted is None and self.left is None
        same = F.expr(match(self.keys, self.equals))
        both = mine.join(new, same, "right" if keeps_others else "full")
        never, nothing = F.lit(False), dict[str, str | Column]()
        condition, values = self.changed
        left, left_values = self.left or (never, nothing)
        deleted = never if self.deleted is None else self.deleted
        in_t, in_s = F.col("_in_t").isNotNull(), F.col("_in_s").isNotNull()
        what = (
            F.when(~in_t, "insert" if self.inserted is not None else None)
            .when(in_s, F.when(condition, "update"))
            .when(deleted, "delete")
            .when(left, "left")
        )
        both, action = both.withColumn("_what", what), F.col("_what")

        def column(name: str) -> Column:
            known, kind = F.col(f"t.`{name}`"), rows.schema[name].dataType
            cases = {"insert": (self.inserted or {}).get(name, F.lit(None))}
            cases |= {"update": values.get(name, known), "left": left_values.get(name, known)}
            found = F.when(action == "delete", known)
            for case, value in cases.items():
                value = F.expr(value) if isinstance(value, str) else value
                found = found.when(action == case, value.cast(kind))
            return found.alias(name)

        return both.where(action.isNotNull()).select(
            *map(column, rows.columns), (action == "delete").alias(GONE)
        )


def apply_merge(table: Table, merge: Merge, *, small: bool) -> None:
    """Do what a MERGE does, without Spark's MERGE if the batch and the table are small."""
    spark = merge.source.sparkSession
    known = table.few_rows(spark) if small else None
    if known is None:
        merge.run(table.spark(spark))
    else:
        difference = merge.difference(known)
        write_difference(table, difference, merge.keys, equals=merge.equals, small=True)


def write_difference(
    table: Table, source: DataFrame, key: Sequence[str], *, equals: str = "=", small: bool
) -> None:
    """Write the rows by which a table differs from what it should be, in one commit.

    If they are few, and in small files, the driver writes them without Spark.

    Args:
        table: the table.
        source: the rows to insert, or to write in place of those with the same key, and, marked by
            the column `GONE`, those to delete. It may be computed twice.
        key: the columns that identify a row.
        equals: how keys are compared: `=`, or `<=>` if they may be NULL.
        small: whether the batch has few rows.
    """
    if small:
        rows = source.limit(FEW + 1).toArrow()
        direct = table.arrow
        if not rows.num_rows:
            return
        if few(rows.num_rows) and direct.rewrites_little(rows, key):
            is_gone, rows = rows[GONE], rows.drop_columns([GONE])
            direct.upsert(rows.filter(pc.invert(is_gone)), key, rows.filter(is_gone))
            return
    source = source.persist()  # the MERGE reads it twice
    try:
        if not source.isEmpty():
            merge_difference(table, source, match(key, equals))
    finally:
        source.unpersist()


def merge_difference(table: Table, source: DataFrame, same: str) -> None:
    """Write a difference by Spark's MERGE.

    Args:
        table: the table.
        source: the rows, as for `write_difference`.
        same: the condition that a row `t` of the table has the key of a row `s` of the source.
    """
    values = all_of(source.drop(GONE))
    (
        table.spark(source.sparkSession)
        .alias("t")
        .merge(source.alias("s"), same)
        .whenMatchedDelete(condition=f"s.{GONE}")
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert(condition=f"NOT s.{GONE}", values=values)
        .execute()
    )


def comparable(column: str, kind: str) -> str:
    """An expression that is equal for equal values of a column, also if they have maps.

    Spark cannot compare maps. Their text in JSON is the same for the same pairs in the same order.

    Args:
        column: the quoted name of the column.
        kind: the type of the column.
    """
    exact = "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX')"
    return f"to_json({column}, {exact})" if "map<" in kind else column


def all_of(source: DataFrame) -> Values:
    """The columns of a MERGE's source, as the values to write."""
    return {name: f"s.`{name}`" for name in source.columns}


def is_older(row: str, order: Order) -> Column:
    """Whether a row comes before an order. Fields are compared one by one; NULL comes first."""
    fields = {name: value for name, value in order.items() if name != "position"}
    fields |= {f"position.{name}": value for name, value in order["position"].items()}
    older = F.lit(False)
    for name, value in reversed(fields.items()):
        column = F.col(f"{row}{name}")
        if value is None:
            older = column.isNull() & older
        else:
            older = column.isNull() | (column < F.lit(value)) | ((column == F.lit(value)) & older)
    return older
