"""Reads the table of an import: each row as the message that stands for it, in the order of keys.

PostgreSQL itself writes the JSON, so that each number keeps its digits. All rows are those of one
snapshot, and are fetched in portions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from lake.topics.sink import Import
from lake.topics.topic import FieldSpec, Topic, snake_case
from lakehouse.sinks.postgres.database import address_of, shown
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

PORTION = 5_000
WHOLE = ("smallint", "integer", "bigint")
JSON = ("json", "jsonb")
TIMES = ("timestamp with time zone", "timestamp without time zone")
# For each type of a field, the types of PostgreSQL whose values it holds.
FITTING = {
    "boolean": ("boolean",),
    "int": WHOLE[:2],
    "long": WHOLE,
    "float": ("real",),
    "double": ("real", "double precision"),
    "decimal": (*WHOLE, "numeric"),
    "string": ("text", "character varying", "character", "uuid", *JSON, "enum"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": TIMES,
    "timestamp_ms": TIMES,
    "array": JSON,
    "struct": JSON,
    "map": JSON,
}
# How a value is written, if not as JSON of PostgreSQL.
FORMS = {
    "string": "{}::text",
    "binary": r"translate(encode({}, 'base64'), E'\n', '')",
    "timestamp_ms": "round(extract(epoch FROM date_trunc('milliseconds', {})) * 1000)",
}
RELATION = """
SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
WHERE nspname = %s AND relname = %s AND relkind IN ('r', 'p', 'v', 'm', 'f')
"""
# The type of a domain is the one that it restricts.
COLUMNS = """
SELECT attname::text, CASE WHEN base.typtype = 'e' THEN 'enum' ELSE format_type(base.oid, NULL) END
FROM pg_attribute
JOIN pg_type AS own ON own.oid = atttypid
JOIN pg_type AS base ON base.oid = CASE own.typtype WHEN 'd' THEN own.typbasetype ELSE own.oid END
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class Row(NamedTuple):
    """A row as a message: the message key, which identifies the row, and the payload."""

    key: bytes
    payload: bytes


class Source:
    """The table of an import, in one transaction.

    connection: a connection within a transaction of isolation level REPEATABLE READ.

    Raises:
        SettingsError: the table does not exist, or does not fit the topic.
    """

    def __init__(self, connection: psycopg.Connection[Any], declared: Import, topic: Topic) -> None:
        self._connection, self._declared, self._topic = connection, declared, topic
        connection.execute("SET LOCAL extra_float_digits = 3")  # all digits, also before version 12
        schema, _, table = declared.table.partition(".")
        found = connection.execute(RELATION, (schema, table)).fetchone()
        if found is None:
            self._refuse(
                f"{shown(address_of(declared))} has no table or view {declared.table}",
                "Create it, or correct 'table'. Case matters.",
            )
        self._there = dict(connection.execute(COLUMNS, found).fetchall())
        self._columns = {
            name: self._column(name, spec)
            for name, spec in topic.fields.items()
            if spec.is_in_payload
        }

    def now_ms(self) -> int:
        """The time of the snapshot by the clock of the database, in epoch milliseconds."""
        query = "SELECT floor(extract(epoch FROM now()) * 1000)::bigint"
        found = self._connection.execute(query).fetchone()
        return int(found[0]) if found else 0

    def rows(self) -> Iterator[Row]:
        """All rows, in the order of the bytes of their keys.

        Raises:
            SettingsError: a key is NULL or empty, contains `|`, or is that of several rows.
        """
        several = len(self._topic.key) > 1
        last: bytes | None = None
        with self._connection.cursor(name="lakehouse_import") as cursor:
            cursor.itersize = PORTION
            cursor.execute(self._query())
            for key, payload in cursor:
                if not key:
                    self._refuse_key("is NULL or empty in a row", "Leave such rows out in a view.")
                if several and key.count(b"|") >= len(self._topic.key):
                    self._refuse_key(
                        "contains '|', which separates the parts of a message key",
                        "Leave such rows out in a view.",
                    )
                if key == last:
                    self._refuse_key(
                        "has the same values in several rows", "Name all columns of the key."
                    )
                last = key
                yield Row(key, payload.encode())

    def _query(self) -> sql.Composed:
        from psycopg import sql

        members = (
            sql.SQL("{} AS {}").format(
                self._value(name), sql.Identifier(self._topic.place(name)[0])
            )
            for name in self._columns
        )
        key = (
            sql.SQL("{}::text").format(sql.Identifier("t", self._columns[name]))
            for name in self._topic.key
        )
        # As bytes, whose order is the same everywhere. NULL if a part is NULL.
        return sql.SQL(
            "SELECT convert_to({}, 'UTF8'), (SELECT row_to_json(r)::text FROM (SELECT {}) AS r) "
            "FROM {} AS t ORDER BY 1 NULLS FIRST"
        ).format(
            sql.SQL(" || '|' || ").join(key),
            sql.SQL(", ").join(members),
            sql.Identifier(*self._declared.table.split(".")),
        )

    def _value(self, name: str) -> sql.Composed:
        from psycopg import sql

        spec, column = self._topic.fields[name], sql.Identifier("t", self._columns[name])
        value = sql.SQL(FORMS.get(_kind(spec), "{}")).format(column)
        if spec.absent is None:
            return value
        return sql.SQL("COALESCE({}, {})").format(value, sql.Literal(spec.absent))

    def _column(self, name: str, spec: FieldSpec) -> str:
        """The column of a field, whose type must fit."""
        table = self._declared.table
        column = next((each for each in (snake_case(name), name) if each in self._there), None)
        if column is None:
            self._refuse(
                f"{table} has no column '{snake_case(name)}' for the field '{name}' of the topic "
                f"'{self._topic.name}'. Its columns are {', '.join(self._there)}",
                "Correct the field, or add the column.",
            )
        kind, fitting = self._there[column], FITTING[_kind(spec)]
        if kind not in fitting:
            self._refuse(
                f"the column '{column}' of {table} is {kind}, and the field '{name}' is "
                f"{spec.type}, which takes {', '.join(fitting)}",
                "Change the type of the field, or import a view that casts the column.",
            )
        return column

    def _refuse_key(self, what: str, remedy: str) -> NoReturn:
        columns = ", ".join(self._columns[name] for name in self._topic.key)
        self._refuse(f"the key ({columns}) of {self._declared.table} {what}", remedy)

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        message = f"{self._declared.label}: {what}."
        raise SettingsError(message, remedy)


def _kind(spec: FieldSpec) -> str:
    """The type of a field without its parameters."""
    return spec.type.partition("(")[0].partition("<")[0]
