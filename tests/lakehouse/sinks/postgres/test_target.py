"""Tests which columns of existing tables take which values, on a real PostgreSQL."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from postgres_server import PostgresServer

from lake.topics.sink import Export
from lakehouse.sinks.postgres.target import open_target
from pulsar_spark.errors import SettingsError

SINK = {"name": "x", "from": "gold.x", "table": "made.x", "key": ["id"], "url_env": "X"}


@pytest.fixture
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.create_database(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (pa.string(), ("text", "varchar", "varchar(2)", "uuid", "jsonb"), ("char(3)", "bytea")),
        (pa.int32(), ("integer", "bigint", "numeric"), ("smallint", "numeric(9,0)", "text")),
        (pa.int64(), ("bigint", "numeric"), ("integer", "double precision")),
        (
            pa.decimal128(10, 2),
            ("numeric", "numeric(10,2)", "numeric(12,3)"),
            ("numeric(10,3)", "numeric(9,2)", "numeric(10,1)", "double precision"),
        ),
        (pa.float32(), ("real", "double precision"), ("numeric",)),
        (pa.float64(), ("double precision",), ("real",)),
        (pa.timestamp("us", "UTC"), ("timestamptz",), ("timestamp", "date", "timestamptz(3)")),
        (pa.timestamp("us"), ("timestamp",), ("timestamptz",)),
        (pa.list_(pa.int32()), ("integer[]", "bigint[]"), ("smallint[]", "jsonb", "integer")),
        (pa.struct({"a": pa.int32()}), ("jsonb", "json"), ("text",)),
    ],
)
def test_a_wider_type_is_accepted_and_a_narrower_one_refused(
    connection: psycopg.Connection[Any],
    kind: pa.DataType,
    accepted: tuple[str, ...],
    refused: tuple[str, ...],
) -> None:
    sink = Export.model_validate(SINK)
    columns = pa.schema({"id": pa.int64(), "value": kind})
    connection.execute("CREATE SCHEMA made")
    for name in (*accepted, *refused):
        connection.execute("DROP TABLE IF EXISTS made.x")
        connection.execute(f"CREATE TABLE made.x (id bigint PRIMARY KEY, value {name})")
        if name in accepted:
            assert open_target(connection, sink, columns).columns == columns
        else:
            with pytest.raises(SettingsError, match=r"the column 'value' of made\.x is"):
                open_target(connection, sink, columns)


def test_a_missing_table_is_created_with_its_schema_and_key(
    connection: psycopg.Connection[Any],
) -> None:
    sink = Export.model_validate({**SINK, "key": ["b", "a"]})
    columns = pa.schema({"a": pa.int64(), 'odd "name"': pa.string(), "b": pa.date32()})
    for _ in range(2):  # the second time, it is checked
        open_target(connection, sink, columns)
    found = connection.execute(
        "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'made.x'::regclass"
    ).fetchall()
    assert [row[0].partition("btree ")[2] for row in found] == ["(b, a)"]


@pytest.mark.parametrize(
    "index",
    [
        "CREATE INDEX ON made.x (id)",
        "CREATE UNIQUE INDEX ON made.x (id) WHERE id > 0",
        "CREATE UNIQUE INDEX ON made.x (abs(id))",
        "ALTER TABLE made.x ADD UNIQUE (id) DEFERRABLE",
        "CREATE UNIQUE INDEX ON made.x (other) INCLUDE (id)",
    ],
)
def test_an_index_that_does_not_make_each_key_unique_is_refused(
    connection: psycopg.Connection[Any], index: str
) -> None:
    connection.execute("CREATE SCHEMA made")
    connection.execute("CREATE TABLE made.x (id bigint, other bigint)")
    connection.execute(index)
    with pytest.raises(SettingsError, match="no unique index on exactly the key"):
        open_target(connection, Export.model_validate(SINK), pa.schema({"id": pa.int64()}))
    connection.execute("CREATE UNIQUE INDEX ON made.x (id) INCLUDE (other)")
    open_target(connection, Export.model_validate(SINK), pa.schema({"id": pa.int64()}))
