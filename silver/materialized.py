"""Creates silver's own views, and the views that the topic file declares in SQL (`[views.<name>]`).

A view without a key is a view in the catalog. It is as fresh as the tables that it reads, so late
rows are included.

A view with a key is a materialized view: a table that the silver query maintains. For each batch,
the query finds the keys of the rows that changed, both as they are now and as they were before. It
runs the view's query only on the rows with these keys, or on all rows after a large batch, and
merges the difference. An aggregate or a join of changelogs therefore stays correct when a row moves
from one key to another, and the cost depends on the batch.
"""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructType

from lake.quoting import literal
from lake.streams.failures import explain
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.spec import match
from lake.tables.table import Table
from lake.topics.topic import View
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import SettingsError
from silver.audit.snapshots import SilverSnapshot
from silver.contract.tables import enriched_table, lookup_columns, state_table, view_table
from silver.records.batch_stats import few
from silver.state.merge import all_of

DEFINITION = "lakehouse.view"

Key = tuple[Any, ...]
Opened = Mapping[str, ArrowTable]


def create_views(spark: SparkSession, topics: TopicFile) -> None:
    """Create the views in the catalog, in which silver's tables must be registered.

    Raises:
        SettingsError: the query of a declared view is not valid.
    """
    session = spark.newSession()  # because USE changes the current database of the session
    session.sql("USE silver")
    for topic in topics.changelogs():
        own = [c for c in lookup_columns(topic) if c.name != "is_deleted"]
        columns = ", ".join(f"`{c.name}`" for c in own)
        session.sql(
            f"CREATE OR REPLACE VIEW `{topic.name}` AS SELECT {columns}, position "  # noqa: S608 - topic.py checks names
            f"FROM `{topic.name}_state` WHERE NOT is_deleted"
        )
    for topic in topics.events():
        for name in topic.lookups:
            session.sql(
                f"CREATE OR REPLACE VIEW `missing_{name}` AS SELECT * "  # noqa: S608 - topic.py checks names
                f"FROM `enriched_{topic.name}` WHERE `{name}` IS NULL"
            )
    for view in topics.views.values():
        if not view.key:
            comment = literal(view.description)
            try:
                session.sql(f"CREATE OR REPLACE VIEW `{view.name}` COMMENT {comment} AS {view.sql}")
            except PySparkException as error:
                raise _refusal(view, f"is refused by Spark: {explain(error)}") from error


@dataclass(frozen=True)
class _Source:
    """A table that a view reads, and the key of that table."""

    table: Table
    key: Sequence[str]

    def has(self, column: str) -> bool:
        return any(each.name == column for each in self.table.spec.columns)


class KeptView:
    """A view with a key, materialized in a table."""

    def __init__(self, lake: Lake, view: View) -> None:
        self._days = lake.settings.history_days
        self._view = view
        self._table = lake.table(view_table(view))
        self._sources = {name: _source(lake, name) for name in view.sources}
        self._definition = hashlib.sha256(view.model_dump_json().encode()).hexdigest()

    def refresh(self, spark: SparkSession, batch_id: int, before: SilverSnapshot | None) -> None:
        """Update the table with what a batch wrote. A replay changes nothing.

        Args:
            spark: the session of the batch.
            batch_id: id of the batch.
            before: the snapshot before the batch, None if there is none.

        Raises:
            SettingsError: the query is not valid, does not give the declared columns, or gives a
                key twice.
        """
        opened = {n: x.table.arrow for n, x in self._sources.items()}
        own = self._table.arrow
        try:
            if self._must_recompute(own, opened, batch_id, before):
                self.recompute(spark, batch_id)
                self._table.set_property(spark, DEFINITION, self._definition)
            elif before is not None and self._has_moved(opened, before):
                finds = self._finds_by_key(own, opened)
                keys = self._changed_keys(opened, batch_id, before) if finds else None
                if keys is None or not few(len(keys)):
                    self.recompute(spark, batch_id)
                elif keys:
                    self._follow(spark, own, batch_id, keys)
        except PySparkException as error:
            raise _refusal(self._view, f"is refused by Spark: {explain(error)}") from error

    def _must_recompute(
        self, own: ArrowTable, opened: Opened, batch_id: int, before: SilverSnapshot | None
    ) -> bool:
        """Whether all rows must be computed.

        This is so if the table is new, if its query has changed, if the rows before the batch
        cannot be read, or if the batch truncates a source.
        """
        if before is None or self._table.full_name not in before.versions:
            return True
        if own.configuration(DEFINITION) != self._definition:
            return True
        age = dt.datetime.now(dt.timezone.utc) - before.committed_at
        if age > dt.timedelta(days=self._days):
            return True
        mine = f"silver_batch = {batch_id} AND mark = 'truncated'"
        return any(
            opened[name].count(mine) for name, source in self._sources.items() if source.has("mark")
        )

    def _finds_by_key(self, own: ArrowTable, opened: Opened) -> bool:
        """Whether rows can be found by key without Spark. Dates and decimals cannot."""
        return own.finds_by(self._view.key[0]) and all(
            opened[name].finds_by(source.key[0]) for name, source in self._sources.items()
        )

    def _has_moved(self, opened: Opened, before: SilverSnapshot) -> bool:
        return any(
            opened[name].version != before.versions.get(source.table.full_name)
            for name, source in self._sources.items()
        )

    def _changed_keys(self, opened: Opened, batch_id: int, before: SilverSnapshot) -> set[Key]:
        """The view's keys of the rows that the batch wrote, as they are now and were before."""
        found: set[Key] = set()
        for name, source in self._sources.items():
            names = self._view.sources[name]
            changed = opened[name].rows(
                list(dict.fromkeys([*source.key, *names])), f"silver_batch = {batch_id}"
            )
            then = before.versions.get(source.table.full_name)
            ids = pa.array(row[source.key[0]] for row in changed)
            table = opened[name] if then is None else source.table.arrow_at(then)
            old = table.find(source.key[0], ids, names)
            found.update(tuple(row[n] for n in names) for row in [*changed, *old.to_pylist()])
        return found

    def _result(self, spark: SparkSession, keys: DataFrame | None) -> DataFrame:
        """Run the query on the rows with some keys, or on all rows."""
        for name, source in self._sources.items():
            rows = source.table.rows(spark)
            if source.has("is_deleted"):
                rows = rows.where("NOT is_deleted")
            if keys is not None:
                pairs = zip(self._view.sources[name], self._view.key, strict=True)
                same = reduce(and_, (rows[own].eqNullSafe(keys[key]) for own, key in pairs))
                rows = rows.join(F.broadcast(keys), same, "left_semi")
            rows.createOrReplaceTempView(name)
        try:
            found = spark.sql(self._view.sql)
        finally:
            for name in self._sources:
                spark.catalog.dropTempView(name)
        if set(found.columns) != set(self._view.columns):
            what = f"returns {', '.join(found.columns)}, not the declared columns."
            raise _refusal(self._view, what)
        return found.select(*(F.col(n).cast(kind) for n, kind in self._view.columns.items()))

    def _follow(self, spark: SparkSession, own: ArrowTable, batch_id: int, keys: set[Key]) -> None:
        """Compute the rows with some keys, and write those that differ."""
        names, columns = self._view.key, list(self._view.columns)
        rows = pa.table(dict(zip(names, map(list, zip(*keys, strict=True)), strict=True)))
        new = self._result(spark, spark.createDataFrame(rows))
        near = own.find(names[0], rows[names[0]].combine_chunks(), columns).to_pylist()
        old = {key: row for row in near if (key := self._key_of(row)) in keys}
        changes = []
        seen: set[Key] = set()
        for row in new.toArrow().to_pylist():
            key = self._key_of(row)
            if key in seen:
                raise self._twice(row)
            seen.add(key)
            if old.get(key) != row:
                changes.append({**row, "silver_batch": batch_id, "_is_deleted": False})
        changes += [
            {**row, "silver_batch": batch_id, "_is_deleted": True}
            for key, row in old.items()
            if key not in seen
        ]
        if changes:
            schema = StructType(new.schema.fields)
            schema = schema.add("silver_batch", LongType()).add("_is_deleted", BooleanType())
            ordered = [tuple(row[name] for name in schema.names) for row in changes]
            self._merge(spark, spark.createDataFrame(ordered, schema))

    def recompute(self, spark: SparkSession, batch_id: int) -> None:
        """Compute all rows, and write those that differ."""
        names = self._view.key
        times = F.count("*").over(Window.partitionBy(*names)).alias("times")
        new = self._result(spark, None).select(F.struct("*").alias("new"), times)
        old = self._table.rows(spark).drop("silver_batch")
        same = reduce(
            and_,
            (F.col(f"new.`{name}`").eqNullSafe(F.col(f"old.`{name}`")) for name in names),
        )
        changes = (
            new.join(old.select(F.struct("*").alias("old")), same, "full_outer")
            .where("NOT (new <=> old) OR times > 1")
            .select(
                *(F.coalesce(f"new.`{name}`", f"old.`{name}`").alias(name) for name in names),
                *(f"new.`{name}`" for name in self._view.columns if name not in names),
                F.lit(batch_id).cast("bigint").alias("silver_batch"),
                F.col("new").isNull().alias("_is_deleted"),
                "times",
            )
            .persist()
        )
        try:
            for row in changes.where("times > 1").take(1):
                raise self._twice(row.asDict())
            self._merge(spark, changes.drop("times"))
        finally:
            changes.unpersist()

    def _merge(self, spark: SparkSession, changes: DataFrame) -> None:
        values = all_of(changes.drop("_is_deleted"))
        (
            self._table.spark(spark)
            .alias("t")
            .merge(changes.alias("s"), match(self._view.key, "<=>"))
            .whenMatchedDelete(condition="s._is_deleted")
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )

    def _key_of(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self._view.key)

    def _twice(self, row: Mapping[str, Any]) -> SettingsError:
        key = ", ".join(f"{name} = {row[name]}" for name in self._view.key)
        return _refusal(self._view, f"returns a key more than once: {key}.")


def _source(lake: Lake, name: str) -> _Source:
    topic = lake.topics.view_sources()[name]
    is_state = topic.kind == "changelog"
    spec = state_table(topic) if is_state else enriched_table(topic, lake.topics)
    return _Source(lake.table(spec), topic.key_columns)


def _refusal(view: View, what: str) -> SettingsError:
    return SettingsError(f"The query of the view '{view.name}' in the topic file {what}")
