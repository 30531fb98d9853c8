"""Keeps the views with a key that the topic file declares: materialized views.

Such a view is a table that the silver query updates with each batch. The planner (`lake/kept`)
derives from its query which keys the changed rows of its sources can affect. Silver computes the
rows with these keys again, and writes those that differ. An aggregate or a join of changelogs
therefore stays correct when a row moves from one key to another, and the cost depends on the batch.
All rows are computed after a large batch, and after each batch if the planner cannot follow the
query.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from math import isnan
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructType

from lake.kept.query import Unkept
from lake.kept.statements import KEYS, restricted_sql
from lake.streams.failures import explain
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.spec import match
from lake.topics.views.late import PUBLISHED, LateEvents, published_since
from lake.topics.views.view_queries import ViewQuery
from pulsar_spark.errors import SettingsError
from silver.audit.snapshots import SilverSnapshot
from silver.contract.tables import view_table
from silver.nearby import Nearby
from silver.records.batch_stats import FEW, few
from silver.state.merge import GONE, merge_difference
from silver.view_plan import Opened, ViewPlan, plan_view, reason_of
from silver.view_sources import differing, registered, sources_of
from silver.views import refusal

DEFINITION = "lakehouse.view"
NAN = float("nan")
MOST_ROWS = 4 * FEW  # of a view, that a batch compares in the driver

log = structlog.get_logger()

Key = tuple[Any, ...]


class KeptView:
    """A view with a key, materialized in a table."""

    def __init__(self, lake: Lake, query: ViewQuery) -> None:
        self._query = query
        self._view = query.view
        self._table = lake.table(view_table(query.view, lake.topics))
        self._sources = sources_of(lake, query)
        join = lake.topics.joined.get(query.view.name)
        self._reach = join.reach if join else None
        self._late = lake.topics.late_tables.get(query.view.name)
        whole = query.view.model_copy(update={"sql": query.sql})
        self._definition = sha256(whole.model_dump_json().encode()).hexdigest()
        self._is_planned = False
        self._plan: ViewPlan | None = None

    def refresh(self, spark: SparkSession, batch_id: int, before: SilverSnapshot | None) -> None:
        """Update the table with what a batch wrote. A replay changes nothing.

        Called after the views that this view reads have been updated.

        Args:
            spark: the session of the batch.
            batch_id: id of the batch.
            before: the snapshot before the batch, None if there is none.

        Raises:
            SettingsError: the query is not valid, does not give the declared columns, or gives a
                key twice.
        """
        opened = {name: source.table.arrow for name, source in self._sources.items()}
        own = self._table.arrow
        try:
            if before is None or self._must_recompute(own, before):
                self._delete_ambiguous(spark)
                self.recompute(spark, batch_id)
                self._table.arrow.set_configuration(DEFINITION, self._definition)
            else:
                self._follow(spark, own, opened, batch_id, before.versions)
        except PySparkException as error:
            what = f"is refused by Spark: {explain(error)}"
            if self._reach:
                message = (
                    f"The join '{self._view.name}' in the topic file {what} Correct its "
                    "'left_where' and 'right_where', which must be conditions."
                )
                raise SettingsError(message) from error
            raise refusal(self._view, what) from error

    def _must_recompute(self, own: ArrowTable, before: SilverSnapshot) -> bool:
        """Whether all rows must be computed.

        This is so if the table or a source is new, or if the query has changed.
        """
        tables = [self._table, *(source.table for source in self._sources.values())]
        if not {table.full_name for table in tables} <= before.versions.keys():
            return True
        return own.configuration(DEFINITION) != self._definition

    def _delete_ambiguous(self, spark: SparkSession) -> None:
        """Delete all rows if several have the same key, because the key has been redefined.

        A MERGE could not tell which of them is the row with the key.
        """
        if self.is_redefined:
            times = self._table.rows(spark).groupBy(*self._view.key).count()
            if not times.where("count > 1").isEmpty():
                self._table.spark(spark).delete()

    @property
    def table(self) -> str:
        """The full name of its table."""
        return self._table.full_name

    @property
    def is_redefined(self) -> bool:
        """Whether the table exists and was made by another query, so the next batch computes it."""
        exists = self._table.exists()
        return exists and self._table.arrow.configuration(DEFINITION) != self._definition

    def _follow(
        self,
        spark: SparkSession,
        own: ArrowTable,
        opened: Opened,
        batch_id: int,
        versions: Mapping[str, int],
    ) -> None:
        """Update the rows that depend on what has changed since some versions of the sources."""
        since = {
            name: versions[source.table.full_name] + 1
            for name, source in self._sources.items()
            if opened[name].version != versions[source.table.full_name]
        }
        if not since:
            return
        if self._late:
            self._follow_late(spark, self._late, batch_id, opened, since)
            return
        plan = self._planned(spark, own)
        if plan is None:
            changed = (self._sources[n].changes(opened[n], since[n], []) for n in since)
            if any(each is None or each.num_rows for each in changed):
                self.recompute(spark, batch_id)
            return
        changes = plan.changes(self._sources, opened, since)
        if changes is None:
            self.recompute(spark, batch_id)
            return
        nearby = Nearby.of(self._reach, changes) if self._reach else None
        keys = plan.affected(spark, self._frames(spark, nearby), changes)
        if not few(len(keys)):
            self.recompute(spark, batch_id)
        elif keys:
            self._update(spark, own, batch_id, plan, keys, nearby)

    def _follow_late(
        self,
        spark: SparkSession,
        late: LateEvents,
        batch_id: int,
        opened: Opened,
        since: Mapping[str, int],
    ) -> None:
        """Judge the events again that were published with the first changed one, or after it.

        The watermark of an event follows from those before it, so no other event can be affected.
        """
        source = self._sources[late.read]
        found = source.changes(opened[late.read], since[late.read], late.deciding)
        if found is None:
            self.recompute(spark, batch_id)
            return
        changed = differing(found, late.deciding)
        if changed.num_rows:
            first = pc.min(changed[PUBLISHED]).as_py()
            new = self._result(spark, late.sql(first), self._frames(spark, None))
            old = self._table.rows(spark).where(published_since(first))
            self._write_difference(spark, batch_id, new, old, None)

    def _planned(self, spark: SparkSession, own: ArrowTable) -> ViewPlan | None:
        """The plan, made once per process. None if all rows must be computed."""
        if not self._is_planned:
            try:
                self._plan = plan_view(spark, self._query, self._sources, own)
            except Unkept as error:
                log.warning(
                    "a view is computed whole after each change of what it reads",
                    view=self._view.name,
                    reason=reason_of(error),
                )
            self._is_planned = True
        return self._plan

    def _frames(self, spark: SparkSession, nearby: Nearby | None) -> dict[str, DataFrame]:
        """What the view reads, by name; of a join, only the events that a batch may need."""
        frames = {name: source.rows(spark) for name, source in self._sources.items()}
        if nearby:
            frames = {name: rows.where(nearby.read(name)) for name, rows in frames.items()}
        return frames

    def _result(self, spark: SparkSession, sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The result of a query over some rows, with the declared columns and types.

        Args:
            spark: the session of the batch.
            sql: the view's query, or a part of it.
            frames: the rows that it reads, by name.
        """
        with registered(spark, frames):
            found = spark.sql(sql)
        if set(found.columns) != set(self._view.columns):
            what = f"returns {', '.join(found.columns)}, not the declared columns."
            raise refusal(self._view, what)
        return found.select(*(F.col(n).cast(kind) for n, kind in self._view.columns.items()))

    def _update(
        self,
        spark: SparkSession,
        own: ArrowTable,
        batch_id: int,
        plan: ViewPlan,
        keys: set[Key],
        nearby: Nearby | None,
    ) -> None:
        """Compute the rows with some values of the scope, and write those that differ.

        Of a join, rows that are not near a changed event cannot differ, and are left alone.
        """
        kinds = own.schema(plan.scope).types
        try:
            parts = [
                pa.array(values, kind)
                for values, kind in zip(zip(*keys, strict=True), kinds, strict=True)
            ]
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a UNION of a number and a text, for example
            self.recompute(spark, batch_id)
            return
        wanted = pa.table(parts, [f"k{number}" for number in range(len(parts))])
        relation = F.broadcast(spark.createDataFrame(wanted))
        frames = {**self._frames(spark, nearby), KEYS: relation}
        new = self._result(spark, restricted_sql(self._query.sql, plan.plan), frames)
        if nearby:
            new = new.alias("new").where(nearby.written("new"))
        place = plan.scope.index(plan.by)
        computed = new.limit(MOST_ROWS + 1).toArrow()
        found = self._found(own, plan.by, {key[place] for key in keys}, nearby)
        if max(computed.num_rows, found.num_rows) > MOST_ROWS:
            self._update_in_spark(spark, batch_id, plan, new, relation, nearby)
            return
        now = self._by_key(computed)
        near = [row for row in found.to_pylist() if _values(row, plan.scope) in keys]
        if nearby:
            near = [row for row in near if nearby.holds(row[nearby.reach.column])]
        old = {self._key_of(row): _values(row, self._view.columns) for row in near}
        if plan.key_by is not None:
            self._require_absent(own, plan.key_by, now.keys() - old.keys())
        self._write(spark, own, batch_id, new.schema, now, old, nearby)

    def _by_key(self, rows: pa.Table) -> dict[Key, Key]:
        """The values of computed rows by their keys, which must differ."""
        found: dict[Key, Key] = {}
        for row in rows.to_pylist():
            key = self._key_of(row)
            if key in found:
                raise self._twice(row)
            found[key] = _values(row, self._view.columns)
        return found

    def _write(
        self,
        spark: SparkSession,
        own: ArrowTable,
        batch_id: int,
        schema: StructType,
        now: Mapping[Key, Key],
        old: Mapping[Key, Key],
        nearby: Nearby | None,
    ) -> None:
        """Write the rows that differ, given by key; without Spark if they are in small files."""
        names = [*schema.names, "silver_batch"]
        changed = [(*row, batch_id) for key, row in now.items() if old.get(key) != row]
        gone = [(*row, batch_id) for key, row in old.items() if key not in now]
        if not changed and not gone:
            return
        kinds = own.schema(names)
        rows, others = (_as_table(each, kinds) for each in (changed, gone))
        if not old:
            own.append(rows)
        elif own.rewrites_little(pa.concat_tables([rows, others]), self._view.key):
            own.upsert(rows, self._view.key, others)
        else:
            marked = [(*row, False) for row in changed] + [(*row, True) for row in gone]
            kind = StructType([*schema.fields]).add("silver_batch", LongType())
            kind = kind.add(GONE, BooleanType())
            self._merge(spark.createDataFrame(marked, kind), nearby)

    def _found(
        self, own: ArrowTable, by: str, values: Iterable[Any], nearby: Nearby | None = None
    ) -> pa.Table:
        """The rows of the table in which a column has one of some values."""
        kind = own.schema([by]).field(by).type
        columns, among = list(self._view.columns), nearby.searched() if nearby else None
        return own.find(by, pa.array([*values], kind), columns, among)

    def _require_absent(self, own: ArrowTable, by: str, new: set[Key]) -> None:
        """Check that new keys are no keys of rows with another scope, which stay."""
        place = self._view.key.index(by)
        for row in self._found(own, by, {key[place] for key in new}).to_pylist():
            if self._key_of(row) in new:
                raise self._twice(row)

    def _update_in_spark(
        self,
        spark: SparkSession,
        batch_id: int,
        plan: ViewPlan,
        new: DataFrame,
        scopes: DataFrame,
        nearby: Nearby | None,
    ) -> None:
        """As `_update`, for too many rows for the driver."""
        if plan.key_by is not None:  # rows with another scope may have the same key
            self.recompute(spark, batch_id)
            return
        same = reduce(
            and_,
            (
                F.col(f"old.`{name}`").eqNullSafe(F.col(f"scopes.k{number}"))
                for number, name in enumerate(plan.scope)
            ),
        )
        rows = self._table.rows(spark).alias("old")
        old = rows.join(scopes.alias("scopes"), same, "left_semi")
        if nearby:
            old = old.where(nearby.written("old"))
        self._write_difference(spark, batch_id, new, old, nearby)

    def recompute(self, spark: SparkSession, batch_id: int) -> None:
        """Compute all rows, and write those that differ."""
        new = self._result(spark, self._query.sql, self._frames(spark, None))
        own = self._table.arrow
        if self._is_small(own):
            computed = new.limit(MOST_ROWS + 1).toArrow()
            if computed.num_rows <= MOST_ROWS:
                there = own.table([*self._view.columns]).to_pylist()
                old = {self._key_of(row): _values(row, self._view.columns) for row in there}
                self._write(spark, own, batch_id, new.schema, self._by_key(computed), old, None)
                return
        self._write_difference(spark, batch_id, new, self._table.rows(spark), None)

    def _is_small(self, own: ArrowTable) -> bool:
        """Whether the rows of the view are few, and would be computed again in no time."""
        read = [source.table.arrow.files() for source in self._sources.values()]
        is_cheap = few(sum(each.rows for each in read), sum(each.size for each in read))
        return is_cheap and own.count_rows() <= MOST_ROWS

    def _write_difference(
        self,
        spark: SparkSession,
        batch_id: int,
        new: DataFrame,
        old: DataFrame,
        nearby: Nearby | None,
    ) -> None:
        """Write the rows by which some rows of the table differ from what they should be."""
        names = self._view.key
        times = F.count("*").over(Window.partitionBy(*names)).alias("times")
        new = new.select(F.struct("*").alias("new"), times)
        old = old.drop("silver_batch")
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
                F.col("new").isNull().alias(GONE),
                "times",
            )
            .persist()
        )
        try:
            for row in changes.where("times > 1").take(1):
                raise self._twice(row.asDict())
            self._merge(changes.drop("times"), nearby)
        finally:
            changes.unpersist()

    def _merge(self, changes: DataFrame, nearby: Nearby | None = None) -> None:
        same = match(self._view.key, "<=>")
        if nearby:  # the same rows match, but Delta need not search the other files
            same += f" AND {nearby.written('t')}"
        merge_difference(self._table, changes, same)

    def _key_of(self, row: Mapping[str, Any]) -> Key:
        return _values(row, self._view.key)

    def _twice(self, row: Mapping[str, Any]) -> SettingsError:
        key = ", ".join(f"{name} = {row[name]}" for name in self._view.key)
        return refusal(self._view, f"returns a key more than once: {key}.")


def _as_table(rows: Sequence[Key], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _values(row: Mapping[str, Any], columns: Iterable[str]) -> Key:
    """Some values of a row, in which NaN is equal to itself: tuples compare identity first."""
    values = (row[name] for name in columns)
    return tuple(NAN if isinstance(x, float) and isnan(x) else x for x in values)
