"""Tests how a table of a real PostgreSQL is read as messages."""

import base64
import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer
from topic import declared

from lakehouse.imports.source import Row, Source
from lakehouse.messages.json_types import accepts, read_object
from pulsar_spark.errors import SettingsError

UTC = dt.timezone.utc
MOMENT = dt.datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)
ID = 'id = "long"'
TOPIC = """
[topics.things]
kind = "changelog"
key = {key}
[topics.things.fields]
{fields}
[import.things]
table = "public.things"
url_env = "DB_OF_THE_TESTS"
"""
# A value as Python has it, the type of its column and of its field, and the JSON that is expected.
VALUES: list[tuple[Any, str, str, Any]] = [
    (True, "boolean", "boolean", True),
    (-32768, "smallint", "int", -32768),
    (2**31 - 1, "integer", "int", 2**31 - 1),
    (2**31 - 1, "integer", "long", 2**31 - 1),
    (-(2**63), "bigint", "long", -(2**63)),
    (0.5, "real", "float", 0.5),
    (5e-324, "double precision", "double", 5e-324),
    (0.1, "double precision", "double", 0.1),
    (1e300, "double precision", "double", 1e300),
    (Decimal("-12345678901234567890.123456789"), "numeric(38,9)", "decimal(38,9)", None),
    (Decimal("13.750000000000002"), "numeric", "decimal(12,2)", None),
    (7, "integer", "decimal(12,2)", 7),
    ("", "text", "string", ""),
    ('ü\U0001f600\t\n"\\|', "text", "string", 'ü\U0001f600\t\n"\\|'),
    ("ab", "varchar(9)", "string", "ab"),
    ("ab", "char(9)", "string", "ab"),
    ("happy", "mood", "string", "happy"),
    ("a@b", "mail", "string", "a@b"),
    (uuid.UUID(int=7), "uuid", "string", str(uuid.UUID(int=7))),
    ('{"a": [1.50, null]}', "jsonb", "string", '{"a": [1.50, null]}'),
    ('{"b":1,  "a":2}', "json", "string", '{"b":1,  "a":2}'),
    ('{"lat": 1.5, "more": 0}', "jsonb", "struct<lat: double>", {"lat": 1.5, "more": 0}),
    (b"\x00\xff" * 50, "bytea", "binary", base64.b64encode(b"\x00\xff" * 50).decode()),
    (dt.date(1, 1, 1), "date", "date", "0001-01-01"),
    (MOMENT, "timestamptz", "timestamp", "2026-03-29T01:30:00.123456+00:00"),
    (MOMENT.replace(tzinfo=None), "timestamp", "timestamp", "2026-03-29T01:30:00.123456"),
    (MOMENT, "timestamptz(3)", "timestamp_ms", 1774747800123),
    (dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "timestamptz", "timestamp_ms", -1),
    (dt.datetime(1, 1, 1, tzinfo=UTC), "timestamptz", "timestamp_ms", -62135596800000),
]
# Values that no message can have. They are published as texts, which silver puts into quarantine.
ODD = [
    ("NaN", "double precision", "double"),
    ("-Infinity", "real", "float"),
    ("NaN", "numeric", "decimal(12,2)"),
    ("infinity", "date", "date"),
    ("infinity", "timestamptz", "timestamp"),
    ("infinity", "timestamptz", "timestamp_ms"),
    ("0044-03-15 BC", "date", "date"),
]

Read = Callable[..., list[Row]]


@pytest.fixture
def database(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[psycopg.Connection[Any]]:
    address = postgres.create_database()
    monkeypatch.setenv("DB_OF_THE_TESTS", address)
    with psycopg.connect(address) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        connection.execute("CREATE DOMAIN mail AS text CHECK (VALUE LIKE '%@%')")
        yield connection
        connection.rollback()


@pytest.fixture
def read(database: psycopg.Connection[Any], tmp_path: Path) -> Read:
    def rows(fields: str, key: str = '["id"]') -> list[Row]:
        topics = declared(tmp_path, TOPIC.format(fields=fields, key=key))
        source = Source(database, topics.imports["things"], topics.topics["things"])
        return [*source.rows()]

    return rows


def test_each_value_is_that_of_the_column(database: psycopg.Connection[Any], read: Read) -> None:
    """One row for each value, in which all other columns are NULL."""
    columns = ", ".join(f"c{n} {kind}" for n, (_, kind, *_) in enumerate(VALUES))
    database.execute(f"CREATE TABLE things (id int, {columns})")
    for n, (value, kind, *_) in enumerate(VALUES):
        statement = f"INSERT INTO things (id, c{n}) VALUES ({n}, %s::{kind})"
        database.execute(statement, (value,))
    fields = [
        f'c{n} = {{ type = "{kind}", required = false }}' for n, (*_, kind, _) in enumerate(VALUES)
    ]
    found = read("\n".join(['id = "long"', *fields]))
    assert [row.key for row in found] == sorted(row.key for row in found)
    rows = {int(row.key): read_object(row.payload.decode()) for row in found}
    plain = {int(row.key): json.loads(row.payload, parse_float=Decimal) for row in found}
    assert rows.keys() == {*range(len(VALUES))}
    for n, (value, _, kind, wanted) in enumerate(VALUES):
        assert {name for name, each in rows[n].items() if each is not None} == {"id", f"c{n}"}
        shown = plain[n][f"c{n}"]
        if wanted is None:
            assert str(shown) == str(value)
        elif isinstance(wanted, float):
            assert float(shown) == wanted
        elif isinstance(wanted, dict):
            assert {name: float(each) for name, each in shown.items()} == wanted
        else:
            assert shown == wanted
        assert "<" in kind or accepts(kind, rows[n][f"c{n}"])


def test_odd_values_are_such_as_go_to_quarantine(
    database: psycopg.Connection[Any], read: Read
) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, (_, kind, _) in enumerate(ODD))
    database.execute(f"CREATE TABLE things (id int, {columns})")
    values = ", ".join(f"'{text}'" for text, _, _ in ODD)
    database.execute(f"INSERT INTO things VALUES (1, {values})")
    fields = "\n".join(f'c{n} = "{kind}"' for n, (_, _, kind) in enumerate(ODD))
    [row] = read(f'id = "long"\n{fields}')
    found = read_object(row.payload.decode())
    for n, (_, _, kind) in enumerate(ODD):
        assert not accepts(kind, found[f"c{n}"]), kind


def test_names_absent_values_and_composite_keys(
    database: psycopg.Connection[Any], read: Read
) -> None:
    database.execute(
        'CREATE TABLE things (region text, "dayOf" date, parent_id bigint, "N o" text)'
    )
    database.execute(
        "INSERT INTO things VALUES ('ü', '2026-01-05', NULL, 'x'), ('b', '2026-01-05', 7, 'y'), "
        "('Z', '2026-01-05', 8, NULL)"
    )
    fields = """
region = "string"
dayOf = "date"
parentId = { type = "long", absent = -1, path = "parent" }
seen = { type = "timestamp", from_message = "event_time" }
"""
    found = read(fields, '["region", "dayOf"]')
    assert [(row.key.decode(), json.loads(row.payload)) for row in found] == [
        ("Z|2026-01-05", {"region": "Z", "dayOf": "2026-01-05", "parent": 8}),
        ("b|2026-01-05", {"region": "b", "dayOf": "2026-01-05", "parent": 7}),
        ("ü|2026-01-05", {"region": "ü", "dayOf": "2026-01-05", "parent": -1}),
    ]


def test_views_are_read_like_tables(database: psycopg.Connection[Any], read: Read) -> None:
    database.execute("CREATE VIEW things AS SELECT n::bigint AS id FROM generate_series(1, 12) n")
    assert len(read('id = "long"')) == 12


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("x int", "public.things has no column 'id' for the field 'id' .* columns are x"),
        (
            "id numeric(9)",
            "column 'id' of public.things is numeric, and .* takes smallint, integer",
        ),
        ("id bigint, a text[]", "the column 'a' of public.things is text.., .*which takes text"),
        ("id bigint, a interval", "'a' of public.things is interval, .*a view that casts the"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_the_name_of_the_column(
    database: psycopg.Connection[Any], read: Read, table: str, says: str
) -> None:
    database.execute(f"CREATE TABLE things ({table})")
    with pytest.raises(SettingsError, match=rf"import\.things: .*{says}"):
        read('id = "long"\na = { type = "string", required = false }' if "a" in table else ID)


def test_an_absent_table_is_refused(read: Read) -> None:
    with pytest.raises(SettingsError, match=r"db_\w+ has no table or view public\.things\. Create"):
        read(ID)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("('a', 'b'), (NULL, 'b')", r"the key \(a, b\) of public.things is NULL or empty"),
        ("('a', 'b|c')", "contains '|', which separates"),
        ("('a', 'b'), ('a', 'b')", "same values in several rows. Name all columns"),
    ],
)
def test_a_key_that_cannot_be_a_message_key_is_refused(
    database: psycopg.Connection[Any], read: Read, values: str, says: str
) -> None:
    database.execute("CREATE TABLE things (a text, b text)")
    database.execute(f"INSERT INTO things VALUES {values}")
    with pytest.raises(SettingsError, match=says):
        read('a = "string"\nb = "string"', '["a", "b"]')
