"""Tests what a decoded row says about its message: deletes, truncations, fields, valid times."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED
from topic import declared

from pulsar_spark.schema import ENVELOPE_DDL
from silver.records.decode import Decoder, without_what_was_good

BORN = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)


def decoded(
    spark: SparkSession, folder: Path, options: str, *sent: tuple[str | None, bytes | None]
) -> list[dict[str, Any]]:
    text = f'[topics.t]\nkind = "changelog"\nkey = ["id"]\n{options}'
    topic = declared(folder, text).topics["t"]
    rows = [
        ("t", 0, 1, n, 0, *each, None, PUBLISHED, None, {}, None, None, None, None)
        for n, each in enumerate(sent)
    ]
    messages = spark.createDataFrame(rows, ENVELOPE_DDL)
    found = without_what_was_good(Decoder(topic).rows(messages)).toArrow().to_pylist()
    return sorted(found, key=lambda row: row["position"]["entry"])


OP = 'fields = { id = "long", op = "string" }'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (OP, [False, False, True]),
        (f'delete = {{ field = "op", equals = "d" }}\n{OP}', [True, False, True]),
    ],
)
def test_a_rule_or_a_tombstone_deletes(
    spark: SparkSession, tmp_path: Path, options: str, expected: list[bool]
) -> None:
    sent = ("1", b'{"id":1,"op":"d"}'), ("2", b'{"id":2,"op":"u"}'), ("3", None)
    rows = decoded(spark, tmp_path, options, *sent)
    assert [row["is_deleted"] for row in rows] == expected
    assert [row["id"] for row in rows] == [1, 2, 3], "a tombstone has its key in the message key"
    assert [row["_reason"] for row in rows] == [None] * 3
    assert [row["_came"] for row in rows] == [None] * 3


def test_a_truncation_is_a_mark_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    options = f'truncate = {{ field = "id", equals = 0 }}\n{OP}'
    sent = ("0", b'{"id":0,"op":"t"}'), ("1", b'{"id":1,"op":"u"}')
    rows = decoded(spark, tmp_path, options, *sent)
    assert [row["mark"] for row in rows] == ["truncated", None]
    assert [row["is_deleted"] for row in rows] == [True, False]


def test_a_partial_update_lists_its_fields(spark: SparkSession, tmp_path: Path) -> None:
    fields = 'fields = { id = "long", a = { type = "int", required = false } }'
    sent = ("1", b'{"id":1}'), ("1", b'{"id":1,"a":null,"z":2}')
    rows = decoded(spark, tmp_path, f'updates = "partial"\n{fields}', *sent)
    assert [sorted(row["_present"]) for row in rows] == [["id"], ["a", "id", "z"]]


def test_a_version_is_valid_from_its_event_time_or_its_publish_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = (
        'history = true\nevent_time = "at"\n'
        'fields = { id = "long", at = { type = "timestamp", required = false } }'
    )
    sent = ("1", b'{"id":1,"at":"2020-01-01T00:00:00Z"}'), ("1", b'{"id":1}')
    rows = decoded(spark, tmp_path, options, *sent)
    assert [row["valid_from"].astimezone(dt.timezone.utc) for row in rows] == [BORN, PUBLISHED]


def test_a_refused_row_keeps_what_came(spark: SparkSession, tmp_path: Path) -> None:
    [row] = decoded(spark, tmp_path, OP, ("k", b"{"))
    assert row["_reason"] == "payload is not a JSON object"
    assert row["_came"] == {"key": "k", "payload": b"{", "event_time": None, "schema_version": None}
