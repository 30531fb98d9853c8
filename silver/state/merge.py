"""Helpers for all MERGEs of silver: the latest row per key, the values to write, and the order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
