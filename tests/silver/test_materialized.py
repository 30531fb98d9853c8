"""Tests the views declared in a topic file against plain Python over the same rows."""

import datetime as dt
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import windows_model
from deltalake import DeltaTable
from messages import json_message, message, order
from model import Message
from pyspark.sql import DataFrame, SparkSession
from shop_lake import ShopLake
from silver_lake import SilverLake
from topic import declared

from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import load_topics
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.materialized import create_views
from silver.quarantine import Selection, replay

PEOPLE = Path(__file__).resolve().parents[2] / "examples" / "people" / "topics.toml"
BEGIN = dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc)

Row = tuple[Any, ...]


def rows(frame: DataFrame) -> set[Row]:
    found = [
        tuple(x.astimezone(dt.timezone.utc) if isinstance(x, dt.datetime) else x for x in row)
        for row in frame.collect()
    ]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.fixture(scope="module")
def late_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SilverLake:
    """A lake with orders of three days in two batches, the latest first, in a separate session."""
    lake = SilverLake(spark.newSession(), tmp_path_factory.mktemp("windows"))
    rng = random.Random(5)
    times = [rng.randrange(72 * 60) for _ in range(80)] + [n * 30 for n in range(20)]
    orders = []
    for n, minute in enumerate(sorted(times, reverse=True)):
        at = BEGIN + dt.timedelta(minutes=minute)
        fields = {"createdAt": int(at.timestamp() * 1000), "price": rng.choice([1.25, 3, 10])}
        payload = order(n // 2, n, rng.randrange(3), rng.randrange(5), **fields)
        orders.append(message("orders", n, n, payload))
    for batch in (orders[:70], orders[70:]):
        lake.put(batch)
        lake.refine()
    lake.table("enriched_orders").createOrReplaceTempView("enriched_orders")
    for view in lake.topics.views.values():
        lake.spark.sql(view.sql).createOrReplaceTempView(view.name)
    return lake


@pytest.mark.parametrize("name", windows_model.VIEWS)
def test_a_window_includes_late_rows(late_lake: SilverLake, name: str) -> None:
    expected = windows_model.VIEWS[name](late_lake.enriched().values())
    assert rows(late_lake.spark.table(name)) == expected


def test_sql_clients_see_the_views(shop_lake: ShopLake) -> None:
    lines = shop_lake.enriched().values()
    assert set(windows_model.VIEWS) == set(shop_lake.topics.views)
    for name, model in windows_model.VIEWS.items():
        assert rows(shop_lake.spark.table(f"silver.{name}")) == model(lines), name


def test_a_view_that_is_not_a_query_is_refused_by_name(shop_lake: ShopLake, tmp_path: Path) -> None:
    mistake = """
[views.mistake]
description = "?"
sql = "SELECT nothing FROM enriched_orders"
"""
    topics = declared(tmp_path, SHOP_TOPICS.read_text() + mistake)
    with pytest.raises(SettingsError, match="view 'mistake'.*UNRESOLVED_COLUMN.*nothing"):
        create_views(shop_lake.spark, topics)


def people_messages(seed: int, count: int) -> list[Message]:
    """Return creations, moves, changes and deletions of a few people, their colours and cheeses."""
    rng = random.Random(seed)
    found = []
    for entry in range(count):
        who, what = rng.randrange(6), rng.choice(["people"] * 3 + ["colours", "cheeses"])
        if what == "people" and rng.random() < 0.2:
            found.append(json_message("people", entry, id=who, op="d"))
        elif what == "people":
            fields = {"name": f"n{entry}", "account_id": rng.choice("abc")}
            found.append(json_message("people", entry, id=who, op="u", **fields))
        elif rng.random() < 0.2:
            found.append(message(what, entry, who, None))
        else:
            value = {what[:-1]: f"{what}{entry}"}
            found.append(json_message(what, entry, who, person_id=who, **value))
    return found


def expected(messages: list[Message]) -> tuple[set[Row], set[Row]]:
    """Return `people_per_account` and `favourites`, from the latest message of each key."""
    latest: dict[str, dict[str, dict[str, Any]]] = {}
    for m in sorted(messages, key=lambda m: m.position):
        content = json.loads(m.payload) if m.payload else {"op": "d"}
        latest.setdefault(m.topic, {})[str(m.key)] = content
    live = {
        topic: {key: row for key, row in found.items() if row.get("op") != "d"}
        for topic, found in latest.items()
    }
    people = live.get("people", {})
    counts = Counter(row["account_id"] for row in people.values())
    liked = {
        (
            row["id"],
            row["name"],
            live.get("colours", {}).get(key, {}).get("colour"),
            live.get("cheeses", {}).get(key, {}).get("cheese"),
        )
        for key, row in people.items()
    }
    return set(counts.items()), liked


def kept(lake: SilverLake) -> tuple[set[Row], set[Row]]:
    return (
        rows(lake.table("people_per_account").drop("silver_batch")),
        rows(lake.table("favourites").drop("silver_batch")),
    )


def test_aggregates_and_joins_follow_their_changelogs(spark: SparkSession, tmp_path: Path) -> None:
    lake = SilverLake(spark, tmp_path, load_topics(PEOPLE))
    messages = people_messages(1, 60)
    shuffled = random.Random(2).sample(messages, len(messages))
    for begin in range(0, 60, 20):
        lake.put([*shuffled[begin : begin + 20], *shuffled[max(begin - 5, 0) : begin]])
        lake.refine()
        assert kept(lake) == expected(shuffled[: begin + 20])
    history = DeltaTable(lake.settings.table_path("silver", "favourites")).history()
    merges = [x["operationMetrics"] for x in history if x["operation"] == "MERGE"]
    assert any(0 < int(m["numTargetRowsUpdated"]) < 6 for m in merges), "merges update all rows"


TWICE = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = "int"
town = "string"
name = { type = "string", required = false }

[views.towns]
description = "Towns"
key = ["town"]
columns = { town = "string", name = "string" }
sources = { people = ["town"] }
sql = "SELECT town, name FROM people"
"""


def test_a_query_that_gives_a_key_twice_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, TWICE))
    lake.put(json_message("people", n, id=n, town="bath") for n in range(2))
    with pytest.raises(LakehouseError, match="view 'towns'.*key more than once: town = bath"):
        lake.refine()


def test_a_view_that_is_declared_later_or_changed_is_built_from_all_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = TWICE.replace("SELECT town, name FROM", "SELECT town, max(name) AS name FROM") + "\n"
    view = text.index("[views")
    counted = text.replace('people"\n', 'people GROUP BY town"\n')
    lake = SilverLake(spark, tmp_path, declared(tmp_path, text[:view]))
    lake.put([json_message("people", 1, id=1, town="bath", name="ada")])
    lake.refine()
    lake.topics = declared(tmp_path, counted)
    lake.put([json_message("people", 2, id=2, town="york", name="bob")])
    lake.refine()
    towns = lake.table("towns").drop("silver_batch")
    assert rows(towns) == {("bath", "ada"), ("york", "bob")}
    lake.topics = declared(tmp_path, counted.replace("max(name)", "upper(max(name))"))
    lake.put([json_message("people", 3, id="x", town="york")])
    lake.refine()
    lake.put([json_message("people", 4, id=1, town="york", name="eve")])
    lake.refine()
    assert rows(lake.table("towns").drop("silver_batch")) == {("york", "EVE")}


def test_records_replayed_from_the_quarantine_are_in_the_views(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = TWICE.replace(
        '"SELECT town, name FROM people"',
        '"SELECT town, count(*) AS name FROM people GROUP BY town"',
    )
    strict = text.replace('{ type = "string", required = false }', '"string"')
    lake = SilverLake(spark, tmp_path, declared(tmp_path, strict))
    lake.put([json_message("people", 1, id=1, town="bath", name="ada")])
    lake.put(
        [json_message("people", 2, id=2, town="bath"), json_message("people", 3, id=1, town="york")]
    )
    lake.refine()
    lake.topics = declared(tmp_path, text)
    replay(spark, lake.lake, Selection())
    assert rows(lake.table("towns").drop("silver_batch")) == {("bath", "1"), ("york", "1")}
