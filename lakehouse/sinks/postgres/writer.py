"""Writes rows to the table of a sink, within one transaction of the database.

Rows come by COPY into a temporary table, and from there by one statement into the table. If the
database refuses a row, the statement is undone and repeated with halves of the rows, until the row
is alone. It then goes to the dead-letter table, and all others are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.sinks.postgres.database import is_of_a_row
from lakehouse.sinks.postgres.target import Target
from lakehouse.sinks.postgres.values import as_copy, has_nul, has_null
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

INCOMING, GONE, PRESENT = "lakehouse_incoming", "lakehouse_gone", "lakehouse_present"
# Of one statement. A refused row makes it repeat the statement with halves.
MOST_ROWS, MOST_BYTES = 50_000, 64 << 20
MOST_REFUSED = 100_000  # of one transaction; more are no matter of single rows
NULL_KEY = ("23502", "A column of its key is NULL.")
NUL = ("22021", "A text contains the character NUL, which PostgreSQL cannot store.")
Kind = Literal["write", "delete"]


@dataclass(frozen=True)
class Refused:
    """A row that the database has refused.

    kind: whether it was to be written or to be deleted.
    row: the row, or only its key if it was to be deleted.
    state, reason: SQLSTATE and the first line of the database's message.
    """

    kind: Kind
    row: pa.Table
    state: str
    reason: str


class Writer:
    """Writes to the table of a sink in the current transaction, and collects refused rows.

    refused: the rows that have been refused so far.
    """

    def __init__(self, connection: psycopg.Connection[Any], target: Target) -> None:
        """Create the temporary tables, which disappear with the transaction."""
        from psycopg import sql

        self._connection = connection
        self._target = target
        self.refused: list[Refused] = []
        self._table = sql.Identifier(target.schema, target.table)
        self._names = target.columns.names
        self._columns, self._key = _listed(self._names), _listed(target.key)
        for name, columns in ((INCOMING, self._columns), (GONE, self._key), (PRESENT, self._key)):
            self._do(
                "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA",
                sql.Identifier(name),
                columns,
                self._table,
            )
        # A constraint that is deferred to the end would refuse the whole transaction.
        self._do("SET CONSTRAINTS ALL IMMEDIATE")

    def apply(self, rows: pa.Table, gone: pa.Table) -> None:
        """Delete the rows with some keys, and write other rows.

        Args:
            rows: rows to insert, or to write in place of those with the same key.
            gone: keys of rows to delete.
        """
        before = len(self.refused)
        self._each(gone, "delete", self._delete)
        self._each(rows, "write", self._write)
        self._try_again(before)

    def keep_only(self, keys: pa.Table) -> None:
        """Note that some keys are present. `delete_others` deletes the rows without such a key."""
        usable = _storable(keys)
        self._each(usable, "write", lambda part: self._copy(PRESENT, part), keep_refused=False)

    def has_repeated_keys(self) -> bool:
        """Whether a key has been given to `keep_only` twice."""
        from psycopg import sql

        repeated = sql.SQL("SELECT FROM {} GROUP BY {} HAVING count(*) > 1").format(
            sql.Identifier(PRESENT), self._key
        )
        found = self._connection.execute(sql.SQL("SELECT EXISTS ({})").format(repeated)).fetchone()
        return bool(found and found[0])

    def delete_others(self) -> None:
        """Delete the rows whose key is not present."""
        from psycopg import sql

        self._do("ANALYZE {}", sql.Identifier(PRESENT))
        others = sql.SQL("FROM {} AS t WHERE NOT EXISTS (SELECT FROM {} AS p WHERE {})").format(
            self._table, sql.Identifier(PRESENT), self._same("t", "p")
        )

        def delete_all(_: pa.Table) -> None:
            self._connection.execute(sql.SQL("DELETE {}").format(others))

        if self._refusal(pa.table({}), delete_all) is not None:
            self._delete_each(others)
        self._try_again(0)

    def _delete_each(self, others: sql.Composed) -> None:
        """Delete the rows that the end of a statement selects, as far as this is possible."""
        from psycopg import sql

        names = sql.SQL(", ").join(sql.Identifier("t", name) for name in self._target.key)
        found = self._connection.execute(sql.SQL("SELECT {} {}").format(names, others)).fetchall()
        schema = pa.schema([self._target.columns.field(name) for name in self._target.key])
        rows = [dict(zip(self._target.key, row, strict=True)) for row in found]
        self._each(pa.Table.from_pylist(rows, schema), "delete", self._delete)

    def _try_again(self, since: int) -> None:
        """Try refused rows again, because others that stood in their way may be gone now."""
        while True:
            again, self.refused = self.refused[since:], self.refused[:since]
            for each in again:
                # What cannot be stored at all need not be tried again.
                fixed = (each.state, each.reason) in (NUL, NULL_KEY)
                work = self._delete if each.kind == "delete" else self._write
                error = (each.state, each.reason) if fixed else self._refusal(each.row, work)
                if error is not None:
                    self._refuse(Refused(each.kind, each.row, *error))
            if len(self.refused) - since in (0, len(again)):
                return

    def _each(
        self,
        rows: pa.Table,
        kind: Kind,
        work: Callable[[pa.Table], None],
        *,
        keep_refused: bool = True,
    ) -> None:
        """Do something with rows. Those that the database refuses are noted and left out."""
        if kind == "write" and keep_refused:
            for has, why in (
                (partial(has_null, names=self._target.key), NULL_KEY),
                (has_nul, NUL),
            ):
                found = has(rows)
                if found is not None:
                    for row in _single(rows.filter(found)):
                        self._refuse(Refused(kind, row, *why))
                    rows = rows.filter(pc.invert(found))
        elif kind == "delete":  # no such row can have been written
            rows = _storable(rows)
        at_once = max(1, min(MOST_ROWS, rows.num_rows * MOST_BYTES // max(rows.nbytes, 1)))
        todo = [rows.slice(n, at_once) for n in range(0, rows.num_rows, at_once)]
        while todo:
            part = todo.pop()
            error = self._refusal(part, work)
            if error is None:
                continue
            if part.num_rows == 1:
                if keep_refused:
                    self._refuse(Refused(kind, part, *error))
                continue
            half = part.num_rows // 2
            todo += [part.slice(half), part.slice(0, half)]

    def _refuse(self, row: Refused) -> None:
        self.refused.append(row)
        if len(self.refused) > MOST_REFUSED:
            what = (
                f"The database refuses more than {MOST_REFUSED:,} rows for the table "
                f"{self._target.full_name}, the last one with SQLSTATE {row.state}."
            )
            remedy = "Correct the columns or constraints of the table. Nothing was changed."
            raise SettingsError(what, remedy)

    def _refusal(self, rows: pa.Table, work: Callable[[pa.Table], None]) -> tuple[str, str] | None:
        """Do something with rows, or undo it and return why the database refuses a row."""
        import psycopg

        try:
            with self._connection.transaction():  # a savepoint
                work(rows)
        except psycopg.Error as error:
            if not is_of_a_row(error):
                raise
            text = error.diag.message_primary or str(error)
            return error.sqlstate or "22000", (text.strip().splitlines() or ["refused"])[0]
        return None

    def _write(self, rows: pa.Table) -> None:
        from psycopg import sql

        self._copy(INCOMING, rows)
        others = [name for name in self._names if name not in self._target.key]
        change: sql.Composable = sql.SQL("NOTHING")
        if others:
            pairs = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
            change = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(pairs))
        self._do(
            "INSERT INTO {0} ({1}) SELECT {1} FROM {2} ON CONFLICT ({3}) DO {4}",
            self._table,
            self._columns,
            sql.Identifier(INCOMING),
            self._key,
            change,
        )
        self._do("TRUNCATE {}", sql.Identifier(INCOMING))

    def _delete(self, keys: pa.Table) -> None:
        from psycopg import sql

        gone = sql.Identifier(GONE)
        self._copy(GONE, keys)
        self._do(
            "DELETE FROM {} AS t USING {} AS p WHERE {}", self._table, gone, self._same("t", "p")
        )
        self._do("TRUNCATE {}", gone)

    def _copy(self, table: str, rows: pa.Table) -> None:
        from psycopg import sql

        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table), _listed(rows.column_names)
        )
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(as_copy(rows))

    def _same(self, one: str, other: str) -> sql.Composed:
        """The condition that two rows have the same key, which is never NULL."""
        from psycopg import sql

        pairs = [
            sql.SQL("{} = {}").format(sql.Identifier(one, name), sql.Identifier(other, name))
            for name in self._target.key
        ]
        return sql.SQL(" AND ").join(pairs)

    def _do(self, text: str, *parts: sql.Composable) -> None:
        from psycopg import sql

        self._connection.execute(sql.SQL(text).format(*parts))


def _listed(names: Any) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))


def _single(rows: pa.Table) -> list[pa.Table]:
    return [rows.slice(number, 1) for number in range(rows.num_rows)]


def _storable(keys: pa.Table) -> pa.Table:
    """The keys that a row in the database can have: without NULL, and without the character NUL."""
    for has in (partial(has_null, names=keys.column_names), has_nul):
        found = has(keys)
        if found is not None:
            keys = keys.filter(pc.invert(found))
    return keys
