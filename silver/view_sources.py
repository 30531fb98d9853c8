"""Reads what a materialized view is made from: rows of tables and of other views, and changes."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lake.quoting import identifier
from lake.tables.arrow import CHANGE_TYPE, ArrowTable
from lake.tables.lake import Lake
from lake.tables.table import Table
from lake.topics.views.view_queries import ViewQuery
from silver.contract.tables import enriched_table, state_table, view_table
from silver.records.batch_stats import FEW

DELETED = "is_deleted"
MOST_BYTES = 256 << 20  # of the rows that have changed in a source
SECONDS_PER_DAY = 86_400


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
    view, days = lake.topics.queried.get(name), lake.settings.history_days
    if view is not None:
        return Source(lake.table(view_table(view, lake.topics)), view.columns, False, days)
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


def differing(changes: pa.Table, columns: Sequence[str]) -> pa.Table:
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
