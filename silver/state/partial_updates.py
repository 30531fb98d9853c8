"""Applies partial updates: a message changes only the fields that it has.

Each field is a last-writer-wins field (a register): the latest message that has the field sets its
value, and a delete clears older values. The column `orders` keeps the order of the latest message
for each field. The row is therefore the same for any split into batches, any replay and any order
of arrival (invariant 3). A truncation removes all older values, register by register, as if they
had never existed.

If tombstones are collected, a row that begins after the mark keeps the mark as `_collected`.
Nothing is known of its key before the mark, so `tombstones.py` rejects older messages.
"""

from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.tables.table import Table
from lake.topics.topic import Topic
from silver.contract.columns import COLLECTED, DELETED, PRESENT, UPSERTED, registers
from silver.state.merge import Merge, Order, Values, all_of, apply_merge, is_older


def apply_partial_changes(
    state: Table, rows: DataFrame, topic: Topic, truncation: Order | None, *, small: bool
) -> None:
    """Merge decoded rows of a changelog with partial updates into its state.

    Called for each batch. A replay changes nothing.

    Args:
        state: the state table.
        rows: the decoded rows, none older than the latest truncation.
        topic: the changelog.
        truncation: the order of the latest truncation, if the batch has a truncation.
        small: whether there are few rows.
    """
    source = _of_batch(state, rows, topic)
    fields, known = registers(topic), _known(topic, truncation)
    has_older = reduce(
        Column.__or__,
        (F.col(f"t.orders.{n}").isNotNull() & order.isNull() for n, order in known.items()),
    )
    inserted = all_of(source)
    bare = {name: F.col(f"s.orders.{name}") for name in known}
    inserted |= _cleared({name: F.col(f"s.{name}") for name in fields}, bare)
    anything, values = _changed(topic, known)
    merge = Merge(source, topic.key_columns, (anything | has_older, values), inserted)
    if topic.truncates:  # the keys of marks are NULL, and NULLs must be equal for them to match
        merge = replace(merge, keys=[*topic.key_columns, "mark"], equals="<=>")
    if truncation is not None:
        left: Values = {**_cleared(_kept(topic, known), known), "orders": _orders(known, topic)}
        is_left = F.col("t.mark").isNull() & has_older
        merge = replace(merge, deleted=is_older("t.", truncation), left=(is_left, left))
    apply_merge(state, merge, small=small)


def _changed(topic: Topic, known: dict[str, Column]) -> tuple[Column, Values]:
    """Whether a row of the batch changes the state's row, and the combined values of both."""
    orders = {name: F.greatest(before, F.col(f"s.orders.{name}")) for name, before in known.items()}
    later = {name: _is_later(F.col(f"s.orders.{name}"), before) for name, before in known.items()}
    anything = reduce(Column.__or__, later.values())
    newest = _is_later(_newest("s"), _newest("t"))
    taken = {
        name: F.when(later[name], F.col(f"s.{name}")).otherwise(before)
        for name, before in _kept(topic, known).items()
    }
    latest = dict.fromkeys((*topic.order_columns, "publish_time"), newest)
    latest["silver_batch"] = anything
    values: Values = {
        **_cleared(taken, orders),
        **{n: F.when(x, F.col(f"s.{n}")).otherwise(F.col(f"t.{n}")) for n, x in latest.items()},
        "orders": _orders(orders, topic),
    }
    return anything, values


def _known(topic: Topic, truncation: Order | None) -> dict[str, Column]:
    """The order of each register of the state, NULL if a truncation removes its value."""
    found = {n: F.col(f"t.orders.{n}") for n in (UPSERTED, DELETED, *registers(topic))}
    if truncation is None:
        return found
    return {n: F.when(~is_older(f"t.orders.{n}.", truncation), x) for n, x in found.items()}


def _kept(topic: Topic, known: dict[str, Column]) -> dict[str, Column]:
    """The value of each register of the state, NULL if a truncation removes it."""
    return {n: F.when(known[n].isNotNull(), F.col(f"t.{n}")) for n in registers(topic)}


def _orders(orders: dict[str, Column], topic: Topic) -> Column:
    """The new column `orders` of a row of the state; `_collected` does not change."""
    if topic.tombstones_days is not None:
        orders = {**orders, COLLECTED: F.col(f"t.orders.{COLLECTED}")}
    return F.struct(*(column.alias(name) for name, column in orders.items()))


def _of_batch(state: Table, rows: DataFrame, topic: Topic) -> DataFrame:
    """One row per key: the latest value of each register, and the order of its message."""
    order, upsert = F.struct(*topic.order_columns), ~F.col("is_deleted")
    fields = registers(topic)
    keys = [*topic.key_columns, *(["mark"] if topic.has_marks else [])]
    latest = [*topic.order_columns, "publish_time", "silver_batch"]
    set_at = {UPSERTED: F.when(upsert, order), DELETED: F.when(F.col("is_deleted"), order)}
    set_at |= {
        column: F.when(upsert & F.array_contains(PRESENT, name), order)
        for column, name in fields.items()
    }
    if topic.tombstones_days is not None:
        known = state.rows(rows.sparkSession)
        collected = known.where("mark = 'collected'").agg(F.max(order).alias("_mark"))
        rows = rows.crossJoin(F.broadcast(collected))
        set_at[COLLECTED] = F.col("_mark")
    grouped = rows.groupBy(*keys).agg(
        F.max_by(F.struct(*latest), order).alias("latest"),
        F.struct(*(F.max(column).alias(name) for name, column in set_at.items())).alias("orders"),
        *(F.max_by(name, set_at[name]).alias(name) for name in fields),
    )
    columns = [*keys, *fields, "latest.*", "orders"]
    deleted = _is_deleted({name: F.col(f"orders.{name}") for name in (UPSERTED, DELETED)})
    return grouped.select(*columns).withColumn("is_deleted", deleted)


def _is_later(one: Column, other: Column) -> Column:
    return F.coalesce(one > other, one.isNotNull() & other.isNull())


def _newest(row: str) -> Column:
    return F.greatest(F.col(f"{row}.orders.{UPSERTED}"), F.col(f"{row}.orders.{DELETED}"))


def _is_deleted(orders: dict[str, Column]) -> Column:
    return _is_later(orders[DELETED], orders[UPSERTED])


def _cleared(fields: dict[str, Column], orders: dict[str, Column]) -> dict[str, Column]:
    """The values of the registers, NULL if a delete is later, and the value of `is_deleted`."""
    values = {
        name: F.when(~_is_later(orders[DELETED], orders[name]), column)
        for name, column in fields.items()
    }
    return {**values, "is_deleted": _is_deleted(orders)}
