"""What a sink remembers in the database: its position, and the rows that were refused.

Both are written in the transaction that writes the rows. The position therefore always names the
version whose rows the table has, whatever is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from lakehouse.sinks.postgres.target import Target
from lakehouse.sinks.postgres.values import as_json, key_texts
from lakehouse.sinks.postgres.writer import Refused

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

POSITIONS, REFUSED = "lakehouse_positions", "lakehouse_refused"
CREATE = (
    """
CREATE TABLE IF NOT EXISTS {positions} (
  target text PRIMARY KEY, sink text NOT NULL, definition text NOT NULL, source text NOT NULL,
  table_id text NOT NULL, version bigint NOT NULL, written_at double precision,
  refused bigint NOT NULL, updated_at timestamp with time zone NOT NULL DEFAULT now()
)""",
    """
CREATE TABLE IF NOT EXISTS {refused} (
  target text NOT NULL, key text NOT NULL, kind text NOT NULL, row json NOT NULL,
  state text NOT NULL, reason text NOT NULL, version bigint NOT NULL,
  refused_at timestamp with time zone NOT NULL DEFAULT now(), PRIMARY KEY (target, key)
)""",
)
READ = "SELECT definition, source, table_id, version, written_at, refused FROM {positions} "


class Position(NamedTuple):
    """Which version of which Delta table the table in the database shows.

    definition: checksum of what the sink exports.
    source: full name of the Delta table.
    table_id: its id, which a table that was deleted and made again does not have.
    version: the version.
    written_at: when the version was committed, in seconds since 1970.
    refused: number of rows that were refused.
    """

    definition: str
    source: str
    table_id: str
    version: int
    written_at: float | None
    refused: int


class Bookkeeping:
    """The position and the refused rows of one sink, in tables beside its own table."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, table: str) -> None:
        self._connection = connection
        self._schema = schema
        self._target = f"{schema}.{table}"

    def lock(self) -> None:
        """Let nobody else write to the table of the sink until the transaction ends.

        Must be the first statement, because a lock that was waited for comes before a snapshot.
        """
        self._connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._target,)
        )

    def create(self) -> None:
        """Create the tables if they do not exist. Two sinks may do so at once."""
        from psycopg import sql

        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('lakehouse', 0))")
        schema = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema))
        self._connection.execute(schema)
        for statement in CREATE:
            self._do(statement)

    def exists(self) -> bool:
        """Whether the tables exist."""
        found = self._connection.execute(
            "SELECT to_regclass(%s)", (f'"{self._schema}"."{POSITIONS}"',)
        ).fetchone()
        return found is not None and found[0] is not None

    def position(self) -> Position | None:
        """The position; None if nothing has been written yet."""
        found = self._do(READ + "WHERE target = %s", self._target).fetchone()
        return None if found is None else Position(*found)

    def move(self, sink: str, position: Position) -> None:
        """Store the position."""
        self._do(
            "INSERT INTO {positions} AS p (target, sink, definition, source, table_id, version, "
            "written_at, refused) VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (target) "
            "DO UPDATE SET sink = excluded.sink, definition = excluded.definition, "
            "source = excluded.source, table_id = excluded.table_id, version = excluded.version, "
            "written_at = excluded.written_at, refused = excluded.refused, updated_at = now()",
            *(self._target, sink, *position),
        )

    def note(self, refused: Sequence[Refused], target: Target, version: int) -> None:
        """Store refused rows, in place of earlier ones with the same key."""
        for each in refused:
            [key] = key_texts(each.row.select(list(target.key)))
            [row] = as_json(each.row)
            self._do(
                "INSERT INTO {refused} (target, key, kind, row, state, reason, version) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (target, key) DO UPDATE SET "
                "kind = excluded.kind, row = excluded.row, state = excluded.state, "
                "reason = excluded.reason, version = excluded.version, refused_at = now()",
                *(self._target, key, each.kind, row, each.state, each.reason, version),
            )

    def forgive(self, keys: pa.Table | None) -> None:
        """Delete the refused rows with some keys, or all of them. Newer rows take their place."""
        if keys is None:
            self._do("DELETE FROM {refused} WHERE target = %s", self._target)
        else:
            self._do(
                "DELETE FROM {refused} WHERE target = %s AND key = ANY (%s)",
                *(self._target, key_texts(keys)),
            )

    def count_refused(self) -> int:
        """The number of rows that are refused now."""
        found = self._do(
            "SELECT count(*) FROM {refused} WHERE target = %s", self._target
        ).fetchone()
        return int(found[0]) if found else 0

    def _do(self, text: str, *values: object) -> psycopg.Cursor[Any]:
        from psycopg import sql

        names: dict[str, sql.Composable] = {
            "positions": sql.Identifier(self._schema, POSITIONS),
            "refused": sql.Identifier(self._schema, REFUSED),
        }
        return self._connection.execute(sql.SQL(text).format(**names), values or None)
