"""Plans a materialized view, and finds which of its keys a batch has affected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ByteType, DataType, IntegerType, LongType, ShortType, StructType

from lake.kept.planner import Plan, Term, declared_plan, make_plan
from lake.kept.query import Query, Unkept, read_query, refuse
from lake.kept.statements import terms_sql
from lake.tables.arrow import ArrowTable
from lake.topics.topic import View
from lake.topics.views.view_queries import ViewQuery
from pulsar_spark.errors import SettingsError
from silver.records.batch_stats import FEW
from silver.view_sources import Source, differing, registered

WHOLE_NUMBERS = (ByteType, ShortType, IntegerType, LongType)  # each fits into the next

log = structlog.get_logger()

Key = tuple[object, ...]
Opened = Mapping[str, ArrowTable]


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

    def changes(
        self, sources: Mapping[str, Source], opened: Opened, since: Mapping[str, int]
    ) -> dict[str, pa.Table] | None:
        """The changed rows of the sources, as they were and as they are, with the columns used.

        Args:
            sources: what the view reads, by name.
            opened: the same tables at their newest versions.
            since: for each source that may have changed, the first version that counts.

        Returns:
            The rows by the name of the source. None if they are too many or no longer kept.
        """
        found: dict[str, pa.Table] = {}
        for name, version in since.items():
            terms = self._terms(name)
            used = list(dict.fromkeys(column for term in terms for column in term.used))
            rows = sources[name].changes(opened[name], version, used)
            if rows is None:
                return None
            found[name] = rows
        return found

    def affected(
        self, spark: SparkSession, frames: Mapping[str, DataFrame], changes: Mapping[str, pa.Table]
    ) -> set[Key]:
        """The values of the scope that changes of sources can affect; not all if too many.

        Args:
            spark: the session of the batch.
            frames: the rows of what the view reads, by name.
            changes: the changed rows.
        """
        found: set[Key] = set()
        others: list[tuple[Term, pa.Table]] = []
        for name, changed in changes.items():
            for term in self._terms(name):
                rows = differing(changed, term.used)
                if term.columns is None and rows.num_rows:
                    others.append((term, rows))
                elif term.columns is not None:
                    values = (rows[column].to_pylist() for column in term.columns)
                    found.update(zip(*values, strict=True))
        if others and self.query is not None:  # a declared plan has only columns
            feeds = {term.feed: spark.createDataFrame(rows) for term, rows in others}
            with registered(spark, {**feeds, **frames}):
                sql = terms_sql(self.query, [term for term, _ in others], {})
                more = spark.sql(sql).limit(FEW + 1).toArrow()
            found.update(zip(*(column.to_pylist() for column in more.columns), strict=True))
        return found

    def _terms(self, name: str) -> list[Term]:
        return [term for term in self.plan.terms if term.table == name.lower()]


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
        SettingsError: `sources` name a column that does not exist.
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
        read, plan = None, declared_plan(query.sql, view.key, _declared(view, sources))
    names = {name.lower(): name for name in view.columns}
    scope = [names.get(name.lower(), "") for name in plan.scope]
    with registered(spark, {name: source.rows(spark) for name, source in sources.items()}):
        returned = {f.name: f.dataType for f in spark.sql(query.sql).schema.fields}
    for name in scope:
        _require_same_type(name, returned.get(name), view.columns)
    is_of_key = {*scope} <= {*view.key}
    key_by = None if is_of_key else _searchable(own, view.key)
    return ViewPlan(plan, read, scope, _searchable(own, scope), key_by)


def _declared(view: View, sources: Mapping[str, Source]) -> dict[str, list[str]]:
    """The columns that form the key, as the topic file declares them, by table in lower case."""
    for name, source in sources.items():
        known = {column.lower() for column in source.columns}
        for column in view.sources[name]:
            if column.lower() not in known:
                message = (
                    f"The view '{view.name}' in the topic file names the column '{column}' of "
                    f"'{name}' in its 'sources', but {source.table.full_name} has no such column. "
                    "Correct the name, or remove 'sources'."
                )
                raise SettingsError(message)
    return {name.lower(): view.sources[name] for name in sources}


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
