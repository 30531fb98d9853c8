"""Tests the reason for which each kind of message is rejected. The first that applies is told."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED
from topic import declared

from pulsar_spark.schema import ENVELOPE_DDL
from silver.records.decode import Decoder

EVENTS = 'kind = "events"\nkey = ["id", "line"]'
FIELDS = """[topics.t.fields]
id = "long"
line = "int"
at = { type = "timestamp_ms", absent = -1 }
note = { type = "string", required = false }
"""
NO_JSON = "payload is not a JSON object"
TWICE = "a field is in the payload twice, and one of its values has the wrong type"


def reasons(
    spark: SparkSession, folder: Path, options: str, *sent: tuple[str | None, bytes | None]
) -> list[str | None]:
    topic = declared(folder, f"[topics.t]\n{options}\n{FIELDS}").topics["t"]
    rows = [
        ("t", 0, 1, n, 0, *each, None, PUBLISHED, None, {}, None, None, None, None)
        for n, each in enumerate(sent)
    ]
    found = Decoder(topic).rows(spark.createDataFrame(rows, ENVELOPE_DDL)).toArrow().to_pylist()
    found.sort(key=lambda row: row["position"]["entry"])
    return [row["_reason"] for row in found]


def test_an_event_is_rejected_for_what_is_wrong_first(spark: SparkSession, tmp_path: Path) -> None:
    cases: list[tuple[bytes | None, str | None]] = [
        (b'{"id":1,"line":2,"at":3}', None),
        (b'{"id":1,"line":2,"at":-1,"note":null,"more":[1]}', None),
        (b"", "payload is empty"),
        (None, "payload is empty"),
        (b"[1]", NO_JSON),
        (b'{"id":1', NO_JSON),
        (b"\xff", "payload is not valid UTF-8"),
        (b'{"id":1,"line":2,"at":3} {"id":2}', "payload has more text after the JSON object"),
        (b'{"id":1,"line":2}', "field 'at' is missing"),
        (b'{"id":1,"at":null,"line":2}', "field 'at' is missing"),
        (b'{"id":"x","line":"y","at":3}', "field 'id' is not of type long"),
        (b'{"id":1,"line":3000000000,"at":3}', "field 'line' is not of type int"),
        (b'{"id":1,"line":2,"at":3,"note":7}', "field 'note' is not of type string"),
        (b'{"id":1,"id":"x","line":2,"at":3}', TWICE),
    ]
    found = reasons(spark, tmp_path, EVENTS, *(("1|2", payload) for payload, _ in cases))
    assert dict(zip(range(len(cases)), found, strict=True)) == dict(
        enumerate(reason for _, reason in cases)
    )


@pytest.mark.parametrize(
    ("options", "key", "reason"),
    [
        ("", "1|2", None),
        ("", "1", "payload is empty and the message key is not a key of this topic"),
        ("", "x|2", "payload is empty and the message key is not a key of this topic"),
        ('\ndelete = "never"', "1|2", "payload is empty"),
    ],
)
def test_a_tombstone_needs_a_key_of_the_topic(
    spark: SparkSession, tmp_path: Path, options: str, key: str, reason: str | None
) -> None:
    changelog = f'kind = "changelog"\nkey = ["id", "line"]{options}'
    assert reasons(spark, tmp_path, changelog, (key, None)) == [reason]
