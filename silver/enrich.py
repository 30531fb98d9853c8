"""Events with the rows they refer to (invariants 4 and 8): one table, one MERGE a batch.

A record is written at once, with NULL where the state has no row yet; the batch that brings the
row completes it, and leaves alone what was found before. Both happen in the same MERGE, so no
crash can separate them, and what is missing is a view of the table.

A later message for the same key replaces the record: a changed resend is an update.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bronze.topics import Topic
from silver.changelog import latest_per_key, match
from silver.tables import field_columns

BOOKKEEPING = ("position", "publish_time", "arrived_batch")


@dataclass(frozen=True)
class LookupState:
    """One lookup as a batch finds it.

    name: the struct column it fills. on: the record's column that refers to it. key: the key
    column of the state. columns: what of the state goes into the struct. state: the state table
    after this batch. changed: rows of the keys that this batch touched, None if it touched none.
    """

    name: str
    on: str
    key: str
    columns: list[str]
    state: DataFrame
    changed: DataFrame | None

    @property
    def version(self) -> str:
        """The column that names the version of the row."""
        return f"{self.name}_position"


def apply_events(
    enriched: DeltaTable,
    rows: DataFrame | None,
    topic: Topic,
    lookups: Sequence[LookupState],
    batch_id: int,
) -> None:
    """Merge a batch into `silver.enriched_<topic>`; replay-safe.

    Args:
        enriched: the table.
        rows: decoded records of the batch, None if it has none.
        topic: the events topic.
        lookups: its lookups.
        batch_id: id of the batch.
    """
    table = enriched.toDF()
    columns = [*(c.name for c in field_columns(topic)), *BOOKKEEPING]
    columns += [name for lookup in lookups for name in (lookup.name, lookup.version)]
    parts = [rows.select(*columns) for rows in waiting_for(table, lookups)]
    if rows is not None:
        unknown = {
            name: F.lit(None).cast(table.schema[name].dataType)
            for lookup in lookups
            for name in (lookup.name, lookup.version)
        }
        arrived = rows.withColumns({"arrived_batch": F.lit(batch_id), **unknown})
        parts.append(arrived.select(*columns))
    if not parts:
        return
    # Kept, as each lookup asks for its keys: without it the union above is computed for each.
    records = latest_per_key(reduce(DataFrame.unionByName, parts), topic.key_columns).persist()
    source = look_up(records, lookups).withColumn("silver_batch", F.lit(batch_id))
    values: dict[str, str | Column] = {n: f"s.`{n}`" for n in source.columns}
    completes = "s.position = t.position AND s.missing_lookups < t.missing_lookups"
    try:
        (
            enriched.alias("t")
            .merge(source.alias("s"), match(topic.key_columns))
            .whenMatchedUpdate(condition=f"s.position > t.position OR ({completes})", set=values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )
    finally:
        records.unpersist()


def waiting_for(enriched: DataFrame, lookups: Sequence[LookupState]) -> list[DataFrame]:
    """Records that miss a lookup whose row this batch has touched."""
    incomplete = enriched.where("missing_lookups > 0")
    return [
        incomplete.where(F.col(lookup.name).isNull()).join(
            F.broadcast(_keys(lookup.changed, lookup.key, lookup.on)), lookup.on, "left_semi"
        )
        for lookup in lookups
        if lookup.changed is not None
    ]


def look_up(records: DataFrame, lookups: Sequence[LookupState]) -> DataFrame:
    """The records with their unknown lookups filled in where the state can, and `missing_lookups`.

    The state is first cut down to the keys of the batch, which are broadcast: the cost of the
    join proper then depends on the batch, not on the state.
    """
    missing: list[Column] = [F.lit(0)]
    result = records
    for lookup in lookups:
        wanted = F.broadcast(_keys(records, lookup.on, lookup.key))
        rows = lookup.state.where("NOT is_deleted").join(wanted, lookup.key, "left_semi")
        rows = rows.select(
            F.col(lookup.key).alias(lookup.on),
            F.struct(*lookup.columns).alias("_row"),
            F.col("position").alias("_version"),
        )
        known = {lookup.name: "_row", lookup.version: "_version"}
        filled = {name: F.coalesce(name, found) for name, found in known.items()}
        result = result.join(rows, lookup.on, "left").withColumns(filled).drop(*known.values())
        missing.append(F.col(lookup.name).isNull().cast("int"))
    return result.withColumn("missing_lookups", reduce(Column.__add__, missing))


def _keys(rows: DataFrame, column: str, name: str) -> DataFrame:
    return rows.select(F.col(column).alias(name)).distinct()
