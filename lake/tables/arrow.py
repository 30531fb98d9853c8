"""Reads and writes small amounts of data in our own tables without Spark.

This takes milliseconds, whereas a Spark job takes tenths of a second. The bookkeeping of a batch
must not cost more than the batch itself.
"""

import datetime as dt
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lake.tables.checksums import write_checksum
from lake.tables.keys import in_range, is_found_by, literal_of, same_key
from lake.tables.log import TableFiles, files_of, newest, oldest
from lake.tables.spec import APPEND_ONLY, DELETION_VECTORS

FEW_FILES = 32
SMALL_ROWS, SMALL_BYTES = 5_000, 1 << 20
# How many bytes a change may write again of the files that it touches, and how many for each byte
# of its own. Spark takes seconds, but writes less if the table has deletion vectors. At a change of
# a few rows a second, this is at most 22 GB a day.
MOST_REWRITTEN, REWRITTEN_FOR_EACH = 256 << 10, 10
MOST_WITHOUT_VECTORS = 32 << 20
CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
PREIMAGE = "update_preimage"
NEW = ("insert", "update_postimage")  # changes with the row after the version
Most = tuple[int, int]  # rows, and bytes in memory


class ArrowTable:
    """A version of a table, read and written without Spark. `Table.arrow` makes it."""

    def __init__(self, log: DeltaTable) -> None:
        self._delta = log

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self._delta.schema().fields]

    @property
    def version(self) -> int:
        """The version at which the table is open."""
        return self._delta.version()

    def refresh(self) -> None:
        """Move to the newest version, because Spark may have written to the table since."""
        self._delta.update_incremental()

    def configuration(self, name: str) -> str | None:
        """The value of a table property; None if it is not set."""
        return self._delta.metadata().configuration.get(name)

    def rows(self, columns: Sequence[str], condition: str | None = None) -> list[dict[str, Any]]:
        """Columns of the rows that meet a condition in DataFusion's SQL, as dictionaries."""
        found: list[dict[str, Any]] = self.table(columns, condition).to_pylist()
        return found

    def table(self, columns: Sequence[str], condition: str | None = None) -> pa.Table:
        """Columns of the rows that meet a condition in DataFusion's SQL, as an Arrow table."""
        return pa.table(self._delta.scan(list(columns), predicate=condition))

    def head(self, count: int) -> list[dict[str, Any]]:
        """A few rows, which are the first in the files. No more of the table is read than needed.

        Args:
            count: the maximum number of rows.
        """
        found: list[dict[str, Any]] = []
        for batch in pa.RecordBatchReader.from_stream(self._delta.scan(self.names)):
            found += batch.slice(0, count - len(found)).to_pylist()
            if len(found) >= count:
                break
        return found

    def count_rows(self) -> int:
        """The number of rows according to the log. Not for tables with deletion vectors."""
        return int(self._delta.count())

    def is_small(self) -> bool:
        """Whether all rows can be read, and given to Spark, in a few hundredths of a second."""
        files = self.files()
        return files.rows <= SMALL_ROWS and files.size <= SMALL_BYTES

    def everything(self) -> pa.Table:
        """All columns of all rows, with the types that Spark uses."""
        schema = self.schema(self.names)
        batches = [*self.batches(self.names)]
        # Spark cannot take over a table without chunks.
        return pa.Table.from_batches(batches, schema) if batches else schema.empty_table()

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows."""
        return pa.table(self._delta.scan([name])).column(0)

    def count(self, condition: str) -> int:
        """The number of rows that meet a condition."""
        return int(pa.table(self._delta.scan([], predicate=condition)).num_rows)

    def lacks(self, keys: pa.Table) -> bool:
        """Whether it is certain, and cheap to find out, that no row has one of these keys.

        Args:
            keys: key columns of the table. Files are skipped by their range of the first column.
        """
        first, name = keys.column(0), keys.column_names[0]
        if not self.finds_by(name):
            return False
        between = in_range(f'"{name}"', first)
        if len(self._delta.file_uris(file_pruning_predicate=between)) > FEW_FILES:
            return False
        near = pa.table(self._delta.scan(keys.column_names, predicate=between))
        near = near.select(keys.column_names).cast(keys.schema)
        return bool(keys.join(near, keys.column_names, join_type="left semi").num_rows == 0)

    def finds_by(self, column: str) -> bool:
        """Whether rows can be found by the values of a column: only by integers and strings."""
        kind = pa.schema(self._delta.schema().to_arrow()).field(column).type
        return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))

    def find(
        self, column: str, values: pa.Array, columns: Sequence[str], among: str | None = None
    ) -> pa.Table:
        """Columns of the rows whose `column` has one of the values. NULL matches NULL.

        With `among`, a condition in DataFusion's SQL, other rows are left out.

        The result has `column` first, then `columns`. The column is one of integers, strings, dates
        or instants. Of instants, rows with the begin of the same millisecond may be found as well.
        """
        schema = pa.schema(self._delta.schema().to_arrow())
        names = list(dict.fromkeys([column, *columns]))
        wanted = [value for value in values.to_pylist() if value is not None]
        if pa.types.is_timestamp(values.type):  # Spark's statistics of files drop microseconds
            wanted += [v.replace(microsecond=v.microsecond // 1000 * 1000) for v in wanted]
        listed = ",".join(map(literal_of, wanted))
        condition = f'"{column}" IN ({listed})' if listed else "false"
        if values.null_count:
            condition += f' OR "{column}" IS NULL'
        if among:
            condition = f"({condition}) AND ({among})"
        found = pa.table(self._delta.scan(names, predicate=condition))
        return found.select(names).cast(pa.schema([schema.field(name) for name in names]))

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The Arrow schema of some columns, in the given order, with the types that Spark uses."""
        known = pa.schema(self._delta.schema().to_arrow())
        return pa.schema([known.field(name) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of all rows, batch by batch. Each batch has the schema from `schema`."""
        schema = self.schema(columns)
        for batch in pa.RecordBatchReader.from_stream(self._delta.scan(list(columns))):
            yield _cast(batch, schema)

    def changes(
        self,
        since: int,
        columns: Sequence[str],
        most: int,
        most_bytes: int,
        *,
        preimages: bool = False,
    ) -> pa.Table | None:
        """Read the change feed of the versions from `since` on, in the order of versions.

        Args:
            since: the first version.
            columns: the columns to read. Deleted rows have the values from before the deletion.
            most: the maximum number of rows.
            most_bytes: the maximum size of the rows in memory.
            preimages: whether to include rows as they were before an update.

        Returns:
            The columns and `_change_type`. An update is represented by its new row, and its old one
            if this is asked for. None if there are more rows or bytes. After a RESTORE, rows that a
            deletion vector hides may be among the inserted ones.
        """
        changes = self._feed(since, self.version, columns, (most, most_bytes), preimages=preimages)
        if changes is None:
            return None
        # If a version replaces rows, its deletions come first.
        order = [(COMMIT_VERSION, "ascending"), (CHANGE_TYPE, "ascending")]
        return changes.sort_by(order).drop_columns([COMMIT_VERSION]).combine_chunks()

    def first_changes(self, since: int, until: int, most: int) -> tuple[list[dict[str, Any]], bool]:
        """Some rows in the change feed of some versions, as they are after them.

        Args:
            since: the first version.
            until: the last version. All of them are exact (`is_exact`).
            most: the maximum number of rows.

        Returns:
            The rows in the order of versions, and whether there are more. They have the columns
            `_change_type` and `_commit_version`, and the values from before a deletion. No more of
            the feed is read than needed.
        """
        found: list[dict[str, Any]] = []
        schema = self.schema(self.names).append(pa.field(CHANGE_TYPE, pa.string()))
        schema = schema.append(pa.field(COMMIT_VERSION, pa.int64()))
        feed = self._delta.load_cdf(since, until, columns=schema.names)
        for batch in pa.RecordBatchReader.from_stream(feed):
            part = _cast(batch, schema)
            part = part.filter(pc.not_equal(part[CHANGE_TYPE], PREIMAGE))
            found += part.slice(0, most + 1 - len(found)).to_pylist()
            if len(found) > most:
                break
        return sorted(found[:most], key=itemgetter(COMMIT_VERSION)), len(found) > most

    def last_changes(
        self,
        since: int,
        until: int,
        columns: Sequence[str],
        key: Sequence[str],
        most: Most,
        is_shown: Callable[[pa.Table], pa.ChunkedArray] | None = None,
    ) -> pa.Table | None:
        """The last change of each key in some versions, read from the change feed.

        Args:
            since: the first version.
            until: the last version.
            columns: the columns to read.
            key: those of the columns that identify a row.
            most: the maximum number of rows of the feed, and their maximum size in memory.
            is_shown: for each of some rows with the columns, whether it counts. The key identifies
                a row among those that count. Default: all count.

        Returns:
            The columns and `_change_type`: `insert` or `update_postimage` for a row that is in the
            last version, `delete` or `update_preimage` for one that is not. None if there are more
            rows or bytes. Wrong if a version `is_exact` is not.
        """
        changes = self._feed(since, until, columns, most, preimages=True)
        if changes is None:
            return None
        if is_shown is not None:
            changes = changes.filter(is_shown(changes))
        is_new = pc.is_in(changes[CHANGE_TYPE], pa.array(NEW))
        changes = changes.append_column("_is_new", is_new.cast(pa.int8()))
        changes = changes.sort_by([(COMMIT_VERSION, "ascending"), ("_is_new", "ascending")])
        numbers = pa.array(range(changes.num_rows), pa.int64())
        keys = changes.select(list(key)).append_column("_number", numbers)
        last = keys.group_by(list(key)).aggregate([("_number", "max")])["_number_max"]
        return changes.take(last).drop_columns([COMMIT_VERSION, "_is_new"])

    def _feed(
        self, since: int, until: int, columns: Sequence[str], most: Most, *, preimages: bool
    ) -> pa.Table | None:
        """The change feed of some versions, with their numbers; None if there is more of it."""
        names, found, rows, size = [*columns, CHANGE_TYPE, COMMIT_VERSION], [], 0, 0
        feed = self._delta.load_cdf(since, until, columns=names)
        schema = self.schema(columns).append(pa.field(CHANGE_TYPE, pa.string()))
        schema = schema.append(pa.field(COMMIT_VERSION, pa.int64()))
        for batch in pa.RecordBatchReader.from_stream(feed):
            part = pa.Table.from_batches([_cast(batch, schema)])
            if not preimages:
                part = part.filter(pc.not_equal(part[CHANGE_TYPE], PREIMAGE))
            found.append(part)
            rows += found[-1].num_rows
            size += found[-1].nbytes
            if rows > most[0] or size > most[1]:
                return None
        return pa.concat_tables([schema.empty_table(), *found])

    def files_below(self, size: int) -> int:
        """The number of files smaller than `size` bytes."""
        sizes = files_of(self._delta)["size_bytes"]
        return int(pc.sum(pc.less(sizes, size)).as_py() or 0)

    def overlap(self, column: str) -> float:
        """In how many files, on average, a value of a column may be, judged by the files' ranges.

        1 if each value is in only one file, 0 for a table without files.
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
        """Columns of the row with the latest instant in the column `order`; None without rows.

        Only the files that may hold this row, according to their statistics, are read. The time
        therefore does not grow with the table.
        """
        known = self.newest(order)
        condition = None if known is None else f'"{order}" >= {literal_of(known)}'
        return max(self.rows(columns, condition), key=lambda row: row[order], default=None)

    def delete(self, condition: str, instead: Sequence[dict[str, Any]] = ()) -> None:
        """Delete the rows that meet a condition, and append other rows in the same commit.

        Args:
            condition: a condition in DataFusion's SQL.
            instead: the rows to append, with the table's columns. They must meet the condition.
        """
        self._allow_deletes()  # an earlier version refused them
        rows = self._as_table(instead)
        write_deltalake(self._delta, rows, mode="overwrite", predicate=condition)
        write_checksum(self._delta)

    def files(self) -> TableFiles:
        """Statistics of the files."""
        return TableFiles(self._delta)

    def delete_rows(self, keys: pa.Table, condition: str) -> None:
        """Delete the rows with some keys, in one commit.

        Args:
            keys: the columns that identify a row, none of which is NULL.
            condition: a condition in DataFusion's SQL that these rows meet, by which files are
                found.
        """
        self._allow_deletes()
        same = " AND ".join(f't."{name}" = s."{name}"' for name in keys.column_names)
        target = self._delta.merge(
            keys, f"{same} AND {condition}", source_alias="s", target_alias="t"
        )
        target.when_matched_delete().execute()
        write_checksum(self._delta)

    def update(self, condition: str, values: dict[str, Any]) -> None:
        """Set columns of the rows that meet a condition in DataFusion's SQL, in one commit."""
        self._delta.update(predicate=condition, new_values=values)
        write_checksum(self._delta)

    def rewrites_little(self, rows: pa.Table, key: Sequence[str]) -> bool:
        """Whether `upsert` can write these rows, and writes few others again for it.

        Args:
            rows: the rows, or only the columns of their key.
            key: the columns that identify a row.
        """
        keys = rows.select(list(key))
        if not all(is_found_by(column) for column in keys.columns):
            return False
        files, first, name = files_of(self._delta), keys.column(0), keys.column_names[0]
        sizes, bounds = files["size_bytes"], [f"{bound}.{name}" for bound in ("min", "max")]
        if keys.num_rows and not first.null_count and set(bounds) <= set(files.column_names):
            low, high = (each.as_py() for each in pc.min_max(first).values())
            least, most = (files[bound] for bound in bounds)
            is_near = pc.and_(
                pc.less_equal(least, pa.scalar(high, least.type)),
                pc.greater_equal(most, pa.scalar(low, most.type)),
            )
            sizes = sizes.filter(pc.fill_null(is_near, True))  # a file may have no statistics
        has_vectors = self.configuration(DELETION_VECTORS) == "true"
        most = max(MOST_REWRITTEN, REWRITTEN_FOR_EACH * rows.nbytes)
        return int(pc.sum(sizes).as_py() or 0) <= (most if has_vectors else MOST_WITHOUT_VECTORS)

    def upsert(self, rows: pa.Table, key: Sequence[str], gone: pa.Table | None = None) -> None:
        """Insert rows, or write them in place of those with the same key, in one commit.

        The change feed records each changed row twice, before and after the change. Call this only
        if `rewrites_little` is true for the rows.

        Args:
            rows: the rows, with the table's columns and distinct keys.
            key: the columns that identify a row; of a struct, its members. NULL is equal to NULL.
            gone: the rows to delete, found by their keys.
        """
        self.refresh()
        names, mark = rows.column_names, "_is_gone"
        source = rows.append_column(mark, pa.repeat(False, rows.num_rows))
        if gone is not None:
            marked = gone.append_column(mark, pa.repeat(True, gone.num_rows))
            source = pa.concat_tables([source, marked])
        values = {f'"{name}"': f's."{name}"' for name in names}
        (
            self._delta.merge(
                source, same_key(source.select(list(key))), source_alias="s", target_alias="t"
            )
            .when_matched_delete(predicate=f's."{mark}"')
            .when_matched_update(updates=values)
            .when_not_matched_insert(updates=values, predicate=f'NOT s."{mark}"')
            .execute()
        )
        write_checksum(self._delta)

    def set_configuration(self, name: str, value: str) -> None:
        """Set a table property."""
        self._delta.alter.set_table_properties({name: value}, raise_if_not_exists=False)
        write_checksum(self._delta)

    def _allow_deletes(self) -> None:
        if self.configuration(APPEND_ONLY) == "true":
            self.set_configuration(APPEND_ONLY, "false")

    def oldest(self, column: str) -> dt.datetime | None:
        """The earliest instant in a column, truncated to milliseconds; None if unknown."""
        return oldest(files_of(self._delta), column)

    def newest(self, column: str) -> dt.datetime | None:
        """The latest instant in a column, truncated to milliseconds; None if there is none."""
        return newest(files_of(self._delta), column)

    @property
    def id(self) -> str:
        """The id of the table, which never changes."""
        return str(self._delta.metadata().id)

    def vacuum(self, days: int) -> int:
        """Delete files that no version of the last `days` days uses, and return their number.

        All files in the table's folder are listed. The log forgets removed files after a while, and
        never knew the files of a writer that was killed.
        """
        return len(self._delta.vacuum(retention_hours=days * 24, dry_run=False, full=True))

    def compact(self, size: int) -> None:
        """Merge files that are smaller than `size` bytes into larger ones."""
        self._delta.optimize.compact(target_size=size)
        write_checksum(self._delta)

    def append(self, rows: pa.Table | Sequence[dict[str, Any]]) -> None:
        """Append rows with the table's columns. Columns that a dictionary lacks are NULL."""
        self.refresh()
        write_deltalake(self._delta, self._as_table(rows), mode="append")
        write_checksum(self._delta)

    def append_once(
        self, rows: pa.Table | Sequence[dict[str, Any]], app_id: str, number: int
    ) -> None:
        """Append rows, unless this or a later number was appended with the same app id.

        Nobody else writes to the table (invariant 5), so it cannot change between the check and the
        append.
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


class NewRows:
    """Reads the rows of a growing table that it has not read before."""

    def __init__(self, columns: Sequence[str], order: str) -> None:
        """`order` is one of `columns`; each append has greater values in it than the one before."""
        self._columns = columns
        self._order = order
        self._last: Any = None
        self._count = 0

    def read(self, table: ArrowTable) -> tuple[pa.Table, bool]:
        """Read the new rows of the table, which must be the same at each call.

        Returns:
            The rows, and whether they are all rows of the table. All rows are read by the first
            call, and again if a new row is not after those that were read or if rows are gone.
        """
        is_all = self._last is None
        condition = None if is_all else f'"{self._order}" > {literal_of(self._last)}'
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
    """Cast the columns of a batch to the types in a schema, matched by name."""
    arrays = [batch[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
