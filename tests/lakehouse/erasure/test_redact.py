"""Tests that messages are overwritten in place, and all others stay as they are."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY, bronze_table
from lake.tables.table import Table
from lakehouse.erasure.redact import Redacted, redact


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    found = Lake(load_settings(home=tmp_path)).table(bronze_table("users"))
    found.create()
    found.arrow.append(
        [
            {
                **{"topic": "users", "partition": 0, "ledger": 1, "entry": n, "batch_index": 0},
                **{"key": f"k{n}", "payload": b"hers", "publish_time": PUBLISHED},
                **{
                    "properties": [("who", "her"), ("a", "b")],
                    "raw_key": b"\xff",
                    "undecoded": "key",
                },
            }
            for n in range(3)
        ]
    )
    return found


def test_keys_payloads_and_properties_are_replaced(table: Table, spark: SparkSession) -> None:
    messages = [Redacted((1, 0, 0, 0), "-1", None), Redacted((1, 2, 0, 0), None, b"new", ("a",))]
    for _ in range(2):
        redact(spark, table, messages)
    rows = {row.entry: row for row in table.rows(spark).collect()}
    assert (rows[0].key, rows[0].payload, rows[0].properties) == ("-1", None, {})
    assert (rows[2].key, rows[2].payload, rows[2].properties) == (None, b"new", {"a": "b"})
    assert (rows[0].raw_key, rows[0].undecoded) == (None, None)
    assert (rows[1].key, rows[1].payload, rows[1].properties) == (
        "k1",
        b"hers",
        {"who": "her", "a": "b"},
    )
    assert rows[1].raw_key == b"\xff"
    assert rows[0].publish_time == rows[1].publish_time
    assert table.arrow.configuration(APPEND_ONLY) == "true"
