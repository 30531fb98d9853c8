"""Tests where the value of a field is read from: the payload, an envelope, or the message key."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED
from topic import declared

from pulsar_spark.schema import ENVELOPE_DDL
from silver.records.parse import has_key_outside, steps, value


def parsed(
    spark: SparkSession, folder: Path, text: str, *sent: tuple[str | None, bytes | None]
) -> list[dict[str, Any]]:
    topic = declared(folder, f"[topics.t]\n{text}").topics["t"]
    rows = [
        ("t", 0, 1, n, 0, *each, None, PUBLISHED, None, {}, None, None, None, None)
        for n, each in enumerate(sent)
    ]
    messages = spark.createDataFrame(rows, ENVELOPE_DDL)
    for step in steps(topic, {}):
        messages = messages.withColumns(step)
    columns = [value(topic, name).alias(name) for name in topic.fields]
    found = messages.select("entry", has_key_outside(topic).alias("_outside"), *columns)
    return sorted(found.toArrow().to_pylist(), key=lambda row: row["entry"])


CHANGELOG = 'kind = "changelog"\nkey = ["id", "part"]\n'


def test_a_key_is_in_the_message_key_only_if_there_is_no_payload(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = f'{CHANGELOG}fields = {{ id = "long", part = "string", n = "int" }}'
    full = b'{"id":1,"part":"a","n":3}'
    rows = parsed(spark, tmp_path, text, ("9|z", full), ("9|z|", None), ("9|z", None), ("9", b""))
    assert [(r["id"], r["part"], r["n"], r["_outside"]) for r in rows] == [
        (1, "a", 3, False),
        (None, None, None, True),
        (9, "z", None, True),
        (None, None, None, True),
    ]


def test_bare_values_have_the_whole_key_outside(spark: SparkSession, tmp_path: Path) -> None:
    fields = 'fields = { id = "long", part = "string", v = "string" }'
    text = f'{CHANGELOG}schema = "string"\n{fields}'
    [row] = parsed(spark, tmp_path, text, ("4|a", b"[any text]"))
    assert row == {"entry": 0, "_outside": True, "id": 4, "part": "a", "v": "[any text]"}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"op":"u","before":{"id":1},"after":{"id":2},"source":{"lsn":7}}', (2, 7)),
        (b'{"op":"d","before":{"id":1},"after":{"id":2},"source":{"lsn":7}}', (1, 7)),
        (b'{"op":"t","after":{"id":2},"source":{"lsn":7}}', (None, 7)),
    ],
)
def test_the_row_of_an_envelope_depends_on_its_op(
    spark: SparkSession, tmp_path: Path, payload: bytes, expected: tuple[int | None, int]
) -> None:
    text = (
        'kind = "changelog"\nkey = ["id"]\nenvelope = "debezium"\nsequence = ["lsn"]\n'
        'fields = { id = "long", lsn = { type = "long", path = "source.lsn" } }'
    )
    [row] = parsed(spark, tmp_path, text, (None, payload))
    assert (row["id"], row["lsn"]) == expected


def test_a_value_that_stands_for_none_becomes_null(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        'kind = "events"\nkey = ["id"]\n'
        'fields = { id = "long", at = { type = "timestamp_ms", absent = -1 }, '
        'name = { type = "string", absent = "" } }'
    )
    sent = (None, b'{"id":1,"at":-1,"name":""}'), (None, b'{"id":1,"at":0,"name":" "}')
    none, some = parsed(spark, tmp_path, text, *sent)
    assert (none["at"], none["name"]) == (None, None)
    assert (some["at"].timestamp(), some["name"]) == (0, " ")
