"""Partial updates: a message changes the fields that it has, and leaves the others alone.

Each field is a register of its own: the latest message that has the field decides it, and a delete
clears what is older. Which was the latest is kept for each field in the column `orders`, so any
batch cut, any replay and any order of arrival give the same row (invariant 3).
"""

from functools import reduce

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bronze.declarations import Topic, snake_case
from bronze.tables import match
from silver.merging import Values, all_of

UPSERTED, DELETED = "_upserted", "_deleted"


def registers(topic: Topic) -> dict[str, str]:
    """The fields that are registers, by their column."""
    rest = [name for name in topic.fields if name not in (*topic.key, *topic.sequence)]
    return {snake_case(name): name for name in rest}


def apply_partial_changes(state: DeltaTable, rows: DataFrame, topic: Topic) -> None:
    """Merge decoded rows of a changelog with partial updates into its state; replay-safe."""
    source = _of_batch(rows, topic)
    fields = registers(topic)
    orders = {
        name: F.greatest(F.col(f"t.orders.{name}"), F.col(f"s.orders.{name}"))
        for name in (UPSERTED, DELETED, *fields)
    }
    later = {
        name: _is_later(F.col(f"s.orders.{name}"), F.col(f"t.orders.{name}")) for name in orders
    }
    newest = _is_later(_newest("s"), _newest("t"))
    taken = {
        name: F.when(later[name], F.col(f"s.{name}")).otherwise(F.col(f"t.{name}"))
        for name in fields
    }
    latest = (*topic.order_columns, "publish_time")
    values: Values = {
        **_cleared(taken, orders),
        **{n: F.when(newest, F.col(f"s.{n}")).otherwise(F.col(f"t.{n}")) for n in latest},
        "orders": F.struct(*(column.alias(name) for name, column in orders.items())),
        "silver_batch": F.col("s.silver_batch"),
    }
    bare = {name: F.col(f"s.orders.{name}") for name in orders}
    inserted = all_of(source)
    inserted |= _cleared({name: F.col(f"s.{name}") for name in fields}, bare)
    anything = reduce(Column.__or__, later.values())
    (
        state.alias("t")
        .merge(source.alias("s"), match(topic.key_columns))
        .whenMatchedUpdate(condition=anything, set=values)
        .whenNotMatchedInsert(values=inserted)
        .execute()
    )


def _of_batch(rows: DataFrame, topic: Topic) -> DataFrame:
    """One row a key: of each register the latest value, and the order of what set it."""
    order, upsert = F.struct(*topic.order_columns), ~F.col("is_deleted")
    fields = registers(topic)
    latest = [*topic.order_columns, "publish_time", "silver_batch"]
    set_at = {
        column: F.when(upsert & F.array_contains("present", name), order)
        for column, name in fields.items()
    }
    set_at |= {UPSERTED: F.when(upsert, order), DELETED: F.when(F.col("is_deleted"), order)}
    grouped = rows.groupBy(*topic.key_columns).agg(
        F.max_by(F.struct(*latest), order).alias("latest"),
        F.struct(*(F.max(column).alias(name) for name, column in set_at.items())).alias("orders"),
        *(F.max_by(name, set_at[name]).alias(name) for name in fields),
    )
    columns = [*topic.key_columns, *fields, "latest.*", "orders"]
    deleted = _is_deleted({name: F.col(f"orders.{name}") for name in (UPSERTED, DELETED)})
    return grouped.select(*columns).withColumn("is_deleted", deleted)


def _is_later(one: Column, other: Column) -> Column:
    return F.coalesce(one > other, one.isNotNull() & other.isNull())


def _newest(row: str) -> Column:
    return F.greatest(F.col(f"{row}.orders.{UPSERTED}"), F.col(f"{row}.orders.{DELETED}"))


def _is_deleted(orders: dict[str, Column]) -> Column:
    return _is_later(orders[DELETED], orders[UPSERTED])


def _cleared(fields: dict[str, Column], orders: dict[str, Column]) -> dict[str, Column]:
    """The values of the registers, NULL where a delete is later, and `is_deleted`."""
    values = {
        name: F.when(~_is_later(orders[DELETED], orders[name]), column)
        for name, column in fields.items()
    }
    return {**values, "is_deleted": _is_deleted(orders)}
