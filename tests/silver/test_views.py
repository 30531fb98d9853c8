"""Tests the views of the topic file that have no key, against plain Python over the same rows."""

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest
import windows_model
from messages import message, order
from pyspark.sql import DataFrame, SparkSession
from shop_lake import ShopLake
from silver_lake import SilverLake
from topic import declared

from lake.settings.settings import SHOP_TOPICS
from pulsar_spark.errors import SettingsError
from silver.views import create_views

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
