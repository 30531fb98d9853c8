"""Tests sales, customers and clicks, built by real dbt, against plain Python."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gold_model
import pytest
from gold_changes import DAY, MIDNIGHT, TICK, Changes, ms
from personal import protection
from shop_lake import ShopLake

from gold.build import build_gold
from gold.catalog import register
from gold.tables import BUILT
from lake.settings.settings import SHOP_TOPICS
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.messages.publish import create_topics

CLICKS = Path(__file__).resolve().parents[2] / "examples" / "clicks" / "topics.toml"
Row = Mapping[str, Any]


def test_sales_and_customers_follow_changes(changes: Changes, shop_lake: ShopLake) -> None:
    assert changes.fates["unpaid"] not in assert_sales_and_customers_are_right(shop_lake)


@pytest.mark.nightly
def test_clicks_of_a_topic_file_of_its_own_are_counted(
    changes: Changes, shop_lake: ShopLake
) -> None:
    own = protection(shop_lake.settings.home_dir, CLICKS)
    settings = shop_lake.settings.model_copy(update=own)
    lake = ShopLake(shop_lake.spark, settings, load_topics(settings.topics))
    create_topics(Lake(settings, lake.topics))
    lake.send("clicks", [(key, click(key, kind, at)) for key, kind, at in CLICKED])
    lake.catch_up()
    register(lake.spark, Lake(settings, lake.topics))
    part = build_gold(Lake(settings), select="stg_clicks conversion")
    rules = [node for node in part.tests if node.kind == "unit_test"]
    assert [(node.name, node.status) for node in rules] == [("conversion", "pass")]

    sent = {key: (kind, at) for key, kind, at in CLICKED}
    columns = ("count_views", "count_carts", "count_purchases", "view_to_cart", "cart_to_purchase")
    rows = lake.rows("conversion", layer=BUILT)
    found = {row["day"]: tuple(row[name] for name in columns) for row in rows}
    assert found == gold_model.conversion(sent.values())
    assert [found[day.date()][4] for day in (MIDNIGHT, MIDNIGHT + DAY)] == [0, None]


def assert_sales_and_customers_are_right(lake: ShopLake) -> dict[int, Row]:
    """Check sales and customers, and return the customers by account."""
    lines, users = list(lake.enriched().values()), lake.current("users")
    assert {
        (r["day"], r["category"]): (r["count_lines"], r["count_invoices"], r["revenue"])
        for r in lake.mart("sales_by_day")
    } == gold_model.sales_by_day(lines)
    customers = {row["account_id"]: row for row in lake.mart("customers")}
    totals = ("count_users", "first_paid_at", "last_paid_at", "count_invoices", "revenue")
    right = gold_model.customers(lines, users)
    assert {key: tuple(row[name] for name in totals) for key, row in customers.items()} == right
    names = ("recency_score", "frequency_score", "monetary_score")
    scores = {key: tuple(row[name] for name in names) for key, row in customers.items()}
    assert scores == gold_model.scores(right, users)
    for key, row in customers.items():
        assert row["segment"] == gold_model.segment(*scores[key])
        assert row["is_repeat"] == (row["count_invoices"] > 1)
    assert {row["segment"] for row in customers.values()} == SEGMENTS
    columns = (
        *("count_first_purchases", "count_repeat_purchases"),
        *("first_revenue", "repeat_revenue", "refunds"),
    )
    assert {
        row["month"]: tuple(row[name] for name in columns) for row in lake.mart("repeat_purchases")
    } == gold_model.repeat_purchases(lines, users)
    return customers


SEGMENTS = {"champion", "loyal", "recent", "at risk", "lapsed", "closed"}


def click(key: str, kind: str, at: dt.datetime) -> bytes:
    message = {"eventId": key, "userId": -1, "itemId": 1, "kind": kind, "occurredAt": ms(at)}
    return json.dumps(message).encode()


CLICKED = [
    ("a", "view", MIDNIGHT),
    ("b", "view", MIDNIGHT + DAY - TICK),
    ("c", "view", MIDNIGHT),
    ("d", "view", MIDNIGHT),
    ("e", "cart", MIDNIGHT),
    ("d", "cart", MIDNIGHT),
    ("f", "purchase", MIDNIGHT + DAY),
    ("g", "scroll", MIDNIGHT - TICK),
]


def test_the_topic_file_with_clicks_includes_the_shops_topics() -> None:
    shop = load_topics(SHOP_TOPICS).topics
    clicks = load_topics(CLICKS).topics
    assert {name: topic for name, topic in clicks.items() if name != "clicks"} == shop
