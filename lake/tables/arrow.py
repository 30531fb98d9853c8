"""Small reads and appends of our own tables without Spark: in milliseconds, where a Spark job takes
tenths of a second. The books of a batch must not cost more than the batch.
"""

import datetime as dt
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction, write_deltalake

from lake.settings.settings import LakeSettings
from lake.tables.checksums import write_checksum
from lake.tables.log import files_of, newest
from lake.tables.storage import open_table
from lake.tables.table import APPEND_ONLY, TableSpec

FEW_FILES = 32
CHANGE_TYPE = "_change_type"


class DirectTable:
    """One of our tables, opened at its version of this moment, or at another."""

    def __init__(
        self, table: TableSpec, settings: LakeSettings, version: int | None = None
    ) -> None:
        self._delta = open_table(settings, table.path(settings), version)

    @property
    def version(self) -> int:
        """The version of the table."""
        return self._delta.version()

    def refresh(self) -> None:
        """Come to the newest version, as Spark may have written since."""
        self._delta.update_incremental()

    def configuration(self, name: str) -> str | None:
        """A property of the table."""
        return self._delta.metadata().configuration.get(name)

    def rows(self, columns: Sequence[str], condition: str | None = None) -> list[dict[str, Any]]:
        """Columns of the rows that meet a condition (SQL of DataFusion)."""
        found: list[dict[str, Any]] = self.table(columns, condition).to_pylist()
        return found

    def table(self, columns: Sequence[str], condition: str | None = None) -> pa.Table:
        """The same, as they lie in memory."""
        return pa.table(self._delta.scan(list(columns), predicate=condition))

    def count_rows(self) -> int:
        """How many rows there are, as its log says; not for a table with deletion vectors."""
        return int(self._delta.count())

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows."""
        return pa.table(self._delta.scan([name])).column(0)

    def count(self, condition: str) -> int:
        """How many rows meet a condition."""
        return int(pa.table(self._delta.scan([], predicate=condition)).num_rows)

    def lacks(self, keys: pa.Table) -> bool:
        """Whether it is sure, and cheap to see, that no row has one of these keys.

        Args:
            keys: key columns of the table. Files are passed over by the range of the first one.
        """
        first, name = keys.column(0), keys.column_names[0]
        if not self.finds_by(name):
            return False
        low, high = (_literal(value.as_py()) for value in pc.min_max(first).values())
        between = f'"{name}" >= {low} AND "{name}" <= {high}'
        if len(self._delta.file_uris(file_pruning_predicate=between)) > FEW_FILES:
            return False
        near = pa.table(self._delta.scan(keys.column_names, predicate=between))
        near = near.select(keys.column_names).cast(keys.schema)
        return bool(keys.join(near, keys.column_names, join_type="left semi").num_rows == 0)

    def finds_by(self, column: str) -> bool:
        """Whether rows can be found by the values of a column: integers and strings."""
        kind = pa.schema(self._delta.schema().to_arrow()).field(column).type
        return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))

    def find(self, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Columns of the rows with one of the values in a column; NULL equals NULL."""
        schema = pa.schema(self._delta.schema().to_arrow())
        names = list(dict.fromkeys([column, *columns]))
        listed = ",".join(_literal(value) for value in values.to_pylist() if value is not None)
        condition = f'"{column}" IN ({listed})' if listed else "false"
        if values.null_count:
            condition += f' OR "{column}" IS NULL'
        found = pa.table(self._delta.scan(names, predicate=condition))
        return found.select(names).cast(pa.schema([schema.field(name) for name in names]))

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Of some columns, in their order, as Spark's Arrow has them."""
        known = pa.schema(self._delta.schema().to_arrow())
        return pa.schema([known.field(name) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of all rows, one batch after the other, with `schema`."""
        schema = self.schema(columns)
        for batch in pa.RecordBatchReader.from_stream(self._delta.scan(list(columns))):
            yield _cast(batch, schema)

    def changes(
        self, since: int, columns: Sequence[str], most: int, most_bytes: int
    ) -> pa.Table | None:
        """What the change feed says of the versions from `since` on, in their order.

        Args:
            since: the first version.
            columns: of the rows as they are now, or were before they were deleted.
            most: how many rows there may be.
            most_bytes: how large they may be.

        Returns:
            These columns and `_change_type`, an update being its row of now; None for more rows.
        """
        names, found, rows, size = [*columns, CHANGE_TYPE, "_commit_version"], [], 0, 0
        feed = self._delta.load_cdf(since, self.version, columns=names)
        schema = self.schema(columns).append(pa.field(CHANGE_TYPE, pa.string()))
        schema = schema.append(pa.field("_commit_version", pa.int64()))
        for batch in pa.RecordBatchReader.from_stream(feed):
            part = pa.Table.from_batches([_cast(batch, schema)])
            found.append(part.filter(pc.not_equal(part[CHANGE_TYPE], "update_preimage")))
            rows += found[-1].num_rows
            size += found[-1].nbytes
            if rows > most or size > most_bytes:
                return None
        # Of a version that replaces rows, what it deletes comes first.
        order = [("_commit_version", "ascending"), (CHANGE_TYPE, "ascending")]
        changes = pa.concat_tables([schema.empty_table(), *found]).sort_by(order)
        return changes.drop_columns(["_commit_version"]).combine_chunks()

    def files_below(self, size: int) -> int:
        """How many files are smaller than so many bytes."""
        sizes = files_of(self._delta)["size_bytes"]
        return int(pc.sum(pc.less(sizes, size)).as_py() or 0)

    def overlap(self, column: str) -> float:
        """How many files may hold a value of a column: the mean over the files, by their ranges.

        1 where each value is in one file alone, 0 for a table without files.
        """
        files = files_of(self._delta)
        names = [f"{bound}.{column}" for bound in ("min", "max")]
        if not set(names) <= set(files.column_names):
            return 0
        ranges = zip(*(files[name].to_pylist() for name in names), strict=True)
        known = [(low, high) for low, high in ranges if low is not None and high is not None]
        lows, highs = sorted(low for low, _ in known), sorted(high for _, high in known)
        shared = [bisect_right(lows, high) - bisect_left(highs, low) for low, high in known]
        return statistics.fmean(shared) if shared else 0

    def latest(self, order: str, columns: Sequence[str]) -> dict[str, Any] | None:
        """Columns of the row with the latest instant in one of them; None if there is no row.

        By the files' statistics only those are read that may have it, so the time does not grow
        with the table.
        """
        known = self.newest(order)
        condition = None if known is None else f'"{order}" >= {_literal(known)}'
        return max(self.rows(columns, condition), key=lambda row: row[order], default=None)

    def delete(self, condition: str, instead: Sequence[dict[str, Any]] = ()) -> None:
        """Delete the rows that meet a condition, and in the same commit append others that do.

        Args:
            condition: SQL of DataFusion.
            instead: rows of the columns of the table.
        """
        if self.configuration(APPEND_ONLY) == "true":  # as earlier versions created it
            self._delta.alter.set_table_properties({APPEND_ONLY: "false"})
        rows = self._as_table(instead)
        write_deltalake(self._delta, rows, mode="overwrite", predicate=condition)
        write_checksum(self._delta)

    def newest(self, column: str) -> dt.datetime | None:
        """The latest instant in a column, cut to the millisecond; None if there is none."""
        return newest(files_of(self._delta), column)

    @property
    def id(self) -> str:
        """The id of the table, which it keeps as long as it lives."""
        return str(self._delta.metadata().id)

    def vacuum(self, days: int) -> int:
        """Delete files that no version of the last days names; returns how many.

        All files are listed, as the log forgets in time which were removed, and never knew those of
        a writer that was killed.
        """
        return len(self._delta.vacuum(retention_hours=days * 24, dry_run=False, full=True))

    def compact(self, size: int) -> None:
        """Write files anew that are smaller than so many bytes, some of them into one."""
        self._delta.optimize.compact(target_size=size)
        write_checksum(self._delta)

    def append(self, rows: pa.Table | Sequence[dict[str, Any]]) -> None:
        """Append rows of the columns of the table; those that a dictionary lacks are NULL."""
        self.refresh()
        write_deltalake(self._delta, self._as_table(rows), mode="append")
        write_checksum(self._delta)

    def append_once(
        self, rows: pa.Table | Sequence[dict[str, Any]], app_id: str, number: int
    ) -> None:
        """Append rows, unless this or a later number was appended with the same app id.

        Nobody else writes to the table (invariant 5), so nothing comes between look and append.
        """
        known = self._delta.transaction_version(app_id)
        if known is None or known < number:
            properties = CommitProperties(app_transactions=[Transaction(app_id, number)])
            table = self._as_table(rows)
            write_deltalake(self._delta, table, mode="append", commit_properties=properties)
            write_checksum(self._delta)

    def _as_table(self, rows: pa.Table | Sequence[dict[str, Any]]) -> pa.Table:
        if isinstance(rows, pa.Table):
            return rows
        return pa.Table.from_pylist(list(rows), pa.schema(self._delta.schema().to_arrow()))


class OpenTables:
    """Our tables, each opened once: to open one anew reads its log from the last checkpoint on."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._opened: dict[str, DirectTable] = {}

    def __call__(self, table: TableSpec) -> DirectTable:
        """A table at its version of this moment."""
        known = self._opened.get(table.full_name)
        if known is None:
            known = self._opened[table.full_name] = DirectTable(table, self._settings)
        else:
            known.refresh()
        return known


class NewRows:
    """The rows of a growing table that were not read before."""

    def __init__(
        self, table: TableSpec, settings: LakeSettings, columns: Sequence[str], order: str
    ) -> None:
        """`order` is the column, one of those to read, in which each append is behind the last."""
        self._table = table
        self._settings = settings
        self._columns = columns
        self._order = order
        self._last: Any = None
        self._count = 0

    def read(self) -> tuple[pa.Table, bool]:
        """The new rows, and whether these are all there are: at first, and where a row has come
        that is not behind those that were read, or some are gone.
        """
        table = DirectTable(self._table, self._settings)
        is_all = self._last is None
        condition = None if is_all else f'"{self._order}" > {_literal(self._last)}'
        rows = table.table(self._columns, condition)
        if not is_all and self._count + rows.num_rows != table.count_rows():
            rows, is_all = table.table(self._columns), True
        if is_all:
            self._last, self._count = None, 0
        if rows.num_rows:
            self._last = pc.max(rows[self._order]).as_py()
        self._count += rows.num_rows
        return rows, is_all


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Its columns as a schema has them, by their names."""
    arrays = [batch[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _literal(value: int | str | dt.datetime) -> str:
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat()}'"
    return str(value) if isinstance(value, int) else "'{}'".format(value.replace("'", "''"))
