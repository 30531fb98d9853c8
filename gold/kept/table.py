"""Reads and writes a few rows of a kept table with delta-rs.

A MERGE by Spark takes seconds, whatever it changes. This takes tens of milliseconds, and reads only
the files in which a key may be.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from gold.own import marked
from lake.tables.checksums import write_checksum

# Arrow reads values of these types back from the text of `texts_sql`.
EXACT = ("bigint", "int", "smallint", "tinyint", "boolean", "string", "double", "date", "timestamp")

# What is wrong with a unique key, by its name in the column `_change` of `difference_sql`.
WRONG = {"twice": "comes more than once", "null": "is NULL"}

Row = tuple[Any, ...]
Texts = Sequence[Sequence[str | None]]


# Above this many rows, Spark checks the key, because Arrow holds all keys in memory.
MOST_KEYS = 2_000_000
REFUSED = "failed validation check"  # in the message of delta-rs, whose error has no own type


class RefusedRows(Exception):
    """Rows that violate a constraint of the table. Nothing was written."""


class WrongKey(Exception):
    """Rows of which the unique key is NULL or comes more than once.

    Args:
        reason: what is wrong.
        rows: some of the rows.
    """

    def __init__(self, reason: str, rows: list[Row]) -> None:
        super().__init__(reason)
        self.rows = rows


def are_exact(types: Iterable[str]) -> bool:
    """Whether values of all these Spark types have an exact form as text."""
    return all(kind in EXACT or kind.startswith("decimal(") for kind in types)


@dataclass(frozen=True)
class Difference:
    """How a table differs from what it should hold.

    new: rows to insert, or to write in place of the row with the same key.
    gone: the keys of rows to delete.
    are_inserted: whether no row of `new` has the key of an old one.
    """

    new: list[Row]
    gone: list[Row]
    are_inserted: bool

    @property
    def count(self) -> int:
        """The number of rows to write or delete."""
        return len(self.new) + len(self.gone)


class KeptTable:
    """A table on this machine of which all columns have an exact form as text."""

    def __init__(self, log: DeltaTable, columns: Mapping[str, str], key: Sequence[str]) -> None:
        self._log = log
        schema = pa.schema(log.schema())
        self._schema = pa.schema([schema.field(name) for name in columns])
        self._key = list(key)

    @staticmethod
    def open(location: str, columns: Mapping[str, str], key: Sequence[str]) -> "KeptTable | None":
        """Open a table; None if it is elsewhere, or has columns or features that this cannot read.

        Args:
            location: the table's URI.
            columns: the names and Spark types of its columns.
            key: the columns that identify a row.
        """
        place = urlsplit(location)
        if place.scheme not in ("", "file") or not are_exact(columns.values()):
            return None
        log = DeltaTable(unquote(place.path))
        is_plain = log.protocol().min_reader_version == 1  # no deletion vectors or mapped columns
        return KeptTable(log, columns, key) if is_plain else None

    @property
    def was_overwritten(self) -> bool:
        """Whether the last commit replaced all rows."""
        newest = self._log.history(1)[0]
        mode = newest.get("operationParameters", {}).get("mode")
        return bool(newest["operation"] == "WRITE" and mode == "Overwrite")

    def read(self, columns: Sequence[str], texts: Texts) -> list[Row]:
        """Values of some columns, given as text.

        Raises:
            ArrowInvalid: Arrow cannot read a value, such as a date after the year 9999.
        """
        kinds = [self._schema.field(name).type for name in columns]
        parts = [_typed([row[i] for row in texts], kind) for i, kind in enumerate(kinds)]
        return _rows(pa.table(parts, list(columns)))

    def difference(self, scope: Sequence[str], values: Iterable[Row], new: list[Row]) -> Difference:
        """Compare the rows of which some columns have some values with what they should be.

        Args:
            scope: the columns.
            values: their values.
            new: the rows that the table should hold.

        Raises:
            WrongKey: a key is NULL or comes more than once in the new rows.
        """
        wanted = set(values)
        places = [self._schema.names.index(name) for name in scope]
        first = pa.array({value[0] for value in wanted}, self._schema.field(scope[0]).type)
        near = self._log.to_pyarrow_dataset().to_table(
            columns=self._schema.names,
            filter=pc.field(scope[0]).isin(first) | pc.field(scope[0]).is_null(),
        )
        old = [row for row in _rows(near) if tuple(row[i] for i in places) in wanted]
        difference = self._compare(old, new)
        if not set(scope) <= set(self._key):
            self._require_absent({self.key_of(row) for row in old}, difference.new)
        return difference

    def write(self, difference: Difference, build: str) -> None:
        """Write a difference in one commit, with the id of the build.

        Raises:
            RefusedRows: the new rows violate a constraint of the table.
        """
        try:
            if difference.are_inserted and not difference.gone:
                rows = self._table(difference.new)
                write_deltalake(self._log, rows, mode="append", commit_properties=marked(build))
                self._log.update_incremental()
            else:
                self._merge(difference, build)
        except DeltaError as error:
            if REFUSED in str(error):
                raise RefusedRows(str(error)) from error
            raise
        write_checksum(self._log)

    def has_good_key(self) -> bool:
        """Whether all keys are unique and without NULL. False also if that cannot be told here."""
        if not set(self._key) <= set(self._schema.names) or self._log.count() > MOST_KEYS:
            return False
        keys = self._log.to_pyarrow_dataset().to_table(columns=self._key)
        has_null = any(column.null_count for column in keys.columns)
        return not has_null and keys.group_by(self._key).aggregate([]).num_rows == keys.num_rows

    def _compare(self, old: list[Row], new: list[Row]) -> Difference:
        before = {self.key_of(row): row for row in old}
        after: dict[Row, Row] = {}
        for row in new:
            key = self.key_of(row)
            if None in key:
                raise WrongKey(WRONG["null"], [row])
            if key in after:
                raise WrongKey(WRONG["twice"], [after[key], row])
            after[key] = row
        changed = [row for key, row in after.items() if before.get(key) != row]
        gone = [key for key in before if key not in after]
        return Difference(changed, gone, not any(self.key_of(row) in before for row in changed))

    def _require_absent(self, replaced: set[Row], new: list[Row]) -> None:
        """Check that new keys are no keys of rows with another scope, which stay."""
        inserted = {key: row for row in new if (key := self.key_of(row)) not in replaced}
        first = pa.array({key[0] for key in inserted}, self._schema.field(self._key[0]).type)
        near = self._log.to_pyarrow_dataset().to_table(
            columns=self._schema.names, filter=pc.field(self._key[0]).isin(first)
        )
        for row in _rows(near):
            if (key := self.key_of(row)) in inserted:
                raise WrongKey(WRONG["twice"], [row, inserted[key]])

    def _merge(self, difference: Difference, build: str) -> None:
        names = self._schema.names
        absent = dict.fromkeys(names)
        gone = [
            tuple({**absent, **dict(zip(self._key, key, strict=True))}.values())
            for key in difference.gone
        ]
        source = self._table([*difference.new, *gone])
        marks = [False] * len(difference.new) + [True] * len(gone)
        source = source.append_column("_is_gone", pa.array(marks, pa.bool_()))
        values = {f'"{name}"': f's."{name}"' for name in names}
        (
            self._log.merge(
                source,
                predicate=" and ".join(f't."{name}" = s."{name}"' for name in self._key),
                source_alias="s",
                target_alias="t",
                commit_properties=marked(build),
            )
            .when_matched_delete(predicate='s."_is_gone"')
            .when_matched_update(updates=values)
            .when_not_matched_insert(updates=values, predicate='not s."_is_gone"')
            .execute()
        )

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        nullable = pa.schema([field.with_nullable(True) for field in self._schema])
        return pa.table(arrays, schema=nullable)

    def key_of(self, row: Row) -> Row:
        """The key of a row of all columns."""
        return tuple(row[self._schema.names.index(name)] for name in self._key)


def _rows(table: pa.Table) -> list[Row]:
    """The rows of a table as tuples, in which NaN is equal to itself."""
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(map(_comparable, row)) for row in zip(*columns, strict=True)]


NAN = float("nan")  # one object, because tuples compare identity first


def _comparable(value: Any) -> Any:
    return NAN if isinstance(value, float) and value != value else value


def _typed(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    found = pa.array(texts, pa.string())
    return (found.cast(pa.int64()) if pa.types.is_timestamp(kind) else found).cast(kind)
