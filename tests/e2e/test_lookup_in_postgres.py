"""Tests that events are completed from a table of PostgreSQL, from the table to the joined rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from imported import Imported
from postgres_server import PostgresServer
from pyspark.sql import SparkSession
from shop_lake import ShopLake

from lake.settings.settings import LakeSettings
from lakehouse.imports.state import import_states
from lakehouse.messages.publish import create_topics
from lakehouse.operate.doctor import imported as examine
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker

TOPICS = """
[topics.districts]
kind = "changelog"
key = ["id"]
history = true
[topics.districts.fields]
id = "long"
name = { type = "string", required = false }
rate = { type = "decimal(4,2)", required = false }

[topics.sales]
kind = "events"
key = ["id"]
[topics.sales.fields]
id = "long"
districtId = "long"
[topics.sales.lookups]
district = { topic = "districts", on = "districtId" }
"""
LIVE = "NOT is_deleted"
DELETED = "a row that is marked as deleted"
District = tuple[str | None, str | None] | str | None


@pytest.mark.nightly
def test_events_have_the_rows_of_postgresql(
    spark: SparkSession,
    broker: Broker,
    settings: LakeSettings,
    postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    """The oracle joins in PostgreSQL. A lookup gives the row that is known when an event comes."""
    table = Imported(settings, tmp_path, postgres.create_database(), TOPICS)
    table.create("id bigint PRIMARY KEY, name text, rate numeric")
    lake = ShopLake(spark, settings, table.lake.topics)
    create_topics(lake.lake)
    expected: dict[int, District] = {}
    waiting: dict[int, int] = {}  # the district of each sale whose district was never there
    former: dict[int, District] = {}  # what a sale finds of a district that has been there

    def turn(*sales: tuple[int, int]) -> None:
        table.run()
        sent = ((id_, json.dumps({"id": id_, "districtId": d}).encode()) for id_, d in sales)
        lake.send("sales", sent)
        lake.catch_up()
        found = table.query("SELECT id, name, round(rate, 2)::text FROM districts")
        there = {id_: (name, rate) for id_, name, rate in found}
        waiting.update(sales)
        for id_, district in [*waiting.items()]:
            expected[id_] = there.get(district, former.get(district))
            if expected[id_]:
                del waiting[id_]
        former.update(dict.fromkeys(there, DELETED))
        rows = {row["id"]: _district(row) for row in lake.rows("enriched_sales")}
        assert rows == expected
        state = {r["id"]: (r["name"], _text(r["rate"])) for r in lake.rows("districts_state", LIVE)}
        refused = {int(json.loads(r["payload"])["id"]) for r in lake.refused()}
        assert {k: v for k, v in state.items() if k not in refused} == {
            k: v for k, v in there.items() if k not in refused
        }

    table.query("INSERT INTO districts VALUES (1, 'Praha', 1.5), (2, 'Brno', NULL)")
    turn((10, 1), (11, 2), (12, 3))
    table.query("UPDATE districts SET name = 'Brünn', rate = 0.005 WHERE id = 2")
    table.query("DELETE FROM districts WHERE id = 1")
    table.query("INSERT INTO districts VALUES (3, NULL, 9.999), (4, 'odd', 'NaN')")
    turn((20, 1), (21, 2), (22, 3))
    [refused] = lake.refused()
    assert "'rate' is not of type decimal(4,2)" in refused["reason"]
    table.query("DELETE FROM districts WHERE id = 4")
    table.query("INSERT INTO districts VALUES (1, 'Praha again', 2)")
    turn((30, 1))
    versions = [row["name"] for row in lake.rows("districts_history", "id = 1")]
    assert sorted(filter(None, versions)) == ["Praha", "Praha again"]
    table.query("DELETE FROM districts WHERE id = 2")
    turn((40, 2), (41, 3))
    [state] = import_states(table.lake)
    assert (state.rows, examine(state).state) == (2, "ok")
    assert lake_status(table.lake)[0].note.startswith("compared at 2")


def _district(row: dict[str, Any]) -> District:
    found = row["district"]
    if found is None:
        return None
    return DELETED if found["is_deleted"] else (found["name"], _text(found["rate"]))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
