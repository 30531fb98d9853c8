"""Plans a materialized view, and finds which of its keys a batch has affected."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ByteType, DataType, IntegerType, LongType, ShortType, StructType

from lake.kept.planner import Plan, Term, declared_plan, make_plan
from lake.kept.query import Query, Unkept, read_query, refuse
from lake.kept.statements import terms_sql
from lake.quoting import identifier
from lake.tables.arrow import CHANGE_TYPE, ArrowTable
from lake.tables.lake import Lake
from lake.tables.table import Table
from lake.topics.view_queries import ViewQuery
from silver.contract.tables import enriched_table, state_table, view_table
from silver.records.batch_stats import FEW

DELETED = "is_deleted"
MOST_BYTES = 256 << 20  # of the rows that have changed in a source
SECONDS_PER_DAY = 86_400
WHOLE_NUMBERS = (ByteType, ShortType, IntegerType, LongType)  # each fits into the next

log = structlog.get_logger()

Key = tuple[object, ...]
Opened = Mapping[str, ArrowTable]


@dataclass(frozen=True)
class Source:
    """What a view reads under one name: the rows of a table that are not deleted.

    table: the table.
    columns: the columns that the view can read, with their SQL types.
    has_tombstones: whether the table marks deleted rows, as a state table does.
    days: for how many days the table keeps old versions.
    """

    table: Table
    columns: Mapping[str, str]
    has_tombstones: bool
    days: int

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows, in the newest version of the table."""
        rows = self.table.rows(spark)
        if self.has_tombstones:
            rows = rows.where(f"NOT {DELETED}")
        return rows.select(*map(identifier, self.columns))

    def changes(self, table: ArrowTable, since: int, columns: Sequence[str]) -> pa.Table | None:
        """The rows that have changed, as they were and as they are.

        Args:
            table: the table, opened at its newest version.
            since: the first version that counts.
            columns: the columns to return, as the query writes them.

        Returns:
            The columns and `_change_type`. None if the rows are too many, or no longer kept.
        """
        written = self.table.written_at(since)
        if written is None or time.time() - written > self.days * SECONDS_PER_DAY:
            return None
        names = {name.lower(): name for name in self.columns}
        known = [names[column.lower()] for column in columns]
        read = list(dict.fromkeys([*known, DELETED])) if self.has_tombstones else known
        found = table.changes(since, read, 2 * FEW, MOST_BYTES, preimages=True)
        if found is None:
            return None
        if self.has_tombstones:
            found = found.filter(pc.invert(found[DELETED]))
        return found.select([*known, CHANGE_TYPE]).rename_columns([*columns, CHANGE_TYPE])


def sources_of(lake: Lake, query: ViewQuery) -> dict[str, Source]:
    """What a view reads, by the names in its query."""
    return {name: _source(lake, name) for name in query.reads}


def _source(lake: Lake, name: str) -> Source:
    view, days = lake.topics.views.get(name), lake.settings.history_days
    if view is not None:
        return Source(lake.table(view_table(view)), view.columns, False, days)
    topic = lake.topics.view_sources()[name]
    is_state = topic.kind == "changelog"
    spec = state_table(topic) if is_state else enriched_table(topic, lake.topics)
    columns = {column.name: column.type for column in spec.columns}
    return Source(lake.table(spec), columns, is_state, days)


@contextlib.contextmanager
def registered(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Give some rows names in SQL during the block."""
    for name, rows in frames.items():
        rows.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)


@dataclass(frozen=True)
class ViewPlan:
    """How a view is kept.

    plan: the plan.
    query: the query that it is made from; None if the topic file declares the plan.
    scope: the columns of the plan's scope, as the view's table has them.
    by: one of them, by which rows are found in the table.
    key_by: a column of the key by which rows with another scope are found in the table; None if
        the scope is a part of the key, so that no such row has the same key.
    """

    plan: Plan
    query: Query | None
    scope: list[str]
    by: str
    key_by: str | None

    def affected(
        self,
        spark: SparkSession,
        sources: Mapping[str, Source],
        opened: Opened,
        since: Mapping[str, int],
    ) -> set[Key] | None:
        """The values of the scope that changes of sources can affect.

        Args:
            spark: the session of the batch.
            sources: what the view reads, by name.
            opened: the same tables at their newest versions.
            since: for each source that may have changed, the first version that counts.

        Returns:
            The values. None if the changes are too many or no longer kept.
        """
        found: set[Key] = set()
        others: list[tuple[Term, pa.Table]] = []
        for name, version in since.items():
            terms = [term for term in self.plan.terms if term.table == name.lower()]
            used = list(dict.fromkeys(column for term in terms for column in term.used))
            changes = sources[name].changes(opened[name], version, used)
            if changes is None:
                return None
            for term in terms:
                rows = _differing(changes, term.used)
                if term.columns is None and rows.num_rows:
                    others.append((term, rows))
                elif term.columns is not None:
                    values = (rows[column].to_pylist() for column in term.columns)
                    found.update(zip(*values, strict=True))
        if others and self.query is not None:  # a declared plan has only columns
            frames = {term.feed: spark.createDataFrame(rows) for term, rows in others}
            frames.update({name: source.rows(spark) for name, source in sources.items()})
            with registered(spark, frames):
                sql = terms_sql(self.query, [term for term, _ in others], {})
                more = spark.sql(sql).limit(FEW + 1).toArrow()
            found.update(zip(*(column.to_pylist() for column in more.columns), strict=True))
        return found


def plan_view(
    spark: SparkSession, query: ViewQuery, sources: Mapping[str, Source], own: ArrowTable
) -> ViewPlan:
    """Plan a view.

    Args:
        spark: the session of the batch.
        query: the view and its query.
        sources: what it reads, by name.
        own: its table.

    Raises:
        Unkept: all rows of the view must be computed.
        PySparkException: the query is not valid.
    """
    view, read = query.view, None
    try:
        read = read_query(query.sql, {name.lower(): s.columns for name, s in sources.items()})
        plan = make_plan(read, view.key)
    except Unkept as error:
        if not view.sources:
            raise
        log.info("a view is kept as its 'sources' say", view=view.name, reason=reason_of(error))
        declared = {name.lower(): columns for name, columns in view.sources.items()}
        read, plan = None, declared_plan(query.sql, view.key, declared)
    names = {name.lower(): name for name in view.columns}
    scope = [names.get(name.lower(), "") for name in plan.scope]
    with registered(spark, {name: source.rows(spark) for name, source in sources.items()}):
        returned = {f.name: f.dataType for f in spark.sql(query.sql).schema.fields}
    for name in scope:
        _require_same_type(name, returned.get(name), view.columns)
    is_of_key = {*scope} <= {*view.key}
    key_by = None if is_of_key else _searchable(own, view.key)
    return ViewPlan(plan, read, scope, _searchable(own, scope), key_by)


def reason_of(error: Unkept) -> str:
    """Why a view is not kept, with the line of its query."""
    return error.reason if error.line is None else f"{error.reason} (line {error.line})"


def _require_same_type(name: str, kind: DataType | None, columns: Mapping[str, str]) -> None:
    """Check that the query returns a column of the scope as the table stores it.

    Otherwise a value that the query returns would not be found in the table.
    """
    if kind is None:
        refuse("it does not return the columns that are declared")
    own = cast(StructType, StructType.fromDDL(f"a {columns[name]}")).fields[0].dataType
    fits = WHOLE_NUMBERS.index(type(own)) if isinstance(own, WHOLE_NUMBERS) else -1
    if kind != own and not isinstance(kind, WHOLE_NUMBERS[: fits + 1]):
        is_, but = kind.simpleString(), own.simpleString()
        refuse(f"its column {name} is of the type {is_}, but is declared as {but}")


def _searchable(own: ArrowTable, columns: Sequence[str]) -> str:
    """The column by which rows with some values of the columns are found without Spark."""
    schema = own.schema(columns)
    for field in schema:
        if pa.types.is_floating(field.type):
            refuse(f"its column {field.name} is not of an exact type")
    for field in schema:
        kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp)
        if any(is_kind(field.type) for is_kind in kinds):
            return str(field.name)
    refuse(f"rows cannot be found by {', '.join(columns)}")


def _differing(changes: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns of the changed rows, without updates that did not change these columns.

    Only updates are compared, because inserts and deletes may contain rows too many.
    """
    if not columns:  # the query counts the rows
        return pa.table({"_one": pa.nulls(changes.num_rows, pa.int8())})
    is_update = pc.starts_with(changes[CHANGE_TYPE], "update_")
    updates = changes.filter(is_update)
    rows = [repr(row) for row in updates.select(columns).to_pylist()]  # structs have no hash
    balance: Counter[str] = Counter()
    for row, kind in zip(rows, updates[CHANGE_TYPE].to_pylist(), strict=True):
        balance[row] += 1 if kind == "update_postimage" else -1
    differ = updates.filter(pa.array([balance[row] != 0 for row in rows], pa.bool_()))
    others = changes.filter(pc.invert(is_update))
    return pa.concat_tables([others, differ]).select(columns).combine_chunks()
