"""The table of a sink in the database: creates it, or checks that its columns fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.topics.sink import Export
from lakehouse.sinks.postgres.values import type_name
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    import psycopg

# For each type of ours, other types of a column that hold all its values, or refuse single rows.
WIDER = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying", "uuid", "json", "jsonb"),
    "jsonb": ("json",),
}
# In a key, equal values must be equal in the database, and only these.
WIDER_IN_KEY = {**WIDER, "text": ("character varying",), "jsonb": ()}
NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) AS kind, attnotnull AS is_needed,
  atthasdef OR attidentity <> '' OR attgenerated <> '' AS is_filled,
  attgenerated <> '' OR attidentity = 'a' AS is_given
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
UNIQUE = """
SELECT ARRAY(
  SELECT attname::text FROM pg_attribute
  WHERE attrelid = i.indrelid AND attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
)
FROM pg_index AS i
WHERE indrelid = %s AND indisunique AND indimmediate AND indisvalid AND indpred IS NULL
  AND indexprs IS NULL
"""


@dataclass(frozen=True)
class Target:
    """A table in the database that fits the rows of a sink.

    schema, table: its name.
    columns: names and types of Arrow of the rows.
    key: the columns that identify a row.
    """

    schema: str
    table: str
    columns: pa.Schema
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """`<schema>.<table>`."""
        return f"{self.schema}.{self.table}"


def open_target(connection: psycopg.Connection[Any], sink: Export, columns: pa.Schema) -> Target:
    """Create the table of a sink if it does not exist, and check that its columns fit.

    Called when a sink starts, and again when the columns of its source have changed.

    Args:
        connection: the connection, within a transaction.
        sink: the sink.
        columns: the columns to write.

    Raises:
        SettingsError: the table exists and does not fit. Names the column and the remedy.
    """
    schema, _, table = sink.table.partition(".")
    target = Target(schema, table, columns, tuple(sink.key))
    found = connection.execute(
        "SELECT c.oid, c.relkind FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s",
        (schema, table),
    ).fetchone()
    if found is None:
        _create(connection, target)
        return target
    oid, kind = found
    if kind not in ("r", "p"):
        _refuse(sink, f"{sink.table} is not a table", "Name another one.")
    _check_columns(connection, sink, oid, target)
    _check_key(connection, sink, oid, target)
    return target


def _create(connection: psycopg.Connection[Any], target: Target) -> None:
    from psycopg import sql

    columns = [
        sql.SQL("{} {}").format(sql.Identifier(each.name), sql.SQL(type_name(each.type)))
        for each in target.columns
    ]
    key = sql.SQL(", ").join(map(sql.Identifier, target.key))
    statement = sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
        sql.Identifier(target.schema, target.table), sql.SQL(", ").join(columns), key
    )
    connection.execute(
        sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(target.schema))
    )
    connection.execute(statement)


def _check_columns(
    connection: psycopg.Connection[Any], sink: Export, oid: int, target: Target
) -> None:
    there = {row[0]: row[1:] for row in connection.execute(COLUMNS, (oid,)).fetchall()}
    for each in target.columns:
        wanted = type_name(each.type)
        if each.name not in there:
            _refuse(
                sink,
                f"the table {sink.table} has no column '{each.name}'",
                f'Add it (ALTER TABLE {sink.table} ADD COLUMN "{each.name}" {wanted}), or name the '
                "columns to export in 'columns'.",
            )
        kind, _, _, is_given = there[each.name]
        if is_given:
            _refuse(
                sink,
                f"the database itself gives the column '{each.name}' of {sink.table} its values",
                "Leave it out of 'columns', or make it an ordinary column.",
            )
        if not _fits(kind, wanted, is_key=each.name in target.key):
            _refuse(
                sink,
                f"the column '{each.name}' of {sink.table} is {kind}, which does not hold all "
                f"values of {wanted}",
                f'Change its type (ALTER TABLE {sink.table} ALTER COLUMN "{each.name}" TYPE '
                f"{wanted}), or leave it out of 'columns'.",
            )
    for name, (_, is_needed, is_filled, _) in there.items():
        if is_needed and not is_filled and name not in target.columns.names:
            _refuse(
                sink,
                f"the column '{name}' of {sink.table} is NOT NULL without a default, and the sink "
                "does not fill it",
                "Give it a default, or drop the constraint.",
            )


def _check_key(connection: psycopg.Connection[Any], sink: Export, oid: int, target: Target) -> None:
    unique = [set(row[0]) for row in connection.execute(UNIQUE, (oid,)).fetchall()]
    if set(target.key) not in unique:
        names = ", ".join(f'"{name}"' for name in target.key)
        _refuse(
            sink,
            f"the table {sink.table} has no unique index on exactly the key ({names})",
            f"Create one: CREATE UNIQUE INDEX ON {sink.table} ({names}).",
        )


def _fits(kind: str, wanted: str, *, is_key: bool) -> bool:
    """Whether a column of a type takes the values of another type, or refuses single rows."""
    if kind.endswith("[]") or wanted.endswith("[]"):
        both = kind.endswith("[]") and wanted.endswith("[]")
        return both and not is_key and _fits(kind[:-2], wanted[:-2], is_key=False)
    digits, own = NUMERIC.fullmatch(wanted), NUMERIC.fullmatch(kind)
    if digits:
        if own is None:
            return kind == "numeric"
        scale, own_scale = int(digits[2]), int(own[2])
        return own_scale >= scale and int(own[1]) - own_scale >= int(digits[1]) - scale
    base = re.sub(r"\(\d+\)$", "", kind)
    wider: Sequence[str] = (WIDER_IN_KEY if is_key else WIDER).get(wanted, ())
    return kind == wanted or base in wider


def _refuse(sink: Export, what: str, remedy: str) -> None:
    message = f"{sink.label}: {what}."
    raise SettingsError(message, remedy)
